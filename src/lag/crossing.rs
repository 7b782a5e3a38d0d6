//! Once per crossing: which positions have come within the margin, which were overtaken, and which are astray. Pure.
//!
//! ```text
//!              within the margin                  below the log start
//!   beyond ─────────────────────► near ────────────────────────────────► overtaken
//!     ▲  │       NearEdge        │  ▲              Overtaken              │  │
//!     └──┼───────────────────────┘  └─────────────────────────────────────┘  │
//!        └──────────────────────── Overtaken ──────────────────────────────► ┘   (and back, in silence)
//! ```
//!
//! From anywhere a position may go astray, which is said, and comes back in silence.
//!
//! What is left goes in steps, since it goes by whole segments: a group that catches up moves to and fro over a margin. So
//! it is beyond it again only where it has left it by a quarter.

use std::collections::{BTreeMap, BTreeSet};

use super::{Alert, PartitionLag};
use crate::types::TopicPartition;

/// Where a position is; one that is beyond the margin is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Near,
    Overtaken,
    Astray,
}

/// Where a position is, as far as the margin goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nearness {
    Within,
    /// Beyond it, by less than a quarter.
    Around,
    Beyond,
}

type Key = (String, TopicPartition);

/// The positions that are not beyond the margin.
#[derive(Debug, Default)]
pub(super) struct Crossings {
    levels: BTreeMap<Key, Level>,
}

impl Crossings {
    /// Takes in where a position is, and says what there is to say. A group without a position has none that could be
    /// overtaken: where it will begin is its consumer's to say.
    pub(super) fn cross(&mut self, group: &str, lag: &PartitionLag, nearness: Nearness) -> Option<Alert> {
        let key = (group.to_owned(), lag.partition.clone());
        let before = self.levels.get(&key).copied();
        let level = match &lag.lost {
            Some(_) => Some(Level::Overtaken),
            None if lag.astray.is_some() => Some(Level::Astray),
            None if lag.committed.is_none() => None,
            None => match nearness {
                Nearness::Within => Some(Level::Near),
                Nearness::Around => before.filter(|before| *before == Level::Near),
                Nearness::Beyond => None,
            },
        };
        match level {
            Some(level) => self.levels.insert(key, level),
            None => self.levels.remove(&key),
        };
        let (group, partition) = (group.to_owned(), lag.partition.clone());
        match (level, before) {
            (Some(Level::Near), None) => {
                let (left, lag) = (lag.left.unwrap_or_default(), Box::new(lag.clone()));
                Some(Alert::NearEdge { group, partition, left, lag })
            }
            (Some(Level::Overtaken), None | Some(Level::Near | Level::Astray)) => {
                lag.lost.clone().map(|lost| Alert::Overtaken { group, partition, lost })
            }
            (Some(Level::Astray), None | Some(Level::Near | Level::Overtaken)) => {
                let (position, astray) = lag.committed.zip(lag.astray)?;
                Some(Alert::Astray { group, partition, position, astray })
            }
            _ => None,
        }
    }

    /// Forgets the positions that a group has no more.
    pub(super) fn keep(&mut self, group: &str, partitions: &BTreeSet<TopicPartition>) {
        self.levels.retain(|(of, partition), _| of != group || partitions.contains(partition));
    }

    /// Forgets the groups that there are no more.
    pub(super) fn keep_groups(&mut self, groups: &BTreeSet<String>) {
        self.levels.retain(|(group, _), _| groups.contains(group));
    }
}
