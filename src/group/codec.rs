//! The records of `__consumer_offsets`, as Kafka writes them (its generated messages are drawn in `machine/message.rs`).
//!
//! ```text
//!  key       2  kind, all in the plain form
//!            .. text group
//!            0, 1:     text topic, 4 partition                  (1 is written)
//!            5, 7, 8:  text member
//!
//!  kind      value; without one the key is forgotten
//!  0, 1      2  version: 0 to 4 are read, 3 is written, 1 where the position expires at a time of its own
//!               0: 8 offset, text metadata, 8 committed     1: and 8 expires, -1 for never     2: as 0
//!               3: 8 offset, 4 leader epoch, -1 for none, text metadata, 8 committed     4: as 3, flexible
//!  2         a group of the classic protocol: passed over
//!  3         2  version 0, flexible as all below    4  epoch
//!  4         the topics of a group: passed over
//!  5         2  version 0    text? instance    text? rack    text client id    text client host
//!            .. array of texts, topics    text? pattern    4  rebalance time-out in milliseconds    text? assignor
//!            .. tag 0, of a member of the classic protocol: passed over
//!  6         2  version 0    4  epoch
//!  7         2  version 0    partitions
//!  8         2  version 0    4  epoch, -2 where it has left for now    4  epoch before
//!            1  0 Stable  1 Unrevoked  2 Unreleased    partitions, assigned    partitions, to be given back
//!
//!  partitions   array of: 16 topic id, array of 4-byte numbers
//! ```
//!
//! `text?` is a text or none. A key of another kind is passed over too: it stays in the log. Of kinds 2 and 4 only it is
//! read that they are forgotten ([`Leftover`]), as they are with their group.
//!
//! Invariants: offsets, epochs and numbers of partitions that are read are not negative; an assignor that is not known is
//! read as none; a time-out that is negative is read as none at all; what is assigned is not to be given back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::offsets::{Committed, Position};
use super::partitions::Partitions;
use super::protocol::{Assignor, Details, Epoch, Subscription};
use super::reconcile::{Current, Phase, Standing};
use super::{Event, Leftover};
use crate::machine::KeyValue;
use crate::machine::message::{FlexibleWriter, Form, MessageReader, put_plain_text};
use crate::types::{LeaderEpoch, Offset, Timestamp, TopicId, TopicPartition};

type Parsed<T> = Result<T, String>;

const OLD_OFFSET: i16 = 0;
const OFFSET: i16 = 1;
const CLASSIC: i16 = 2;
const GROUP: i16 = 3;
const TOPICS: i16 = 4;
const MEMBER: i16 = 5;
const TARGET_EPOCH: i16 = 6;
const TARGET: i16 = 7;
const CURRENT: i16 = 8;

const PLAIN_OFFSET: i16 = 3;
const EXPIRING_OFFSET: i16 = 1;
const FLEXIBLE_OFFSET: i16 = 4;
const VERSION: i16 = 0;
const AWAY: i32 = -2;

pub(super) fn encode(event: &Event) -> KeyValue {
    let group = event.group();
    match event {
        Event::Committed { partition, committed, .. } => {
            let mut key = key_of(OFFSET, &[group, &partition.topic]);
            key.extend_from_slice(&partition.partition.to_be_bytes());
            KeyValue { key, value: committed.as_ref().map(offset_value) }
        }
        Event::Group { epoch, .. } => KeyValue { key: key_of(GROUP, &[group]), value: epoch.map(epoch_value) },
        Event::TargetEpoch { epoch, .. } => {
            KeyValue { key: key_of(TARGET_EPOCH, &[group]), value: epoch.map(epoch_value) }
        }
        Event::Member { member, details, .. } => {
            KeyValue { key: key_of(MEMBER, &[group, member]), value: details.as_deref().map(member_value) }
        }
        Event::Target { member, partitions, .. } => {
            KeyValue { key: key_of(TARGET, &[group, member]), value: partitions.as_ref().map(target_value) }
        }
        Event::Current { member, current, .. } => {
            KeyValue { key: key_of(CURRENT, &[group, member]), value: current.as_ref().map(current_value) }
        }
        Event::Leftover { of: Leftover::Classic, .. } => KeyValue { key: key_of(CLASSIC, &[group]), value: None },
        Event::Leftover { of: Leftover::Topics, .. } => KeyValue { key: key_of(TOPICS, &[group]), value: None },
    }
}

pub(super) fn decode(key: &[u8], value: Option<&[u8]>) -> Parsed<Option<Event>> {
    let mut reader = MessageReader::new(key, Form::Plain);
    let kind = reader.i16("the kind of the key")?;
    if !(OLD_OFFSET..=CURRENT).contains(&kind) {
        return Ok(None);
    }
    let group = reader.text("the group")?.to_owned();
    let event = match kind {
        OLD_OFFSET | OFFSET => {
            let topic = reader.text("the topic")?.to_owned();
            let partition = number(reader.i32("the partition")?, "the partition")?;
            let partition = TopicPartition { topic, partition };
            Event::Committed { group, partition, committed: value.map(committed_of).transpose()? }
        }
        CLASSIC | TOPICS => {
            reader.end()?;
            let of = if kind == CLASSIC { Leftover::Classic } else { Leftover::Topics };
            return Ok(value.is_none().then_some(Event::Leftover { group, of }));
        }
        GROUP => Event::Group { group, epoch: value.map(epoch_of).transpose()? },
        TARGET_EPOCH => Event::TargetEpoch { group, epoch: value.map(epoch_of).transpose()? },
        _ => {
            let member = reader.text("the member")?.to_owned();
            match kind {
                MEMBER => Event::Member { group, member, details: value.map(details_of).transpose()?.map(Arc::new) },
                TARGET => Event::Target { group, member, partitions: value.map(target_of).transpose()? },
                _ => Event::Current { group, member, current: value.map(current_of).transpose()? },
            }
        }
    };
    reader.end()?;
    Ok(Some(event))
}

fn key_of(kind: i16, texts: &[&String]) -> Vec<u8> {
    let mut key = kind.to_be_bytes().to_vec();
    for text in texts {
        put_plain_text(text, &mut key);
    }
    key
}

fn offset_value(committed: &Committed) -> Vec<u8> {
    let Committed { position, committed, expires } = committed;
    let version = if expires.is_some() { EXPIRING_OFFSET } else { PLAIN_OFFSET };
    let mut value = version.to_be_bytes().to_vec();
    value.extend_from_slice(&position.offset.to_i64().to_be_bytes());
    if version == PLAIN_OFFSET {
        value.extend_from_slice(&position.leader_epoch.map_or(-1, |epoch| epoch.0).to_be_bytes());
    }
    put_plain_text(&position.metadata, &mut value);
    value.extend_from_slice(&committed.0.to_be_bytes());
    if let Some(expires) = expires {
        value.extend_from_slice(&expires.0.to_be_bytes());
    }
    value
}

fn committed_of(value: &[u8]) -> Parsed<Committed> {
    let (version, mut reader) = versioned(value, |version| match version {
        0..=PLAIN_OFFSET => Some(Form::Plain),
        FLEXIBLE_OFFSET => Some(Form::Flexible),
        _ => None,
    })?;
    let offset = reader.i64("the offset")?;
    let offset = Offset::from_i64(offset).ok_or_else(|| format!("the offset is {offset}"))?;
    let has_epoch = version >= PLAIN_OFFSET;
    let leader_epoch = if has_epoch { LeaderEpoch::from_i32(reader.i32("the leader epoch")?) } else { None };
    let metadata = reader.text("the metadata")?.to_owned();
    let committed = Timestamp(reader.i64("when it was committed")?);
    let expires = if version == EXPIRING_OFFSET { Timestamp::from_i64(reader.i64("when it expires")?) } else { None };
    ended(reader)?;
    Ok(Committed { position: Position { offset, leader_epoch, metadata }, committed, expires })
}

fn epoch_value(epoch: Epoch) -> Vec<u8> {
    let mut writer = begun();
    writer.put(&epoch.to_i32().to_be_bytes());
    writer.tagged(&[]);
    writer.into_bytes()
}

fn epoch_of(value: &[u8]) -> Parsed<Epoch> {
    let (_, mut reader) = versioned(value, flexible)?;
    let epoch = number(reader.i32("the epoch")?, "the epoch")?;
    ended(reader)?;
    Ok(Epoch(epoch))
}

fn member_value(details: &Details) -> Vec<u8> {
    let mut writer = begun();
    writer.optional_text(details.instance.as_deref());
    writer.optional_text(details.rack.as_deref());
    writer.text(&details.client_id);
    writer.text(&details.client_host);
    writer.count(Some(details.subscription.topics.len()));
    for topic in &details.subscription.topics {
        writer.text(topic);
    }
    writer.optional_text(details.subscription.pattern.as_deref());
    let millis = i32::try_from(details.rebalance_timeout.as_millis()).unwrap_or(i32::MAX);
    writer.put(&millis.to_be_bytes());
    writer.optional_text(details.assignor.map(Assignor::name));
    writer.tagged(&[]);
    writer.into_bytes()
}

fn details_of(value: &[u8]) -> Parsed<Details> {
    let (_, mut reader) = versioned(value, flexible)?;
    let instance = reader.optional_text("the instance id")?.map(ToOwned::to_owned);
    let rack = reader.optional_text("the rack")?.map(ToOwned::to_owned);
    let client_id = reader.text("the client id")?.to_owned();
    let client_host = reader.text("the client's host")?.to_owned();
    let mut topics = BTreeSet::new();
    for _ in 0..reader.count("the number of topics")?.unwrap_or(0) {
        topics.insert(reader.text("a topic's name")?.to_owned());
    }
    let pattern = reader.optional_text("the pattern")?.map(ToOwned::to_owned);
    let millis = reader.i32("the rebalance time-out")?;
    let rebalance_timeout = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    let assignor = reader
        .optional_text("the assignor")?
        .and_then(|name| [Assignor::Uniform, Assignor::Range].into_iter().find(|assignor| assignor.name() == name));
    ended(reader)?;
    let subscription = Subscription { topics, pattern };
    let session_timeout = None;
    Ok(Details { instance, rack, client_id, client_host, subscription, assignor, rebalance_timeout, session_timeout })
}

fn target_value(partitions: &Partitions) -> Vec<u8> {
    let mut writer = begun();
    put_partitions(partitions, &mut writer);
    writer.tagged(&[]);
    writer.into_bytes()
}

fn target_of(value: &[u8]) -> Parsed<Partitions> {
    let (_, mut reader) = versioned(value, flexible)?;
    let partitions = take_partitions(&mut reader)?;
    ended(reader)?;
    Ok(partitions)
}

fn current_value(current: &Current) -> Vec<u8> {
    let mut writer = begun();
    let epoch = match current.standing {
        Standing::Here(epoch) => epoch.to_i32(),
        Standing::Away => AWAY,
    };
    writer.put(&epoch.to_be_bytes());
    writer.put(&current.previous.to_i32().to_be_bytes());
    writer.put(&[match current.phase {
        Phase::Stable => 0,
        Phase::Unrevoked => 1,
        Phase::Unreleased => 2,
    }]);
    put_partitions(&current.assigned, &mut writer);
    put_partitions(&current.revoking, &mut writer);
    writer.tagged(&[]);
    writer.into_bytes()
}

fn current_of(value: &[u8]) -> Parsed<Current> {
    let (_, mut reader) = versioned(value, flexible)?;
    let standing = match reader.i32("the epoch")? {
        AWAY => Standing::Away,
        epoch => Standing::Here(Epoch(number(epoch, "the epoch")?)),
    };
    // -1 is what Kafka begins with.
    let previous = Epoch(u32::try_from(reader.i32("the epoch before")?).unwrap_or(0));
    let phase = match reader.i8("the state")? {
        0 => Phase::Stable,
        1 => Phase::Unrevoked,
        2 => Phase::Unreleased,
        other => return Err(format!("the state {other} is none that is stored")),
    };
    let assigned = take_partitions(&mut reader)?;
    let revoking = take_partitions(&mut reader)?.without(&assigned);
    ended(reader)?;
    Ok(Current { standing, previous, phase, assigned, revoking })
}

fn put_partitions(partitions: &Partitions, writer: &mut FlexibleWriter) {
    writer.count(Some(partitions.topics().count()));
    for (topic, numbers) in partitions.topics() {
        writer.put(&topic.0);
        writer.count(Some(numbers.len()));
        for number in numbers {
            writer.put(&number.to_be_bytes());
        }
        writer.tagged(&[]);
    }
}

fn take_partitions(reader: &mut MessageReader<'_>) -> Parsed<Partitions> {
    let mut partitions = Partitions::default();
    for _ in 0..reader.count("the number of topics")?.unwrap_or(0) {
        let topic = TopicId(reader.uuid("a topic's id")?);
        for _ in 0..reader.count("the number of partitions")?.unwrap_or(0) {
            partitions.insert(topic, number(reader.i32("a partition's number")?, "a partition's number")?);
        }
        reader.tagged(|_, _| Ok(false))?;
    }
    Ok(partitions)
}

/// A value of the flexible form, behind its version.
fn begun() -> FlexibleWriter {
    let mut writer = FlexibleWriter::default();
    writer.put(&VERSION.to_be_bytes());
    writer
}

const fn flexible(version: i16) -> Option<Form> {
    if version == VERSION { Some(Form::Flexible) } else { None }
}

/// A value's version, and what is behind it in the version's form.
fn versioned(value: &[u8], form: impl Fn(i16) -> Option<Form>) -> Parsed<(i16, MessageReader<'_>)> {
    let version = MessageReader::new(value, Form::Plain).i16("the version")?;
    let form = form(version).ok_or_else(|| format!("the record is of version {version}, which is not known"))?;
    Ok((version, MessageReader::new(value.get(2..).unwrap_or_default(), form)))
}

/// The tags that end a message, and nothing behind them.
fn ended(mut reader: MessageReader<'_>) -> Parsed<()> {
    reader.tagged(|_, _| Ok(false))?;
    reader.end()
}

fn number(value: i32, field: &str) -> Parsed<u32> {
    u32::try_from(value).map_err(|_| format!("{field} is {value}"))
}
