//! What must be true of topics: which there are, under which id, with which settings.
//!
//! A call that answered an error may have been done or not; then more than one thing may be found, until a call or an
//! open settles it. What was settled stays.

use std::collections::BTreeSet;
use std::time::Duration;

use taffrail::{Durability, TopicConfig, TopicDescription, TopicId};

/// One name, and what may be found under it.
#[expect(clippy::struct_excessive_bools, reason = "each is about another thing")]
#[derive(Clone, Debug, Default)]
pub(super) struct TopicModel {
    /// The topic that is there, as far as is known.
    pub(super) live: Option<TopicId>,
    /// It may be gone, or never have been made.
    pub(super) may_be_absent: bool,
    /// One whose id is not known may be there.
    pub(super) may_be_new: bool,
    /// The settings it may have.
    pub(super) configs: Vec<TopicConfig>,
    /// Topics that had this name and are gone.
    retired: BTreeSet<TopicId>,
    /// Whether its records ever had the log's own time.
    pub(super) stamps: bool,
    /// Whether they ever went by key.
    pub(super) compacts: bool,
    /// The least time that a deleted key ever had to be kept.
    pub(super) delete_retention_least: Duration,
}

impl TopicModel {
    pub(super) fn absent() -> Self {
        Self { may_be_absent: true, ..Self::default() }
    }

    /// It is there, whatever anybody asks.
    pub(super) fn is_certain(&self) -> bool {
        !self.may_be_absent && !self.may_be_new
    }

    pub(super) fn is_certainly_absent(&self) -> bool {
        self.live.is_none() && !self.may_be_new
    }

    /// Whether a topic had this name that is gone.
    pub(super) fn has_gone(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Whether everything that is acknowledged or read here survives a loss of power.
    pub(super) fn is_synced(&self) -> bool {
        self.configs.iter().all(|config| config.partition.durability != Durability::Os)
    }

    /// A call asked for these settings and did not say whether it was done.
    pub(super) fn may_have(&mut self, config: &TopicConfig) {
        self.stamps |= stamps(config);
        self.compacts |= compacts(config);
        self.delete_retention_least = self.delete_retention_least.min(config.partition.delete_retention);
        if !self.configs.contains(config) {
            self.configs.push(config.clone());
        }
    }

    /// A call that asked for these settings was done.
    pub(super) fn has(&mut self, config: &TopicConfig) {
        self.configs.clear();
        self.may_have(config);
    }

    /// It was made, or found made, with this id.
    ///
    /// # Panics
    /// Where it cannot have been.
    pub(super) fn appeared(&mut self, name: &str, id: TopicId) {
        if self.live == Some(id) {
            return;
        }
        assert!(self.may_be_new || self.may_be_absent, "{name} has the id {id}, not {:?}", self.live);
        assert!(!self.retired.contains(&id), "{name}: the deleted topic {id} is back");
        self.retired.extend(self.live.replace(id));
        (self.may_be_new, self.stamps) = (false, self.configs.iter().any(stamps));
        self.compacts = self.configs.iter().any(compacts);
        let least = self.configs.iter().map(|config| config.partition.delete_retention).min();
        self.delete_retention_least = least.unwrap_or_default();
    }

    /// It was deleted, or found deleted.
    pub(super) fn went(&mut self) {
        self.retired.extend(self.live.take());
        (self.may_be_absent, self.may_be_new) = (true, false);
        self.configs.clear();
    }

    /// What `describe_topic` says is one of the things that may be.
    ///
    /// # Panics
    /// Where it is none of them.
    pub(super) fn look(&mut self, name: &str, found: Option<&TopicDescription>) {
        let Some(found) = found else {
            assert!(self.may_be_absent || self.may_be_new && self.live.is_none(), "the topic {name} is lost: {self:?}");
            return;
        };
        assert!(!found.adopted, "{name} was adopted: it must have been deleted");
        assert!(self.live.is_some() || self.may_be_new, "{name} is there, as {}, after it was deleted", found.id);
        self.appeared(name, found.id);
        let known = self.configs.contains(&found.config);
        assert!(known, "{name} has settings that nobody gave it: {:?}, not {:?}", found.config, self.configs);
    }

    /// What `describe_topic` says now is how it is.
    pub(super) fn settle(&mut self, name: &str, found: Option<&TopicDescription>) {
        self.look(name, found);
        match found {
            Some(found) => {
                (self.may_be_absent, self.may_be_new) = (false, false);
                self.has(&found.config);
            }
            None => self.went(),
        }
    }
}

fn compacts(config: &TopicConfig) -> bool {
    config.partition.cleanup.compacts()
}

fn stamps(config: &TopicConfig) -> bool {
    config.partition.timestamp_type == taffrail::TimestampType::LogAppendTime
}
