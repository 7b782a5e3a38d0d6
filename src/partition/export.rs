//! A copy of an open partition that stands by itself.
//!
//! Sealed segments get a second name (hard link), the active one is copied up to the end at the time of the call, so
//! that the zeros behind it stay out. The copy opens as a partition, cleanly closed, and its directory can be handed
//! to Kafka's tools as it is.
//!
//! ```text
//!   marker "unfinished" ──▶ what is copied is settled ──▶ links and copies ──▶ settled still? ──▶ small files
//!   ──▶ marker "clean" ──▶ marker "unfinished" goes          each durable before the next
//! ```
//!
//! Whatever interrupts it leaves a directory that no open takes. A truncation beside it may change what a segment's name
//! leads to, and the bytes of the active segment: each link is made under the writer's lock, while nothing was truncated
//! since the view was taken, so it names a sealed file of that view (who changes that later makes it his own first); and
//! what was copied counts only if nothing was truncated until it was.

use std::path::Path;
use std::sync::Arc;

use super::books::Mark;
use super::home::{History, Home};
use super::trim::Hold;
use super::view::View;
use super::{Inner, Partition, Writer, snapshot, snapshots};
use crate::error::{Error, Result};
use crate::segment::SegmentReader;
use crate::sync::Arc as Pointer;
use crate::types::{LeaderEpoch, Offset};

impl Partition {
    /// Exports the log as it is now into `directory`, which is created, and is named as a partition's directory is.
    /// Answers the end of the copy.
    ///
    /// The files of a failed export are left where they are, and the directory does not open
    /// ([`Error::UnfinishedExport`]): remove it.
    ///
    /// # Errors
    /// [`Error::InvalidName`]; [`Error::Policy`] where the directory is not empty; [`Error::Superseded`] where the log was
    /// truncated or reopened meanwhile; [`Error::Io`], also where it lies on another file system than the partition
    /// (hard links do not reach there).
    pub fn export(&self, directory: impl AsRef<Path>) -> Result<Offset> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let target = Home::enter(Arc::clone(&inner.home.storage), directory.as_ref())?;
        if target.list()?.iter().any(|entry| entry.name != ".lock") {
            return Err(Error::Policy("an export goes into a directory of its own"));
        }
        target.begin_export()?;
        // What the copy calls its recovery point has to be on the disk.
        inner.flush()?;
        let (source, _held) = inner.settle_source();
        inner.export_segments(&target, &source)?;
        source.check(&inner.writer.lock())?;
        inner.export_small_files(&target, &source)?;
        target.end_export()?;
        target.release();
        Ok(source.end)
    }
}

/// What is copied: the log at one moment. Its bytes do not change any more, but by a truncation.
struct Source {
    view: Pointer<View>,
    end: Offset,
    high_watermark: Offset,
    active_bytes: u64,
    epochs: Vec<(LeaderEpoch, Offset)>,
    /// The producer snapshot at the end, where there ever was a producer.
    producers: Option<Vec<u8>>,
    history: History,
    rewinds: u64,
}

impl Source {
    fn check(&self, writer: &Writer) -> Result<()> {
        if writer.rewinds == self.rewinds { Ok(()) } else { Err(Error::Superseded { offset: self.end }) }
    }
}

impl Inner {
    /// Nothing of it goes from the front while the hold lives.
    fn settle_source(&self) -> (Source, Hold) {
        let writer = self.writer.lock();
        let view = self.picture.view();
        let held = self.holds.add(view.log_start);
        let source = Source {
            end: self.picture.end(),
            high_watermark: self.picture.high_watermark(),
            active_bytes: writer.active.reader().size(),
            epochs: writer.epochs.entries().to_vec(),
            producers: writer.history.producers.then(|| snapshot::render(&self.producers.lock())),
            history: History { epoch: Some(writer.epoch).max(writer.history.epoch), ..writer.history },
            rewinds: writer.rewinds,
            view,
        };
        (source, held)
    }

    fn export_segments(&self, target: &Home, source: &Source) -> Result<()> {
        let storage = &self.home.storage;
        let name = |segment: &SegmentReader, suffix| target.path(&format!("{:020}.{suffix}", segment.base_offset().0));
        let Some((active, sealed)) = source.view.segments.split_last() else { return Ok(()) };
        for segment in sealed {
            let to = name(segment, "log");
            let writer = self.writer.lock();
            source.check(&writer)?;
            storage.link(&segment.path(), &to).map_err(|error| Error::io("link", segment.path(), error))?;
        }
        active.copy_range(0..source.active_bytes, &name(active, "log"), storage)?;
        for segment in &source.view.segments {
            segment.copy_aborted(source.end, &name(segment, "txnindex"), storage)?;
        }
        Ok(())
    }

    /// The indexes are left out: the copy makes them anew when it needs them.
    fn export_small_files(&self, target: &Home, source: &Source) -> Result<()> {
        if let Some(producers) = &source.producers {
            target.write_file(&snapshots::name_of(source.end), producers)?;
        }
        target.write_history(source.history)?;
        target.write_epochs(&source.epochs)?;
        target.write(Mark::LogStart, source.view.log_start)?;
        target.write(Mark::HighWatermark, source.high_watermark)?;
        target.write(Mark::RecoveryPoint, source.end)?;
        if let Some(id) = self.home.sound_topic_id()? {
            target.write_topic_id(id)?;
        }
        target.sync_directory()?;
        target.write_clean_marker()
    }
}
