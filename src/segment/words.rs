//! An append-only list that one writer fills while readers look: no lock, no copy when it grows.
//!
//! Entries are one or two 64-bit words, each an atomic, in chunks of doubling size that never move:
//!
//! ```text
//!  chunk 0   64 entries     0 ..   63
//!  chunk 1  128 entries    64 ..  191
//!  chunk 2  256 entries   192 ..  447     ... allocated when its first entry comes
//! ```
//!
//! Invariant: the words of an entry are stored before the count that covers it is published (`Release`),
//! and a reader loads the count (`Acquire`) before it looks at an entry below it. An entry never changes
//! once it is counted.

use std::sync::OnceLock;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const FIRST_CHUNK: usize = if cfg!(loom) { 2 } else { 64 };
/// Enough for 2^31 entries, more than a segment has bytes for.
const CHUNKS: usize = 26;

/// The list. `WORDS` is how many words make an entry.
#[derive(Debug)]
pub(super) struct Words<const WORDS: usize> {
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
    len: AtomicUsize,
}

impl<const WORDS: usize> Words<WORDS> {
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS], len: AtomicUsize::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Adds an entry. One writer at a time; entries beyond what the list can hold are dropped.
    pub(super) fn push(&self, entry: [u64; WORDS]) {
        let index = self.len.load(Ordering::Relaxed);
        let (chunk, at) = place(index);
        let Some(slot) = self.chunks.get(chunk) else { return };
        let words = slot.get_or_init(|| (0..(FIRST_CHUNK << chunk) * WORDS).map(|_| AtomicU64::new(0)).collect());
        for (word, value) in words[at * WORDS..].iter().zip(entry) {
            word.store(value, Ordering::Relaxed);
        }
        self.len.store(index + 1, Ordering::Release);
    }

    /// The entry at `index`, where it has been published.
    pub(super) fn get(&self, index: usize) -> Option<[u64; WORDS]> {
        if index >= self.len() {
            return None;
        }
        let (chunk, at) = place(index);
        let words = self.chunks.get(chunk)?.get()?;
        Some(std::array::from_fn(|word| words[at * WORDS + word].load(Ordering::Relaxed)))
    }
}

/// The chunk of an entry, and its place in it.
fn place(index: usize) -> (usize, usize) {
    let number = index + FIRST_CHUNK;
    let chunk = (number.ilog2() - FIRST_CHUNK.ilog2()) as usize;
    (chunk, number - (FIRST_CHUNK << chunk))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Words;

    #[test]
    fn entries_stay_where_they_were_put() {
        let words = Words::<2>::new();
        for (index, value) in (0..1_000_u64).enumerate() {
            assert_eq!(words.get(index), None);
            words.push([value, value * 3]);
        }
        assert_eq!(words.len(), 1_000);
        assert!((0..1_000_u64).enumerate().all(|(index, value)| words.get(index) == Some([value, value * 3])));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::super::sync::Arc;
    use super::Words;

    /// What is counted is complete, over the edge of a chunk too.
    #[test]
    fn loom_a_counted_entry_is_whole() {
        loom::model(|| {
            let words = Arc::new(Words::<2>::new());
            let writer = Arc::clone(&words);
            let thread = loom::thread::spawn(move || (1..=3).for_each(|i| writer.push([i, i + 10])));
            for index in (0..words.len()).rev() {
                let number = index as u64 + 1;
                assert_eq!(words.get(index), Some([number, number + 10]));
            }
            thread.join().expect("the writer does not panic");
        });
    }
}
