//! The frame of the files that are taffrail's alone (`*.taffrail`), big-endian:
//!
//! ```text
//!  byte  0  4  "TAFF"
//!        4  4  CRC-32 (IEEE) of everything behind it
//!        8  2  the version of the content
//!       10  .. the content, to the end of the file
//! ```
//!
//! The frame itself never changes, so that a release can tell a newer version, which it refuses, from damage.

use std::path::Path;

use bytes::Bytes;

use super::super::Storage;
use super::{Flaw, Parsed, form, read_all, write_atomically};
use crate::error::Result;

const MAGIC: [u8; 4] = *b"TAFF";
const CHECKED_FROM: usize = 8;
const HEADER_BYTES: usize = 10;

/// Replaces a file of ours, durably and as a whole.
pub(crate) fn write_own(storage: &dyn Storage, path: &Path, version: u16, content: &[u8]) -> Result<()> {
    write_atomically(storage, path, &frame(version, content))
}

/// The content of a file of ours, of at most `limit` bytes; `None` where there is no such file.
///
/// Damage is [`Error::CorruptFile`](crate::error::Error::CorruptFile), another version than `known_version`
/// [`Error::UnsupportedVersion`](crate::error::Error::UnsupportedVersion).
pub(crate) fn read_own(storage: &dyn Storage, path: &Path, known_version: u16, limit: u64) -> Result<Option<Bytes>> {
    let Some(bytes) = read_all(storage, path, limit.saturating_add(HEADER_BYTES as u64))? else { return Ok(None) };
    unframe(&bytes, known_version).map(Some).map_err(|flaw| flaw.in_file(path))
}

pub(crate) fn frame(version: u16, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + content.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&version.to_be_bytes());
    bytes.extend_from_slice(content);
    let checksum = crc32fast::hash(&bytes[CHECKED_FROM..]);
    bytes[MAGIC.len()..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

pub(crate) fn unframe(bytes: &Bytes, known_version: u16) -> Parsed<Bytes> {
    let Some(([m0, m1, m2, m3, c0, c1, c2, c3, v0, v1], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(form(format!("it has {} bytes, its header has {HEADER_BYTES}", bytes.len())));
    };
    if [*m0, *m1, *m2, *m3] != MAGIC {
        return Err(form("it does not begin with TAFF"));
    }
    let stored = u32::from_be_bytes([*c0, *c1, *c2, *c3]);
    let computed = crc32fast::hash(&bytes[CHECKED_FROM..]);
    if stored != computed {
        return Err(form(format!("its CRC-32 is {computed:08x}, it says {stored:08x}")));
    }
    let found = u16::from_be_bytes([*v0, *v1]);
    if found != known_version {
        return Err(Flaw::Version { found: found.into(), known: known_version.into() });
    }
    Ok(bytes.slice(HEADER_BYTES..))
}
