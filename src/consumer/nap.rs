//! Polling, and sleeping within a poll that found nothing: until something comes that it may have missed.
//!
//! ```text
//!   nothing there ─▶ listen ─▶ nothing there ─▶ sleep ─▶ nothing there ─▶ sleep ..    what is read changed: listen anew
//! ```

use std::time::Duration;

use super::assignment::Slot;
use super::fetcher::{Fetcher, Step};
use super::polled::Polled;
use crate::clock::Moment;
use crate::error::Result;
use crate::node::NodeListening;
use crate::partition::Listening;

/// What polls: it steps, and sleeps by its fetcher, until `wake_by` of its deadline at the latest.
pub(super) trait Polls {
    fn fetcher(&self) -> &Fetcher;

    fn step(&mut self) -> Result<Step>;

    fn wake_by(&self, deadline: Moment) -> Moment;
}

/// The records of a step, waiting for up to `timeout` where there are none, or until somebody ends that.
pub(super) fn poll(polls: &mut impl Polls, timeout: Duration) -> Result<Polled> {
    let deadline = polls.fetcher().now().after(timeout);
    let mut nap = Nap::default();
    loop {
        match polls.step()? {
            Step::Records(polled) => return Ok(polled),
            _ if polls.fetcher().now() >= deadline => return Ok(Polled::default()),
            Step::Passed => {}
            Step::Idle if polls.fetcher().waker().take() => return Ok(Polled::default()),
            Step::Idle => nap.take(polls.fetcher(), polls.wake_by(deadline)),
        }
    }
}

/// The same without waiting.
pub(super) fn try_poll(polls: &mut impl Polls) -> Result<Polled> {
    loop {
        match polls.step()? {
            Step::Records(polled) => return Ok(polled),
            Step::Passed => {}
            Step::Idle => return Ok(Polled::default()),
        }
    }
}

/// The sleep of one poll.
#[derive(Default)]
struct Nap {
    listeners: Option<Listeners>,
}

/// What raises the fetcher's signal while it sleeps.
struct Listeners {
    /// Of what is read they are of.
    revision: u64,
    _node: NodeListening,
    _partitions: Vec<Listening>,
}

impl Nap {
    /// Sleeps until `until` at the latest. The first time it only begins to listen, so that whoever polls looks once more.
    fn take(&mut self, fetcher: &Fetcher, until: Moment) {
        let revision = fetcher.assignment().revision();
        match &self.listeners {
            Some(heard) if heard.revision == revision => {
                fetcher.node().wait(fetcher.signal(), until);
            }
            _ => self.listeners = Some(Listeners::of(fetcher)),
        }
    }
}

impl Listeners {
    fn of(fetcher: &Fetcher) -> Self {
        let awake = fetcher.assignment().slots().iter().filter(|slot| !slot.paused);
        let partitions = awake.filter_map(|slot: &Slot| slot.partition().ok());
        Self {
            revision: fetcher.assignment().revision(),
            _node: fetcher.node().listen(fetcher.signal()),
            _partitions: partitions.map(|partition| partition.listen(fetcher.signal())).collect(),
        }
    }
}
