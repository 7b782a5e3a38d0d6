//! What follows from a command: events and a reply, or a refusal. Nothing is changed here.

use super::{Command, Controller, Event, PRODUCER_IDS_PER_BLOCK, Reply, TopicState};
use crate::config::{Cleanup, TopicConfig};
use crate::error::{Error, Result};
use crate::types::{ProducerId, TopicId, check_topic_name};

type Outcome = Result<(Vec<Event>, Reply)>;

/// What Kafka keeps of groups and transactions. The log makes them itself when it needs them; what it knows of a group or
/// of a transactional id is found by the number of their partitions, and kept by key.
const INTERNAL: &[&str] = &["__consumer_offsets", "__transaction_state"];
/// What names of the log's own begin with: its directories, and the one that no broker would give a topic.
const RESERVED: &[&str] = &["__taffrail_", "__cluster_metadata"];

pub(super) fn decide(state: &Controller, command: Command) -> Outcome {
    match command {
        Command::Format { cluster } => format(state, cluster),
        Command::Create { name, id, config } => {
            check_free(state, &name, id)?;
            refuse_internal(&name)?;
            create(state, name, id, config)
        }
        Command::Ensure { name, id, config } => match state.topic(&name) {
            Some(topic) => find(topic, &config),
            None => decide(state, Command::Create { name, id, config }),
        },
        Command::EnsureInternal { name, id, config } => match state.topic(&name) {
            Some(topic) => Ok((Vec::new(), Reply::Found { id: topic.id, differences: Vec::new() })),
            None => create(state, name, id, config),
        },
        Command::Delete { name } => {
            let id = known(state, &name)?.id;
            refuse_internal(&name)?;
            Ok((vec![Event::Deleted { id }], Reply::Done))
        }
        Command::AddPartitions { name, total } => {
            let topic = known(state, &name)?;
            refuse_internal(&name)?;
            add_partitions(topic, total)
        }
        Command::Configure { name, config } => configure(known(state, &name)?, config),
        Command::Adopt { name, id, partitions } => adopt(state, name, id, partitions),
        Command::Removed { id } => {
            let event = state.removing().contains_key(&id).then_some(Event::Removed { id });
            Ok((event.into_iter().collect(), Reply::Done))
        }
        Command::AllocateProducerIds { from } => allocate(state, from),
        Command::CountPartitions { name } => {
            let count = state.topic(&name).map_or(0, |topic| topic.config.partitions);
            Ok((Vec::new(), Reply::Partitions { count }))
        }
    }
}

fn allocate(state: &Controller, from: ProducerId) -> Outcome {
    let first = state.next_producer_id().max(from);
    let next = first.0.checked_add(PRODUCER_IDS_PER_BLOCK).map(ProducerId).ok_or(Error::ProducerIdsExhausted)?;
    Ok((vec![Event::ProducerIdsAllocated { next }], Reply::ProducerIds { first }))
}

fn format(state: &Controller, cluster: String) -> Outcome {
    check_cluster(&cluster).map_err(|reason| Error::InvalidName { name: cluster.clone(), reason })?;
    match state.cluster() {
        Some(known) => Ok((Vec::new(), Reply::Formatted { cluster: known.to_owned() })),
        None => Ok((vec![Event::Formatted { cluster: cluster.clone() }], Reply::Formatted { cluster })),
    }
}

/// Kafka makes ids as it does for topics, and takes any text that stands in one line of `meta.properties`.
pub(crate) fn check_cluster(cluster: &str) -> std::result::Result<(), &'static str> {
    const BYTES_MAX: usize = 255;
    match cluster {
        "" => Err("a cluster's id is not empty"),
        _ if cluster.len() > BYTES_MAX => Err("a cluster's id has at most 255 characters"),
        _ if !cluster.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err("a cluster's id is printable ASCII, no blanks")
        }
        _ => Ok(()),
    }
}

fn create(state: &Controller, name: String, id: TopicId, config: TopicConfig) -> Outcome {
    check_free(state, &name, id)?;
    if let Some(existing) = state.topics().find(|topic| collide(&topic.name, &name)) {
        return Err(Error::TopicNameCollides { name, existing: existing.name.clone() });
    }
    config.check()?;
    check_copies(&config)?;
    Ok((vec![Event::Created { name, id, config, adopted: false }], Reply::Created { id }))
}

/// Whether a topic is the log's own.
pub(crate) fn is_internal(name: &str) -> bool {
    INTERNAL.contains(&name)
}

fn refuse_internal(name: &str) -> Result<()> {
    let reason = "the log makes this topic itself when it needs it, and keeps it";
    if is_internal(name) { Err(Error::InvalidName { name: name.to_owned(), reason }) } else { Ok(()) }
}

/// Without a cluster there is one node, and a copy of each partition on it.
fn check_copies(config: &TopicConfig) -> Result<()> {
    let asked =
        [("replication_factor", config.replication_factor), ("min_insync_replicas", config.min_insync_replicas)];
    match asked.into_iter().find(|(_, copies)| copies.is_some_and(|copies| copies > 1)) {
        Some((setting, _)) => Err(Error::InvalidConfig {
            setting,
            reason: "a log without a cluster has one copy of each partition".to_owned(),
        }),
        None => Ok(()),
    }
}

/// The directory has the topic already, so a name that collides with another's is taken as it is, as in Kafka.
fn adopt(state: &Controller, name: String, id: TopicId, partitions: u32) -> Outcome {
    check_free(state, &name, id)?;
    let config = TopicConfig::keeping_everything().partitions(partitions);
    config.check()?;
    Ok((vec![Event::Created { name, id, config, adopted: true }], Reply::Created { id }))
}

/// The topic is there: the number of its partitions must be the one asked for, the rest is reported.
fn find(topic: &TopicState, config: &TopicConfig) -> Outcome {
    config.check()?;
    same_partitions(topic, config.partitions)?;
    Ok((Vec::new(), Reply::Found { id: topic.id, differences: topic.config.differences(config) }))
}

fn add_partitions(topic: &TopicState, total: u32) -> Outcome {
    if total <= topic.config.partitions {
        return Err(partition_count(topic, total));
    }
    topic.config.clone().partitions(total).check()?;
    let before = topic.config.partitions;
    Ok((vec![Event::PartitionsAdded { id: topic.id, total }], Reply::Grown { before }))
}

fn configure(topic: &TopicState, config: TopicConfig) -> Outcome {
    config.check()?;
    same_partitions(topic, config.partitions)?;
    check_copies(&config)?;
    if is_internal(&topic.name) && config.partition_config().cleanup != Cleanup::Compact {
        let reason = "a topic of the log's own is kept by key".to_owned();
        return Err(Error::InvalidConfig { setting: "cleanup.policy", reason });
    }
    if config == topic.config && !topic.adopted {
        return Ok((Vec::new(), Reply::Done));
    }
    Ok((vec![Event::Configured { id: topic.id, config }], Reply::Done))
}

fn known<'a>(state: &'a Controller, name: &str) -> Result<&'a TopicState> {
    state.topic(name).ok_or_else(|| Error::UnknownTopic { name: name.to_owned() })
}

fn same_partitions(topic: &TopicState, requested: u32) -> Result<()> {
    if topic.config.partitions == requested { Ok(()) } else { Err(partition_count(topic, requested)) }
}

fn partition_count(topic: &TopicState, requested: u32) -> Error {
    Error::PartitionCount { topic: topic.name.clone(), partitions: topic.config.partitions, requested }
}

/// Whether a topic can have this name and this id.
fn check_free(state: &Controller, name: &str, id: TopicId) -> Result<()> {
    check_name(name).map_err(|reason| Error::InvalidName { name: name.to_owned(), reason })?;
    check_id(id).map_err(|reason| Error::InvalidName { name: id.to_string(), reason })?;
    if state.topic(name).is_some() {
        return Err(Error::TopicExists { name: name.to_owned() });
    }
    match state.name_of(id) {
        Some(existing) => Err(Error::TopicIdTaken { name: name.to_owned(), id, existing: existing.to_owned() }),
        None => Ok(()),
    }
}

/// Kafka's rules, and the names that a log keeps for itself.
pub(crate) fn check_name(name: &str) -> std::result::Result<(), &'static str> {
    if RESERVED.iter().any(|reserved| name.starts_with(reserved)) {
        return Err("names that begin with __taffrail_ or __cluster_metadata are not for topics");
    }
    check_topic_name(name)
}

/// Zero is Kafka's word for no id.
pub(super) fn check_id(id: TopicId) -> std::result::Result<(), &'static str> {
    if id == TopicId([0; 16]) { Err("a topic's id is not zero") } else { Ok(()) }
}

/// Whether metrics cannot tell the names apart: dot and underscore count as one.
fn collide(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte == b'.' { b'_' } else { byte };
    one.bytes().map(folded).eq(other.bytes().map(folded))
}
