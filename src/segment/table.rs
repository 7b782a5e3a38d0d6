//! What the indexes have in common: sorted entries of fixed size, the older ones in a file, the younger in memory.
//!
//! ```text
//!  entries   0 ........ on_disk ........ written ........ len
//!            file only  |  file and memory  |  memory only
//! ```
//!
//! One writer adds entries and writes them out in blocks of 4 KiB without a sync; readers search without a lock.
//! A table that is written out can be replaced by one that has everything on disk ([`Table::forgotten`]).

use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{Files, Kind};
use super::words::Words;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// An entry of an index.
pub(super) trait Entry: Copy + PartialEq + std::fmt::Debug {
    /// Its size in the file.
    const BYTES: usize;
    /// Adds its bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads it; `bytes` are [`Entry::BYTES`] bytes.
    fn parse(bytes: &[u8]) -> Self;
    fn to_words(self) -> [u64; 2];
    fn from_words(words: [u64; 2]) -> Self;
}

/// How many bytes of entries are written out at once.
const BLOCK_BYTES: usize = 4096;

/// The entries of one index. `WORDS` is how many words of [`Entry::to_words`] count.
#[derive(Debug)]
pub(super) struct Table<E, const WORDS: usize> {
    file: Option<(Arc<Files>, Kind)>,
    on_disk: usize,
    memory: Words<WORDS>,
    written: AtomicUsize,
    entry: PhantomData<E>,
}

impl<E: Entry, const WORDS: usize> Table<E, WORDS> {
    /// No entries. Without a file the table lives in memory alone.
    pub(super) fn new(file: Option<(Arc<Files>, Kind)>) -> Self {
        Self { file, on_disk: 0, memory: Words::new(), written: AtomicUsize::new(0), entry: PhantomData }
    }

    /// The first `count` entries of the file.
    pub(super) fn of_file(files: &Arc<Files>, kind: Kind, count: usize) -> Self {
        Self { on_disk: count, written: AtomicUsize::new(count), ..Self::new(Some((Arc::clone(files), kind))) }
    }

    pub(super) fn len(&self) -> usize {
        self.on_disk + self.memory.len()
    }

    /// The entry at `index`; `None` where there is none, or where the file does not give it.
    pub(super) fn get(&self, index: usize) -> Option<E> {
        match index.checked_sub(self.on_disk) {
            Some(at) => self.memory.get(at).map(|words| Self::from_memory(words)),
            None => self.read(index, 1).ok()?.first().copied(),
        }
    }

    pub(super) fn last(&self) -> Option<E> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Adds an entry; one writer at a time.
    pub(super) fn push(&self, entry: E) {
        let words = entry.to_words();
        self.memory.push(std::array::from_fn(|i| words[i]));
    }

    /// The greatest entry for which `below` holds, where it holds for a front part of the entries.
    pub(super) fn last_where(&self, below: impl Fn(&E) -> bool) -> io::Result<Option<E>> {
        let in_memory = self.memory.len();
        let mut low = 0;
        let mut high = in_memory;
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.memory.get(middle) {
                Some(words) if below(&Self::from_memory(words)) => low = middle + 1,
                _ => high = middle,
            }
        }
        match low.checked_sub(1) {
            Some(at) => Ok(self.memory.get(at).map(Self::from_memory)),
            None => self.last_on_disk(below),
        }
    }

    fn last_on_disk(&self, below: impl Fn(&E) -> bool) -> io::Result<Option<E>> {
        let block = BLOCK_BYTES / E::BYTES;
        let (mut low, mut high) = (0, self.on_disk);
        while high - low > block {
            let middle = usize::midpoint(low, high);
            let found = self.read(middle, 1)?;
            if found.first().is_some_and(&below) { low = middle } else { high = middle }
        }
        let entries = self.read(low, high - low)?;
        let count = entries.partition_point(below);
        Ok(count.checked_sub(1).and_then(|at| entries.get(at).copied()))
    }

    /// Every entry; fewer where the file has fewer than it should.
    pub(super) fn entries(&self) -> Vec<E> {
        let mut entries = self.read(0, self.on_disk).unwrap_or_default();
        entries.extend((0..self.memory.len()).filter_map(|i| self.memory.get(i)).map(Self::from_memory));
        entries
    }

    /// Entries of the part that is on disk only.
    fn read(&self, first: usize, count: usize) -> io::Result<Vec<E>> {
        let Some((files, kind)) = self.file.as_ref().filter(|_| count > 0) else { return Ok(Vec::new()) };
        let Some(file) = files.index(*kind)? else { return Err(io::ErrorKind::NotFound.into()) };
        let bytes = file.read((first * E::BYTES) as u64..((first + count) * E::BYTES) as u64)?;
        if bytes.len() < count * E::BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes.chunks_exact(E::BYTES).map(E::parse).collect())
    }

    fn from_memory(words: [u64; WORDS]) -> E {
        let mut both = [0; 2];
        both[..WORDS].copy_from_slice(&words);
        E::from_words(both)
    }

    /// Writes out what fills whole blocks.
    pub(super) fn write_blocks(&self) -> io::Result<()> {
        let block = BLOCK_BYTES / E::BYTES;
        let waiting = self.len() - self.written.load(Ordering::Relaxed);
        if waiting < block { Ok(()) } else { self.write_out(waiting - waiting % block) }
    }

    /// Writes everything out and makes the file as long as its entries.
    pub(super) fn write_all(&self) -> io::Result<()> {
        let Some((files, kind)) = &self.file else { return Ok(()) };
        self.write_out(self.len() - self.written.load(Ordering::Relaxed))?;
        files.index_for_writing(*kind)?.truncate((self.len() * E::BYTES) as u64)
    }

    fn write_out(&self, count: usize) -> io::Result<()> {
        let Some((files, kind)) = &self.file else { return Ok(()) };
        let from = self.written.load(Ordering::Relaxed);
        let file = files.index_for_writing(*kind)?;
        if count > 0 {
            let mut bytes = Vec::with_capacity(count * E::BYTES);
            let first = from.saturating_sub(self.on_disk);
            (first..first + count)
                .filter_map(|i| self.memory.get(i))
                .for_each(|w| Self::from_memory(w).write(&mut bytes));
            file.write((from * E::BYTES) as u64, &[IoSlice::new(&bytes)])?;
        }
        self.written.store(from + count, Ordering::Relaxed);
        Ok(())
    }

    /// Where its file is; `None` where it lives in memory alone.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(|(files, kind)| files.path(*kind))
    }

    /// The same entries, all of them in the file; they must have been written out.
    pub(super) fn forgotten(&self) -> Option<Self> {
        let (files, kind) = self.file.as_ref()?;
        (self.written.load(Ordering::Relaxed) == self.len()).then(|| Self::of_file(files, *kind, self.len()))
    }

    /// The first `count` entries. What the file holds beyond them is cut where that works, and overwritten later.
    pub(super) fn truncated(&self, count: usize) -> Self {
        let count = count.min(self.len());
        let on_disk = self.on_disk.min(count);
        let written = self.written.load(Ordering::Relaxed).min(count);
        let next = Self { on_disk, written: AtomicUsize::new(written), ..Self::new(self.file.clone()) };
        (0..count - on_disk).filter_map(|i| self.memory.get(i)).for_each(|words| next.memory.push(words));
        if let Some((files, kind)) = &self.file
            && let Ok(Some(file)) = files.index(*kind)
        {
            let _ = file.truncate((written * E::BYTES) as u64);
        }
        next
    }
}
