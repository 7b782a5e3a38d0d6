//! Locks, conditions, shared pointers and atomics: `parking_lot` and std, or loom's under `--cfg loom`.
//!
//! The primitives that taffrail builds of them stand below this file: [`Event`] (wait until something
//! was published; [`Signal`]: any of several), [`SharedSync`] (one sync serves all who wait) and [`Swap`] (the pointer to an
//! immutable picture). Each is checked under loom.

mod event;
mod shared;
mod swap;

pub(crate) use event::{Event, Signal};
pub(crate) use shared::SharedSync;
pub(crate) use swap::Swap;

#[cfg(not(loom))]
mod primitives {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic;

    /// Waits until notified or until `timeout` has passed.
    pub(crate) fn wait_for<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: std::time::Duration) {
        condvar.wait_for(guard, timeout);
    }
}

#[cfg(loom)]
mod primitives {
    //! parking_lot's shapes over loom's types: no poisoning, conditions that take the guard by reference.

    use std::ops::{Deref, DerefMut};

    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("loom mutexes are not poisoned")))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("the guard is there outside of a wait")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("the guard is there outside of a wait")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("loom locks are not poisoned")
        }

        pub(crate) fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("loom locks are not poisoned")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("the guard is there outside of a wait");
            guard.0 = Some(self.0.wait(inner).expect("loom mutexes are not poisoned"));
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Waits until notified: under loom time does not pass.
    pub(crate) fn wait_for<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, _timeout: std::time::Duration) {
        condvar.wait(guard);
    }
}

/// A lock that can stand in a static, which loom's cannot: for counters of the process, nothing that threads agree by.
pub(crate) use parking_lot::Mutex as StaticMutex;
pub(crate) use primitives::{Arc, Condvar, Mutex, MutexGuard, RwLock, atomic, wait_for};
