//! The raw loop of the synced rows: threads that append to files and share syncs, as a leader and its followers.
//!
//! A thread copies its record into a buffer and sums it, takes the file's lock for the one write and the new end,
//! then waits until the end it wrote is synced. Who finds nobody syncing leads: it takes the end as it is, calls
//! `fdatasync` without a lock, publishes how far that came, and wakes the others. All writes go into a window of
//! zeros that was filled and synced before, so that no sync changes the file's length. With one thread this is
//! the plain loop of write and `fdatasync`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::measure::Side;
use crate::raw::Block;
use crate::work::{Source, SyncShape, batch_bytes};

/// A file with a lock for writing and a shared sync.
struct SharedFile {
    file: File,
    end: Mutex<u64>,
    written: AtomicU64,
    synced: AtomicU64,
    syncing: Mutex<bool>,
    ended: Condvar,
}

impl SharedFile {
    /// A fresh file of `len` synced zeros.
    fn create(path: &Path, len: usize) -> Self {
        let file = File::create_new(path).expect("the file is new");
        fill(&file, len as u64);
        file.sync_all().expect("the zeros are synced");
        Self {
            file,
            end: Mutex::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncing: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Writes at the end and returns the new end.
    fn append(&self, block: &[u8]) -> u64 {
        let mut end = self.end.lock();
        self.file.write_all_at(block, *end).expect("the file takes the block");
        *end += block.len() as u64;
        self.written.store(*end, Ordering::Release);
        *end
    }

    /// Returns once everything below `mark` is synced.
    fn sync_to(&self, mark: u64) {
        let mut syncing = self.syncing.lock();
        while self.synced.load(Ordering::Acquire) < mark {
            if *syncing {
                self.ended.wait(&mut syncing);
                continue;
            }
            *syncing = true;
            drop(syncing);
            let end = self.written.load(Ordering::Acquire);
            self.file.sync_data().expect("the file syncs");
            self.synced.store(end, Ordering::Release);
            syncing = self.syncing.lock();
            *syncing = false;
            self.ended.notify_all();
        }
    }
}

/// Writes `len` zeros, in pieces of 64 KiB: behind larger ones a kernel with large folios syncs small writes slower.
fn fill(file: &File, len: u64) {
    static PIECE: [u8; 64 << 10] = [0; 64 << 10];
    for position in (0..len).step_by(PIECE.len()) {
        file.write_all_at(&PIECE, position).expect("the file takes zeros");
    }
}

/// Appends one record at a time, each synced before its thread goes on.
pub(crate) fn appends(directory: PathBuf, shape: SyncShape) -> Side {
    Box::new(move || {
        let len = batch_bytes(shape.record_bytes, 1) * shape.operations;
        let paths: Vec<_> = (0..shape.files).map(|number| directory.join(format!("raw-{number}"))).collect();
        let files: Vec<_> = paths.iter().map(|path| SharedFile::create(path, len)).collect();
        let time = together(shape.threads, |thread| {
            let file = &files[thread % files.len()];
            let mut source = Source::new(shape.record_bytes);
            let mut block = Block::new(shape.record_bytes, 1);
            move || {
                for _ in 0..shape.operations / shape.threads {
                    file.sync_to(file.append(block.fill(&mut source)));
                }
            }
        });
        for path in &paths {
            fs::remove_file(path).expect("the file is there");
        }
        time
    })
}

/// Runs a closure per thread, all from one moment on, and says how long it took until the last was done.
pub(crate) fn together<W: FnOnce() + Send>(threads: usize, prepare: impl Fn(usize) -> W) -> Duration {
    let ready = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (work, ready) = (prepare(thread), &ready);
            scope.spawn(move || {
                ready.wait();
                work();
            });
        }
        ready.wait();
        Instant::now()
    })
    .elapsed()
}
