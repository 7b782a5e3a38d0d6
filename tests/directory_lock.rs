//! A directory belongs to one process: another one is refused, and a fork knows that it is none of them.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use taffrail::{
    BatchBuilder, Error, FileStorage, LockMode, Offset, Partition, PartitionConfig, ReadOptions, Record, Storage,
};

/// Where the child looks for the lock that it must not get; set in children only.
const CHILD: &str = "TAFFRAIL_TEST_LOCK";

/// What a child found out, as its exit code.
const REFUSED: i32 = 10;
const TAKEN: i32 = 11;

fn try_lock(path: &Path, mode: LockMode) -> i32 {
    match FileStorage::new().lock(path, mode) {
        Ok(_) => TAKEN,
        Err(error) if error.kind() == ErrorKind::WouldBlock => REFUSED,
        Err(error) => panic!("{error}"),
    }
}

/// Not a test of its own: what the other process runs.
#[test]
fn child() {
    if let Some(path) = std::env::var_os(CHILD) {
        std::process::exit(try_lock(&PathBuf::from(path), LockMode::Exclusive));
    }
}

fn in_another_process(path: &Path) -> i32 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child"]).env(CHILD, path).stdout(Stdio::null());
    command.status().unwrap().code().expect("the child exits")
}

/// Runs `in_child` in a fork and returns what it returned.
#[expect(unsafe_code, reason = "there is no fork without")]
fn in_fork(in_child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls what needs no other thread, and leaves by `_exit`, which runs no destructor.
    // The parent waits for the child that it has just made.
    unsafe {
        match libc::fork() {
            0 => libc::_exit(in_child()),
            child => {
                assert!(child > 0, "no child was made");
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                assert!(libc::WIFEXITED(status), "the child did not exit by itself");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

#[test]
fn another_process_is_refused_until_the_lock_is_dropped() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".lock");
    std::fs::write(&path, "4294967295, and more that an earlier holder left").unwrap();
    let storage = FileStorage::new();
    let lock = storage.lock(&path, LockMode::Exclusive).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), std::process::id().to_string());
    assert_eq!(in_another_process(&path), REFUSED);
    drop(lock);
    let shared = storage.lock(&path, LockMode::Shared).unwrap();
    assert_eq!(in_another_process(&path), REFUSED);
    drop(shared);
    assert_eq!(in_another_process(&path), TAKEN);
    assert_eq!(try_lock(&path, LockMode::Exclusive), TAKEN, "a process that ended holds nothing");
}

#[test]
fn a_second_handle_in_one_process_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".lock");
    let lock = FileStorage::new().lock(&path, LockMode::Exclusive).unwrap();
    assert_eq!(try_lock(&path, LockMode::Exclusive), REFUSED);
    assert_eq!(try_lock(&path, LockMode::Shared), REFUSED);
    drop(lock);
    assert_eq!(try_lock(&path, LockMode::Exclusive), TAKEN);
}

/// One thread takes a lock, removes its file and drops it, over and over. Another, which opened that file
/// before it was removed, must not end up with the lock on a file that no longer has the name.
#[test]
fn a_lock_is_on_the_file_that_has_the_name() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".lock");
    let take = || FileStorage::new().lock(&path, LockMode::Exclusive);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let Ok(lock) = take() else { continue };
                    assert!(take().is_err(), "two hold the lock");
                    std::fs::remove_file(&path).unwrap();
                    drop(lock);
                }
            });
        }
    });
}

#[test]
fn a_fork_knows_that_it_is_one_and_gives_nothing_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".lock");
    let storage = FileStorage::new();
    let lock = storage.lock(&path, LockMode::Exclusive).unwrap();
    assert_eq!(in_fork(|| i32::from(storage.is_forked())), 1);
    assert!(!storage.is_forked());
    assert_eq!(in_fork(|| i32::from(FileStorage::new().is_forked())), 0, "a storage made by the fork is its own");

    let mut lock = Some(lock);
    let in_child = in_fork(|| {
        drop(lock.take());
        try_lock(&path, LockMode::Exclusive)
    });
    assert_eq!(in_child, REFUSED, "a fork that drops the lock does not take it from its parent");
    assert_eq!(in_another_process(&path), REFUSED);
    drop(lock);
    assert_eq!(in_another_process(&path), TAKEN);
}

#[test]
fn a_fork_that_lives_on_does_not_keep_the_lock() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(".lock");
    let lock = FileStorage::new().lock(&path, LockMode::Exclusive).unwrap();
    // The grandchild of this process waits, with all descriptors, until the pipe is closed.
    let (reader, writer) = std::io::pipe().unwrap();
    let code = in_fork(|| {
        #[expect(unsafe_code, reason = "there is no fork without")]
        // SAFETY: as above; the child that returns from here leaves by `_exit`.
        let grandchild = unsafe { libc::fork() } == 0;
        if grandchild {
            drop(writer.try_clone());
            wait_for_the_end(&reader, &writer);
        }
        0
    });
    assert_eq!(code, 0);
    drop(lock);
    assert_eq!(in_another_process(&path), TAKEN, "the lock was given back, whoever has its descriptor");
    drop(writer);
}

/// Blocks in a fork until the parent closes its end of the pipe.
#[expect(unsafe_code, reason = "the fork's own copy of the writing end is closed by number")]
fn wait_for_the_end(mut reader: &std::io::PipeReader, writer: &std::io::PipeWriter) {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    // SAFETY: this fork leaves by `_exit` and never uses or drops the writer again.
    unsafe { libc::close(writer.as_raw_fd()) };
    let _ = reader.read(&mut [0]);
}

fn batch() -> BatchBuilder {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("v").key("k")).unwrap();
    batch
}

/// A partition's handle in a fork answers an error, changes nothing, and gives nothing back.
#[test]
fn a_fork_cannot_use_a_partition() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("wal-0");
    let partition = Partition::open(&path, PartitionConfig::default()).unwrap();
    partition.append(&mut batch()).unwrap().wait().unwrap();
    let refused = in_fork(|| {
        let mut batch = batch();
        let forked = |refused: Result<(), Error>| i32::from(matches!(refused, Err(Error::Forked)));
        forked(partition.append(&mut batch).map(drop))
            + forked(partition.read(Offset(0), ReadOptions::new()).map(drop))
            + forked(partition.sync())
            + forked(partition.clone().close())
    });
    assert_eq!(refused, 4);
    partition.append(&mut batch()).unwrap().wait().unwrap();
    assert_eq!(partition.end(), Offset(2));
    partition.close().unwrap();
    assert!(Partition::open(&path, PartitionConfig::default()).unwrap().recovery().clean);
}

#[test]
fn a_partition_in_use_names_the_process() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("wal-0");
    let partition = Partition::open(&path, PartitionConfig::default()).unwrap();
    let error = Partition::open(&path, PartitionConfig::default()).unwrap_err();
    assert!(matches!(error, Error::Locked { owner: Some(owner), .. } if owner == std::process::id()), "{error}");
    assert_eq!(in_another_process(&path.join(".lock")), REFUSED);
    drop(partition);
    assert_eq!(in_another_process(&path.join(".lock")), TAKEN);
}
