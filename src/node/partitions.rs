//! Making the directory what the catalogue says: partitions are opened, created, changed and removed.
//!
//! Everything here is idempotent and begins with what is there, so that a crash, or an error, at any point is gone on
//! from by the next call. A topic is published when all of its partitions are open.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::home::Home;
use super::{Flusher, Node, Topic, Topics};
use crate::config::PartitionConfig;
use crate::controller::{Action, Command, Controller, TopicState};
use crate::error::{Error, Result};
use crate::partition::{InLog, Partition};
use crate::trace;
use crate::types::{TopicId, TopicPartition};

/// What went wrong, by topic.
pub(super) type Failures = BTreeMap<String, Error>;

/// One partition to open.
struct Wanted<'c> {
    state: &'c TopicState,
    number: u32,
}

impl Node {
    /// Makes the partitions what the catalogue says; answers what could not be done, to be tried again. The caller has the
    /// turn, or the log is not open yet.
    pub(super) fn reconcile(&self) -> Failures {
        let mut failures = self.remove_deleted();
        let image = self.image.load();
        let current = self.topics.load();
        let opened = self.open_missing(&image, &current, &mut failures);
        let topics = assemble(&image, &current, opened, &mut failures);
        let is_changed = topics.len() != current.len()
            || topics.iter().zip(&*current).any(|((_, new), (_, old))| !Arc::ptr_eq(new, old));
        if is_changed {
            self.publish(topics);
        }
        failures
    }

    /// Closes the partitions of deleted topics and removes their directories.
    fn remove_deleted(&self) -> Failures {
        let mut failures = Failures::new();
        let actions = self.driver.lock().actions(self.clock.now());
        for action in actions {
            let Action::RemoveTopic { name, id, partitions } = action;
            let mut topics = Topics::clone(&self.topics.load());
            if topics.get(name.as_str()).is_some_and(|topic| topic.id == id)
                && let Some(topic) = topics.remove(name.as_str())
            {
                self.publish_without(&topic, topics);
                // What is to go need not be closed well.
                topic.partitions.iter().for_each(|gone| drop(gone.close_in_log()));
            }
            let numbers: Vec<u32> = (0..partitions).collect();
            let removed = self.for_each_of(&numbers, |number| self.remove_partition(&name, id, *number));
            let removed = removed.into_iter().fold(Ok(()), Result::and);
            // A topic that gets the name must not find what the checkpoints say of this one.
            let removed = removed.and_then(|()| self.home.sync()).and_then(|()| self.books.save());
            let noted = removed.and_then(|()| self.administer_alone(Command::Removed { id }).map(drop));
            if let Err(error) = noted {
                trace::warn(&self.home.directory, || format!("topic {name} is not removed yet: {error}"));
                failures.insert(name, error);
            }
        }
        failures
    }

    fn remove_partition(&self, topic: &str, id: TopicId, number: u32) -> Result<()> {
        let name = TopicPartition { topic: topic.to_owned(), partition: number };
        if self.home.remove_partition(&name, id)? {
            self.books.forget(&name);
        }
        Ok(())
    }

    /// Opens what the catalogue has and this node has not, on several threads where threads are allowed.
    fn open_missing(
        &self,
        image: &Controller,
        current: &Topics,
        failures: &mut Failures,
    ) -> BTreeMap<String, Vec<Partition>> {
        let mut wanted = Vec::new();
        // Where the topic of that name from before is not gone, this one waits.
        for state in image.topics().filter(|state| !failures.contains_key(&state.name)) {
            let known = current.get(state.name.as_str()).filter(|known| known.id == state.id);
            let open = known.map_or(0, |known| known.partitions.len());
            let open = u32::try_from(open).unwrap_or(u32::MAX);
            wanted.extend((open..state.config.partitions).map(|number| Wanted { state, number }));
        }
        let mut opened: BTreeMap<String, Vec<Partition>> = BTreeMap::new();
        if wanted.is_empty() {
            return opened;
        }
        let outcomes = self.for_each_of(&wanted, |one| self.open_one(one));
        // The names of all new directories at once.
        let synced = self.home.sync();
        for (wanted, outcome) in wanted.iter().zip(outcomes) {
            match outcome.and_then(|partition| synced.clone().map(|()| partition)) {
                Ok(partition) => opened.entry(wanted.state.name.clone()).or_default().push(partition),
                Err(error) => drop(failures.entry(wanted.state.name.clone()).or_insert(error)),
            }
        }
        opened
    }

    /// Does the same for many partitions, on several threads where threads are allowed; answers in their order.
    pub(super) fn for_each_of<T: Sync, R: Send>(&self, all: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Directories are made and removed with syncs, which wait for the disk and not for a core.
        let threads = (cores * 4).min(all.len().div_ceil(8));
        if threads <= 1 || !self.background {
            return all.iter().map(each).collect();
        }
        let (each, share) = (&each, all.len().div_ceil(threads));
        std::thread::scope(|scope| {
            let run = |share| move || -> Vec<R> { <[T]>::iter(share).map(each).collect() };
            let running: Vec<_> = all.chunks(share).map(|share| scope.spawn(run(share))).collect();
            running.into_iter().flat_map(|thread| thread.join().expect("work on a partition does not panic")).collect()
        })
    }

    fn open_one(&self, wanted: &Wanted<'_>) -> Result<Partition> {
        let name = TopicPartition { topic: wanted.state.name.clone(), partition: wanted.number };
        let flusher = Flusher::new(&self.flushes);
        let log = InLog {
            books: Arc::clone(&self.books),
            topic: wanted.state.id,
            unsynced: Some(Arc::clone(&flusher) as _),
            refuses_damage: false,
        };
        let partition = Partition::builder(self.home.path(&name.to_string()))
            .config(config_of(wanted.state))
            .storage(Arc::clone(&self.home.storage))
            .clock(Arc::clone(&self.clock))
            .cleaner(self.cleaning.config())
            .in_log(log)
            .open()?;
        flusher.serves(&partition);
        Ok(partition)
    }
}

/// The settings that a partition of the topic has.
fn config_of(state: &TopicState) -> PartitionConfig {
    state.config.partition_config()
}

/// The topics as they are to be published: those that are complete.
fn assemble(
    image: &Controller,
    current: &Topics,
    mut opened: BTreeMap<String, Vec<Partition>>,
    failures: &mut Failures,
) -> Topics {
    let mut topics = Topics::new();
    for state in image.topics() {
        let name = &state.name;
        let known = current.get(name.as_str()).filter(|known| known.id == state.id);
        let more = opened.remove(name).unwrap_or_default();
        let is_unchanged = known.is_some_and(|known| more.is_empty() && known.config == state.config);
        let before = known.map_or(&[][..], |known| &known.partitions);
        if !is_unchanged && !failures.contains_key(name) {
            // One that fails holds up no other: what they are to forget, or to keep, is settled.
            let changed = before.iter().map(|partition| partition.set_config_in_log(config_of(state)));
            let changed = changed.fold(Ok(()), Result::and);
            failures.extend(changed.err().map(|error| (name.clone(), error)));
        }
        if is_unchanged || failures.contains_key(name) {
            topics.extend(known.map(|known| (Arc::clone(&known.name), Arc::clone(known))));
            continue;
        }
        let partitions = before.iter().cloned().chain(more).collect();
        let name: Arc<str> = Arc::from(name.as_str());
        let topic = Topic { name: Arc::clone(&name), id: state.id, config: state.config.clone(), partitions };
        topics.insert(name, Arc::new(topic));
    }
    topics
}

/// A topic that lies in the directory and that the catalogue does not know, or not all of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Adoption {
    pub(super) topic: String,
    /// Where its directories say it.
    pub(super) id: Option<TopicId>,
    /// How many partitions it has then.
    pub(super) partitions: u32,
}

/// What lies in the directory and is to be taken in. What belongs to deleted topics is removed next.
///
/// # Errors
/// [`Error::ForeignDirectory`] where a directory is named as a partition's and has none in it, [`Error::WrongCluster`]
/// where directories of one name are of several topics. Nothing is taken in then.
pub(super) fn adoptions(home: &Home, image: &Controller) -> Result<Vec<Adoption>> {
    let mut found: BTreeMap<String, Vec<TopicPartition>> = BTreeMap::new();
    let has =
        |name: &TopicPartition| image.topic(&name.topic).is_some_and(|known| name.partition < known.config.partitions);
    for name in home.partitions()?.into_iter().filter(|name| !has(name)) {
        if !is_of_removed(home, image, &name)? {
            found.entry(name.topic.clone()).or_default().push(name);
        }
    }
    found.into_iter().map(|(topic, names)| adoption(home, image, topic, &names)).collect()
}

fn adoption(home: &Home, image: &Controller, topic: String, names: &[TopicPartition]) -> Result<Adoption> {
    let known = image.topic(&topic).map(|known| known.id);
    let mut id = known;
    for name in names {
        home.check_is_partition(name)?;
        let found = home.topic_of(name)?;
        // More partitions of a topic have its id; those of one that is new may all have none.
        if found != id && (found.is_some() && id.is_some() || known.is_some()) {
            let whose = |id: Option<TopicId>| id.map_or("no topic".to_owned(), |id| format!("topic {id}"));
            let (path, found, expected) = (home.path(&name.to_string()), whose(found), whose(id));
            return Err(Error::WrongCluster { path, found, expected });
        }
        id = id.or(found);
    }
    let partitions = names.iter().map(|name| name.partition.saturating_add(1)).max().unwrap_or(1);
    Ok(Adoption { topic, id, partitions })
}

/// Whether a directory is left of a topic that was deleted.
fn is_of_removed(home: &Home, image: &Controller, found: &TopicPartition) -> Result<bool> {
    let mut of_that_name = image.removing().iter().filter(|(_, removal)| removal.name == found.topic).peekable();
    if of_that_name.peek().is_none() {
        return Ok(false);
    }
    let topic = home.topic_of(found)?;
    Ok(of_that_name.any(|(id, _)| topic.is_none_or(|topic| topic == *id)))
}
