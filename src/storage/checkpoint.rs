//! The small files beside the segments: how they are replaced as a whole, and Kafka's checkpoints.
//!
//! A small file is written as `<name>.tmp`, synced, renamed over its name, and the directory is synced: after
//! a crash the old or the new content is there, whole. A `.tmp` that a crash left is overwritten.
//!
//! Kafka's checkpoints are text, UTF-8, one entry a line, fields divided by a blank:
//!
//! ```text
//! 0                      the version
//! 2                      how many entries follow
//! orders 0 1020          offsets: topic, partition, offset
//! a.b_c-d 12 5
//! ```
//!
//! ```text
//! 0
//! 2
//! 0 0                    leader epochs: the epoch, and the offset where it began
//! 3 1005
//! ```
//!
//! Read as Kafka reads them: lines may end in `\r\n`, fields may be divided by any blanks, and a file that ends
//! before its second line has no entries. Anything else that is not of the form is an error that says where.

mod metadata;
pub(crate) mod own;
pub(crate) mod properties;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bytes::Bytes;

use super::Storage;
use crate::error::{Corruption, Error, Result};
use crate::types::{LeaderEpoch, Offset, TopicPartition, check_topic_name};

pub(crate) use metadata::{clean_marker, partition_metadata};
pub(crate) use own::{read_own, write_own};

/// No checkpoint is larger: a quarter of a million partitions with the longest names fit.
const CHECKPOINT_BYTES_MAX: u64 = 64 << 20;

/// Replaces the content of the file at `path` by `bytes`, durably and as a whole.
pub(crate) fn write_atomically(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    replace(storage, path, bytes)?;
    let directory = directory_of(path);
    storage.sync_directory(directory).map_err(|error| Error::io("sync", directory, error))
}

/// The same, but for the directory: until that is synced, the file may have its old content after a crash.
pub(crate) fn replace(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    let written = write_temporary(storage, &temporary, bytes);
    let file = written.map_err(|error| Error::io("write", &temporary, error))?;
    file.rename(path).map_err(|error| Error::io("rename", &temporary, error))
}

fn write_temporary(
    storage: &dyn Storage,
    path: &Path,
    bytes: &[u8],
) -> io::Result<std::sync::Arc<dyn super::StorageFile>> {
    let created = match storage.create(path, 0) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            storage.remove(path)?;
            storage.create(path, 0)
        }
        outcome => outcome,
    };
    let file = created?;
    file.write(0, &[IoSlice::new(bytes)])?;
    file.sync()?;
    Ok(file)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The content of a small file; `None` where there is no such file. One of more than `limit` bytes is damaged.
pub(crate) fn read_all(storage: &dyn Storage, path: &Path, limit: u64) -> Result<Option<Bytes>> {
    let failed = |error| Error::io("read", path, error);
    let file = match storage.open(path, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome.map_err(|error| Error::io("open", path, error))?,
    };
    let len = file.len().map_err(failed)?;
    if len > limit {
        let reason = form(format!("it has {len} bytes, at most {limit} are read"));
        return Err(reason.in_file(path));
    }
    file.read(0..len).map(Some).map_err(failed)
}

/// Why the content of a small file is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Another version than the known one.
    Version { found: i64, known: i64 },
    /// Not of the form.
    Form(String),
}

/// What a parser says.
type Parsed<T, E = Flaw> = std::result::Result<T, E>;

fn form(what: impl Into<String>) -> Flaw {
    Flaw::Form(what.into())
}

impl Flaw {
    fn in_file(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Self::Version { found, known } => Error::UnsupportedVersion { path, found, known },
            Self::Form(what) => Error::CorruptFile { path, reason: Corruption::Form(what) },
        }
    }
}

/// An offset for each of many partitions (`recovery-point-offset-checkpoint` and its like).
#[derive(Debug)]
pub(crate) struct OffsetCheckpoint;

impl OffsetCheckpoint {
    /// Reads the file; `None` where there is none.
    pub(crate) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<BTreeMap<TopicPartition, Offset>>> {
        let bytes = read_all(storage, path, CHECKPOINT_BYTES_MAX)?;
        bytes.map(|bytes| Self::parse(&bytes)).transpose().map_err(|flaw| flaw.in_file(path))
    }

    /// Replaces the file.
    pub(crate) fn write(storage: &dyn Storage, path: &Path, offsets: &BTreeMap<TopicPartition, Offset>) -> Result<()> {
        write_atomically(storage, path, Self::render(offsets).as_bytes())
    }

    /// As in Kafka the last entry of a partition counts, should it have several.
    pub(crate) fn parse(bytes: &[u8]) -> Parsed<BTreeMap<TopicPartition, Offset>> {
        let entry = |[topic, partition, offset]: [&str; 3]| {
            check_topic_name(topic).map_err(|rule| format!("the topic {topic:?}: {rule}"))?;
            let partition = number::<i32>(partition)?;
            let partition = u32::try_from(partition).map_err(|_| format!("the partition {partition}"))?;
            Ok((TopicPartition { topic: topic.to_owned(), partition }, offset_of(offset)?))
        };
        Ok(entries(bytes, entry)?.into_iter().collect())
    }

    pub(crate) fn render(offsets: &BTreeMap<TopicPartition, Offset>) -> String {
        let mut text = format!("0\n{}\n", offsets.len());
        for (TopicPartition { topic, partition }, offset) in offsets {
            writeln!(text, "{topic} {partition} {offset}").expect("a string takes everything");
        }
        text
    }
}

/// Reads a `leader-epoch-checkpoint`, in the order of the file; `None` where there is none. Whether epochs and
/// offsets rise is not checked here.
pub(crate) fn read_epochs(storage: &dyn Storage, path: &Path) -> Result<Option<Vec<(LeaderEpoch, Offset)>>> {
    let bytes = read_all(storage, path, CHECKPOINT_BYTES_MAX)?;
    bytes.map(|bytes| parse_epochs(&bytes)).transpose().map_err(|flaw| flaw.in_file(path))
}

pub(crate) fn parse_epochs(bytes: &[u8]) -> Parsed<Vec<(LeaderEpoch, Offset)>> {
    entries(bytes, |[epoch, start]: [&str; 2]| {
        let number = number::<i32>(epoch)?;
        let epoch = LeaderEpoch::from_i32(number).ok_or_else(|| format!("the epoch {number}"))?;
        Ok((epoch, offset_of(start)?))
    })
}

pub(crate) fn render_epochs(epochs: &[(LeaderEpoch, Offset)]) -> String {
    let mut text = format!("0\n{}\n", epochs.len());
    for (epoch, start) in epochs {
        writeln!(text, "{epoch} {start}").expect("a string takes everything");
    }
    text
}

/// The entries of a checkpoint, each of `N` fields. Nothing is allocated by the count that the file says.
fn entries<T, const N: usize>(bytes: &[u8], parse: impl Fn([&str; N]) -> Parsed<T, String>) -> Parsed<Vec<T>> {
    let text = std::str::from_utf8(bytes).map_err(|error| form(error.to_string()))?;
    let mut lines = text.lines();
    let Some(version) = lines.next() else { return Ok(Vec::new()) };
    match number::<i64>(version.trim()).map_err(|what| form(format!("line 1: {what}")))? {
        0 => {}
        found => return Err(Flaw::Version { found, known: 0 }),
    }
    let Some(count) = lines.next() else { return Ok(Vec::new()) };
    let count = number::<usize>(count.trim()).map_err(|what| form(format!("line 2: {what}")))?;
    let entry = |(index, line): (usize, &str)| {
        let fields = fields(line).ok_or_else(|| format!("an entry has {N} fields"));
        fields.and_then(&parse).map_err(|what| form(format!("line {}: {what}", index + 3)))
    };
    if !text.ends_with('\n') && count > 0 {
        return Err(form("the last line is cut off"));
    }
    let entries = lines.enumerate().map(entry).collect::<Parsed<Vec<T>>>()?;
    if entries.len() != count {
        return Err(form(format!("line 2 says {count} entries, {} are there", entries.len())));
    }
    Ok(entries)
}

/// Exactly `N` fields.
fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let mut fields = [""; N];
    let mut found = line.split_ascii_whitespace();
    for field in &mut fields {
        *field = found.next()?;
    }
    found.next().is_none().then_some(fields)
}

fn number<T: FromStr>(text: &str) -> Parsed<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number that belongs here"))
}

fn offset_of(text: &str) -> Parsed<Offset, String> {
    let number = number::<i64>(text)?;
    Offset::from_i64(number).ok_or_else(|| format!("the offset {number}"))
}

#[cfg(test)]
mod tests;
