//! Which member is to have which partition: pure functions of what members wish for, what was meant for them before, and
//! the topics that there are.
//!
//! Invariants: each partition of a topic that somebody subscribes to is meant for exactly one who does; what was computed
//! is computed again from itself.

mod range;
mod uniform;

use std::collections::{BTreeMap, BTreeSet};

use super::partitions::Partitions;
use super::protocol::Assignor;
use super::topics::{Catalogue, Topic};
use crate::types::TopicId;

/// A member, as an assignor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) member: String,
    pub(super) instance: Option<String>,
    pub(super) rack: Option<String>,
    pub(super) topics: BTreeSet<TopicId>,
    /// What was meant for it before.
    pub(super) owned: Partitions,
}

/// The topics that there are.
pub(super) type Supply<'a> = BTreeMap<TopicId, &'a Topic>;

/// What is meant for each, in their order.
pub(super) fn assign(assignor: Assignor, wishes: &[Wish], catalogue: &Catalogue) -> Vec<Partitions> {
    let supply = supply(wishes, catalogue);
    match assignor {
        Assignor::Uniform => uniform::assign(wishes, &supply),
        Assignor::Range => range::assign(wishes, &supply),
    }
}

/// The topics that somebody subscribes to.
fn supply<'a>(wishes: &[Wish], catalogue: &'a Catalogue) -> Supply<'a> {
    let ids: BTreeSet<_> = wishes.iter().flat_map(|wish| &wish.topics).collect();
    ids.into_iter().filter_map(|id| Some((*id, catalogue.topic(*id)?))).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
pub(super) mod tests;
