//! Sleeping within a poll that found nothing: until something comes that it may have missed.
//!
//! ```text
//!   nothing there ─▶ listen ─▶ nothing there ─▶ sleep ─▶ nothing there ─▶ sleep ..    what is read changed: listen anew
//! ```

use super::assignment::Slot;
use super::fetcher::Fetcher;
use crate::clock::Moment;
use crate::node::NodeListening;
use crate::partition::Listening;

/// The sleep of one poll.
#[derive(Default)]
pub(super) struct Nap {
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
    pub(super) fn take(&mut self, fetcher: &Fetcher, until: Moment) {
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
