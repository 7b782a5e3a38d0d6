//! `meta.properties`: whose a log directory is (FORMATS 13).
//!
//! ```text
//! #
//! #2026-11-30T10:00:00Z                  two lines of comment
//! cluster.id=ASNFZ4mrze_-3LqYdlQyEA
//! version=1
//! directory.id=...                       optional
//! node.id=0
//! ```
//!
//! A Java properties file of which only the plain form is read: `key=value` or `key:value` lines, blanks around
//! both cut off, `#` and `!` for comments. The order of the keys means nothing; keys that are not known are left alone.

use std::path::Path;

use super::super::Storage;
use super::{Parsed, form, number, read_all, write_atomically};
use crate::error::Result;
use crate::types::NodeId;

const BYTES_MAX: u64 = 64 << 10;

/// Whose a log directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Brokers of old wrote files without it.
    pub(crate) cluster: Option<String>,
    pub(crate) node: NodeId,
}

/// `None` where there is no such file.
pub(crate) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Owner>> {
    let Some(bytes) = read_all(storage, path, BYTES_MAX)? else { return Ok(None) };
    parse(&bytes).map(Some).map_err(|flaw| flaw.in_file(path))
}

/// Writes a new file. `directory` is an id of the directory's own, as Kafka writes ids.
pub(crate) fn write(storage: &dyn Storage, path: &Path, cluster: &str, node: NodeId, directory: &str) -> Result<()> {
    let text = format!("#\n#taffrail\ncluster.id={cluster}\nversion=1\ndirectory.id={directory}\nnode.id={node}\n");
    write_atomically(storage, path, text.as_bytes())
}

pub(crate) fn parse(bytes: &[u8]) -> Parsed<Owner> {
    let text = std::str::from_utf8(bytes).map_err(|error| form(error.to_string()))?;
    let value = |key: &str| text.lines().filter_map(entry).find(|(name, _)| *name == key).map(|(_, value)| value);
    let version = value("version").map_or(Ok(0), |text| number::<i32>(text).map_err(form))?;
    if !(0..=1).contains(&version) {
        return Err(super::Flaw::Version { found: version.into(), known: 1 });
    }
    let key = if version == 0 { "broker.id" } else { "node.id" };
    let node = value(key).ok_or_else(|| form(format!("a line `{key}=...` is due")))?;
    let node = NodeId(number::<u32>(node).map_err(form)?);
    Ok(Owner { cluster: value("cluster.id").map(str::to_owned), node })
}

/// The key and the value of a line that has one.
fn entry(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.starts_with(['#', '!']) {
        return None;
    }
    let (key, value) = line.split_once(['=', ':'])?;
    Some((key.trim(), value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use crate::storage::checkpoint::Flaw;

    #[test]
    fn what_is_written_is_read() {
        let storage = MemoryStorage::new(1);
        let path = Path::new("/meta.properties");
        assert_eq!(read(&storage, path).expect("read"), None);
        write(&storage, path, "ASNFZ4mrze_-3LqYdlQyEA", NodeId(7), "x").expect("written");
        let owner = Owner { cluster: Some("ASNFZ4mrze_-3LqYdlQyEA".to_owned()), node: NodeId(7) };
        assert_eq!(read(&storage, path).expect("read"), Some(owner));
    }

    #[test]
    fn kafkas_files_are_read_and_nonsense_is_refused() {
        let broker = b"#\n#Mon Nov 30 10:00:00 UTC 2026\nnode.id=3\r\nversion = 1\n cluster.id: abc\nmore=1\n";
        assert_eq!(parse(broker), Ok(Owner { cluster: Some("abc".to_owned()), node: NodeId(3) }));
        assert_eq!(parse(b"version=0\nbroker.id=0\n"), Ok(Owner { cluster: None, node: NodeId(0) }));
        assert_eq!(parse(b"version=2\nnode.id=0\n"), Err(Flaw::Version { found: 2, known: 1 }));
        for bad in [&b"version=1\n"[..], b"version=x\nnode.id=0", b"version=1\nnode.id=-1", b"\xff=1", b""] {
            assert!(matches!(parse(bad), Err(Flaw::Form(_))), "{bad:?}");
        }
    }
}
