//! Positions: committed, asked for, set, and forgotten.

use super::decide::{Decided, check_group, said, subscribed, tombstones};
use super::heartbeat::{fenced, present, unknown};
use super::offsets::{Committed, Position};
use super::protocol::Claim;
use super::state::{Coordinator, Group};
use super::{Event, METADATA_BYTES_MAX, Reply};
use crate::clock::Now;
use crate::error::{Error, Result};
use crate::mutants;
use crate::types::{Offset, TopicPartition, check_topic_name};

/// So many bytes at most has one commit: its records have to fit a batch, beside others.
const COMMIT_BYTES_MAX: usize = 512 * 1024;
/// What a record of a position has besides its texts, at most.
const RECORD_BYTES: usize = 64;

pub(super) fn commit(
    state: &Coordinator,
    now: Now,
    group: &str,
    member: Option<&Claim>,
    positions: Vec<(TopicPartition, Position)>,
) -> Decided {
    check_group(group)?;
    check_claim(group, state.group(group), member)?;
    check_positions(group, &positions)?;
    Ok((events(now, group, positions), Reply::Done))
}

pub(super) fn reset(state: &Coordinator, now: Now, group: &str, positions: Vec<(TopicPartition, Position)>) -> Decided {
    check_group(group)?;
    check_empty(group, state.group(group))?;
    check_positions(group, &positions)?;
    Ok((events(now, group, positions), Reply::Done))
}

pub(super) fn fetch(
    state: &Coordinator,
    group: &str,
    partitions: Option<Vec<TopicPartition>>,
    require_stable: bool,
) -> Decided {
    let Some(known) = state.group(group) else { return Ok((Vec::new(), Reply::Fetched(Vec::new()))) };
    let offsets = &known.offsets;
    let partitions = partitions.unwrap_or_else(|| offsets.partitions().cloned().collect());
    if require_stable {
        check_stable(group, known, &partitions)?;
    }
    let found = partitions.into_iter().filter_map(|partition| {
        let committed = offsets.get(&partition)?.clone();
        Some((partition, committed))
    });
    Ok((Vec::new(), Reply::Fetched(found.collect())))
}

pub(super) fn delete(state: &mut Coordinator, group: &str, partitions: &[TopicPartition]) -> Decided {
    let Some(known) = state.group(group).cloned() else {
        return Err(Error::UnknownGroup { group: group.to_owned() });
    };
    let subscribed = subscribed(&known.roster, state.soft.catalogue.as_mut());
    if let Some(TopicPartition { topic, .. }) = partitions.iter().find(|one| subscribed.contains(&one.topic)) {
        return Err(Error::TopicSubscribed { group: group.to_owned(), topic: topic.clone() });
    }
    check_stable(group, &known, partitions)?;
    let there = partitions.iter().filter(|partition| known.offsets.get(partition).is_some());
    Ok((there.map(|partition| forgotten(group, partition)).collect(), Reply::Done))
}

pub(super) fn delete_group(state: &Coordinator, group: &str) -> Decided {
    let Some(known) = state.group(group) else { return Err(Error::UnknownGroup { group: group.to_owned() }) };
    check_empty(group, Some(known))?;
    let partitions: Vec<_> = known.offsets.partitions().cloned().collect();
    check_stable(group, known, &partitions)?;
    let mut events: Vec<_> = partitions.iter().map(|partition| forgotten(group, partition)).collect();
    events.extend(tombstones(group, &known.roster));
    Ok((events, Reply::Done))
}

/// A position is forgotten.
pub(super) fn forgotten(group: &str, partition: &TopicPartition) -> Event {
    Event::Committed { group: group.to_owned(), partition: partition.clone(), committed: None }
}

fn events(now: Now, group: &str, positions: Vec<(TopicPartition, Position)>) -> Vec<Event> {
    let event = |(partition, position): (TopicPartition, Position)| {
        // What is none is read as none.
        let leader_epoch = position.leader_epoch.filter(|epoch| epoch.0 >= 0);
        let position = Position { leader_epoch, ..position };
        let committed = Some(Committed { position, committed: now.wall, expires: None });
        Event::Committed { group: group.to_owned(), partition, committed }
    };
    positions.into_iter().map(event).collect()
}

/// Whether whoever commits may: with its current epoch, or as nobody in a group that has no members.
fn check_claim(group: &str, known: Option<&Group>, claim: Option<&Claim>) -> Result<()> {
    let Some(claim) = claim else {
        let has_members = known.is_some_and(|known| known.roster.has_members());
        return if has_members { Err(unknown(group, "")) } else { Ok(()) };
    };
    let Claim { member, instance, epoch } = claim;
    let Some(known) = known else { return Err(unknown(group, member)) };
    if mutants::is_in(mutants::REPLACED_COMMITS) {
        return Ok(());
    }
    let seat = present(group, member, instance.as_deref(), &known.roster)?;
    match seat.current.as_ref().and_then(super::Current::epoch) {
        None => Err(unknown(group, member)),
        Some(current) if current == *epoch => Ok(()),
        Some(current) if *epoch < current => {
            Err(Error::StaleMember { group: group.to_owned(), member: member.clone(), epoch: said(*epoch) })
        }
        Some(_) => Err(fenced(group, member, *epoch)),
    }
}

fn check_positions(group: &str, positions: &[(TopicPartition, Position)]) -> Result<()> {
    let mut bytes = 0_usize;
    for (partition, position) in positions {
        let TopicPartition { topic, partition: number } = partition;
        check_topic_name(topic).map_err(|reason| Error::InvalidName { name: topic.clone(), reason })?;
        let size = position.metadata.len();
        if size > METADATA_BYTES_MAX {
            let partition = partition.clone();
            return Err(Error::OffsetMetadataTooLarge { partition, size, limit: METADATA_BYTES_MAX });
        }
        if position.offset > Offset::MAX || i32::try_from(*number).is_err() {
            return Err(Error::InvalidRecord("an offset is below 2^63, and a partition's number below 2^31"));
        }
        bytes += group.len() + topic.len() + size + RECORD_BYTES;
    }
    let (size, limit) = (bytes as u64, COMMIT_BYTES_MAX as u64);
    if size > limit { Err(Error::RecordTooLarge { size, limit }) } else { Ok(()) }
}

fn check_empty(group: &str, known: Option<&Group>) -> Result<()> {
    let has_members = known.is_some_and(|known| known.roster.has_members());
    if has_members { Err(Error::GroupNotEmpty { group: group.to_owned() }) } else { Ok(()) }
}

fn check_stable(group: &str, known: &Group, partitions: &[TopicPartition]) -> Result<()> {
    let pending = partitions.iter().find(|partition| known.offsets.is_pending(partition));
    pending.map_or(Ok(()), |partition| {
        Err(Error::UnstableOffset { group: group.to_owned(), partition: partition.clone() })
    })
}
