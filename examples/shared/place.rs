//! Whether a directory is a log. To open a log is to make one where there is none: of any directory, a mistyped one too.

use std::fs;
use std::io;
use std::path::Path;

use taffrail::TopicPartition;

/// Whether a directory holds a log, or partitions that one would adopt.
pub(crate) fn is_log(directory: &Path) -> io::Result<bool> {
    if directory.join("meta.properties").is_file() {
        return Ok(true);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_named = TopicPartition::from_directory_name(&entry.file_name().to_string_lossy()).is_ok();
        if is_named && entry.path().is_dir() && is_partition(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there is a segment in it, or what names its topic.
fn is_partition(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let segment = name.to_str().and_then(|name| name.strip_suffix(".log"));
        let is_segment = segment.is_some_and(|base| base.len() == 20 && base.bytes().all(|b| b.is_ascii_digit()));
        if is_segment || name == "partition.metadata" {
            return Ok(true);
        }
    }
    Ok(false)
}
