//! The contract of [`Storage`] and [`StorageFile`], sentence by sentence.
//!
//! One check per behaviour, each in a directory of its own. What can be seen without a crash is checked here;
//! what a crash leaves is checked where crashes can be made.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use bytes::Bytes;

use crate::storage::{LockMode, Storage, StorageFile};
use crate::types::Timestamp;

/// Enough for an implementation that maps files to map them.
const CAPACITY: u64 = 1 << 20;

type Check = fn(&dyn Storage, &Path);

/// Checks that a storage keeps the contract of [`Storage`] and [`StorageFile`].
///
/// `make` returns a storage and an empty directory in it, another one at each call.
///
/// # Panics
/// At the first sentence of the contract that is not kept, and says which.
pub fn storage_suite(make: &dyn Fn() -> (Arc<dyn Storage>, PathBuf)) {
    const CHECKS: &[Check] = &[
        create_and_open,
        directories,
        list_and_modified,
        remove_and_rename_by_name,
        remove_a_directory,
        second_names,
        locks,
        boot_and_fork,
        write_and_read_back,
        many_slices,
        write_over,
        extend,
        truncate,
        rename_through_the_handle,
        removed_while_open,
        what_was_read_never_changes,
        many_files_at_once,
        handles_follow_each_other,
        readers_beside_the_writer,
        writers_beside_each_other,
    ];
    for check in CHECKS {
        let (storage, directory) = make();
        check(storage.as_ref(), &directory);
    }
}

fn create(storage: &dyn Storage, path: &Path, content: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage.create(path, CAPACITY).expect("a file is created");
    write(&*file, 0, content);
    file
}

fn write(file: &dyn StorageFile, position: u64, content: &[u8]) {
    file.write(position, &[IoSlice::new(content)]).expect("a write succeeds");
}

fn read(file: &dyn StorageFile) -> Bytes {
    file.read(0..u64::MAX).expect("a read succeeds")
}

fn fails<T>(outcome: io::Result<T>, kind: ErrorKind, what: &str) {
    match outcome {
        Ok(_) => panic!("{what}: it succeeded, {kind:?} is due"),
        Err(error) => assert_eq!(error.kind(), kind, "{what}: {error}"),
    }
}

fn names(storage: &dyn Storage, directory: &Path) -> Vec<String> {
    storage.list(directory).expect("a directory is listed").into_iter().map(|entry| entry.name).collect()
}

fn create_and_open(storage: &dyn Storage, directory: &Path) {
    let path = directory.join("file");
    fails(storage.open(&path, CAPACITY), ErrorKind::NotFound, "opening what is not there");
    let created = storage.create(&path, CAPACITY).expect("a file is created");
    assert_eq!(created.len().expect("a length"), 0, "a created file is empty");
    assert!(created.is_empty().expect("a length"));
    write(&*created, 0, b"content");
    assert!(!created.is_empty().expect("a length"));
    fails(storage.create(&path, CAPACITY), ErrorKind::AlreadyExists, "creating what is there");
    assert_eq!(read(&*created), "content", "a creation that failed changes nothing");
    drop(created);
    let opened = storage.open(&path, 0).expect("a file is opened, whatever capacity is said");
    assert_eq!(read(&*opened), "content", "what was written is read back, synced or not");
    fails(storage.create(&directory.join("none/file"), 0), ErrorKind::NotFound, "creating in a missing directory");
}

fn directories(storage: &dyn Storage, directory: &Path) {
    let inner = directory.join("inner");
    storage.create_directory(&inner).expect("a directory is created");
    drop(create(storage, &inner.join("file"), b"1"));
    storage.create_directory(&inner).expect("a directory that is there is no error");
    assert_eq!(names(storage, &inner), ["file"], "and is left as it is");
    fails(storage.create_directory(&directory.join("a/b")), ErrorKind::NotFound, "a directory without its parent");
    assert!(storage.create_directory(&inner.join("file")).is_err(), "a file has that name");
    storage.sync_directory(&inner).expect("a directory is synced");
    fails(storage.sync_directory(&directory.join("none")), ErrorKind::NotFound, "syncing a missing directory");
}

fn list_and_modified(storage: &dyn Storage, directory: &Path) {
    assert_eq!(storage.list(directory).expect("listed"), [], "the suite begins in an empty directory");
    let file = create(storage, &directory.join("b"), b"12345");
    drop(create(storage, &directory.join("a.c"), b""));
    storage.create_directory(&directory.join("a")).expect("created");
    drop(create(storage, &directory.join("a/inner"), b"1"));
    let entries = storage.list(directory).expect("listed");
    let seen: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.len, e.is_directory)).collect();
    assert_eq!(seen, [("a", 0, true), ("a.c", 0, false), ("b", 5, false)], "sorted by name, not recursive");
    fails(storage.list(&directory.join("none")), ErrorKind::NotFound, "listing what is not there");

    let before = storage.modified(&directory.join("b")).expect("a time");
    write(&*file, 5, b"6");
    assert!(storage.modified(&directory.join("b")).expect("a time") >= before);
    fails(storage.modified(&directory.join("none")), ErrorKind::NotFound, "the time of what is not there");
    storage.set_modified(&directory.join("b"), Timestamp(1_234)).expect("the time is set");
    assert_eq!(storage.modified(&directory.join("b")).expect("a time"), Timestamp(1_234), "the time that was set");
    let none = storage.set_modified(&directory.join("none"), Timestamp(1_234));
    fails(none, ErrorKind::NotFound, "setting the time of what is not there");
}

fn remove_a_directory(storage: &dyn Storage, directory: &Path) {
    let (inner, file) = (directory.join("inner"), directory.join("inner/file"));
    storage.create_directory(&inner).expect("created");
    drop(storage.create(&file, 0).expect("created"));
    fails(storage.remove_directory(&inner), ErrorKind::DirectoryNotEmpty, "removing a directory that is not empty");
    storage.remove(&file).expect("removed");
    storage.remove_directory(&inner).expect("removed");
    fails(storage.remove_directory(&inner), ErrorKind::NotFound, "removing what is not there");
    storage.create_directory(&inner).expect("its name is free");
    assert!(storage.list(&inner).expect("listed").is_empty());
}

fn remove_and_rename_by_name(storage: &dyn Storage, directory: &Path) {
    let [from, to] = ["from", "to"].map(|name| directory.join(name));
    drop(create(storage, &from, b"new"));
    drop(create(storage, &to, b"old content"));
    storage.rename(&from, &to).expect("renamed");
    assert_eq!(names(storage, directory), ["to"], "a rename replaces what has the name");
    assert_eq!(read(&*storage.open(&to, 0).expect("opened")), "new");
    fails(storage.rename(&from, &to), ErrorKind::NotFound, "renaming what is not there");
    storage.remove(&to).expect("removed");
    assert_eq!(names(storage, directory), [""; 0]);
    fails(storage.remove(&to), ErrorKind::NotFound, "removing what is not there");
    drop(create(storage, &to, b"again"));
}

fn second_names(storage: &dyn Storage, directory: &Path) {
    let inner = directory.join("inner");
    storage.create_directory(&inner).expect("created");
    let (path, second) = (directory.join("file"), inner.join("second"));
    let file = create(storage, &path, b"0123456789");
    storage.link(&path, &second).expect("linked");
    fails(storage.link(&path, &second), ErrorKind::AlreadyExists, "linking to a name that is taken");
    fails(storage.link(&directory.join("none"), &inner.join("x")), ErrorKind::NotFound, "linking what is not there");
    let content = || read(&*storage.open(&second, CAPACITY).expect("opened"));
    assert_eq!(content(), "0123456789");
    file.truncate(4).expect("cut");
    write(&*file, 4, b"XYZ");
    assert_eq!(read(&*file), "0123XYZ");
    assert_eq!(content(), "0123456789", "a cut leaves the bytes to the other name");
    storage.remove(&path).expect("removed");
    assert_eq!(content(), "0123456789", "each name is removed by itself");

    let file = storage.open(&second, CAPACITY).expect("opened");
    let third = inner.join("third");
    storage.link(&second, &third).expect("linked");
    let lent = file.read(0..10).expect("read");
    file.unshare().expect("unshared");
    file.unshare().expect("a file of its own is left as it is");
    write(&*file, 10, b"more");
    assert_eq!(read(&*file), "0123456789more");
    assert_eq!(
        read(&*storage.open(&third, CAPACITY).expect("opened")),
        "0123456789",
        "the other name keeps what it has"
    );
    assert_eq!(&lent[..], b"0123456789", "what was read does not change");
}

fn locks(storage: &dyn Storage, directory: &Path) {
    let path = directory.join(".lock");
    let lock = |mode| storage.lock(&path, mode);
    let exclusive = lock(LockMode::Exclusive).expect("a free lock is taken, and its file made");
    let holder = read(&*storage.open(&path, 0).expect("the lock's file is opened"));
    assert_eq!(holder, std::process::id().to_string(), "the holder writes its process id");
    fails(lock(LockMode::Exclusive), ErrorKind::WouldBlock, "a second exclusive lock");
    fails(lock(LockMode::Shared), ErrorKind::WouldBlock, "a shared lock beside an exclusive one");
    drop(exclusive);
    let shared = [LockMode::Shared, LockMode::Shared].map(|mode| lock(mode).expect("shared locks are shared"));
    fails(lock(LockMode::Exclusive), ErrorKind::WouldBlock, "an exclusive lock beside shared ones");
    drop(shared);
    let removed = lock(LockMode::Exclusive).expect("a lock that was dropped is free");
    storage.remove(&path).expect("the file of a held lock is removed");
    let anew = lock(LockMode::Exclusive).expect("the next lock is on a new file");
    drop(removed);
    fails(lock(LockMode::Exclusive), ErrorKind::WouldBlock, "the old lock is given back, not the new one");
    drop(anew);
    let elsewhere = storage.lock(&directory.join("none/.lock"), LockMode::Exclusive);
    fails(elsewhere, ErrorKind::NotFound, "a lock in a missing directory");
}

fn boot_and_fork(storage: &dyn Storage, _directory: &Path) {
    assert_eq!(storage.boot(), storage.boot(), "the boot does not change while we run");
    assert!(!storage.is_forked(), "the process that made a storage is no fork");
}

fn write_and_read_back(storage: &dyn Storage, directory: &Path) {
    let file = create(storage, &directory.join("file"), b"");
    write(&*file, 0, b"0123");
    write(&*file, 4, b"456789");
    assert_eq!(file.len().expect("a length"), 10);
    let part = |range| file.read(range).expect("a read succeeds");
    assert_eq!(part(0..10), "0123456789");
    assert_eq!(part(3..5), "34");
    assert_eq!(part(8..u64::MAX), "89", "fewer where the file ends");
    assert_eq!(part(10..20), "", "none behind the end");
    assert_eq!(part(u64::MAX - 1..u64::MAX), "");
    assert_eq!(part(5..5), "");
    file.write(10, &[]).expect("nothing is written");
    fails(file.write(11, &[IoSlice::new(b"x")]), ErrorKind::InvalidInput, "a write that leaves a hole");
    assert_eq!(part(0..u64::MAX), "0123456789");
    file.sync().expect("synced");
    file.sync().expect("synced again");
    assert_eq!(part(0..u64::MAX), "0123456789");
}

fn many_slices(storage: &dyn Storage, directory: &Path) {
    let file = create(storage, &directory.join("file"), b">");
    let pieces: Vec<Vec<u8>> =
        [3, 0, 70_000, 1, 40_000, 40_000, 9].iter().zip(b'a'..).map(|(n, b)| vec![b; *n]).collect();
    let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    file.write(1, &slices).expect("all slices are written");
    assert!(read(&*file)[1..] == pieces.concat()[..], "the slices stand one behind the other");
}

fn write_over(storage: &dyn Storage, directory: &Path) {
    let path = directory.join("file");
    let file = create(storage, &path, b"0123456789");
    let held = read(&*file);
    write(&*file, 2, b"23");
    write(&*file, 4, b"XY");
    write(&*file, 9, b"Zz");
    assert_eq!(read(&*file), "0123XY678Zz");
    assert_eq!(held, "0123456789", "what was read does not change with what is written over it");
    drop((file, held));
    assert_eq!(read(&*storage.open(&path, CAPACITY).expect("opened")), "0123XY678Zz");
    assert_eq!(names(storage, directory), ["file"], "nothing is left beside it");
}

fn extend(storage: &dyn Storage, directory: &Path) {
    let file = create(storage, &directory.join("file"), b"ab");
    file.extend(200_000).expect("extended");
    assert_eq!(file.len().expect("a length"), 200_000);
    let window = read(&*file);
    assert!(window[..2] == b"ab"[..] && window[2..].iter().all(|byte| *byte == 0), "zeros stand behind the end");
    file.extend(10).expect("a longer file is left as it is");
    assert_eq!(file.len().expect("a length"), 200_000);
    write(&*file, 2, b"cd");
    write(&*file, 1000, b"ef");
    assert!(window[2..].iter().all(|byte| *byte == 0), "zeros that were read stay zeros");
    assert_eq!(file.read(0..6).expect("read"), "abcd\0\0".as_bytes());
    assert_eq!(file.read(999..1003).expect("read"), "\0ef\0".as_bytes());
    assert_eq!(file.len().expect("a length"), 200_000, "a write into the window does not make the file longer");
    file.sync().expect("synced");
    file.truncate(4).expect("the window is cut off");
    assert_eq!(read(&*file), "abcd");
    file.extend(8).expect("extended");
    assert_eq!(read(&*file), "abcd\0\0\0\0".as_bytes(), "what was cut off does not come back");
}

fn truncate(storage: &dyn Storage, directory: &Path) {
    let path = directory.join("file");
    let file = create(storage, &path, &vec![7; 100_000]);
    file.truncate(200_000).expect("a shorter file is left as it is");
    assert_eq!(file.len().expect("a length"), 100_000);
    let held = file.read(50_000..100_000).expect("read");
    file.truncate(10).expect("cut");
    assert_eq!((file.len().expect("a length"), read(&*file)), (10, Bytes::from_static(&[7; 10])));
    assert!(held.len() == 50_000 && held.iter().all(|byte| *byte == 7), "what was read is still there");
    fails(file.write(11, &[IoSlice::new(b"x")]), ErrorKind::InvalidInput, "a write behind the cut");
    write(&*file, 10, &vec![8; 90_000]);
    assert!(held.iter().all(|byte| *byte == 7), "and does not change with what is written there");
    let again = read(&*file);
    assert!(again[..10] == [7; 10] && again[10..].iter().all(|byte| *byte == 8) && again.len() == 90_010);
    file.truncate(0).expect("cut to nothing");
    assert!(file.is_empty().expect("a length") && read(&*file).is_empty());
    file.sync().expect("synced");
    drop((file, held, again));
    assert_eq!(storage.open(&path, CAPACITY).expect("opened").len().expect("a length"), 0);
    assert_eq!(names(storage, directory), ["file"], "nothing is left beside it");
}

fn rename_through_the_handle(storage: &dyn Storage, directory: &Path) {
    let [first, second, third] = ["1", "2", "3"].map(|name| directory.join(name));
    let file = create(storage, &first, b"content");
    let held = read(&*file);
    file.rename(&second).expect("renamed");
    assert_eq!(names(storage, directory), ["2"]);
    write(&*file, 7, b"!");
    drop(create(storage, &third, b"in the way"));
    file.rename(&third).expect("renamed over what has the name");
    assert_eq!(names(storage, directory), ["3"]);
    assert_eq!((held, read(&*file)), (Bytes::from("content"), Bytes::from("content!")));
    file.truncate(1).expect("cut under its new name");
    file.sync().expect("synced");
    assert_eq!(names(storage, directory), ["3"]);
    assert_eq!(read(&*storage.open(&third, 0).expect("opened")), "c");

    storage.create_directory(&directory.join("inner")).expect("created");
    fails(file.rename(&directory.join("inner/3")), ErrorKind::InvalidInput, "renaming into another directory");
    assert_eq!(names(storage, directory), ["3", "inner"]);

    storage.remove(&third).expect("removed");
    fails(file.rename(&first), ErrorKind::NotFound, "renaming a file that is gone");
    drop(create(storage, &third, b"another"));
    assert!(file.rename(&first).is_err(), "another file under its name is not renamed");
    assert_eq!(names(storage, directory), ["3", "inner"]);
}

fn removed_while_open(storage: &dyn Storage, directory: &Path) {
    let path = directory.join("file");
    let file = create(storage, &path, b"content");
    let held = read(&*file);
    storage.remove(&path).expect("removed");
    assert_eq!(names(storage, directory), [""; 0]);
    match file.read(0..7) {
        Ok(bytes) => assert_eq!(bytes, "content"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    let other = create(storage, &path, b"another file");
    drop(file);
    assert_eq!(held, "content", "what was read outlives the file");
    assert_eq!(read(&*other), "another file");
}

fn what_was_read_never_changes(storage: &dyn Storage, directory: &Path) {
    let file = create(storage, &directory.join("file"), b"");
    let mut held: Vec<(Bytes, Vec<u8>)> = Vec::new();
    for round in 0..40_u8 {
        let len = file.len().expect("a length");
        match round % 5 {
            0 | 1 => write(&*file, len, &vec![round; 5000]),
            2 => file.extend(len + 3000).expect("extended"),
            3 => file.truncate(len - 2000).expect("cut"),
            _ => write(&*file, len / 2, &vec![round; 1000]),
        }
        let bytes = read(&*file);
        held.push((bytes.clone(), bytes.to_vec()));
        held.push((bytes.slice(bytes.len() / 3..), bytes[bytes.len() / 3..].to_vec()));
        if round % 7 == 0 {
            file.sync().expect("synced");
            held.remove(0);
        }
        assert!(held.iter().all(|(lent, copy)| lent == copy), "what was read has changed in round {round}");
    }
}

fn many_files_at_once(storage: &dyn Storage, directory: &Path) {
    let path = |index: u8| directory.join(format!("{index:02}"));
    let files: Vec<_> = (0..20).map(|index| create(storage, &path(index), &[index; 100])).collect();
    let held: Vec<_> = files.iter().map(|file| read(&**file)).collect();
    for (file, index) in files.iter().zip(0_u8..) {
        write(&**file, 100, &vec![index; 70_000]);
        if index % 2 == 0 {
            file.sync().expect("synced");
        }
        if index % 3 == 0 {
            file.rename(&directory.join(format!("{index:02}.renamed"))).expect("renamed");
        }
    }
    for (file, index) in files.iter().zip(0..20_u8).rev() {
        let bytes = read(&**file);
        assert!(bytes.len() == 70_100 && bytes.iter().all(|byte| *byte == index), "file {index}");
        file.truncate(50).expect("cut");
        assert_eq!(read(&**file), vec![index; 50]);
    }
    for (bytes, index) in held.iter().zip(0_u8..) {
        assert_eq!(bytes, &[index; 100][..]);
    }
}

fn handles_follow_each_other(storage: &dyn Storage, directory: &Path) {
    let path = directory.join("file");
    let file = create(storage, &path, b"first");
    file.extend(1000).expect("extended");
    let held = read(&*file);
    drop(file);
    let file = storage.open(&path, CAPACITY).expect("opened");
    assert_eq!(file.len().expect("a length"), 1000, "zeros behind the end are part of the file");
    file.truncate(5).expect("cut");
    file.sync().expect("what an earlier handle wrote is synced too");
    write(&*file, 5, b" second");
    assert_eq!(read(&*file), "first second");
    assert_eq!(held.len(), 1000);
}

/// One record of the concurrent check: it says eight times where it stands and in which round it was written.
const RECORD_BYTES: u64 = 64;

fn record(position: u64, round: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    let word = (round << 40 | position | 1).to_be_bytes();
    bytes.as_chunks_mut::<8>().0.fill(word);
    bytes
}

fn check_records(bytes: &[u8]) {
    for (index, record) in bytes.chunks(64).enumerate() {
        assert!(record.chunks(8).all(|word| word == &record[..8]), "record {index} is torn");
        let word = u64::from_be_bytes(record[..8].try_into().expect("eight bytes"));
        assert_eq!(word & 0xff_ffff_fffe, index as u64 * RECORD_BYTES, "a record stands elsewhere");
    }
}

/// What the writer tells the readers.
#[derive(Default)]
struct Told {
    end: AtomicU64,
    cuts: AtomicU64,
    done: AtomicBool,
}

fn readers_beside_the_writer(storage: &dyn Storage, directory: &Path) {
    let path = directory.join("0.log");
    let file = create(storage, &path, b"");
    let told = Told::default();
    let reads = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (file, told, reads) = (&*file, &told, &reads);
            scope.spawn(move || reader(file, told, reads, seed));
        }
        let writer = scope.spawn(|| writer(&*file, directory, &told));
        let outcome = writer.join();
        told.done.store(true, Ordering::Release);
        outcome.expect("the writer does not panic");
    });
    assert!(reads.load(Ordering::Relaxed) > 0, "nobody read while the writer wrote");
}

fn writer(file: &dyn StorageFile, directory: &Path, told: &Told) {
    let mut end = 0;
    for round in 0..40_u64 {
        for _ in 0..4 {
            let records: Vec<u8> = (0..512).flat_map(|i| record(end + i * RECORD_BYTES, round)).collect();
            write(file, end, &records);
            end += records.len() as u64;
            told.end.store(end, Ordering::Release);
        }
        if round % 3 == 0 {
            file.extend(end + 30_000).expect("extended");
        }
        if round % 5 == 1 {
            file.sync().expect("synced");
            file.rename(&directory.join(format!("{round}.log"))).expect("renamed");
        }
        if round % 4 == 3 {
            end = end / 2 / RECORD_BYTES * RECORD_BYTES;
            told.cuts.fetch_add(1, Ordering::SeqCst);
            told.end.store(end, Ordering::SeqCst);
            file.truncate(end).expect("cut");
        }
    }
}

fn reader(file: &dyn StorageFile, told: &Told, reads: &AtomicU64, seed: u64) {
    let mut held: VecDeque<(Bytes, Vec<u8>)> = VecDeque::new();
    let mut count = 0_u64;
    while !told.done.load(Ordering::Acquire) || count == 0 {
        count += 1;
        let cuts = told.cuts.load(Ordering::SeqCst);
        let end = told.end.load(Ordering::SeqCst);
        // Now all that was told, now what is being written behind it.
        let asked = if (count + seed).is_multiple_of(3) { 0..u64::MAX } else { end..u64::MAX };
        let bytes = file.read(asked.clone()).expect("a read succeeds");
        if asked.start == 0 && told.cuts.load(Ordering::SeqCst) == cuts {
            assert!(bytes.len() as u64 >= end, "bytes that were written are not there");
            check_records(&bytes[..usize::try_from(end).expect("a small file")]);
        }
        let copy = bytes.to_vec();
        held.push_back((bytes, copy));
        if held.len() > 4 {
            let (lent, copy) = held.pop_front().expect("there are more than four");
            assert!(lent == copy, "what was read has changed");
        }
    }
    assert!(held.iter().all(|(lent, copy)| lent == copy), "what was read has changed");
    reads.fetch_add(count, Ordering::Relaxed);
}

/// Each of three threads writes two files of its own and reads those of the others, so that an implementation
/// that closes files closes them under each other's hands.
fn writers_beside_each_other(storage: &dyn Storage, directory: &Path) {
    const PIECE: usize = 5_000;
    let files: Vec<_> = (0..6).map(|index| create(storage, &directory.join(format!("{index}.0")), b"")).collect();
    let ends: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for own in 0..3 {
            let (files, ends) = (&files, &ends);
            scope.spawn(move || {
                for round in 0..60 {
                    let index = own + 3 * (round % 2);
                    let (file, byte) = (&*files[index], u8::try_from(index).expect("a few files"));
                    let end = ends[index].load(Ordering::Relaxed);
                    write(file, end, &[byte; PIECE]);
                    ends[index].store(end + PIECE as u64, Ordering::Release);
                    if round % 5 == 0 {
                        file.sync().expect("synced");
                    }
                    if round % 7 == 0 {
                        file.rename(&directory.join(format!("{index}.{round}"))).expect("renamed");
                    }
                    let other = (own + round) % files.len();
                    let end = ends[other].load(Ordering::Acquire);
                    let bytes = files[other].read(end / 2..end).expect("a read succeeds");
                    assert_eq!(bytes.len() as u64, end - end / 2);
                    assert!(bytes.iter().all(|byte| usize::from(*byte) == other), "the bytes of another file");
                }
            });
        }
    });
    for (file, end) in files.iter().zip(&ends) {
        assert_eq!(file.len().expect("a length"), end.load(Ordering::Relaxed));
    }
}
