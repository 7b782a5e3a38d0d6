//! Ending the wait of a poll from another thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::{Arc as Pointer, Signal};

/// Ends the wait of a poll, from any thread: the poll of its reader or consumer that waits, or else the next one that would,
/// returns nothing, before its time is up. What is there to be read is returned all the same, first.
///
/// It is [`Reader::waker`](crate::Reader::waker)'s or [`Consumer::waker`](crate::Consumer::waker)'s, and all clones are one.
/// (Kafka: `wakeup`, which has the poll fail.)
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
/// use taffrail::{Log, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// # let log = Log::open(directory.path().join("data"))?;
/// # log.ensure_topic("orders", TopicConfig::new())?;
/// let mut consumer = log.consumer("billing").subscribe(["orders"]).open()?;
/// let waker = consumer.waker();
/// let is_over = AtomicBool::new(false);
/// std::thread::scope(|threads| {
///     let worker = threads.spawn(|| {
///         while !is_over.load(Ordering::Acquire) {
///             let polled = consumer.poll(Duration::MAX)?;
///             assert!(polled.is_empty());
///         }
///         consumer.close()
///     });
///     is_over.store(true, Ordering::Release);
///     waker.wake();
///     worker.join().expect("it does not panic")
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[doc(alias = "wakeup")]
pub struct PollWaker {
    signal: Pointer<Signal>,
    is_woken: Arc<AtomicBool>,
}

impl PollWaker {
    pub(super) fn new() -> Self {
        Self { signal: Pointer::new(Signal::new()), is_woken: Arc::default() }
    }

    /// Ends the wait of one poll, however often it is called before that. It waits for nothing.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.signal.raise();
    }

    /// What a poll sleeps on.
    pub(super) fn signal(&self) -> &Pointer<Signal> {
        &self.signal
    }

    /// Whether a poll is to end, once.
    pub(super) fn take(&self) -> bool {
        self.is_woken.swap(false, Ordering::AcqRel)
    }
}

impl fmt::Debug for PollWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollWaker").field("is_woken", &self.is_woken).finish_non_exhaustive()
    }
}
