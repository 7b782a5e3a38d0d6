//! A batch as one line of JSON, for programs.
//!
//! Offsets are absolute, positions and sizes are bytes, timestamps milliseconds; keys, values and header values are
//! hex, in full, and null for null; headers are a list of name and value; −1 stands for no leader epoch, timestamp,
//! producer or sequence; the checksum is hex. `control_record` is there for control batches that hold a record.

use std::fmt::Write as _;

use taffrail::{Batch, ControlRecord, Header, RecordView, Timestamp, TimestampType};

use super::SegmentFile;

/// The line, without its end.
pub(crate) fn batch_as_json(segment: &SegmentFile, position: u64, batch: &Batch<'_>) -> String {
    let header = batch.header();
    let timestamp_type = match header.timestamp_type() {
        TimestampType::LogAppendTime => "LogAppendTime",
        _ => "CreateTime",
    };
    let mut fields = vec![
        ("segment", text(&segment.name)),
        ("position", position.to_string()),
        ("size", header.size().to_string()),
        ("base_offset", header.base_offset().to_string()),
        ("last_offset", header.last_offset().to_string()),
        ("leader_epoch", header.leader_epoch().map_or(-1, |epoch| epoch.0).to_string()),
        ("crc", text(&format!("{:08x}", header.checksum()))),
        ("codec", text(header.compression().name())),
        ("timestamp_type", text(timestamp_type)),
        ("max_timestamp", Timestamp::to_i64(header.max_timestamp()).to_string()),
        ("delete_horizon_ms", header.delete_horizon().map_or("null".to_owned(), |horizon| horizon.to_string())),
        ("producer_id", header.producer_id().map_or(-1, |id| id.0).to_string()),
        ("producer_epoch", header.producer_epoch().map_or(-1, |epoch| epoch.0).to_string()),
        ("base_sequence", header.base_sequence().map_or(-1, |sequence| sequence.0).to_string()),
        ("last_sequence", header.last_sequence().map_or(-1, |sequence| sequence.0).to_string()),
        ("transactional", header.is_transactional().to_string()),
        ("control", header.is_control().to_string()),
        ("record_count", header.record_count().to_string()),
    ];
    fields.extend(batch.control().map(|control| ("control_record", control_record(control))));
    fields.push(("records", list(batch.records().map(|record| record_as_json(&record)))));
    object(&fields)
}

fn record_as_json(record: &RecordView<'_>) -> String {
    object(&[
        ("offset", record.offset().to_string()),
        ("timestamp", Timestamp::to_i64(record.timestamp()).to_string()),
        ("sequence", record.sequence().map_or(-1, |sequence| sequence.0).to_string()),
        ("key", hex_or_null(record.key())),
        ("value", hex_or_null(record.value())),
        ("headers", list(record.headers().map(|header| header_as_json(&header)))),
    ])
}

fn header_as_json(header: &Header<'_>) -> String {
    list([text(&String::from_utf8_lossy(header.name())), hex_or_null(header.value())])
}

fn control_record(control: ControlRecord) -> String {
    let (name, coordinator_epoch) = match control {
        ControlRecord::Abort { coordinator_epoch } => ("ABORT", Some(coordinator_epoch)),
        ControlRecord::Commit { coordinator_epoch } => ("COMMIT", Some(coordinator_epoch)),
        ControlRecord::LeaderChange => ("LEADER_CHANGE", None),
        ControlRecord::SnapshotHeader => ("SNAPSHOT_HEADER", None),
        ControlRecord::SnapshotFooter => ("SNAPSHOT_FOOTER", None),
        ControlRecord::KraftVersion => ("KRAFT_VERSION", None),
        ControlRecord::KraftVoters => ("KRAFT_VOTERS", None),
        _ => ("UNKNOWN", None),
    };
    let mut fields = vec![("type", text(name))];
    fields.extend(coordinator_epoch.map(|epoch| ("coordinator_epoch", epoch.to_string())));
    object(&fields)
}

fn hex_or_null(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else { return "null".to_owned() };
    let hex = bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    format!("\"{hex}\"")
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

/// An object whose fields stand in this order; the values are JSON already.
fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}
