//! The directory of a log: whose it is, what lies in it, and whether it was closed.
//!
//! ```text
//!   <log>/.lock                    held exclusively while the log is open
//!   <log>/.kafka_cleanshutdown     written by close, removed before anything is opened
//!   <log>/meta.properties          the cluster and the node whose directory this is
//!   <log>/<checkpoints>            see partition/books.rs
//!   <log>/__taffrail_metadata-0/   the catalogue
//!   <log>/<topic>-<n>/             the partitions
//! ```
//!
//! A directory that is named as none of these is refused before anything is touched. What a broker has scheduled
//! for deletion or moves (`*-delete`, `*-future`, `*-stray`) is left where it is.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::PARTITIONS_MAX;
use crate::error::{Error, Result};
use crate::storage::checkpoint::properties::{self, Owner};
use crate::storage::checkpoint::{clean_marker, partition_metadata};
use crate::storage::directory::{LOCK, list, list_or_create, parent_of, sync_ancestors, sync_directory, take_lock};
use crate::storage::{Entry, LockMode, Storage, StorageLock};
use crate::sync::Mutex;
use crate::types::{NodeId, TopicId, TopicPartition};

const PROPERTIES: &str = "meta.properties";

/// Directories that no log needs and no log minds.
const IGNORED: &[&str] = &["lost+found", "remote-log-index-cache"];
/// The ends of names of partitions that a broker is about to remove, to move, or does not know.
const RETIRED_SUFFIXES: &[&str] = &["-delete", "-future", "-stray"];
/// The metadata of a broker's cluster, which is another than a log's.
const BROKERS_METADATA: &str = "__cluster_metadata";
/// How directories of ours begin.
pub(super) const OWN_PREFIX: &str = "__taffrail_";

/// A log's directory, locked.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) directory: PathBuf,
    /// Of this directory, and, shared, of a log that it lies in.
    locks: Mutex<Vec<Box<dyn StorageLock>>>,
}

impl Home {
    /// Creates the directory where it is missing, looks whether all in it belongs there and whether it is of the
    /// cluster that it is opened as, and takes its lock.
    pub(super) fn enter(storage: Arc<dyn Storage>, directory: &Path, cluster: Option<&str>) -> Result<Self> {
        let outer = lock_log_around(&*storage, directory)?;
        let entries = list_or_create(&*storage, directory)?;
        check_is_log(directory, &entries)?;
        check_directories(directory, &entries)?;
        if !entries.iter().any(|entry| entry.name.starts_with(OWN_PREFIX)) {
            check_first_time(&*storage, directory, &entries)?;
        }
        // Before the lock, which may be a new file in somebody else's directory; whoever holds it may change the owner yet.
        check_owner(directory, properties::read(&*storage, &directory.join(PROPERTIES))?.as_ref(), cluster)?;
        let path = directory.join(LOCK);
        let is_new = !entries.iter().any(|entry| entry.name == LOCK);
        if is_new {
            sync_ancestors(&*storage, directory)?;
        }
        let lock = take_lock(&*storage, &path, LockMode::Exclusive)?;
        if is_new {
            sync_directory(&*storage, directory)?;
        }
        let locks = std::iter::once(lock).chain(outer).collect();
        Ok(Self { storage, directory: directory.to_owned(), locks: Mutex::new(locks) })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whose directory it is; `None` where nobody has said so yet.
    pub(super) fn owner(&self) -> Result<Option<Owner>> {
        properties::read(&*self.storage, &self.path(PROPERTIES))
    }

    pub(super) fn write_owner(&self, cluster: &str, node: NodeId, directory_id: &str) -> Result<()> {
        properties::write(&*self.storage, &self.path(PROPERTIES), cluster, node, directory_id)
    }

    /// Whether the last process closed the log. The marker is gone, durably, when this returns.
    pub(super) fn take_clean_marker(&self) -> Result<bool> {
        clean_marker::remove(&*self.storage, &self.path(clean_marker::NAME))
    }

    pub(super) fn write_clean_marker(&self) -> Result<()> {
        clean_marker::write(&*self.storage, &self.path(clean_marker::NAME))
    }

    /// The partitions that lie here, without our own.
    pub(super) fn partitions(&self) -> Result<Vec<TopicPartition>> {
        let entries = list(&*self.storage, &self.directory)?;
        let names = entries.iter().filter_map(|entry| partition_of(entry).ok().flatten());
        Ok(names.filter(|name| !name.topic.starts_with(OWN_PREFIX)).collect())
    }

    /// Refuses a directory that is named as a partition's and has nothing of one in it.
    pub(super) fn check_is_partition(&self, name: &TopicPartition) -> Result<()> {
        check_is_partition(&*self.storage, &self.path(&name.to_string()))
    }

    /// Refuses partitions whose names are taken by what is not theirs: a file, or a directory with something in it.
    pub(super) fn check_free(&self, topic: &str, numbers: Range<u32>) -> Result<()> {
        for entry in list(&*self.storage, &self.directory)? {
            let Ok(name) = TopicPartition::from_directory_name(&entry.name) else { continue };
            if name.topic != topic || !numbers.contains(&name.partition) {
                continue;
            }
            let path = self.path(&entry.name);
            if !entry.is_directory || !list(&*self.storage, &path)?.is_empty() {
                return Err(Error::InTheWay { path });
            }
        }
        Ok(())
    }

    /// The topic whose partition lies in a directory, where that says so.
    pub(super) fn topic_of(&self, name: &TopicPartition) -> Result<Option<TopicId>> {
        let path = self.path(&name.to_string()).join(partition_metadata::NAME);
        Ok(partition_metadata::read(&*self.storage, &path)?.map(TopicId))
    }

    /// Removes a partition's directory with all that is in it. One that is another topic's is left. Nobody makes one of
    /// that name before this is done. That it is gone is durable after [`Self::sync`].
    pub(super) fn remove_partition(&self, name: &TopicPartition, topic: TopicId) -> Result<bool> {
        let directory = self.path(&name.to_string());
        let entries = match self.storage.list(&directory) {
            // Whoever removed it may have been killed before that was durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.sync().map(|()| true),
            entries => entries.map_err(|error| Error::io("list", &directory, error))?,
        };
        let found = partition_metadata::read(&*self.storage, &directory.join(partition_metadata::NAME))?;
        if found.is_some_and(|found| found != topic.0) {
            return Ok(false);
        }
        let remove = |name: &str| {
            let path = directory.join(name);
            self.storage.remove(&path).map_err(|error| Error::io("remove", path, error))
        };
        entries.iter().try_for_each(|entry| remove(&entry.name))?;
        // Or the next directory of this name might have some of them in it after a loss of power.
        sync_directory(&*self.storage, &directory)?;
        self.storage.remove_directory(&directory).map_err(|error| Error::io("remove", &directory, error))?;
        Ok(true)
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync(&self) -> Result<()> {
        sync_directory(&*self.storage, &self.directory)
    }

    /// Gives the directory free.
    pub(super) fn release(&self) {
        self.locks.lock().clear();
    }
}

/// Whether the directory is of the cluster that it is opened as.
pub(super) fn check_owner(directory: &Path, owner: Option<&Owner>, cluster: Option<&str>) -> Result<()> {
    let found = owner.and_then(|owner| owner.cluster.as_deref());
    match (found, cluster) {
        (Some(found), Some(expected)) if found != expected => Err(Error::WrongCluster {
            path: directory.to_owned(),
            found: format!("cluster {found}"),
            expected: format!("cluster {expected}"),
        }),
        _ => Ok(()),
    }
}

/// The lock of a log that this directory lies in: one that somebody has open is not to be disturbed.
fn lock_log_around(storage: &dyn Storage, directory: &Path) -> Result<Option<Box<dyn StorageLock>>> {
    let lock = parent_of(directory).map(|parent| parent.join(LOCK));
    let lock = lock.filter(|lock| storage.modified(lock).is_ok());
    lock.map(|lock| take_lock(storage, &lock, LockMode::Shared)).transpose()
}

/// Refuses the directory of a partition.
fn check_is_log(directory: &Path, entries: &[Entry]) -> Result<()> {
    let is_segment = |entry: &Entry| !entry.is_directory && is_partitions(&entry.name) && entry.name != LOCK;
    if entries.iter().any(is_segment) {
        return Err(Error::NotALog { path: directory.to_owned() });
    }
    Ok(())
}

/// Before anything is made in a directory that has been no log yet: what lies in it is partitions.
fn check_first_time(storage: &dyn Storage, directory: &Path, entries: &[Entry]) -> Result<()> {
    let partitions = entries.iter().filter(|entry| matches!(partition_of(entry), Ok(Some(_))));
    partitions.map(|entry| directory.join(&entry.name)).try_for_each(|path| check_is_partition(storage, &path))
}

fn check_is_partition(storage: &dyn Storage, path: &Path) -> Result<()> {
    if list(storage, path)?.iter().any(|entry| !entry.is_directory && is_partitions(&entry.name)) {
        return Ok(());
    }
    Err(Error::ForeignDirectory { path: path.to_owned() })
}

/// Whether a file of this name lies in a partition's directory and nowhere else, but for the lock.
fn is_partitions(name: &str) -> bool {
    let is_base = |base: &str| base.len() == 20 && base.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_suffix(".log").is_some_and(is_base) || name == partition_metadata::NAME || name == LOCK
}

fn check_directories(directory: &Path, entries: &[Entry]) -> Result<()> {
    match entries.iter().find(|entry| partition_of(entry).is_err()) {
        Some(foreign) => Err(Error::ForeignDirectory { path: directory.join(&foreign.name) }),
        None => Ok(()),
    }
}

/// The partition that an entry is the directory of; `None` where it is none of ours and nobody minds; an error where
/// it is a directory that does not belong here.
fn partition_of(entry: &Entry) -> Result<Option<TopicPartition>> {
    let name = entry.name.as_str();
    let is_retired = name.contains('.') && RETIRED_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    if !entry.is_directory || is_retired || IGNORED.contains(&name) {
        return Ok(None);
    }
    match TopicPartition::from_directory_name(name)? {
        other if other.to_string() != name || other.partition >= PARTITIONS_MAX => {
            let reason = "a partition's number has no zeros in front of it, and is below 100,000";
            Err(Error::InvalidName { name: name.to_owned(), reason })
        }
        brokers if brokers.topic.starts_with(BROKERS_METADATA) => {
            let reason = "a broker's metadata are not a log's";
            Err(Error::InvalidName { name: brokers.topic, reason })
        }
        partition => Ok(Some(partition)),
    }
}
