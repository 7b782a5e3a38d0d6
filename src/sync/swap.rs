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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::super::Arc;
    use super::super::atomic::{AtomicU64, Ordering};
    use super::Swap;

    /// Whoever sees a mark that was raised after the picture was published sees that picture.
    #[test]
    fn loom_a_mark_is_covered_by_the_picture() {
        loom::model(|| {
            let shared = Arc::new((Swap::new(Arc::new(5_u64)), AtomicU64::new(5)));
            let writer = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                assert_eq!(*writer.0.store(Arc::new(10)), 5);
                writer.1.store(10, Ordering::Release);
            });
            let mark = shared.1.load(Ordering::Acquire);
            assert!(*shared.0.load() >= mark);
            thread.join().expect("the writer does not panic");
            assert_eq!(*shared.0.load(), 10);
        });
    }

    /// Cutting lowers the mark before it publishes the picture: the smaller of the marks read before and after
    /// the picture is inside it.
    #[test]
    fn loom_a_cut_is_never_read_past() {
        loom::model(|| {
            let shared = Arc::new((Swap::new(Arc::new(10_u64)), AtomicU64::new(10)));
            let writer = Arc::clone(&shared);
            let thread = loom::thread::spawn(move || {
                writer.1.store(5, Ordering::Release);
                writer.0.store(Arc::new(5));
            });
            let before = shared.1.load(Ordering::Acquire);
            let picture = shared.0.load();
            let after = shared.1.load(Ordering::Acquire);
            assert!(before.min(after) <= *picture);
            thread.join().expect("the writer does not panic");
        });
    }
}
