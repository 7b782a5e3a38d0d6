//! The cluster's metadata: which topics there are, how they are set, and which producer ids were given out.
//!
//! ```text
//!             Create, Ensure                   Delete                        Removed
//!  (nothing) ───────────────► topic in force ─────────► its files may be ──────────► (nothing)
//!             Adopt                │   ▲                 there: RemoveTopic
//!                                  └───┘
//!                     AddPartitions, Configure
//! ```
//!
//! The controller is a [`Machine`]: commands are decided against the state (`decide`), what happens is an event
//! (`codec` draws its bytes), and events alone change the state (`state`). A node makes and removes directories as the
//! state says; [`Action::RemoveTopic`] is repeated until `Removed` says that a deleted topic's are gone.
//!
//! Invariants: a topic's name follows Kafka's rules and is none of the log's own; no two topics, those included whose
//! files may still be there, have one id; no producer id is in two blocks; what is refused changes nothing.

mod codec;
mod decide;
mod snapshot;
mod state;

use crate::clock::{Moment, Now};
use crate::config::{SettingDifference, TopicConfig};
use crate::error::Result;
use crate::machine::{Applied, Decision, Journaled, Machine};
use crate::types::{ProducerId, TopicId};

pub(crate) use decide::{check_cluster, check_name, is_internal};
pub(crate) use state::{Controller, Removal, TopicState};

/// What is asked of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Gives the cluster its id, where it has none.
    Format { cluster: String },
    /// Makes a topic.
    Create { name: String, id: TopicId, config: TopicConfig },
    /// Makes a topic, or checks that there is one with as many partitions.
    Ensure { name: String, id: TopicId, config: TopicConfig },
    /// Makes a topic of the log's own, or finds it.
    EnsureInternal { name: String, id: TopicId, config: TopicConfig },
    /// Removes a topic and its records.
    Delete { name: String },
    /// Raises a topic's number of partitions to `total`.
    AddPartitions { name: String, total: u32 },
    /// Replaces a topic's settings; the number of partitions stays.
    Configure { name: String, config: TopicConfig },
    /// Takes in a topic that was found in the directory. Nothing of it is removed until it is configured.
    Adopt { name: String, id: TopicId, partitions: u32 },
    /// The directories of a deleted topic are gone.
    Removed { id: TopicId },
    /// Gives out a block of producer ids, at or behind `from`, that nobody ever got.
    AllocateProducerIds { from: ProducerId },
    /// Asks how many partitions a topic has. Nothing changes; the answer rests on all that was decided before.
    CountPartitions { name: String },
}

/// What the asker is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The cluster has this id, now or for long.
    Formatted { cluster: String },
    /// The topic was made, or taken in.
    Created { id: TopicId },
    /// The topic was there; these settings differ from those asked for, and were left as they are.
    Found { id: TopicId, differences: Vec<SettingDifference> },
    /// These producer ids, [`PRODUCER_IDS_PER_BLOCK`] from this one on, are the asker's.
    ProducerIds { first: ProducerId },
    /// The topic had so many partitions, and has more now.
    Grown { before: u32 },
    /// The topic has so many partitions; one that is not there has none.
    Partitions { count: u32 },
    /// It is as was asked for.
    Done,
}

/// What happened. A topic's events name it by its id, which is never given twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Formatted {
        cluster: String,
    },
    Created {
        name: String,
        id: TopicId,
        config: TopicConfig,
        adopted: bool,
    },
    PartitionsAdded {
        id: TopicId,
        total: u32,
    },
    Configured {
        id: TopicId,
        config: TopicConfig,
    },
    Deleted {
        id: TopicId,
    },
    Removed {
        id: TopicId,
    },
    /// Every producer id below this one may have been given.
    ProducerIdsAllocated {
        next: ProducerId,
    },
}

/// How many producer ids are given out at once, as in Kafka.
pub(crate) const PRODUCER_IDS_PER_BLOCK: i64 = 1000;

/// Work for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Remove the directories `name-0` to `name-(partitions - 1)` that belong to the topic `id`: one of this name that
    /// was made since has another id.
    RemoveTopic { name: String, id: TopicId, partitions: u32 },
}

impl Machine for Controller {
    type Command = Command;
    type Event = Event;
    type Reply = Result<Reply>;
    type Action = Action;

    fn decide(&mut self, _now: Now, command: Command) -> Decision<Event, Result<Reply>> {
        match decide::decide(self, command) {
            Ok((events, reply)) => Decision::events(events, Ok(reply)),
            Err(refusal) => Decision::reply(Err(refusal)),
        }
    }

    fn apply(&mut self, _at: Applied, event: &Event) {
        self.take(event);
    }

    fn loaded(&mut self, _now: Now) {}

    fn actions(&self, _now: Now) -> Vec<Action> {
        let action = |(id, removal): (&TopicId, &Removal)| Action::RemoveTopic {
            name: removal.name.clone(),
            id: *id,
            partitions: removal.partitions,
        };
        self.removing().iter().map(action).collect()
    }

    fn deadline(&self) -> Option<Moment> {
        None
    }
}

impl Journaled for Controller {
    fn encode(event: &Event, into: &mut Vec<u8>) {
        codec::encode(event, into);
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Event, String> {
        codec::decode(bytes)
    }

    fn snapshot(&self) -> Vec<u8> {
        snapshot::write(self)
    }

    fn restore(bytes: &[u8]) -> std::result::Result<Self, String> {
        snapshot::read(bytes)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests;
