//! Walking over batches from a position on, and finding the next one where the walk was broken off.
//!
//! No length is trusted: a header is read only as far as the published bytes reach, and a batch only if it ends
//! within them. Bytes are read in chunks of bounded size, or of one batch where that is larger.
//!
//! Behind a damaged batch ([`resync`]) the next readable one is looked for, in this order:
//!
//! ```text
//!  1  where the damaged batch says it ends         (its header is right, its content is not), unless batches that
//!                                                  it seems to contain lead exactly there (its length is not right)
//!  2  at each byte up to the next anchor           (its length is not right either)
//!  3  at the next anchor
//! ```
//!
//! An anchor is a position of the index, or the end. A batch is found where its checksum is right and its offsets
//! fit. The base offset lies outside of the checksum, and may be torn where nothing before it says what is due: what was
//! damaged had an offset at least, so the next batch begins behind the one that was due there. Of those at arbitrary bytes the first counts from which headers lead exactly to the anchor, since a record
//! can contain the bytes of a whole batch.

use std::io;

use bytes::Bytes;

use super::rules::{Due, Rules};
use crate::error::Corruption;
use crate::record::batch::{BatchHeader, HEADER_BYTES, verify_checksum};
use crate::record::legacy;
use crate::storage::StorageFile;

/// The chunk of a walk over headers.
pub(super) const HEADER_CHUNK_BYTES: u64 = 16 << 10;
/// The chunk of a walk that checks every byte.
pub(super) const CHECK_CHUNK_BYTES: u64 = 1 << 20;
/// The chunk of a recovery, which reads everything.
pub(super) const RECOVERY_CHUNK_BYTES: u64 = 4 << 20;
/// As many headers in a row are no accident.
const CHAIN_MAX: usize = 1024;

/// A place in a log file, with the bytes around it.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    file: &'a dyn StorageFile,
    end: u64,
    chunk: Bytes,
    start: u64,
    chunk_bytes: u64,
}

impl<'a> Cursor<'a> {
    /// Reads `file` up to `end`.
    pub(super) fn new(file: &'a dyn StorageFile, end: u64, chunk_bytes: u64) -> Self {
        Self { file, end, chunk: Bytes::new(), start: 0, chunk_bytes }
    }

    pub(super) fn file(&self) -> &'a dyn StorageFile {
        self.file
    }

    /// Up to `len` bytes from `at` on: fewer where the file, or what may be read of it, ends.
    #[inline]
    pub(super) fn bytes(&mut self, at: u64, len: u64) -> io::Result<&[u8]> {
        let len = len.min(self.end.saturating_sub(at));
        let ends = self.start + self.chunk.len() as u64;
        if at < self.start || at + len > ends {
            let wanted = len.max(self.chunk_bytes.min(self.end.saturating_sub(at)));
            self.chunk = self.file.read(at..at + wanted)?;
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX).min(self.chunk.len());
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.chunk.len() - from);
        Ok(&self.chunk[from..from + len])
    }

    /// The header at `at`, by itself, of a batch that ends within what may be read.
    #[inline]
    pub(super) fn parse(&mut self, at: u64) -> io::Result<Result<BatchHeader, Corruption>> {
        let present = self.end.saturating_sub(at);
        let parsed = BatchHeader::parse(self.bytes(at, HEADER_BYTES as u64)?);
        Ok(parsed.and_then(|header| match header.size() {
            needed if needed > present => Err(Corruption::Truncated { needed, present }),
            _ => Ok(header),
        }))
    }

    /// The header at `at`, right in its place.
    #[inline]
    pub(super) fn header(
        &mut self,
        at: u64,
        rules: &Rules<'_>,
        due: Due,
    ) -> io::Result<Result<BatchHeader, Corruption>> {
        let parsed = self.parse(at)?;
        let bytes = self.bytes(at, HEADER_BYTES as u64)?;
        Ok(parsed.and_then(|header| rules.check(&header, bytes, due).map(|()| header)))
    }

    /// The header at `at`, right in its place, of a batch whose checksum is right.
    pub(super) fn checked(
        &mut self,
        at: u64,
        rules: &Rules<'_>,
        due: Due,
    ) -> io::Result<Result<BatchHeader, Corruption>> {
        let header = match self.header(at, rules, due)? {
            Ok(header) => header,
            Err(reason) => return Ok(Err(reason)),
        };
        Ok(verify_checksum(self.bytes(at, header.size())?, &header).map(|()| header))
    }

    /// [`Cursor::checked`], and not contradicted by the batches behind it.
    pub(super) fn settled(
        &mut self,
        at: u64,
        rules: &Rules<'_>,
        due: Due,
    ) -> io::Result<Result<BatchHeader, Corruption>> {
        match self.checked(at, rules, due)? {
            Ok(header) if overruled(self, at, &header, rules, due)? => {
                Ok(Err(Corruption::Order { found: header.base_offset().to_i64(), expected: due.offset }))
            }
            found => Ok(found),
        }
    }

    /// The magic of a message of Kafka's older formats at `at`, if one lies there undamaged.
    pub(super) fn legacy(&mut self, at: u64) -> io::Result<Option<i8>> {
        let front = self.bytes(at, 17)?;
        let Some(magic @ (0 | 1)) = front.get(16) else { return Ok(None) };
        let magic = magic.cast_signed();
        let length = front.get(8..12).map_or(0, |b| u32::from_be_bytes(std::array::from_fn(|i| b[i])));
        Ok(legacy::check(self.bytes(at, 12 + u64::from(length))?).is_ok().then_some(magic))
    }
}

/// Whether the batch at `at`, which is right by itself, is contradicted by the ones behind it. Where the batch before
/// does not say exactly what is due (there may be gaps, or there was damage), a wrong base offset shows only there.
pub(super) fn overruled(
    cursor: &mut Cursor<'_>,
    at: u64,
    header: &BatchHeader,
    rules: &Rules<'_>,
    due: Due,
) -> io::Result<bool> {
    let second_at = at + header.size();
    if due.exact || second_at >= cursor.end {
        return Ok(false);
    }
    let Ok(second) = cursor.parse(second_at)? else { return Ok(false) };
    if rules.follows(header, &second) || cursor.checked(second_at, rules, Due { exact: false, ..due })?.is_err() {
        return Ok(false);
    }
    // The second is the odd one out where the offsets behind it fit this one, as if it began where it should.
    let third = cursor.parse(second_at + second.size())?.ok().map(|third| third.base_offset()).or(rules.next_base);
    let fitting = header.next_offset().plus(second.next_offset().0 - second.base_offset().0);
    let Some(third) = third else {
        // Two that say otherwise: who comes right behind what is before them stays, and who lies before that goes. The last
        // one may be half written.
        return Ok(header.base_offset() != due.offset && second.base_offset() >= due.offset);
    };
    Ok(if rules.contiguous { third != fitting } else { third < header.next_offset() })
}

/// The next readable batch behind the damaged one at `at`; `None` where there is none up to `end`.
/// `anchor` gives the first position of the index behind a position.
pub(super) fn resync(
    file: &dyn StorageFile,
    end: u64,
    at: u64,
    rules: &Rules<'_>,
    due: Due,
    anchor: impl Fn(u64) -> Option<u64>,
) -> io::Result<Option<u64>> {
    let due = Due { offset: due.offset.plus(1), exact: false };
    let mut probe = Cursor::new(file, end, HEADER_CHUNK_BYTES);
    if let Ok(header) = probe.parse(at)? {
        let behind = at + header.size();
        if behind == end || probe.checked(behind, rules, due)?.is_ok() {
            let inside = search(&mut probe, at + 1..behind, rules, due, true)?;
            return Ok(inside.or((behind < end).then_some(behind)));
        }
    }
    let mut from = at + 1;
    loop {
        let anchored = anchor(from - 1).filter(|anchor| (from..end).contains(anchor));
        let to = anchored.unwrap_or(end);
        if let Some(found) = search(&mut probe, from..to, rules, due, anchored.is_some())? {
            return Ok(Some(found));
        }
        match anchored {
            None => return Ok(None),
            Some(anchor) if probe.checked(anchor, rules, due)?.is_ok() => return Ok(Some(anchor)),
            Some(anchor) => from = anchor + 1,
        }
    }
}

/// Looks at each byte of `range` for a batch that leads to the range's end; with no anchor there, the first batch
/// that is right by itself will do.
fn search(
    probe: &mut Cursor<'_>,
    range: std::ops::Range<u64>,
    rules: &Rules<'_>,
    due: Due,
    anchored: bool,
) -> io::Result<Option<u64>> {
    let end = probe.end;
    let mut near = Cursor::new(probe.file, end, CHECK_CHUNK_BYTES);
    let mut alone = None;
    let mut budget = (range.end - range.start).saturating_mul(8).saturating_add(CHECK_CHUNK_BYTES);
    let mut at = range.start;
    while at < range.end && budget > 0 {
        let window = near.bytes(at, CHECK_CHUNK_BYTES)?;
        if window.len() < HEADER_BYTES {
            break;
        }
        let last = window.len() - HEADER_BYTES;
        let Some(skip) = (0..=last).find(|i| window[i + 16] == 2 && could_begin(&window[*i..], end - at, rules, due))
        else {
            at += last as u64 + 1;
            continue;
        };
        at += skip as u64;
        if at >= range.end {
            break;
        }
        if let Ok(header) = probe.header(at, rules, due)? {
            budget = budget.saturating_sub(header.size());
            if verify_checksum(probe.bytes(at, header.size())?, &header).is_ok() {
                if leads_to(probe, at, range.end, rules, &mut budget)? {
                    return Ok(Some(at));
                }
                alone = alone.or(Some(at));
            }
        }
        at += 1;
    }
    Ok(alone.filter(|_| !anchored))
}

/// The cheap part of the question whether a batch begins here.
fn could_begin(bytes: &[u8], present: u64, rules: &Rules<'_>, due: Due) -> bool {
    let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes.get(at + i).copied().unwrap_or(u8::MAX)));
    let (base, length) = (word(0), word(8) >> 32);
    let far = rules.next_base.map_or(rules.base.0.saturating_add(i32::MAX.unsigned_abs().into()), |next| next.0);
    (due.offset.0..=far).contains(&base) && length >= 49 && length < present
}

/// Whether headers lead from the batch at `at` exactly to `to`.
fn leads_to(probe: &mut Cursor<'_>, at: u64, to: u64, rules: &Rules<'_>, budget: &mut u64) -> io::Result<bool> {
    let (mut at, mut due) = (at, rules.anywhere());
    for _ in 0..CHAIN_MAX {
        if at >= to {
            return Ok(at == to);
        }
        *budget = budget.saturating_sub(HEADER_BYTES as u64);
        let Ok(header) = probe.header(at, rules, due)? else { return Ok(false) };
        at += header.size();
        due = rules.behind(&header);
    }
    Ok(true)
}
