//! Reads a partition's directory as it lies on the disk, without opening it: nothing is written, locked or repaired.
//!
//! ```text
//!  directory ... which files there are, and the small ones      walk ... the pieces of a .log, damage included
//!  check ....... what does not fit together
//!  text ........ for a person       json ... for a program       export ... a copy for a broker
//! ```
//!
//! [`inspect`] goes through the directory once and shows what it finds as [`Event`]s, in the order of the offsets.

mod check;
mod directory;
mod export;
mod json;
mod text;
mod walk;

use std::ops::Range;
use std::path::Path;

use taffrail::{AbortedTransaction, Batch, BatchHeader, IndexEntry, Offset, TimeIndexEntry};

use check::SegmentCheck;
use directory::Contents;
use walk::{LogFile, Piece};

pub(crate) use directory::SegmentFile;
pub(crate) use export::export;
pub(crate) use json::batch_as_json;
pub(crate) use text::Printer;

/// What comes by on the way through a partition's directory.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The directory, with everything that is not in a segment.
    Directory(&'a Contents),
    /// A segment begins.
    Segment(&'a SegmentFile),
    /// A sound batch.
    Batch { segment: &'a SegmentFile, position: u64, batch: Batch<'a> },
    /// A batch whose checksum is right and whose records cannot be shown.
    Sealed { position: u64, header: BatchHeader, reason: String },
    /// Bytes that are no batch.
    Damage { bytes: Range<u64>, reason: String },
    /// Zeros up to the end of the file: where an open partition that syncs writes next.
    Window { bytes: Range<u64> },
    /// The entries of the segment's indexes, where these are sound.
    Indexes { offsets: Vec<IndexEntry>, times: Vec<TimeIndexEntry>, aborted: Vec<AbortedTransaction> },
}

/// What there was in all.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) segments: usize,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// From the first batch to behind the last.
    pub(crate) offsets: Option<Range<Offset>>,
    /// What is wrong, a sentence each.
    pub(crate) wrong: Vec<String>,
}

/// Goes through a partition's directory and shows what is there.
pub(crate) fn inspect(directory: &Path, mut show: impl FnMut(Event<'_>)) -> taffrail::Result<Summary> {
    let contents = Contents::read(directory)?;
    let mut summary =
        Summary { segments: contents.segments.len(), wrong: contents.wrong.clone(), ..Summary::default() };
    show(Event::Directory(&contents));
    let mut check = None;
    for (number, segment) in contents.segments.iter().enumerate() {
        let next_base = contents.segments.get(number + 1).map(|next| next.base);
        let mut checks = SegmentCheck::new(segment, next_base, &contents, check.take());
        show(Event::Segment(segment));
        walk_segment(segment, &mut checks, &mut summary, &mut show)?;
        show(checks.indexes(directory)?);
        summary.wrong.append(&mut checks.wrong);
        check = Some(checks.end());
    }
    Ok(summary)
}

fn walk_segment(
    segment: &SegmentFile,
    checks: &mut SegmentCheck<'_>,
    summary: &mut Summary,
    show: &mut impl FnMut(Event<'_>),
) -> taffrail::Result<()> {
    let log = LogFile::open(&segment.path)?;
    for piece in log.pieces() {
        match piece? {
            Piece::Batch { position, batches } => {
                for batch in &batches {
                    summary.count(batch.header());
                    checks.batch(position, &batch);
                    show(Event::Batch { segment, position, batch });
                }
            }
            Piece::Sealed { position, header, reason } => {
                summary.count(&header);
                checks.header(position, &header);
                checks.wrong(position, &format!("the records cannot be shown: {reason}"));
                show(Event::Sealed { position, header, reason });
            }
            Piece::Damage { bytes, reason } => {
                checks.damage(&bytes, &reason);
                show(Event::Damage { bytes, reason });
            }
            Piece::Window { bytes } => {
                checks.window(&bytes);
                show(Event::Window { bytes });
            }
        }
    }
    Ok(())
}

impl Summary {
    fn count(&mut self, header: &BatchHeader) {
        self.batches += 1;
        self.records += u64::from(header.record_count());
        let start = self.offsets.as_ref().map_or(header.base_offset(), |offsets| offsets.start);
        self.offsets = Some(start..header.next_offset());
    }
}

/// The error of an operation on a file.
fn io(operation: &'static str, path: &Path, source: std::io::Error) -> taffrail::Error {
    taffrail::Error::Io { operation, path: path.to_owned(), source: std::sync::Arc::new(source) }
}
