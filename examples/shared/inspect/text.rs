//! What is there, as a person wants to read it: a table of batches per segment, with its indexes below.

use std::io::{self, Write};

use taffrail::{Batch, BatchHeader, ControlRecord, LeaderEpoch, Timestamp};

use super::directory::Contents;
use super::{Event, Summary};

/// Prints events as they come by. An error of the output is kept until the end.
pub(crate) struct Printer<W> {
    out: W,
    outcome: io::Result<()>,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, outcome: Ok(()) }
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) {
        if self.outcome.is_ok() {
            self.outcome = self.print(event);
        }
    }

    /// The last lines: what there was, and what is wrong.
    pub(crate) fn summary(mut self, summary: &Summary) -> io::Result<()> {
        self.outcome?;
        let Summary { segments, batches, records, .. } = summary;
        let offsets =
            summary.offsets.as_ref().map_or("no offsets".to_owned(), |o| format!("offsets {} to {}", o.start, o.end));
        writeln!(self.out, "\n{segments} segments, {batches} batches, {records} records, {offsets}")?;
        for wrong in &summary.wrong {
            writeln!(self.out, "wrong: {wrong}")?;
        }
        match summary.wrong.len() {
            0 => writeln!(self.out, "nothing is wrong")?,
            count => writeln!(self.out, "{count} things are wrong")?,
        }
        self.out.flush()
    }

    fn print(&mut self, event: &Event<'_>) -> io::Result<()> {
        let out = &mut self.out;
        match event {
            Event::Directory(contents) => directory(out, contents),
            Event::Segment(segment) => {
                writeln!(out, "\n{}  base offset {}, {} bytes", segment.name, segment.base, segment.len)?;
                let (position, size, offsets) = ("position", "size", "offsets");
                writeln!(
                    out,
                    "  {position:>10} {size:>9}  {offsets:<21} {:>5} {:<7} {:>7}  {:<13}",
                    "epoch", "codec", "records", "max timestamp"
                )
            }
            Event::Batch { position, batch, .. } => {
                line(out, *position, batch.header(), &notes(batch.header(), Some(batch)))
            }
            Event::Sealed { position, header, reason } => line(out, *position, header, reason),
            Event::Damage { bytes, reason } => {
                writeln!(out, "  {:>10} {:>9}  DAMAGED: {reason}", bytes.start, bytes.end - bytes.start)
            }
            Event::Window { bytes } => {
                let what = "zeros: the window into which a partition that syncs writes next";
                writeln!(out, "  {:>10} {:>9}  {what}", bytes.start, bytes.end - bytes.start)
            }
            Event::Indexes { offsets, times, aborted } => {
                for entry in offsets {
                    writeln!(out, "  index      offset {} at byte {}", entry.offset, entry.position)?;
                }
                for entry in times {
                    writeln!(out, "  timeindex  timestamp {} up to offset {}", entry.timestamp, entry.offset)?;
                }
                for entry in aborted {
                    let (first, last) = (entry.first_offset, entry.last_offset);
                    writeln!(out, "  txnindex   producer {} aborted {first} to {last}", entry.producer_id.0)?;
                }
                Ok(())
            }
        }
    }
}

fn directory(out: &mut impl Write, contents: &Contents) -> io::Result<()> {
    writeln!(out, "{}", contents.path.display())?;
    let closed = if contents.is_clean { "closed cleanly" } else { "open, or not closed cleanly" };
    writeln!(out, "topic {}, partition {}, {closed}", contents.name.topic, contents.name.partition)?;
    if let Some(id) = &contents.topic_id {
        writeln!(out, "topic id {id}")?;
    }
    for checkpoint in &contents.checkpoints {
        let place = if checkpoint.is_inner { "" } else { " (the directory above says)" };
        writeln!(out, "{} {}{place}", checkpoint.meaning, checkpoint.offset)?;
    }
    for (epoch, start) in contents.epochs.entries() {
        writeln!(out, "leader epoch {epoch} from offset {start}")?;
    }
    for snapshot in &contents.snapshots {
        writeln!(out, "{}  {} producers", snapshot.name, snapshot.producers.len())?;
        for producer in &snapshot.producers {
            let open = producer.open_since.map_or(String::new(), |first| format!(", a transaction open since {first}"));
            let (id, epoch) = (producer.id, producer.epoch);
            let (sequence, offset) = (producer.last_sequence, producer.last_offset);
            writeln!(out, "  producer {id} epoch {epoch}, last sequence {sequence} at offset {offset}{open}")?;
        }
    }
    for other in &contents.others {
        writeln!(out, "{other}: left over, or not of a partition")?;
    }
    Ok(())
}

fn line(out: &mut impl Write, position: u64, header: &BatchHeader, notes: &str) -> io::Result<()> {
    let offsets = format!("{} to {}", header.base_offset(), header.last_offset());
    let (size, codec, records) = (header.size(), header.compression().name(), header.record_count());
    let epoch = header.leader_epoch().map_or("-".to_owned(), |LeaderEpoch(epoch)| epoch.to_string());
    let timestamp = header.max_timestamp().map_or("-".to_owned(), |Timestamp(millis)| millis.to_string());
    let text = format!(
        "  {position:>10} {size:>9}  {offsets:<21} {epoch:>5} {codec:<7} {records:>7}  {timestamp:<13}  {notes}"
    );
    writeln!(out, "{}", text.trim_end())
}

/// What is particular about a batch.
fn notes(header: &BatchHeader, batch: Option<&Batch<'_>>) -> String {
    let mut notes = Vec::new();
    if let Some(id) = header.producer_id() {
        let sequence = header.base_sequence().map_or(String::new(), |sequence| format!(" sequence {}", sequence.0));
        notes.push(format!("producer {}{sequence}", id.0));
    }
    match batch.and_then(Batch::control) {
        Some(ControlRecord::Abort { coordinator_epoch }) => {
            notes.push(format!("ABORT by coordinator {coordinator_epoch}"));
        }
        Some(ControlRecord::Commit { coordinator_epoch }) => {
            notes.push(format!("COMMIT by coordinator {coordinator_epoch}"));
        }
        Some(other) => notes.push(format!("{other:?}")),
        None if header.is_control() => notes.push("control".to_owned()),
        None if header.is_transactional() => notes.push("transactional".to_owned()),
        None => {}
    }
    if header.timestamp_type() == taffrail::TimestampType::LogAppendTime {
        notes.push("append time".to_owned());
    }
    if let Some(horizon) = header.delete_horizon() {
        notes.push(format!("tombstones go at {horizon}"));
    }
    notes.join(", ")
}
