//! The raw loop of the synced rows: threads that append to files and share syncs, as a leader and its followers.
//!
//! A thread copies its record into a buffer and sums it, takes the file's lock for the one write and the new end,
//! then waits until the end it wrote is synced. Who finds nobody syncing leads: it takes the end as it is, calls
//! `fdatasync` without a lock, publishes how far that came, and wakes the others. With one thread this is the plain
//! loop of write and `fdatasync`.
//!
//! All writes go into zeros that were synced before, so that hardly a sync changes the file's length. With one
//! thread these are there from the start, outside of the time that counts. The loops of many threads keep a window
//! of zeros in front of them, as ours does: with less than half of it left, who is about to sync fills it up again,
//! and one sync serves for both. So they move the same bytes. (`--filled` gives those, too, files that are filled
//! from the start: less work than any log can do that does not know how long it will be.)

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
    end: Mutex<End>,
    /// How many zeros are kept in front; `None` where all are there from the start.
    window: Option<u64>,
    written: AtomicU64,
    synced: AtomicU64,
    syncing: Mutex<bool>,
    ended: Condvar,
}

/// Where the next write goes, and where the zeros end.
struct End {
    records: u64,
    zeros: u64,
}

impl SharedFile {
    /// A fresh file of synced zeros: `len` bytes of them, or a window.
    fn create(path: &Path, len: u64, window: Option<u64>) -> Self {
        let file = File::create_new(path).expect("the file is new");
        let zeros = window.unwrap_or(len);
        fill(&file, 0, zeros);
        file.sync_all().expect("the zeros are synced");
        Self {
            file,
            end: Mutex::new(End { records: 0, zeros }),
            window,
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncing: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Writes at the end and returns the new end.
    fn append(&self, block: &[u8]) -> u64 {
        let mut end = self.end.lock();
        self.file.write_all_at(block, end.records).expect("the file takes the block");
        end.records += block.len() as u64;
        self.written.store(end.records, Ordering::Release);
        end.records
    }

    /// Fills the window up again where it is half used.
    fn fill_window(&self, window: u64) {
        let mut end = self.end.lock();
        if end.zeros < end.records + window / 2 {
            let wanted = end.records + window;
            fill(&self.file, end.zeros, wanted);
            end.zeros = wanted;
        }
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
            if let Some(window) = self.window {
                self.fill_window(window);
            }
            let end = self.written.load(Ordering::Acquire);
            self.file.sync_data().expect("the file syncs");
            self.synced.store(end, Ordering::Release);
            syncing = self.syncing.lock();
            *syncing = false;
            self.ended.notify_all();
        }
    }
}

/// Writes zeros, in pieces of 64 KiB: behind larger ones a kernel with large folios syncs small writes slower.
fn fill(file: &File, from: u64, to: u64) {
    static PIECE: [u8; 64 << 10] = [0; 64 << 10];
    let mut position = from;
    while position < to {
        let count = PIECE.len().min(usize::try_from(to - position).unwrap_or(PIECE.len()));
        file.write_all_at(&PIECE[..count], position).expect("the file takes zeros");
        position += count as u64;
    }
}

/// Appends one record at a time, each synced before its thread goes on.
pub(crate) fn appends(directory: PathBuf, shape: SyncShape) -> Side {
    Box::new(move || {
        let len = (batch_bytes(shape.record_bytes, 1) * shape.operations) as u64;
        let paths: Vec<_> = (0..shape.files).map(|number| directory.join(format!("raw-{number}"))).collect();
        let files: Vec<_> = paths.iter().map(|path| SharedFile::create(path, len, shape.window)).collect();
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
