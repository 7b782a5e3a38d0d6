//! A place for one answer, which one thread waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sync::{Mutex, Signal};

/// Filled once, taken once.
#[derive(Debug)]
pub(super) struct Slot<T> {
    answer: Mutex<Option<T>>,
    filled: Signal,
    was_filled: AtomicBool,
    awaited: AtomicBool,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self {
            answer: Mutex::new(None),
            filled: Signal::new(),
            was_filled: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
        }
    }

    pub(super) fn set(&self, answer: T) {
        *self.answer.lock() = Some(answer);
        self.was_filled.store(true, Ordering::Release);
        self.filled.raise();
    }

    /// The answer, where it is there.
    pub(super) fn take(&self) -> Option<T> {
        self.answer.lock().take()
    }

    /// The answer, once it is there.
    pub(super) fn wait(&self) -> T {
        loop {
            if let Some(answer) = self.take() {
                return answer;
            }
            self.sleep();
        }
    }

    /// A thread is going to wait here.
    pub(super) fn is_awaited(&self) {
        self.awaited.store(true, Ordering::Release);
    }

    /// Has whoever waits look for something else to do; says whether anybody does.
    pub(super) fn wake(&self) -> bool {
        let is_awaited = self.awaited.load(Ordering::Acquire);
        if is_awaited {
            self.filled.raise();
        }
        is_awaited
    }

    /// Sleeps until it is filled, or [`Self::wake`] is called.
    pub(super) fn sleep(&self) {
        self.filled.wait(Duration::MAX);
    }

    /// Whether the answer was there, be it taken or not.
    pub(super) fn is_filled(&self) -> bool {
        self.was_filled.load(Ordering::Acquire)
    }
}
