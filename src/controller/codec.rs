//! The bytes of the controller's events, big-endian; `text` is as in the fields of a machine.
//!
//! ```text
//!  byte  0  1  version: 0
//!        1  1  kind
//!        2  .. by the kind
//!
//!  0 formatted          text cluster
//!  1 created            text name, 16 id, 1 adopted (0 or 1), config
//!  2 partitions added   16 id, 4 total
//!  3 configured         16 id, config
//!  4 deleted            16 id
//!  5 removed            16 id
//!  6 producer ids       8 next: every one below it may have been given
//!
//!  config   4  partitions
//!           4  copies, 0 where they are left to the log
//!           2  how many settings follow
//!           .. each: text name, text value, as `TopicConfig::settings` has them
//! ```
//!
//! Settings are written as text by Kafka's names, so that a setting can be added without a new layout. One that is not
//! known is refused: to ignore it would be to keep records in another way than was asked for.
//!
//! Invariants: names, ids and the numbers of partitions and copies are checked when they are read; the rest of a
//! configuration is checked where partitions are opened with it, so that a release that checks more can still read
//! what an earlier one took.

use super::Event;
use super::decide::{check_cluster, check_id, check_name};
use crate::config::TopicConfig;
use crate::machine::fields::{Fields, put_text};
use crate::types::{ProducerId, TopicId};

type Parsed<T> = Result<T, String>;

const VERSION: u8 = 0;
const FORMATTED: u8 = 0;
const CREATED: u8 = 1;
const PARTITIONS_ADDED: u8 = 2;
const CONFIGURED: u8 = 3;
const DELETED: u8 = 4;
const REMOVED: u8 = 5;
const PRODUCER_IDS_ALLOCATED: u8 = 6;

pub(super) fn encode(event: &Event, into: &mut Vec<u8>) {
    into.push(VERSION);
    match event {
        Event::Formatted { cluster } => {
            into.push(FORMATTED);
            put_text(cluster, into);
        }
        Event::Created { name, id, config, adopted } => {
            into.push(CREATED);
            put_text(name, into);
            into.extend_from_slice(&id.0);
            into.push(u8::from(*adopted));
            put_config(config, into);
        }
        Event::PartitionsAdded { id, total } => {
            put_kind(PARTITIONS_ADDED, *id, into);
            into.extend_from_slice(&total.to_be_bytes());
        }
        Event::Configured { id, config } => {
            put_kind(CONFIGURED, *id, into);
            put_config(config, into);
        }
        Event::Deleted { id } => put_kind(DELETED, *id, into),
        Event::Removed { id } => put_kind(REMOVED, *id, into),
        Event::ProducerIdsAllocated { next } => {
            into.push(PRODUCER_IDS_ALLOCATED);
            into.extend_from_slice(&next.0.to_be_bytes());
        }
    }
}

pub(super) fn decode(bytes: &[u8]) -> Parsed<Event> {
    let mut fields = Fields::of(bytes);
    match fields.u8("the version")? {
        VERSION => {}
        other => return Err(format!("the event is of version {other}, this release reads {VERSION}")),
    }
    let event = decode_kind(&mut fields)?;
    fields.end().map(|()| event)
}

fn decode_kind(fields: &mut Fields<'_>) -> Parsed<Event> {
    match fields.u8("the kind")? {
        FORMATTED => Ok(Event::Formatted { cluster: take_cluster(fields)? }),
        CREATED => Ok(Event::Created {
            name: take_name(fields)?,
            id: take_id(fields)?,
            adopted: fields.flag("adopted")?,
            config: take_config(fields)?,
        }),
        PARTITIONS_ADDED => Ok(Event::PartitionsAdded { id: take_id(fields)?, total: take_partitions(fields)? }),
        CONFIGURED => Ok(Event::Configured { id: take_id(fields)?, config: take_config(fields)? }),
        DELETED => Ok(Event::Deleted { id: take_id(fields)? }),
        REMOVED => Ok(Event::Removed { id: take_id(fields)? }),
        PRODUCER_IDS_ALLOCATED => Ok(Event::ProducerIdsAllocated { next: take_producer(fields)? }),
        other => Err(format!("an event of kind {other} is not known")),
    }
}

fn put_kind(kind: u8, id: TopicId, into: &mut Vec<u8>) {
    into.push(kind);
    into.extend_from_slice(&id.0);
}

pub(super) fn put_config(config: &TopicConfig, into: &mut Vec<u8>) {
    let settings = config.settings();
    into.extend_from_slice(&config.partitions.to_be_bytes());
    into.extend_from_slice(&config.replication_factor.unwrap_or(0).to_be_bytes());
    into.extend_from_slice(&u16::try_from(settings.len()).unwrap_or(u16::MAX).to_be_bytes());
    for (name, value) in settings {
        put_text(name, into);
        put_text(&value, into);
    }
}

pub(super) fn take_config(fields: &mut Fields<'_>) -> Parsed<TopicConfig> {
    let mut config = TopicConfig::new().partitions(fields.u32("the number of partitions")?);
    config.replication_factor = Some(fields.u32("the number of copies")?).filter(|copies| *copies > 0);
    for _ in 0..fields.u16("the number of settings")? {
        let name = fields.text("the name of a setting")?;
        config.apply(name, fields.text("the value of a setting")?)?;
    }
    match config.check_counts() {
        Ok(()) => Ok(config),
        Err((setting, reason)) => Err(format!("setting {setting}: {reason}")),
    }
}

pub(super) fn take_partitions(fields: &mut Fields<'_>) -> Parsed<u32> {
    let partitions = fields.u32("the number of partitions")?;
    match TopicConfig::new().partitions(partitions).check_counts() {
        Ok(()) => Ok(partitions),
        Err((setting, reason)) => Err(format!("setting {setting}: {reason}")),
    }
}

pub(super) fn take_cluster(fields: &mut Fields<'_>) -> Parsed<String> {
    let cluster = fields.text("the cluster's id")?;
    check_cluster(cluster).map(|()| cluster.to_owned()).map_err(|rule| format!("the cluster {cluster:?}: {rule}"))
}

pub(super) fn take_name(fields: &mut Fields<'_>) -> Parsed<String> {
    let name = fields.text("the topic's name")?;
    check_name(name).map(|()| name.to_owned()).map_err(|rule| format!("the topic {name:?}: {rule}"))
}

pub(super) fn take_id(fields: &mut Fields<'_>) -> Parsed<TopicId> {
    let id = fields.array("the topic's id").map(TopicId)?;
    check_id(id).map(|()| id).map_err(str::to_owned)
}

pub(super) fn take_producer(fields: &mut Fields<'_>) -> Parsed<ProducerId> {
    match fields.i64("the next producer id")? {
        id @ 0.. => Ok(ProducerId(id)),
        other => Err(format!("the next producer id is {other}")),
    }
}
