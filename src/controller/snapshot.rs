//! The whole state as bytes, in the frame of taffrail's own files (checksum, version 1), so that they are a file as
//! they stand:
//!
//! ```text
//!  8  version of the state
//!  1  1 where the cluster has an id, else 0;  then text cluster
//!  4  how many topics follow, by name        each: text name, 16 id, 1 adopted (0 or 1), config
//!  4  how many deleted ones follow, by id    each: 16 id, text name, 4 partitions
//!  8  the first producer id that nobody has got
//! ```
//!
//! Version 0, which is read too, ends before the producer id: none was given then.
//!
//! `text` and `config` are those of the events.

use bytes::Bytes;

use super::codec::{put_config, take_cluster, take_config, take_id, take_name, take_partitions, take_producer};
use super::{Controller, Removal, TopicState};
use crate::machine::fields::{Fields, put_text};
use crate::storage::checkpoint::{Flaw, own};
use crate::types::{ProducerId, TopicId};

type Parsed<T> = Result<T, String>;

const VERSION: u16 = 1;
const VERSION_WITHOUT_PRODUCERS: u16 = 0;

pub(super) fn write(state: &Controller) -> Vec<u8> {
    let mut content = state.version().to_be_bytes().to_vec();
    content.push(u8::from(state.cluster().is_some()));
    if let Some(cluster) = state.cluster() {
        put_text(cluster, &mut content);
    }
    put_count(state.topics().count(), &mut content);
    state.topics().for_each(|topic| put_topic(topic, &mut content));
    put_count(state.removing().len(), &mut content);
    state.removing().iter().for_each(|(id, removal)| put_removal(*id, removal, &mut content));
    content.extend_from_slice(&state.next_producer_id().0.to_be_bytes());
    own::frame(VERSION, &content)
}

pub(super) fn read(bytes: &[u8]) -> Parsed<Controller> {
    let bytes = Bytes::copy_from_slice(bytes);
    let (version, content) = unframe(&bytes)?;
    let knows_producers = version > VERSION_WITHOUT_PRODUCERS;
    let mut fields = Fields::of(&content);
    let version = fields.u64("the state's version")?;
    let cluster = fields.flag("whether the cluster has an id")?.then(|| take_cluster(&mut fields)).transpose()?;
    let topics = take_all(&mut fields, "the number of topics", take_topic)?;
    let removing = take_all(&mut fields, "the number of deleted topics", take_removal)?;
    let next = if knows_producers { take_producer(&mut fields)? } else { ProducerId(0) };
    fields.end()?;
    Controller::of(version, cluster, topics, removing, next)
}

/// The content, and which version it is of.
fn unframe(bytes: &Bytes) -> Parsed<(u16, Bytes)> {
    let older = |flaw| match flaw {
        Flaw::Version { found, .. } if found == i64::from(VERSION_WITHOUT_PRODUCERS) => {
            own::unframe(bytes, VERSION_WITHOUT_PRODUCERS).map(|content| (VERSION_WITHOUT_PRODUCERS, content))
        }
        other => Err(other),
    };
    own::unframe(bytes, VERSION).map(|content| (VERSION, content)).or_else(older).map_err(|flaw| match flaw {
        Flaw::Version { found, known } => format!("the snapshot is of version {found}, this release reads {known}"),
        Flaw::Form(what) => what,
    })
}

fn put_count(count: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

fn put_topic(topic: &TopicState, into: &mut Vec<u8>) {
    put_text(&topic.name, into);
    into.extend_from_slice(&topic.id.0);
    into.push(u8::from(topic.adopted));
    put_config(&topic.config, into);
}

fn put_removal(id: TopicId, removal: &Removal, into: &mut Vec<u8>) {
    into.extend_from_slice(&id.0);
    put_text(&removal.name, into);
    into.extend_from_slice(&removal.partitions.to_be_bytes());
}

/// As many as the count says; each takes bytes, so no count makes it grow beyond what is there.
fn take_all<T>(fields: &mut Fields<'_>, count: &str, take: fn(&mut Fields<'_>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let count = fields.u32(count)?;
    (0..count).map(|_| take(fields)).collect()
}

fn take_topic(fields: &mut Fields<'_>) -> Parsed<TopicState> {
    let (name, id) = (take_name(fields)?, take_id(fields)?);
    Ok(TopicState { name, id, adopted: fields.flag("adopted")?, config: take_config(fields)? })
}

fn take_removal(fields: &mut Fields<'_>) -> Parsed<(TopicId, Removal)> {
    let id = take_id(fields)?;
    Ok((id, Removal { name: take_name(fields)?, partitions: take_partitions(fields)? }))
}
