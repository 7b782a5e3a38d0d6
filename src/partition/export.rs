//! A copy of an open partition that stands by itself.
//!
//! Sealed segments get a second name (hard link), the active one is copied up to the end at the time of the call, so
//! that the zeros behind it stay out. The copy opens as a partition, cleanly closed, and its directory can be handed
//! to Kafka's tools as it is.

use std::path::Path;
use std::sync::Arc;

use super::books::Mark;
use super::home::{History, Home};
use super::view::View;
use super::{Inner, Partition};
use crate::error::{Error, Result};
use crate::types::{LeaderEpoch, Offset};

impl Partition {
    /// Exports the log as it is now into `directory`, which is created, and is named as a partition's directory is.
    /// Answers the end of the copy.
    ///
    /// The files of a failed export are left where they are.
    ///
    /// # Errors
    /// [`Error::InvalidName`]; [`Error::Policy`] where the directory is not empty; [`Error::Io`], also where it lies
    /// on another file system than the partition (hard links do not reach there) or where the log was truncated
    /// meanwhile.
    pub fn export(&self, directory: impl AsRef<Path>) -> Result<Offset> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let target = Home::enter(Arc::clone(&inner.home.storage), directory.as_ref())?;
        if target.list()?.iter().any(|entry| entry.name != ".lock") {
            return Err(Error::Policy("an export goes into a directory of its own"));
        }
        // What the copy calls its recovery point has to be on the disk.
        inner.flush()?;
        // The sealed segments, the bytes of the active one and the epochs are taken at one moment, and held; the copying
        // of the bytes, which do not change any more, is outside of the lock.
        let (view, end, active_bytes, epochs, history, _held) = {
            let writer = inner.writer.lock();
            let (view, epochs) = (inner.picture.view(), writer.epochs.entries().to_vec());
            let held = inner.holds.add(view.log_start);
            (view, inner.picture.end(), writer.active.reader().size(), epochs, writer.history, held)
        };
        inner.export_segments(&target, &view, active_bytes)?;
        inner.export_small_files(&target, &view, end, &epochs, history)?;
        target.release();
        Ok(end)
    }
}

impl Inner {
    fn export_segments(&self, target: &Home, view: &View, active_bytes: u64) -> Result<()> {
        let storage = &self.home.storage;
        let Some((active, sealed)) = view.segments.split_last() else { return Ok(()) };
        for segment in sealed {
            let (from, to) = (segment.path(), target.path(&format!("{:020}.log", segment.base_offset().0)));
            storage.link(&from, &to).map_err(|error| Error::io("link", from, error))?;
        }
        let to = target.path(&format!("{:020}.log", active.base_offset().0));
        active.copy_range(0..active_bytes, &to, storage)?;
        for segment in &view.segments {
            let aborted = segment.aborted()?;
            if !aborted.is_empty() {
                let to = target.path(&format!("{:020}.txnindex", segment.base_offset().0));
                segment.copy_aborted(&to, storage)?;
            }
        }
        Ok(())
    }

    /// The indexes are left out: the copy makes them anew when it needs them.
    fn export_small_files(
        &self,
        target: &Home,
        view: &View,
        end: Offset,
        epochs: &[(LeaderEpoch, Offset)],
        history: History,
    ) -> Result<()> {
        target.write_history(history)?;
        target.write_epochs(epochs)?;
        target.write(Mark::LogStart, view.log_start)?;
        target.write(Mark::HighWatermark, self.picture.high_watermark().min(end))?;
        target.write(Mark::RecoveryPoint, end)?;
        if let Some(id) = self.home.sound_topic_id()? {
            target.write_topic_id(id)?;
        }
        target.sync_directory()?;
        target.write_clean_marker()
    }
}
