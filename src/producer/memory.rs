//! The memory of a producer: batches' buffers, counted from their first record until they are appended, and used again.
//!
//! Invariants: the charges of all [`Buffer`]s together, with those of the buffers in the pool, never pass the bound: what
//! the pool holds goes where a buffer needs its room. A buffer that is dropped, on whatever way, gives its charge back
//! and wakes who waits for room. One in the pool has the bytes it is charged with, and nothing besides: what compression
//! needs is lent to a batch while it is appended ([`Press`]). That is not counted: for each batch that is being
//! compressed, and for up to [`PRESSES_KEPT`] more, as much as the batch again and the codec's own state.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::builder::{BatchBuilder, Press};
use crate::sync::{self, Event, Mutex, Signal};

/// So many are kept for the next batches: seldom do more threads compress at once.
const PRESSES_KEPT: usize = 2;

/// The bound, and what is free.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    state: Mutex<State>,
    freed: Event,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// The bytes of all that lies in the pool.
    pooled: usize,
    /// By what they are charged with.
    pool: BTreeMap<usize, Vec<BatchBuilder>>,
    presses: Vec<Press>,
}

/// A batch's buffer and what it is charged with.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) builder: BatchBuilder,
    charge: usize,
    /// Whether it goes back to the pool; others were for a record that is larger than a batch.
    is_usual: bool,
    memory: Arc<Memory>,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), freed: Event::new() })
    }

    /// The bound, in bytes.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// What is charged now, in bytes.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.state.lock().used
    }

    /// A buffer for a batch of `bytes`, and of `usual` where that is more; none where that passes the bound.
    pub(super) fn try_take(self: &Arc<Self>, bytes: usize, usual: usize) -> Option<Buffer> {
        let charge = bytes.max(usual);
        let (pooled, displaced) = {
            let mut state = self.state.lock();
            state.used = state.used.checked_add(charge).filter(|used| *used <= self.limit)?;
            let pooled = state.unpool(charge);
            (pooled, state.displace(self.limit))
        };
        drop(displaced);
        let builder = pooled.unwrap_or_else(|| BatchBuilder::with_capacity(charge));
        Some(Buffer { builder, charge, is_usual: charge == usual, memory: Arc::clone(self) })
    }

    /// Has `signal` raised whenever something is given back, until the answer is dropped.
    pub(super) fn listen(self: &Arc<Self>, signal: &sync::Arc<Signal>) -> Freed {
        self.freed.listen(|| true, signal);
        Freed { memory: Arc::clone(self), signal: sync::Arc::clone(signal) }
    }

    /// Wakes who waits for room: something was given back, or may be made to be.
    pub(super) fn notify(&self) {
        self.freed.notify();
    }
}

impl State {
    /// A buffer of this charge out of the pool, where there is one.
    fn unpool(&mut self, charge: usize) -> Option<BatchBuilder> {
        let builder = self.pool.get_mut(&charge).and_then(Vec::pop)?;
        self.pooled -= charge;
        Some(builder)
    }

    /// Takes out of the pool what no longer has room beside what is in use.
    fn displace(&mut self, limit: usize) -> Vec<BatchBuilder> {
        let mut displaced = Vec::new();
        while self.used + self.pooled > limit {
            let Some(mut kind) = self.pool.first_entry() else { break };
            let charge = *kind.key();
            match kind.get_mut().pop() {
                Some(builder) => {
                    displaced.push(builder);
                    self.pooled -= charge;
                }
                None => drop(kind.remove()),
            }
        }
        displaced
    }
}

impl Buffer {
    /// How many bytes it has room for.
    pub(super) fn charge(&self) -> usize {
        self.charge
    }

    /// Lends the batch what compressing it takes, until the buffer is dropped.
    pub(super) fn lend_press(&mut self) {
        let press = self.memory.state.lock().presses.pop();
        self.builder.put_press(press.unwrap_or_default());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = &*self.memory;
        let mut builder = std::mem::take(&mut self.builder);
        builder.clear();
        let mut press = builder.take_press();
        let mut state = memory.state.lock();
        state.used -= self.charge;
        let mut unused = None;
        if self.is_usual {
            state.pool.entry(self.charge).or_default().push(builder);
            state.pooled += self.charge;
            if press.is_used() && state.presses.len() < PRESSES_KEPT {
                state.presses.push(std::mem::take(&mut press));
            }
        } else {
            unused = Some(builder);
        }
        drop(state);
        drop((unused, press));
        memory.notify();
    }
}

/// A signal that is raised when memory becomes free.
#[derive(Debug)]
pub(super) struct Freed {
    memory: Arc<Memory>,
    signal: sync::Arc<Signal>,
}

impl Drop for Freed {
    fn drop(&mut self) {
        self.memory.freed.unlisten(&self.signal);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Memory;
    use crate::sync::{Arc, Signal};

    fn pooled(memory: &Memory) -> (usize, usize) {
        let state = memory.state.lock();
        (state.pool.values().map(Vec::len).sum(), state.pooled)
    }

    #[test]
    fn charges_never_pass_the_bound_and_come_back() {
        let memory = Memory::new(100);
        let (one, two) = (memory.try_take(1, 40), memory.try_take(40, 40));
        assert!(one.is_some() && two.is_some() && memory.try_take(1, 40).is_none(), "two of three fit");
        drop(one);
        assert!(memory.try_take(61, 40).is_none(), "larger ones are charged as they are");
        let large = memory.try_take(60, 40);
        assert_eq!((large.is_some(), memory.used()), (true, 100));
        drop((large, two));
        assert_eq!((memory.used(), pooled(&memory)), (0, (1, 40)), "only usual ones are kept");
        assert!(memory.try_take(usize::MAX, 40).is_none());
    }

    /// With those in use, whatever comes, also where some are larger than usual or of another topic's size.
    #[test]
    fn what_lies_in_the_pool_gives_way() {
        let memory = Memory::new(100);
        let four: Vec<_> = (0..4).map(|_| memory.try_take(1, 25)).collect();
        drop(four);
        assert_eq!(pooled(&memory), (4, 100));
        let large = memory.try_take(60, 25);
        assert_eq!((large.is_some(), pooled(&memory)), (true, (1, 25)));
        let other = memory.try_take(1, 20);
        assert_eq!((other.is_some(), pooled(&memory)), (true, (0, 0)));
        drop((large, other));
        assert_eq!(pooled(&memory), (1, 20));
        let again = memory.try_take(1, 20);
        assert_eq!((again.is_some(), pooled(&memory)), (true, (0, 0)), "it is used again");
    }

    /// What compressed a batch does not stay with its buffer.
    #[cfg(feature = "gzip")]
    #[test]
    fn what_compresses_is_lent() {
        use super::{Buffer, PRESSES_KEPT};
        use crate::record::builder::Record;

        let memory = Memory::new(4000);
        let mut buffers: Vec<Buffer> = (0..4).filter_map(|_| memory.try_take(1, 1000)).collect();
        for buffer in &mut buffers {
            buffer.lend_press();
            let builder = std::mem::take(&mut buffer.builder).compression(crate::types::Compression::Gzip);
            buffer.builder = builder;
            buffer.builder.push(&Record::new("a")).expect("it has room");
            buffer.builder.encode().expect("it is compressed");
        }
        drop(buffers);
        assert_eq!(memory.state.lock().presses.len(), PRESSES_KEPT);
        let mut state = memory.state.lock();
        let mut kept = state.pool.values_mut().flatten();
        assert!(kept.all(|builder| !builder.take_press().is_used()));
    }

    #[test]
    fn who_listens_hears_of_room() {
        let memory = Memory::new(40);
        let signal = Arc::new(Signal::new());
        let buffer = memory.try_take(1, 40);
        let freed = memory.listen(&signal);
        assert!(!signal.wait(Duration::ZERO));
        drop(buffer);
        assert!(signal.wait(Duration::ZERO));
        drop(freed);
        memory.notify();
        assert!(!signal.wait(Duration::ZERO));
    }
}
