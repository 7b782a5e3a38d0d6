//! The pointer to an immutable picture: readers take it, a change publishes the next one.
//!
//! Invariant: the lock is held for one pointer, never over I/O or a drop of what it pointed to.

use super::{Arc, RwLock};

/// A shared pointer that is exchanged as a whole.
#[derive(Debug)]
pub(crate) struct Swap<T>(RwLock<Arc<T>>);

impl<T> Swap<T> {
    pub(crate) fn new(value: Arc<T>) -> Self {
        Self(RwLock::new(value))
    }

    /// The picture as it is now.
    pub(crate) fn load(&self) -> Arc<T> {
        Arc::clone(&self.0.read())
    }

    /// Publishes the next picture and returns the one before.
    pub(crate) fn store(&self, value: Arc<T>) -> Arc<T> {
        std::mem::replace(&mut *self.0.write(), value)
    }
}
