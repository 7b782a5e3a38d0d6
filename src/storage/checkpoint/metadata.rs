//! `partition.metadata`, which holds the topic's id, and the marker of a clean shutdown.
//!
//! ```text
//! version: 0
//! topic_id: ASNFZ4mrze_-3LqYdlQyEA        16 bytes as base64url, 22 characters; no newline behind them
//! ```
//!
//! The marker, `.kafka_cleanshutdown`, says by being there that everything in the directory was synced and
//! closed. Its content is Kafka's, for a process that has no broker epoch; older releases left it empty.

use std::io;
use std::path::Path;

use super::super::Storage;
use super::{Flaw, Parsed, directory_of, form, number, read_all, write_atomically};
use crate::error::{Error, Result};
use crate::types::TopicId;

/// `partition.metadata`.
pub(crate) mod partition_metadata {
    use super::{Flaw, Parsed, Path, Result, Storage, TopicId, form, number, read_all};

    pub(crate) const NAME: &str = "partition.metadata";
    const BYTES_MAX: u64 = 4096;

    /// The topic's id; `None` where there is no such file.
    pub(crate) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<[u8; 16]>> {
        let Some(bytes) = read_all(storage, path, BYTES_MAX)? else { return Ok(None) };
        parse(&bytes).map(Some).map_err(|flaw| flaw.in_file(path))
    }

    /// As in Kafka any version from 0 on is taken: later ones add lines.
    pub(crate) fn parse(bytes: &[u8]) -> Parsed<[u8; 16]> {
        let text = std::str::from_utf8(bytes).map_err(|error| form(error.to_string()))?;
        let mut lines = text.lines();
        let version = field(lines.next(), "version").and_then(|text| number::<i32>(text).map_err(form))?;
        if version < 0 {
            return Err(Flaw::Version { found: version.into(), known: 0 });
        }
        let id = field(lines.next(), "topic_id")?;
        let TopicId(id) = id.parse().map_err(|_| form(format!("{id:?} is not 16 bytes in base64url")))?;
        if id == [0; 16] { Err(form("the topic id is zero")) } else { Ok(id) }
    }

    pub(crate) fn render(topic: &[u8; 16]) -> String {
        format!("version: 0\ntopic_id: {}", TopicId(*topic))
    }

    /// The value of a line `name: value`.
    fn field<'a>(line: Option<&'a str>, name: &str) -> Parsed<&'a str> {
        let value = line.and_then(|line| line.strip_prefix(name)).and_then(|rest| rest.strip_prefix(':'));
        let value = value.filter(|value| value.starts_with(|c: char| c.is_ascii_whitespace()));
        value.map(str::trim).ok_or_else(|| form(format!("a line `{name}: ...` is due")))
    }
}

/// `.kafka_cleanshutdown`.
pub(crate) mod clean_marker {
    use super::{Error, Path, Result, Storage, directory_of, io, write_atomically};

    pub(crate) const NAME: &str = ".kafka_cleanshutdown";
    const CONTENT: &[u8] = br#"{"version":0,"brokerEpoch":-1}"#;

    /// Writes the marker, durably.
    pub(crate) fn write(storage: &dyn Storage, path: &Path) -> Result<()> {
        write_atomically(storage, path, CONTENT)
    }

    /// Whether the marker is there.
    pub(crate) fn is_present(storage: &dyn Storage, path: &Path) -> Result<bool> {
        match storage.open(path, 0) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("open", path, error)),
        }
    }

    /// Removes the marker, durably; returns whether it was there.
    pub(crate) fn remove(storage: &dyn Storage, path: &Path) -> Result<bool> {
        match storage.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            outcome => outcome.map_err(|error| Error::io("remove", path, error))?,
        }
        let directory = directory_of(path);
        storage.sync_directory(directory).map_err(|error| Error::io("sync", directory, error))?;
        Ok(true)
    }
}
