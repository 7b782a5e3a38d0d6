//! What `FileStorage` promises beyond the contract of every storage: few descriptors, files that stay the
//! files they were, cuts that copy only what somebody holds.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::fs;
use std::io::{ErrorKind, IoSlice};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use taffrail::{FileStorage, Reads, Storage, StorageFile};

const CAPACITY: u64 = 1 << 20;

fn mapped() -> FileStorage {
    FileStorage::new().reads(Reads::Mapped)
}

fn create(storage: &FileStorage, path: &Path, content: &[u8]) -> Arc<dyn StorageFile> {
    let file = storage.create(path, CAPACITY).unwrap();
    file.write(0, &[IoSlice::new(content)]).unwrap();
    file
}

/// Descriptors of this process that lead to files below the directory.
#[cfg(target_os = "linux")]
fn open_below(directory: &Path) -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to.starts_with(directory))).count()
}

/// Maps of this process of files below the directory.
#[cfg(target_os = "linux")]
fn mapped_below(directory: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(directory.to_str().unwrap())).count()
}

#[test]
#[cfg(target_os = "linux")]
fn descriptors_and_maps_stay_within_the_bound() {
    let home = tempfile::tempdir().unwrap();
    let storage = mapped().open_files(5);
    let files: Vec<_> = (0..50_u8)
        .map(|index| {
            let file = create(&storage, &home.path().join(index.to_string()), &[index; 10]);
            file.sync().unwrap();
            file
        })
        .collect();
    assert_eq!(open_below(home.path()), 5);
    for (file, index) in files.iter().zip(0..50_u8) {
        assert_eq!(file.read(0..10).unwrap(), [index; 10].as_slice());
        assert!(open_below(home.path()) <= 5 && mapped_below(home.path()) <= 5);
    }
    drop(files);
    assert_eq!((open_below(home.path()), mapped_below(home.path())), (0, 0));
}

/// The least recently used file with unsynced bytes is synced, then closed; nothing is lost by that.
#[test]
#[cfg(target_os = "linux")]
fn unsynced_files_outlast_synced_ones() {
    let home = tempfile::tempdir().unwrap();
    let storage = mapped().open_files(2);
    let unsynced = create(&storage, &home.path().join("unsynced"), b"1");
    let is_open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        links.filter(|link| fs::read_link(link.path()).is_ok_and(|to| to == home.path().join("unsynced"))).count() == 1
    };
    let synced: Vec<_> = (0..5)
        .map(|index| {
            let file = create(&storage, &home.path().join(index.to_string()), b"2");
            file.sync().unwrap();
            assert!(is_open());
            file
        })
        .collect();
    drop(synced);
    let others = ["a", "b"].map(|name| create(&storage, &home.path().join(name), b"3"));
    assert!(!is_open(), "with none but unsynced files the least recently used one goes");
    assert_eq!(open_below(home.path()), 2);
    assert_eq!(unsynced.read(0..9).unwrap(), "1");
    assert_eq!(others.map(|file| file.read(0..9).unwrap()), ["3", "3"]);
}

#[test]
fn a_closed_file_is_opened_under_the_name_it_has_now() {
    let home = tempfile::tempdir().unwrap();
    let storage = mapped().open_files(1);
    let file = create(&storage, &home.path().join("old"), b"content");
    file.sync().unwrap();
    let other = create(&storage, &home.path().join("other"), b"x");
    file.rename(&home.path().join("new")).unwrap();
    fs::write(home.path().join("old"), b"another, longer").unwrap();
    other.sync().unwrap();
    assert_eq!(file.read(0..100).unwrap(), "content");
}

#[test]
fn a_closed_file_that_is_gone_or_another_is_not_taken_for_it() {
    let home = tempfile::tempdir().unwrap();
    let storage = mapped().open_files(1);
    let path = home.path().join("file");
    let file = create(&storage, &path, b"content");
    let held = file.read(0..7).unwrap();
    file.sync().unwrap();
    let keeper = fs::File::open(&path).unwrap(); // so that no new file gets its number
    create(&storage, &home.path().join("other"), b"x").sync().unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.read(0..7).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&path, b"content").unwrap();
    assert_eq!(file.read(0..7).unwrap_err().to_string(), "another file stands under this name");
    assert!(file.write(7, &[IoSlice::new(b"x")]).is_err());
    assert_eq!(held, "content");
    drop(keeper);
}

#[test]
fn a_closed_file_that_was_cut_is_not_read() {
    let home = tempfile::tempdir().unwrap();
    let storage = mapped().open_files(1);
    let path = home.path().join("file");
    let file = create(&storage, &path, b"content");
    file.sync().unwrap();
    create(&storage, &home.path().join("other"), b"x").sync().unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
    assert_eq!(file.read(0..7).unwrap_err().to_string(), "the file was cut by somebody else");
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// A roll cuts the window of zeros; a gigabyte is not copied for a reader that holds a part of the front.
#[test]
fn a_cut_behind_all_that_is_held_copies_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("0.log");
    let file = create(&mapped(), &path, &[1; 1000]);
    file.extend(500_000).unwrap();
    let held = [file.read(0..1000).unwrap(), file.read(0..500_000).unwrap()];
    let before = inode(&path);
    file.truncate(1000).unwrap();
    assert_eq!(inode(&path), before, "the window is never lent, so it is cut in place");
    assert!(held[0][..] == [1; 1000] && held[1][1000..].iter().all(|byte| *byte == 0));
    file.truncate(999).unwrap();
    assert_ne!(inode(&path), before, "what is held is not cut");
    assert_eq!(held[0][..], [1; 1000]);

    let before = inode(&path);
    drop((held, file.read(0..999).unwrap()));
    file.truncate(500).unwrap();
    assert_eq!(inode(&path), before, "what counts is what is held now");
    assert_eq!(file.read(0..1000).unwrap(), [1; 500].as_slice());
}

#[test]
fn a_copy_keeps_the_rights_and_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("0.log");
    let file = create(&mapped(), &path, b"0123456789");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(home.path().join("0.log.copy.deleted"), b"left by a crash, and longer").unwrap();
    let held = file.read(0..10).unwrap();
    file.truncate(4).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"0123");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    file.write(4, &[IoSlice::new(b"!")]).unwrap();
    assert_eq!((held, fs::read(&path).unwrap()), ("0123456789".into(), b"0123!".to_vec()));
}

/// Recovery writes again what stands there. It is lent, and stays the same file.
#[test]
fn writing_the_same_bytes_again_copies_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("0.log");
    let content: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let file = create(&mapped(), &path, &content);
    let held = file.read(0..200_000).unwrap();
    let before = inode(&path);
    file.write(1000, &[IoSlice::new(&content[1000..])]).unwrap();
    assert_eq!(inode(&path), before);
    file.write(150_000, &[IoSlice::new(b"different")]).unwrap();
    assert_ne!(inode(&path), before);
    assert_eq!(held, content);
    assert_eq!(file.read(150_000..150_009).unwrap(), "different");
}

#[test]
fn a_file_that_may_only_be_read_is_opened_for_that() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    fs::write(&path, b"content").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let file = FileStorage::new().open(&path, CAPACITY).unwrap();
    assert_eq!(file.read(0..7).unwrap(), "content");
}
