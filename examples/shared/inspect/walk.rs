//! The pieces of a `.log`: sound batches, damage, and the zeros that an open partition keeps behind its end.
//!
//! The file is read batch by batch with `pread`, never mapped: another process may be writing to it, or cut it.
//! Behind damage the walk goes on at the next place that holds a whole batch with the right checksum.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use taffrail::{BatchHeader, Batches, Corruption, Error, HEADER_BYTES, Result, verify_checksum};

use super::io;

/// As much as the default configuration lets a batch decompress to.
const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
const CHUNK: u64 = 1 << 20;

/// A piece of a log.
pub(super) enum Piece {
    /// One sound batch.
    Batch {
        position: u64,
        batches: Batches,
    },
    /// One batch with the right checksum, whose records cannot be had here.
    Sealed {
        position: u64,
        header: BatchHeader,
        reason: String,
    },
    Damage {
        bytes: Range<u64>,
        reason: String,
    },
    Window {
        bytes: Range<u64>,
    },
}

/// A `.log` file, as long as it was when it was opened.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    len: u64,
    /// Behind the last byte that is not zero.
    content_end: u64,
}

impl LogFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| io("open", path, error))?;
        let len = file.metadata().map_err(|error| io("measure", path, error))?.len();
        let mut log = Self { path: path.to_owned(), file, len, content_end: 0 };
        log.content_end = log.find_content_end()?;
        Ok(log)
    }

    /// The pieces, one behind the other, from the first byte to the last.
    pub(super) fn pieces(&self) -> Pieces<'_> {
        Pieces { log: self, position: 0 }
    }

    /// The bytes of a range that are there.
    fn bytes(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let count = range.end.min(self.len).saturating_sub(range.start);
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(usize::MAX)];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], range.start + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) => return Err(io("read", &self.path, error)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn find_content_end(&self) -> Result<u64> {
        let mut end = self.len;
        while end > 0 {
            let start = end.saturating_sub(CHUNK);
            if let Some(last) = self.bytes(start..end)?.iter().rposition(|byte| *byte != 0) {
                return Ok(start + last as u64 + 1);
            }
            end = start;
        }
        Ok(0)
    }

    /// The whole batch at `position`, if it is there and its checksum is right.
    fn sound(&self, position: u64) -> Result<std::result::Result<(BatchHeader, Vec<u8>), Corruption>> {
        let header = match BatchHeader::parse(&self.bytes(position..position + HEADER_BYTES as u64)?) {
            Ok(header) => header,
            Err(reason) => return Ok(Err(reason)),
        };
        if header.size() > self.len - position {
            return Ok(Err(Corruption::Truncated { needed: header.size(), present: self.len - position }));
        }
        let bytes = self.bytes(position..position + header.size())?;
        Ok(verify_checksum(&bytes, &header).map(|()| (header, bytes)))
    }

    /// Where the next sound batch begins behind `position`.
    fn next_sound(&self, position: u64) -> Result<Option<u64>> {
        let mut start = position + 1;
        while start < self.content_end {
            let chunk = self.bytes(start..start + CHUNK + HEADER_BYTES as u64)?;
            let places = chunk.windows(HEADER_BYTES).enumerate().take(usize::try_from(CHUNK).unwrap_or(usize::MAX));
            for (at, header) in places {
                let place = start + at as u64;
                if BatchHeader::parse(header).is_ok() && self.sound(place)?.is_ok() {
                    return Ok(Some(place));
                }
            }
            start += CHUNK;
        }
        Ok(None)
    }

    fn piece(&self, position: u64) -> Result<Piece> {
        if position >= self.content_end {
            return Ok(Piece::Window { bytes: position..self.len });
        }
        let reason = match self.sound(position)? {
            Ok((header, bytes)) => match Batches::parse(bytes.into(), DECOMPRESSED_BYTES_MAX) {
                Ok(batches) => return Ok(Piece::Batch { position, batches }),
                Err(Error::InvalidBatch { reason, .. }) => reason.to_string(),
                Err(other) => return Ok(Piece::Sealed { position, header, reason: other.to_string() }),
            },
            Err(Corruption::Magic(magic @ (0 | 1))) => format!("a message of the legacy magic {magic}"),
            Err(reason) => reason.to_string(),
        };
        let end = self.next_sound(position)?.unwrap_or(self.content_end);
        Ok(Piece::Damage { bytes: position..end, reason })
    }
}

/// The pieces of a log.
pub(super) struct Pieces<'l> {
    log: &'l LogFile,
    position: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.log.len {
            return None;
        }
        let piece = self.log.piece(self.position);
        self.position = match &piece {
            Ok(Piece::Batch { position, batches }) => position + batches.size_bytes() as u64,
            Ok(Piece::Sealed { position, header, .. }) => position + header.size(),
            Ok(Piece::Damage { bytes, .. } | Piece::Window { bytes }) => bytes.end,
            Err(_) => self.log.len,
        };
        Some(piece)
    }
}
