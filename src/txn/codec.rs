//! The records of `__transaction_state`, as Kafka writes them (its generated messages are drawn in `machine/message.rs`).
//!
//! ```text
//!  key       2  version: 0
//!            .. text transactional id (plain form)
//!
//!  value     2  version: 0 (plain) and 1 (flexible) are read, 1 is written; no value: the id is forgotten
//!            8  producer id
//!            2  producer epoch
//!            4  time-out in milliseconds
//!            1  status: 0 Empty  1 Ongoing  2 PrepareCommit  3 PrepareAbort  4 CompleteCommit  5 CompleteAbort
//!            .. array of topics, none in Empty: text name, array of 4-byte numbers, (tags of a topic)
//!            8  when it changed last
//!            8  when it began, -1 where it has not
//!            .. version 1, tags:  0  8 previous producer id    1  8 next producer id    2  2 version of the protocol
//! ```
//!
//! A key of another version is of a kind that this release does not know: such a record is passed over. A tag that has
//! its default (-1, -1, 0) is left out.
//!
//! Invariants: ids, epochs, the time-out and the numbers of partitions that are read are not negative; a topic that is
//! named twice has the numbers of both; a state that has no partitions (`Empty`, `Complete`) is read without any.

use super::state::{Kept, Partitions, Status};
use super::{Bump, Event};
use crate::machine::KeyValue;
use crate::machine::message::{FlexibleWriter, Form, MessageReader, put_plain_text};
use crate::record::control::Outcome;
use crate::types::{ProducerEpoch, ProducerId, Timestamp};

type Parsed<T> = Result<T, String>;

const KEY_VERSION: i16 = 0;
const PLAIN_VERSION: i16 = 0;
const VERSION: i16 = 1;
const PREVIOUS_PRODUCER_ID: u32 = 0;
const NEXT_PRODUCER_ID: u32 = 1;
const PROTOCOL_VERSION: u32 = 2;

pub(super) fn encode(event: &Event) -> KeyValue {
    let (id, value) = match event {
        Event::Changed { id, kept, .. } => (id, Some(value_of(kept))),
        Event::Forgotten { id } => (id, None),
    };
    let mut key = KEY_VERSION.to_be_bytes().to_vec();
    put_plain_text(id, &mut key);
    KeyValue { key, value }
}

pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Parsed<Option<Event>> {
    let mut reader = MessageReader::new(key, Form::Plain);
    if reader.i16("the version of the key")? != KEY_VERSION {
        return Ok(None);
    }
    let id = reader.text("the transactional id")?.to_owned();
    reader.end()?;
    let Some(value) = value else { return Ok(Some(Event::Forgotten { id })) };
    let kept = kept_of(value)?;
    Ok(Some(Event::Changed { id, kept, bump: Some(Bump::Unknown) }))
}

fn value_of(kept: &Kept) -> Vec<u8> {
    let mut writer = FlexibleWriter::default();
    writer.put(&VERSION.to_be_bytes());
    writer.put(&kept.producer_id.0.to_be_bytes());
    writer.put(&kept.producer_epoch.0.to_be_bytes());
    writer.put(&kept.timeout_ms.to_be_bytes());
    writer.put(&[number_of(kept.status)]);
    put_partitions(kept, &mut writer);
    writer.put(&kept.updated.0.to_be_bytes());
    writer.put(&Timestamp::to_i64(kept.started).to_be_bytes());
    let previous = kept.previous_producer_id.map(|id| id.0.to_be_bytes());
    let next = kept.next_producer_id.map(|id| id.0.to_be_bytes());
    let version = kept.version.to_be_bytes();
    let ids = [(PREVIOUS_PRODUCER_ID, &previous), (NEXT_PRODUCER_ID, &next)];
    let mut tags: Vec<(u32, &[u8])> = Vec::new();
    tags.extend(ids.iter().filter_map(|(tag, id)| Some((*tag, id.as_ref()?.as_slice()))));
    tags.extend((kept.version != 0).then_some((PROTOCOL_VERSION, version.as_slice())));
    writer.tagged(&tags);
    writer.into_bytes()
}

fn put_partitions(kept: &Kept, writer: &mut FlexibleWriter) {
    if kept.status == Status::Empty {
        return writer.count(None);
    }
    writer.count(Some(kept.partitions.len()));
    for (topic, numbers) in &kept.partitions {
        writer.text(topic);
        writer.count(Some(numbers.len()));
        for number in numbers {
            writer.put(&number.to_be_bytes());
        }
        writer.tagged(&[]);
    }
}

fn kept_of(value: &[u8]) -> Parsed<Kept> {
    let mut reader = MessageReader::new(value, Form::Plain);
    let form = match reader.i16("the version")? {
        PLAIN_VERSION => Form::Plain,
        VERSION => Form::Flexible,
        other => {
            return Err(format!("the record is of version {other}, this release reads {PLAIN_VERSION} and {VERSION}"));
        }
    };
    let mut reader = MessageReader::new(value.get(2..).unwrap_or_default(), form);
    let mut kept = Kept {
        producer_id: id_of(reader.i64("the producer id")?)?,
        producer_epoch: epoch_of(reader.i16("the producer epoch")?)?,
        previous_producer_id: None,
        next_producer_id: None,
        timeout_ms: number(reader.i32("the time-out")?, "the time-out")?,
        status: status_of(reader.i8("the status")?)?,
        partitions: take_partitions(&mut reader)?,
        updated: Timestamp(reader.i64("when it changed")?),
        started: Timestamp::from_i64(reader.i64("when it began")?),
        version: 0,
    };
    reader.tagged(|tag, field| {
        match tag {
            PREVIOUS_PRODUCER_ID => kept.previous_producer_id = tagged_id(field.i64("the previous producer id")?)?,
            NEXT_PRODUCER_ID => kept.next_producer_id = tagged_id(field.i64("the next producer id")?)?,
            PROTOCOL_VERSION => kept.version = field.i16("the protocol's version")?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    reader.end()?;
    if matches!(kept.status, Status::Empty | Status::Complete(_)) {
        kept.partitions.clear();
    }
    Ok(kept)
}

fn take_partitions(reader: &mut MessageReader<'_>) -> Parsed<Partitions> {
    let mut partitions = Partitions::new();
    for _ in 0..reader.count("the number of topics")?.unwrap_or(0) {
        let numbers = partitions.entry(reader.text("a topic's name")?.to_owned()).or_default();
        for _ in 0..reader.count("the number of partitions")?.unwrap_or(0) {
            numbers.insert(number(reader.i32("a partition's number")?, "a partition's number")?);
        }
        reader.tagged(|_, _| Ok(false))?;
    }
    Ok(partitions)
}

const fn number_of(status: Status) -> u8 {
    match status {
        Status::Empty => 0,
        Status::Ongoing => 1,
        Status::Prepared(Outcome::Committed) => 2,
        Status::Prepared(Outcome::Aborted) => 3,
        Status::Complete(Outcome::Committed) => 4,
        Status::Complete(Outcome::Aborted) => 5,
    }
}

fn status_of(number: i8) -> Parsed<Status> {
    match number {
        0 => Ok(Status::Empty),
        1 => Ok(Status::Ongoing),
        2 => Ok(Status::Prepared(Outcome::Committed)),
        3 => Ok(Status::Prepared(Outcome::Aborted)),
        4 => Ok(Status::Complete(Outcome::Committed)),
        5 => Ok(Status::Complete(Outcome::Aborted)),
        other => Err(format!("the status {other} is none that is stored")),
    }
}

fn id_of(id: i64) -> Parsed<ProducerId> {
    if id < 0 { Err(format!("the producer id is {id}")) } else { Ok(ProducerId(id)) }
}

/// -1 is Kafka's word for none.
fn tagged_id(id: i64) -> Parsed<Option<ProducerId>> {
    if id == -1 { Ok(None) } else { id_of(id).map(Some) }
}

fn epoch_of(epoch: i16) -> Parsed<ProducerEpoch> {
    if epoch < 0 { Err(format!("the producer epoch is {epoch}")) } else { Ok(ProducerEpoch(epoch)) }
}

fn number(value: i32, field: &str) -> Parsed<u32> {
    u32::try_from(value).map_err(|_| format!("{field} is {value}"))
}
