//! The memory of a producer: batches' buffers, counted from their first record until they are appended, and used again.
//!
//! Invariants: the charges of all [`Buffer`]s together never pass the bound; a buffer that is dropped, on whatever way,
//! gives its charge back and wakes who waits for room. Buffers lie in the pool only where they were charged for once, so
//! those in use and those in the pool stay under the bound together. (What compression needs besides is not counted: as
//! much again for each batch that is being compressed.)

use std::sync::Arc;

use crate::record::builder::BatchBuilder;
use crate::sync::{self, Event, Mutex, Signal};

/// The bound, and what is free.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    /// The charge of a buffer that goes back to the pool; others were for a record that is larger than a batch.
    usual: usize,
    state: Mutex<State>,
    freed: Event,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    pool: Vec<BatchBuilder>,
}

/// A batch's buffer and what it is charged with.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) builder: BatchBuilder,
    charge: usize,
    memory: Arc<Memory>,
}

impl Memory {
    pub(super) fn new(limit: usize, usual: usize) -> Arc<Self> {
        Arc::new(Self { limit, usual, state: Mutex::default(), freed: Event::new() })
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

    /// A buffer for a batch of `bytes`; none where that passes the bound.
    pub(super) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        let charge = bytes.max(self.usual);
        let pooled = {
            let mut state = self.state.lock();
            state.used = state.used.checked_add(charge).filter(|used| *used <= self.limit)?;
            if charge == self.usual { state.pool.pop() } else { None }
        };
        let builder = pooled.unwrap_or_else(|| BatchBuilder::with_capacity(charge));
        Some(Buffer { builder, charge, memory: Arc::clone(self) })
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

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = &*self.memory;
        let mut builder = std::mem::take(&mut self.builder);
        builder.clear();
        let mut state = memory.state.lock();
        state.used -= self.charge;
        let unused = if self.charge == memory.usual {
            state.pool.push(builder);
            None
        } else {
            Some(builder)
        };
        drop(state);
        drop(unused);
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

    #[test]
    fn charges_never_pass_the_bound_and_come_back() {
        let memory = Memory::new(100, 40);
        let (one, two) = (memory.try_take(1), memory.try_take(40));
        assert!(one.is_some() && two.is_some() && memory.try_take(1).is_none(), "two of three fit");
        drop(one);
        assert!(memory.try_take(61).is_none(), "larger ones are charged as they are");
        let large = memory.try_take(60);
        assert_eq!((large.is_some(), memory.used()), (true, 100));
        drop((large, two));
        assert_eq!((memory.used(), memory.state.lock().pool.len()), (0, 2), "only usual ones are kept");
        assert!(memory.try_take(usize::MAX).is_none());
    }

    #[test]
    fn who_listens_hears_of_room() {
        let memory = Memory::new(40, 40);
        let signal = Arc::new(Signal::new());
        let buffer = memory.try_take(1);
        let freed = memory.listen(&signal);
        assert!(!signal.wait(Duration::ZERO));
        drop(buffer);
        assert!(signal.wait(Duration::ZERO));
        drop(freed);
        memory.notify();
        assert!(!signal.wait(Duration::ZERO));
    }
}
