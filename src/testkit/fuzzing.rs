//! Parsers that are not public, for the fuzz targets. No part of the interface.

use bytes::Bytes;

use crate::storage::checkpoint::{OffsetCheckpoint, own, parse_epochs, partition_metadata, render_epochs};

/// Parses the bytes as each of the small files. What is taken must be written as something that reads the same.
pub fn small_files(bytes: &[u8]) {
    if let Ok(offsets) = OffsetCheckpoint::parse(bytes) {
        assert_eq!(OffsetCheckpoint::parse(OffsetCheckpoint::render(&offsets).as_bytes()), Ok(offsets));
    }
    if let Ok(epochs) = parse_epochs(bytes) {
        assert_eq!(parse_epochs(render_epochs(&epochs).as_bytes()), Ok(epochs));
    }
    if let Ok(topic) = partition_metadata::parse(bytes) {
        assert_eq!(partition_metadata::parse(partition_metadata::render(&topic).as_bytes()), Ok(topic));
    }
    if let Ok(content) = own::unframe(&Bytes::copy_from_slice(bytes), 0) {
        assert_eq!(own::frame(0, &content), bytes);
    }
}
