//! Whoever makes, changes and deletes topics.

use taffrail::{Error, TopicConfig};

use super::plan::topic_config;
use super::world::World;

impl World {
    pub(super) fn administer(&mut self) {
        let name = self.a_name();
        let config = topic_config(&mut self.choice, &self.plan);
        let now = self.describe(name).map(|topic| topic.config);
        match (self.choice.below(10), now) {
            (0..=3, None) | (0, Some(_)) => self.create(name, &config),
            (4.., None) | (1, Some(_)) => self.ensure(name, &config),
            (2 | 3, Some(_)) => {
                self.delete(name);
                if !self.groups.is_empty() && self.choice.one_in(3) {
                    self.make_again(name, &config);
                }
            }
            (4 | 5, Some(now)) => self.add_partitions(name, &now),
            (_, Some(now)) => self.configure(name, &config.partitions(now.partitions)),
        }
    }

    /// At once, before anybody has heard that it was deleted; and the process may end before they hear of the new one.
    fn make_again(&mut self, name: &str, config: &TopicConfig) {
        self.create(name, config);
        if self.choice.one_in(2) && !self.is_over() {
            self.restart();
        }
    }

    pub(super) fn create(&mut self, name: &str, config: &TopicConfig) {
        let outcome = self.log().create_topic(name, config.clone());
        self.trace.note(format_args!("creates {name}: {outcome:?}, {:?}", config.settings()));
        let topic = self.model.topic(name);
        match outcome {
            Ok(id) => {
                assert!(topic.may_be_absent, "{name} was made, and was there");
                topic.went();
                topic.has(config);
                topic.appeared(name, id);
                self.settle(name);
            }
            Err(Error::TopicExists { .. }) => assert!(!topic.is_certainly_absent(), "{name} is there, they say"),
            Err(error) => self.may_be_new(name, config, &error),
        }
    }

    pub(super) fn ensure(&mut self, name: &str, config: &TopicConfig) {
        let outcome = self.log().ensure_topic(name, config.clone());
        self.trace.note(format_args!("ensures {name}: {outcome:?}, {:?}", config.settings()));
        let topic = self.model.topic(name);
        match outcome {
            Ok(ensured) if ensured.created => {
                assert!(topic.may_be_absent, "{name} was made, and was there");
                topic.went();
                topic.has(config);
                topic.may_be_new = true;
                self.settle(name);
            }
            Ok(_) => self.settle(name),
            Err(Error::PartitionCount { .. }) => assert!(!topic.is_certainly_absent(), "{name} is there, they say"),
            Err(error) => self.may_be_new(name, config, &error),
        }
    }

    fn may_be_new(&mut self, name: &str, config: &TopicConfig, error: &Error) {
        self.excuse(error, "a topic cannot be made");
        let topic = self.model.topic(name);
        if topic.may_be_absent {
            topic.may_be_new = true;
            topic.may_have(config);
        }
    }

    fn delete(&mut self, name: &str) {
        let outcome = self.log().delete_topic(name);
        self.trace.note(format_args!("deletes {name}: {outcome:?}"));
        let topic = self.model.topic(name);
        match outcome {
            Ok(()) => {
                assert!(!topic.is_certainly_absent(), "{name} was deleted, and was not there");
                topic.went();
                self.settle(name);
                self.trace.count("topics deleted");
            }
            Err(Error::UnknownTopic { .. }) => assert!(topic.may_be_absent, "{name} is not there, they say"),
            Err(error) => {
                topic.may_be_absent = true;
                self.excuse(&error, "a topic cannot be deleted");
            }
        }
    }

    fn add_partitions(&mut self, name: &str, now: &TopicConfig) {
        let total = now.partitions + u32::try_from(self.choice.below(3)).unwrap_or(0);
        if total > 6 {
            return;
        }
        let outcome = self.log().add_partitions(name, total);
        self.trace.note(format_args!("gives {name} {total} partitions: {outcome:?}"));
        match outcome {
            Ok(added) => {
                // Those of an attempt that failed were given to nobody, or have come to light since.
                let is_right = added.before == now.partitions || self.excused;
                assert!(is_right && added.after == total, "{now:?} became {added:?}");
                self.trace.count("partitions added");
            }
            Err(Error::PartitionCount { .. }) if total == now.partitions || self.excused => return,
            // Where its partitions are not open yet.
            Err(Error::UnknownTopic { .. }) if !self.model.topic(name).is_certain() || self.excused => return,
            Err(ref error) => self.excuse(error, "partitions cannot be added"),
        }
        // Other settings that may be in force are so with these partitions, too.
        for config in self.model.topic(name).configs.clone() {
            self.model.topic(name).may_have(&config.partitions(total));
        }
        self.changed(name, &now.clone().partitions(total), outcome.is_ok());
    }

    fn configure(&mut self, name: &str, config: &TopicConfig) {
        let outcome = self.log().set_topic_config(name, config.clone());
        self.trace.note(format_args!("sets {name}: {outcome:?}, {:?}", config.settings()));
        match outcome {
            Ok(()) => self.changed(name, config, true),
            Err(Error::PartitionCount { .. }) => self.excuse(&Error::TimedOut, "the number of partitions is another"),
            Err(Error::UnknownTopic { .. }) => {
                assert!(self.model.topic(name).may_be_absent, "{name} is not there, they say");
            }
            Err(error) => {
                self.excuse(&error, "a topic cannot be set");
                self.changed(name, config, false);
            }
        }
    }

    /// A topic has other settings, or may have.
    fn changed(&mut self, name: &str, config: &TopicConfig, surely: bool) {
        let topic = self.model.topic(name);
        let was_synced = topic.is_synced();
        topic.may_have(config);
        if !surely {
            return;
        }
        self.settle(name);
        let topic = self.model.topic(name);
        if let Some(id) = topic.live.filter(|_| !was_synced && topic.is_synced()) {
            // What becomes synced has synced all it had; it may have been synced all the time, and have more to sync.
            self.model.shown_is_synced(id);
        }
    }

    /// A call about the topic was done: it is now as the log says.
    pub(super) fn settle(&mut self, name: &str) {
        let found = self.ask(name);
        self.model.topic(name).settle(name, found.as_ref());
    }
}
