//! What the lanes of a producer share: settings, memory, the open batches by age, and what failed.
//!
//! The node drives it ([`Timed`]): a batch that nobody fills, waits on or flushes is appended when it is due.

use std::sync::Arc;

use super::agenda::{Agenda, Key};
use super::builder::{Settings, WhenFull};
use super::lane::Lane;
use super::memory::{Buffer, Memory};
use super::transactional::Transactional;
use crate::clock::{Moment, Now};
use crate::error::{Error, Result};
use crate::node::{Node, Timed};
use crate::sync::{self, Mutex, Signal};
use crate::types::{Acks, ProducerId};

/// The shared part of a producer.
pub(super) struct Accumulator {
    pub(super) node: Arc<Node>,
    pub(super) settings: Settings,
    /// Of an idempotent producer.
    pub(super) producer_id: Option<ProducerId>,
    memory: Arc<Memory>,
    agenda: Agenda,
    /// Whose records are those of transactions.
    pub(super) transactional: Option<Arc<Transactional>>,
    failures: Mutex<Failures>,
}

/// The batches that were not stored.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    /// How many of them a flush has answered for.
    told: u64,
    last: Option<Error>,
}

impl Accumulator {
    pub(super) fn new(
        node: Arc<Node>,
        settings: Settings,
        producer_id: Option<ProducerId>,
        transactional: Option<Arc<Transactional>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            transactional,
            memory: Memory::new(settings.memory_bytes),
            agenda: Agenda::new(settings.linger),
            failures: Mutex::default(),
            producer_id,
            settings,
        })
    }

    /// Refuses what comes after the close.
    #[inline]
    pub(super) fn check_open(&self) -> Result<()> {
        if self.agenda.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    /// What is charged now, in bytes.
    #[cfg(test)]
    pub(super) fn memory_used(&self) -> usize {
        self.memory.used()
    }

    /// How many batches are open.
    #[cfg(test)]
    pub(super) fn open_batches(&self) -> usize {
        self.agenda.lanes().len()
    }

    /// A batch is opened now. Who waits for memory may take it.
    pub(super) fn enter(&self, lane: &Arc<Lane>) -> Result<(Key, bool)> {
        let entered = self.agenda.enter(self.node.clock().monotonic(), lane);
        self.memory.notify();
        entered
    }

    /// A lane can be asked to append again, which those who wait for memory have passed over.
    pub(super) fn lane_is_free(&self) {
        self.memory.notify();
    }

    /// A batch is taken to be appended.
    pub(super) fn take(&self, key: Key) {
        self.agenda.take(key);
    }

    /// A batch has its outcome, or was never filled.
    pub(super) fn leave(&self, key: Key) {
        self.agenda.leave(key);
    }

    /// A batch was not stored.
    pub(super) fn failed(&self, error: &Error) {
        if let Some(transactional) = &self.transactional {
            transactional.failed(error);
        }
        let mut failures = self.failures.lock();
        failures.count += 1;
        failures.last = Some(error.clone());
    }

    /// Nobody is to be told of what has failed so far.
    pub(super) fn forget_failures(&self) {
        let mut failures = self.failures.lock();
        failures.told = failures.count;
    }

    /// How many failures were answered for so far.
    pub(super) fn failures_told(&self) -> u64 {
        self.failures.lock().told
    }

    /// The last failure behind the first `told`, if anybody is to be told of failures at all.
    pub(super) fn tell_failures(&self, told: u64) -> Result<()> {
        let mut failures = self.failures.lock();
        failures.told = failures.count;
        match &failures.last {
            Some(last) if failures.count > told && self.settings.acks != Acks::None => Err(last.clone()),
            _ => Ok(()),
        }
    }

    /// A buffer for a batch of `bytes`, and of `usual` where that is more. Where memory is full, it is made free or
    /// waited for, as `when_full` says.
    ///
    /// # Errors
    /// [`Error::MemoryFull`], [`Error::RecordTooLarge`] where it never fits, [`Error::Closed`].
    pub(super) fn buffer(&self, bytes: u64, usual: usize, when_full: WhenFull) -> Result<Buffer> {
        let limit = self.memory.limit();
        let too_large = Error::RecordTooLarge { size: bytes, limit: limit as u64 };
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= limit).ok_or(too_large)?;
        let full = Error::MemoryFull { limit };
        match (self.memory.try_take(bytes, usual), when_full) {
            (Some(buffer), _) => Ok(buffer),
            (None, WhenFull::Fail) => Err(full),
            (None, WhenFull::Block(time)) => {
                let deadline = self.node.clock().monotonic().after(time);
                self.wait_for_room(bytes, usual, deadline)?.ok_or(full)
            }
        }
    }

    /// Makes room until there is enough or time is up.
    fn wait_for_room(&self, bytes: usize, usual: usize, deadline: Moment) -> Result<Option<Buffer>> {
        let signal = sync::Arc::new(Signal::new());
        let _listening = self.memory.listen(&signal);
        loop {
            self.check_open()?;
            if let Some(buffer) = self.make_room(bytes, usual) {
                return Ok(Some(buffer));
            }
            if !self.node.wait(&signal, deadline) {
                return Ok(self.make_room(bytes, usual));
            }
        }
    }

    /// Appends open batches, the oldest first, until there is room. Where another thread is appending, it passes on.
    fn make_room(&self, bytes: usize, usual: usize) -> Option<Buffer> {
        let mut passed = None;
        loop {
            if let Some(buffer) = self.memory.try_take(bytes, usual) {
                return Some(buffer);
            }
            let (key, lane) = self.agenda.oldest(passed)?;
            // What fails is told to its deliveries.
            drop(lane.try_hand_over(key));
            passed = Some(key);
        }
    }

    /// Appends what is open.
    pub(super) fn hand_over_all(&self) {
        for lane in self.agenda.lanes() {
            // What fails is told to its deliveries, and to who flushes.
            drop(lane.hand_over(None));
        }
    }

    /// Takes no more records, and returns once all that was taken is appended, also by others. It waits for no sync.
    pub(super) fn close(&self) {
        let lanes = self.agenda.close();
        self.memory.notify();
        for lane in lanes {
            trace_failure(&lane, &lane.hand_over(None));
        }
        self.agenda.settle();
    }
}

impl Timed for Accumulator {
    fn due(&self) -> Option<Moment> {
        self.agenda.due()
    }

    fn run(&self, now: Now) {
        for (key, lane) in self.agenda.due_by(now.monotonic) {
            trace_failure(&lane, &lane.hand_over(Some(key)));
        }
        self.agenda.settle();
    }

    fn close(&self) {
        self.close();
    }
}

fn trace_failure(lane: &Lane, outcome: &Result<()>) {
    if let Err(error) = outcome {
        lane.trace(error);
    }
}
