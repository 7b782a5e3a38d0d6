//! Pictures of all that lies in a directory, to be compared byte by byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use taffrail::MemoryStorage;

/// Every file with its bytes, every directory with none.
pub(crate) type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// What lies in a directory of the operating system.
pub(crate) fn tree(directory: &Path) -> Tree {
    let mut tree = Tree::new();
    take(directory, &mut tree);
    tree
}

fn take(directory: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            take(&path, tree);
            tree.insert(path, None);
        } else {
            let bytes = fs::read(&path).expect("readable");
            tree.insert(path, Some(bytes));
        }
    }
}

/// Every file in memory.
pub(crate) fn files(storage: &MemoryStorage) -> Tree {
    let bytes = |path: &PathBuf| storage.bytes_of(path).map(|bytes| bytes.to_vec());
    storage.paths().into_iter().map(|path| (path.clone(), bytes(&path))).collect()
}

/// Copies a directory with all that is in it.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("it is there") {
        let path = entry.expect("readable").path();
        let target = to.join(path.file_name().expect("named"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}
