//! What the consumers of groups are told by the way: partitions that come and go, and what became of commits that nobody
//! waits for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use taffrail::{Error, Rebalance, RebalanceListener, Result, TopicPartition};

/// One thing that a consumer was told.
#[derive(Debug)]
pub(super) enum News {
    /// With where each is read from, where that is known.
    Assigned(Places),
    /// With where everything was read to, and what became of the commit that was made then, where one was.
    Revoked(Vec<TopicPartition>, Places, Option<Result<()>>),
    Lost(Vec<TopicPartition>, Result<()>),
    /// A commit was answered, by its number.
    Committed(u64, Result<()>),
}

/// Where partitions are read next, where that is known.
pub(super) type Places = Vec<(TopicPartition, Option<u64>)>;

/// What was told and not taken in yet.
#[derive(Clone, Debug)]
pub(super) struct Told {
    news: Arc<Mutex<Vec<News>>>,
    assigned: BTreeSet<TopicPartition>,
    /// It commits when partitions are asked back.
    commits: bool,
}

impl Told {
    pub(super) fn new(commits: bool) -> Self {
        Self { news: Arc::default(), assigned: BTreeSet::new(), commits }
    }

    pub(super) fn take(&self) -> Vec<News> {
        std::mem::take(&mut self.lock())
    }

    pub(super) fn tell(&self, news: News) {
        self.lock().push(news);
    }

    /// Whether something was lost, and not taken in yet.
    pub(super) fn has_lost(&self) -> bool {
        self.lock().iter().any(|news| matches!(news, News::Lost(..)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<News>> {
        self.news.lock().expect("nobody panics meanwhile")
    }
}

impl RebalanceListener for Told {
    fn assigned(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.assigned.extend(partitions.iter().cloned());
        self.tell(News::Assigned(places(rebalance, partitions.iter())));
        Ok(())
    }

    fn revoked(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let places = places(rebalance, self.assigned.iter());
        let committed = self.commits.then(|| rebalance.commit());
        self.assigned.retain(|one| !partitions.contains(one));
        self.tell(News::Revoked(partitions.to_vec(), places, committed));
        Ok(())
    }

    fn lost(&mut self, rebalance: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let committed = rebalance.commit();
        self.assigned.retain(|one| !partitions.contains(one));
        self.tell(News::Lost(partitions.to_vec(), committed));
        Ok(())
    }
}

fn places<'a>(rebalance: &mut Rebalance<'_>, of: impl Iterator<Item = &'a TopicPartition>) -> Places {
    let mut place = |one: &TopicPartition| match rebalance.position(&one.topic, one.partition) {
        Ok(position) => Some(position.offset.0),
        Err(Error::NotAssigned { .. }) => panic!("{one} is assigned, they say"),
        Err(_) => None,
    };
    of.map(|one| (one.clone(), place(one))).collect()
}
