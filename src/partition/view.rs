//! What readers see: an immutable picture of the segments, and the marks beside it.
//!
//! ```text
//!              view (exchanged as a whole)             marks (atomics)
//!   ┌ segments, log start, leader epochs ┐   end ≥ high watermark ≥ last stable
//! ```
//!
//! Invariants:
//! - Whatever lies below a mark is in the view that is published with it: an append, a roll and recovery
//!   publish bytes and view first and raise the marks after; truncation lowers the marks first and publishes
//!   the view after.
//! - A reader loads the marks, the view, the marks again, and takes the smaller: so a mark that it uses never
//!   lies beyond the view that it holds, whichever way things moved in between.
//! - The end is the writer's; readers go by the high watermark or the last stable offset unless they ask for
//!   the log's end.

use std::sync::Arc;

use crate::segment::SegmentReader;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc as Pointer, Swap};
use crate::types::{LeaderEpoch, Offset};

/// The segments of a log as they were at one moment.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Ascending by base offset; never empty once a partition is open.
    pub(super) segments: Vec<Arc<SegmentReader>>,
    /// The first offset that may be read.
    pub(super) log_start: Offset,
    /// Where each leader epoch began, ascending.
    pub(super) epochs: Vec<(LeaderEpoch, Offset)>,
    /// Whether no offset was ever left out between two batches.
    pub(super) contiguous: bool,
}

impl View {
    /// Which segment holds `offset`: the last one that begins at or below it.
    pub(super) fn segment_of(&self, offset: Offset) -> usize {
        self.segments.partition_point(|segment| segment.base_offset() <= offset).saturating_sub(1)
    }

    /// Where the segment behind number `index` begins.
    pub(super) fn next_base(&self, index: usize) -> Option<Offset> {
        self.segments.get(index + 1).map(|segment| segment.base_offset())
    }

    /// The leader epoch that the offset before `offset` lies in, where it is known.
    pub(super) fn epoch_before(&self, offset: Offset) -> Option<LeaderEpoch> {
        let begun = self.epochs.partition_point(|(_, start)| *start < offset);
        begun.checked_sub(1).and_then(|at| self.epochs.get(at)).map(|(epoch, _)| *epoch)
    }

    /// Bytes of log in all segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size()).sum()
    }
}

/// Up to where a read may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpTo {
    /// What is stored as the partition's durability demands. Combined with [`Isolation::Committed`] the read
    /// stops at the last stable offset, before the first open transaction.
    ///
    /// [`Isolation::Committed`]: crate::Isolation::Committed
    #[default]
    HighWatermark,
    /// All that was appended. What is read here may be gone after a loss of power or a truncation.
    LogEnd,
}

/// The offsets that only move forward, but for truncation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) end: Offset,
    pub(super) high_watermark: Offset,
    pub(super) last_stable: Offset,
}

impl Marks {
    fn least(self, other: Self) -> Self {
        Self {
            end: self.end.min(other.end),
            high_watermark: self.high_watermark.min(other.high_watermark),
            last_stable: self.last_stable.min(other.last_stable),
        }
    }
}

impl Marks {
    /// Whether none of these lies below that of `other`.
    pub(super) fn reach(self, other: Self) -> bool {
        self.least(other) == other
    }
}

/// The view and the marks, in the order of loads and stores that keeps them consistent.
#[derive(Debug)]
pub(super) struct Picture<V = View> {
    view: Swap<V>,
    end: AtomicU64,
    high_watermark: AtomicU64,
    last_stable: AtomicU64,
}

impl<V> Picture<V> {
    pub(super) fn new(view: V, marks: Marks) -> Self {
        Self {
            view: Swap::new(Pointer::new(view)),
            end: AtomicU64::new(marks.end.0),
            high_watermark: AtomicU64::new(marks.high_watermark.0),
            last_stable: AtomicU64::new(marks.last_stable.0),
        }
    }

    /// A view, and marks that do not lie beyond it.
    pub(super) fn load(&self) -> (Pointer<V>, Marks) {
        let before = self.marks();
        let view = self.view.load();
        (view, before.least(self.marks()))
    }

    pub(super) fn view(&self) -> Pointer<V> {
        self.view.load()
    }

    pub(super) fn marks(&self) -> Marks {
        // The end is loaded last: it is never below a high watermark that was loaded before it.
        let last_stable = Offset(self.last_stable.load(Ordering::Acquire));
        let high_watermark = Offset(self.high_watermark.load(Ordering::Acquire));
        let end = Offset(self.end.load(Ordering::Acquire));
        Marks { end, high_watermark, last_stable }
    }

    pub(super) fn end(&self) -> Offset {
        Offset(self.end.load(Ordering::Acquire))
    }

    pub(super) fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    pub(super) fn last_stable(&self) -> Offset {
        Offset(self.last_stable.load(Ordering::Acquire))
    }

    /// The writer's alone: the log now ends here. The bytes and the view below are published already.
    pub(super) fn raise_end(&self, end: Offset) {
        self.end.store(end.0, Ordering::Release);
    }

    /// The writer's alone, where what is appended is stored and decided at once: all marks are here now.
    pub(super) fn raise_all(&self, end: Offset) {
        self.end.store(end.0, Ordering::Release);
        self.high_watermark.store(end.0, Ordering::Release);
        self.last_stable.store(end.0, Ordering::Release);
    }

    /// Never lowers.
    pub(super) fn raise_high_watermark(&self, to: Offset) {
        self.high_watermark.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Never lowers.
    pub(super) fn raise_last_stable(&self, to: Offset) {
        self.last_stable.fetch_max(to.0, Ordering::AcqRel);
    }

    /// Before a truncated view is published: no mark lies beyond `end` any more.
    pub(super) fn lower(&self, end: Offset) {
        self.last_stable.fetch_min(end.0, Ordering::AcqRel);
        self.high_watermark.fetch_min(end.0, Ordering::AcqRel);
        self.end.fetch_min(end.0, Ordering::AcqRel);
    }

    /// A truncation has opened a transaction again: no reader of committed records goes beyond `to`.
    pub(super) fn lower_last_stable(&self, to: Offset) {
        self.last_stable.fetch_min(to.0, Ordering::AcqRel);
    }

    /// Publishes the next view; returns the one before, so that it is dropped outside of any lock.
    pub(super) fn publish(&self, view: V) -> Pointer<V> {
        self.view.store(Pointer::new(view))
    }

    /// Everything anew, after a recovery of the same partition: the marks sink as far as they have to, the view
    /// changes, the marks rise.
    pub(super) fn replace(&self, view: V, marks: Marks) -> Pointer<V> {
        self.last_stable.fetch_min(marks.last_stable.0, Ordering::AcqRel);
        self.high_watermark.fetch_min(marks.high_watermark.0, Ordering::AcqRel);
        self.lower(marks.end);
        let before = self.publish(view);
        self.raise_end(marks.end);
        self.raise_high_watermark(marks.high_watermark);
        self.raise_last_stable(marks.last_stable);
        before
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::{Marks, Picture};
    use crate::sync::Arc;
    use crate::types::Offset;

    fn at(offset: u64) -> Marks {
        Marks { end: Offset(offset), high_watermark: Offset(offset), last_stable: Offset(offset) }
    }

    /// The view is the number of offsets it holds. A writer rolls to 2, truncates to 1, appends to 3: a reader
    /// never gets a mark beyond the view that it holds.
    #[test]
    fn loom_marks_never_lie_beyond_the_view() {
        loom::model(|| {
            let picture = Arc::new(Picture::new(1_u64, at(1)));
            let writer = Arc::clone(&picture);
            let thread = loom::thread::spawn(move || {
                writer.publish(2);
                writer.raise_end(Offset(2));
                writer.raise_high_watermark(Offset(2));
                writer.raise_last_stable(Offset(2));
                writer.lower(Offset(1));
                writer.publish(1);
            });
            let (view, marks) = picture.load();
            assert!(marks.end.0 <= *view);
            assert!(marks.high_watermark.0 <= *view);
            assert!(marks.last_stable.0 <= *view);
            thread.join().expect("the writer does not panic");
        });
    }
}
