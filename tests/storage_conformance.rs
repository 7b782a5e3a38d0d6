//! Every storage keeps the one contract, however it reads and however few files it may keep open.
#![expect(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::cell::RefCell;
use std::sync::Arc;

use taffrail::testkit::storage_suite;
use taffrail::{FileStorage, MemoryStorage, Reads};

fn check_files(make: impl Fn() -> FileStorage) {
    let homes = RefCell::new(Vec::new());
    storage_suite(&|| {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_path_buf();
        homes.borrow_mut().push(home);
        (Arc::new(make()), path)
    });
}

#[test]
fn mapped_files() {
    check_files(|| FileStorage::new().reads(Reads::Mapped));
}

#[test]
fn buffered_files() {
    check_files(|| FileStorage::new().reads(Reads::Buffered));
}

#[test]
fn mapped_files_of_which_two_are_open() {
    check_files(|| FileStorage::new().reads(Reads::Mapped).open_files(2));
}

#[test]
fn buffered_files_of_which_one_is_open() {
    check_files(|| FileStorage::new().reads(Reads::Buffered).open_files(1));
}

#[test]
fn memory() {
    storage_suite(&|| (Arc::new(MemoryStorage::new(7)), "/".into()));
}
