//! The topics that there are, and which of them a subscription leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex_lite::Regex;

use super::partitions::Partitions;
use super::protocol::Subscription;
use crate::error::{Error, Result};
use crate::types::TopicId;

/// What so many patterns match is remembered; members may change theirs as often as they like.
const PATTERNS_MAX: usize = 1000;

/// All topics by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topics(pub(crate) BTreeMap<String, Topic>);

/// A topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) id: TopicId,
    /// How many it has.
    pub(crate) partitions: u32,
    /// The racks that have a copy of each partition; empty, or shorter, where they are not known.
    pub(crate) racks: Vec<BTreeSet<String>>,
    /// Patterns do not match it.
    pub(crate) is_internal: bool,
}

/// Topics, and what was found of patterns in them.
#[derive(Clone, Debug)]
pub(super) struct Catalogue {
    topics: Arc<Topics>,
    by_id: BTreeMap<TopicId, String>,
    matched: BTreeMap<String, BTreeSet<TopicId>>,
}

impl Catalogue {
    pub(super) fn new(topics: Arc<Topics>) -> Self {
        let by_id = topics.0.iter().map(|(name, topic)| (topic.id, name.clone())).collect();
        Self { topics, by_id, matched: BTreeMap::new() }
    }

    pub(super) fn topics(&self) -> &Arc<Topics> {
        &self.topics
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.matched.len()
    }

    pub(super) fn name(&self, id: TopicId) -> Option<&str> {
        self.by_id.get(&id).map(String::as_str)
    }

    pub(super) fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.topics.0.get(self.by_id.get(&id)?)
    }

    /// The topics that a subscription leads to now. A pattern that is none leads nowhere.
    pub(super) fn resolve(&mut self, subscription: &Subscription) -> BTreeSet<TopicId> {
        let named = subscription.topics.iter().filter_map(|name| self.topics.0.get(name));
        let mut found: BTreeSet<_> = named.map(|topic| topic.id).collect();
        if let Some(pattern) = &subscription.pattern {
            if !self.matched.contains_key(pattern) {
                if self.matched.len() >= PATTERNS_MAX {
                    self.matched.clear();
                }
                let matched = self.matching(pattern);
                self.matched.insert(pattern.clone(), matched);
            }
            found.extend(self.matched.get(pattern).into_iter().flatten());
        }
        found
    }

    fn matching(&self, pattern: &str) -> BTreeSet<TopicId> {
        let Ok(regex) = compile(pattern) else { return BTreeSet::new() };
        let topics = self.topics.0.iter().filter(|(_, topic)| !topic.is_internal);
        topics.filter(|(name, _)| regex.is_match(name)).map(|(_, topic)| topic.id).collect()
    }

    /// All partitions of these topics.
    pub(super) fn partitions(&self, topics: &BTreeSet<TopicId>) -> Partitions {
        let each = |id: &TopicId| {
            let id = *id;
            (0..self.topic(id).map_or(0, |topic| topic.partitions)).map(move |number| (id, number))
        };
        topics.iter().flat_map(each).collect()
    }
}

/// A pattern that matches whole names.
pub(super) fn compile(pattern: &str) -> Result<Regex> {
    let invalid =
        |error: regex_lite::Error| Error::InvalidPattern { pattern: pattern.to_owned(), reason: error.to_string() };
    // By itself first: `a)|(b` is a pattern only within parentheses.
    Regex::new(pattern).map_err(invalid)?;
    Regex::new(&format!("^(?:{pattern})$")).map_err(invalid)
}
