//! A place for one answer, which one thread waits for.

use std::time::Duration;

use crate::sync::{Mutex, Signal};

/// Filled once, taken once.
#[derive(Debug)]
pub(super) struct Slot<T> {
    answer: Mutex<Option<T>>,
    filled: Signal,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self { answer: Mutex::new(None), filled: Signal::new() }
    }

    pub(super) fn set(&self, answer: T) {
        *self.answer.lock() = Some(answer);
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
            self.filled.wait(Duration::MAX);
        }
    }
}
