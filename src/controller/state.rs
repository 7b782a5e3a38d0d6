//! What the controller knows, and the one place where it changes.
//!
//! Invariant: `names` and `topics` say the same; an id is in `topics` or in `removing`, never in both.

use std::collections::BTreeMap;

use super::Event;
use crate::config::TopicConfig;
use crate::types::{ProducerId, TopicId};

/// The state of a cluster, as its events say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controller {
    cluster: Option<String>,
    topics: BTreeMap<TopicId, TopicState>,
    names: BTreeMap<String, TopicId>,
    removing: BTreeMap<TopicId, Removal>,
    /// The first producer id that nobody has got; 0 at first.
    next_producer: i64,
    version: u64,
}

/// A topic in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicState {
    pub(crate) name: String,
    pub(crate) id: TopicId,
    /// The number of its partitions is in here.
    pub(crate) config: TopicConfig,
    /// It was found, and nobody has said yet how it is to be kept.
    pub(crate) adopted: bool,
}

/// A deleted topic whose directories may still be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) name: String,
    pub(crate) partitions: u32,
}

impl Controller {
    /// The cluster's id, once it has one.
    pub(crate) fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    /// How many events led here.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn topic(&self, name: &str) -> Option<&TopicState> {
        self.topics.get(self.names.get(name)?)
    }

    /// The topics in force, by name.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &TopicState> {
        self.names.values().filter_map(|id| self.topics.get(id))
    }

    /// The deleted topics whose directories may still be there.
    pub(crate) const fn removing(&self) -> &BTreeMap<TopicId, Removal> {
        &self.removing
    }

    /// The first producer id that nobody has got.
    pub(crate) const fn next_producer_id(&self) -> ProducerId {
        ProducerId(self.next_producer)
    }

    /// The name of the topic that has this id, in force or deleted.
    pub(crate) fn name_of(&self, id: TopicId) -> Option<&str> {
        let removing = || self.removing.get(&id).map(|removal| removal.name.as_str());
        self.topics.get(&id).map(|topic| topic.name.as_str()).or_else(removing)
    }

    /// Takes an event in. What it names and is not there is left alone.
    pub(super) fn take(&mut self, event: &Event) {
        self.version = self.version.saturating_add(1);
        match event {
            Event::Formatted { cluster } => self.cluster = Some(cluster.clone()),
            Event::Created { name, id, config, adopted } => {
                self.insert(TopicState { name: name.clone(), id: *id, config: config.clone(), adopted: *adopted });
            }
            Event::PartitionsAdded { id, total } => self.change(*id, |topic| topic.config.partitions = *total),
            Event::Configured { id, config } => self.change(*id, |topic| {
                topic.config = config.clone();
                topic.adopted = false;
            }),
            Event::Deleted { id } => self.delete(*id),
            Event::Removed { id } => drop(self.removing.remove(id)),
            // Never back: an id below may be somebody's.
            Event::ProducerIdsAllocated { next } => self.next_producer = self.next_producer.max(next.0),
        }
    }

    /// A name or id that is taken stays with whom it belongs to.
    fn insert(&mut self, topic: TopicState) -> bool {
        let free = self.name_of(topic.id).is_none() && !self.names.contains_key(&topic.name);
        if free {
            self.names.insert(topic.name.clone(), topic.id);
            self.topics.insert(topic.id, topic);
        }
        free
    }

    fn change(&mut self, id: TopicId, change: impl FnOnce(&mut TopicState)) {
        if let Some(topic) = self.topics.get_mut(&id) {
            change(topic);
        }
    }

    fn delete(&mut self, id: TopicId) {
        let Some(TopicState { name, config, .. }) = self.topics.remove(&id) else { return };
        self.names.remove(&name);
        self.removing.insert(id, Removal { name, partitions: config.partitions });
    }

    /// The state that a snapshot says; the error is a reason for a person.
    pub(super) fn of(
        version: u64,
        cluster: Option<String>,
        topics: Vec<TopicState>,
        removing: Vec<(TopicId, Removal)>,
        next: ProducerId,
    ) -> Result<Self, String> {
        let mut state = Self { cluster, version, next_producer: next.0, ..Self::default() };
        for (id, removal) in removing {
            if state.removing.insert(id, removal).is_some() {
                return Err(format!("two deleted topics have the id {id}"));
            }
        }
        for topic in topics {
            let (name, id) = (topic.name.clone(), topic.id);
            if !state.insert(topic) {
                return Err(format!("the name {name:?} or the id {id} is there twice"));
            }
        }
        Ok(state)
    }
}
