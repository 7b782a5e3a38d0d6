//! What falls due, and the threads that do it.
//!
//! ```text
//!   thread      woken by                        does
//!   flush (2)   a partition with unsynced       syncs what nobody waits for, once it is due
//!               bytes (a channel)
//!   timed       Node::wake, the next moment     runs what is registered: batches that linger
//!   cleaner     its own next moment, stop         compaction
//!   keeper      an interval, stop               retention, checkpoints, metrics, what the catalogue still wants done
//! ```
//!
//! Without threads [`Node::tick`] does all of it. Threads live here and in `partitions.rs`, and nowhere else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::holding::Readings;
use super::measuring::measure_removal;
use super::{Node, Timed};
use crate::clock::{Moment, Now};
use crate::error::{Error, Result};
use crate::partition::{Partition, Unsynced, WeakPartition};
use crate::sync::{Mutex, Signal};
use crate::trace;

const FLUSH_THREADS: usize = 2;
/// How often retention and the rest are looked after.
const KEEPER_INTERVAL: Duration = Duration::from_secs(1);
/// How often the checkpoints of all partitions are written.
const BOOKS_INTERVAL: Duration = Duration::from_secs(5);
/// How often the figures of topics are shown.
const METRICS_INTERVAL: Duration = Duration::from_secs(10);
/// While records keep coming, batches that nobody waits for are gathered for so long: a wake-up costs its sender
/// more than a record does.
const GATHER: Duration = Duration::from_micros(200);

/// One thing to flush, or the end.
#[derive(Debug)]
pub(super) enum Flush {
    Partition(Arc<Flusher>),
    Stop,
}

/// Tells the flush threads of a partition that has something to sync.
///
/// It stands in their queue at most once: from the append that finds it out of the queue until it is taken out when
/// it is due. So a partition whose records are all waited for costs one wake-up an interval.
#[derive(Debug)]
pub(super) struct Flusher {
    me: Weak<Self>,
    partition: OnceLock<WeakPartition>,
    is_queued: AtomicBool,
    queue: Sender<Flush>,
}

impl Flusher {
    pub(super) fn new(flushes: &Flushes) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            partition: OnceLock::new(),
            is_queued: AtomicBool::new(false),
            queue: flushes.sender.clone(),
        })
    }

    pub(super) fn serves(&self, partition: &Partition) {
        self.partition.get_or_init(|| partition.downgrade());
    }

    fn partition(&self) -> Option<Partition> {
        self.partition.get()?.upgrade()
    }

    /// Syncs the partition where that is due, and nobody else has meanwhile. Answers when it is due again.
    fn run(&self, now: Moment) -> Option<Moment> {
        let partition = self.partition()?;
        if partition.flush_due().is_some_and(|due| due <= now) {
            // A sync that fails fences the partition, which traces it and tells whoever comes next.
            drop(partition.sync());
        }
        // Out of the queue before it is looked: an append that comes later puts it in again.
        self.is_queued.swap(false, Ordering::AcqRel);
        let due = partition.flush_due().filter(|_| partition.takes_writes())?;
        let soonest = now.after(Duration::from_millis(1));
        (!self.is_queued.swap(true, Ordering::AcqRel)).then_some(due.max(soonest))
    }
}

impl Unsynced for Flusher {
    fn unsynced(&self) {
        if !self.is_queued.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            // The receiver lives as long as the node.
            drop(self.queue.send(Flush::Partition(me)));
        }
    }
}

/// The partitions that have something to sync.
#[derive(Debug)]
pub(super) struct Flushes {
    sender: Sender<Flush>,
    receiver: Receiver<Flush>,
    /// What a tick has found and was not due yet.
    pending: Mutex<Pending>,
}

/// Partitions by when they are due; two that are due at one moment have different numbers.
#[derive(Debug, Default)]
struct Pending {
    by_due: BTreeMap<(Moment, u64), Arc<Flusher>>,
    count: u64,
}

impl Pending {
    /// Takes in what came out of the queue: what was synced meanwhile is looked at once more, at `now`.
    fn add(&mut self, flusher: Arc<Flusher>, now: Moment) {
        let due = flusher.partition().and_then(|partition| partition.flush_due());
        self.put(flusher, due.unwrap_or(now));
    }

    fn put(&mut self, flusher: Arc<Flusher>, due: Moment) {
        self.count += 1;
        self.by_due.insert((due, self.count), flusher);
    }

    fn next(&self) -> Option<Moment> {
        self.by_due.keys().next().map(|(due, _)| *due)
    }

    /// Takes one that is due at `now`.
    fn take_due(&mut self, now: Moment) -> Option<Arc<Flusher>> {
        let entry = self.by_due.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }
}

impl Flushes {
    pub(super) fn new() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver, pending: Mutex::new(Pending::default()) }
    }

    /// Flushes what is due; answers when the next is.
    fn tick(&self, now: Moment) -> Option<Moment> {
        loop {
            let due = {
                let mut pending = self.pending.lock();
                while let Ok(Flush::Partition(flusher)) = self.receiver.try_recv() {
                    pending.add(flusher, now);
                }
                match pending.take_due(now) {
                    Some(due) => due,
                    None => return pending.next(),
                }
            };
            if let Some(again) = due.run(now) {
                self.pending.lock().put(due, again);
            }
        }
    }

    /// One flush thread, until it is told to stop.
    fn run(&self, clock: &dyn crate::clock::Clock) {
        let mut pending = Pending::default();
        loop {
            let now = clock.monotonic();
            while let Some(due) = pending.take_due(now) {
                if let Some(again) = due.run(now) {
                    pending.put(due, again);
                }
            }
            let received = match pending.next() {
                Some(due) => self.receiver.recv_timeout(due.since(clock.monotonic())).ok(),
                None => self.receiver.recv().ok(),
            };
            match received {
                Some(Flush::Partition(flusher)) => pending.add(flusher, clock.monotonic()),
                Some(Flush::Stop) => return,
                None => {}
            }
        }
    }
}

/// Whether the timed thread is awake, and what wakes it.
#[derive(Debug)]
pub(super) struct Alarm {
    awake: AtomicBool,
    signal: Signal,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self { awake: AtomicBool::new(true), signal: Signal::new() }
    }

    /// Wakes the thread, where it sleeps. Call it after what it is to see was published.
    pub(super) fn ring(&self) {
        if !self.awake.swap(true, Ordering::AcqRel) {
            self.signal.raise();
        }
    }

    fn ring_anyway(&self) {
        self.awake.store(true, Ordering::Release);
        self.signal.raise();
    }
}

/// The threads of a log.
#[derive(Debug)]
pub(super) struct Threads {
    handles: Vec<JoinHandle<()>>,
    /// Dropped, it stops the keeper.
    stop: Option<Sender<()>>,
}

impl Threads {
    /// Starts them.
    pub(super) fn start(node: &Arc<Node>) -> Result<Self> {
        let (stop, stopped) = bounded(0);
        let mut threads = Self { handles: Vec::new(), stop: Some(stop) };
        let started = threads.start_all(node, stopped);
        if let Err(error) = started {
            threads.stop(node);
            return Err(error);
        }
        Ok(threads)
    }

    fn start_all(&mut self, node: &Arc<Node>, stopped: Receiver<()>) -> Result<()> {
        for _ in 0..FLUSH_THREADS {
            self.spawn(node, "taffrail-flush", |node| node.flushes.run(&*node.clock))?;
        }
        self.spawn(node, "taffrail-timed", Node::run_timed)?;
        let also_stopped = stopped.clone();
        self.spawn(node, "taffrail-cleaner", move |node| node.run_cleaner(&also_stopped))?;
        self.spawn(node, "taffrail-keeper", move |node| node.run_keeper(&stopped))
    }

    fn spawn(&mut self, node: &Arc<Node>, name: &str, run: impl FnOnce(&Node) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(node);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        let thread = thread.map_err(|error| Error::io("start a thread for", &node.home.directory, error))?;
        self.handles.push(thread);
        Ok(())
    }

    pub(super) fn ids(&self) -> Vec<ThreadId> {
        self.handles.iter().map(|thread| thread.thread().id()).collect()
    }

    /// Ends them, and waits until they have.
    pub(super) fn stop(&mut self, node: &Node) {
        self.stop.take();
        node.stopping.store(true, Ordering::Release);
        for _ in 0..FLUSH_THREADS {
            drop(node.flushes.sender.send(Flush::Stop));
        }
        node.alarm.ring_anyway();
        let me = std::thread::current().id();
        // Where one of them closes the log (a monitor's callback does), it ends by itself behind that.
        for thread in self.handles.drain(..).filter(|thread| thread.thread().id() != me) {
            if thread.join().is_err() {
                trace::warn(&node.home.directory, || "a background thread has panicked");
            }
        }
    }
}

/// What is looked after at intervals.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    keeper: Moment,
    books: Moment,
    metrics: Moment,
}

impl Intervals {
    /// Everything was looked after at `now`.
    pub(super) const fn at(now: Moment) -> Self {
        Self { keeper: now, books: now, metrics: now }
    }
}

impl Node {
    /// Does everything that is due now: for a host that has no thread run in the background.
    pub(crate) fn tick(&self) {
        if self.check_open().is_err() {
            return;
        }
        let now = self.clock.now();
        self.run_due(now);
        self.flushes.tick(now.monotonic);
        self.keep(now);
        self.clean(now);
    }

    /// When [`Self::tick`] has something to do next.
    pub(super) fn next_tick(&self) -> Moment {
        let flush = self.flushes.pending.lock().next();
        let keeper = self.intervals.lock().keeper.after(KEEPER_INTERVAL);
        let machines = self.driver.lock().deadline();
        let cleaning = self.cleaning.next();
        self.next_timed().into_iter().chain([cleaning]).chain(flush).chain(machines).fold(keeper, Moment::min)
    }

    fn timed(&self) -> Vec<Arc<dyn Timed>> {
        let mut timed = self.timed.lock();
        timed.retain(|timed| timed.strong_count() > 0);
        timed.iter().filter_map(Weak::upgrade).collect()
    }

    fn next_timed(&self) -> Option<Moment> {
        self.timed()
            .iter()
            .filter_map(|timed| timed.due())
            .chain(self.transactions_due())
            .chain(self.groups_due())
            .min()
    }

    /// Runs what is registered and due; says whether there was any.
    fn run_due(&self, now: Now) -> bool {
        let is_due = |timed: &Arc<dyn Timed>| timed.due().is_some_and(|due| due <= now.monotonic);
        let due: Vec<_> = self.timed().into_iter().filter(is_due).collect();
        for timed in &due {
            timed.run(now);
        }
        let (groups, transactions) = (self.run_groups(now), self.run_transactions(now));
        groups || transactions || !due.is_empty()
    }

    /// The timed thread.
    fn run_timed(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            if self.run_due(self.clock.now()) {
                self.alarm.signal.wait(GATHER);
                continue;
            }
            // An exchange, so that whatever was published before an earlier ring is seen: who publishes later rings again.
            self.alarm.awake.swap(false, Ordering::AcqRel);
            let next = self.next_timed();
            let now = self.clock.monotonic();
            if next.is_none_or(|due| due > now) && !self.stopping.load(Ordering::Acquire) {
                self.alarm.signal.wait(next.map_or(Duration::MAX, |due| due.since(now)));
            }
            self.alarm.awake.store(true, Ordering::Release);
        }
    }

    /// The keeper thread.
    fn run_keeper(&self, stopped: &Receiver<()>) {
        use crossbeam_channel::RecvTimeoutError::Timeout;
        while stopped.recv_timeout(KEEPER_INTERVAL) == Err(Timeout) {
            self.keep(self.clock.now());
        }
    }

    /// The cleaner thread.
    fn run_cleaner(&self, stopped: &Receiver<()>) {
        use crossbeam_channel::RecvTimeoutError::Timeout;
        let pause = || self.cleaning.next().since(self.clock.monotonic());
        while stopped.recv_timeout(pause()) == Err(Timeout) {
            self.clean(self.clock.now());
        }
    }

    /// Retention, checkpoints, and what the catalogue still wants done, each at its interval.
    fn keep(&self, now: Now) {
        let (keeper, books, metrics) = {
            let mut intervals = self.intervals.lock();
            let is_due = |last: &mut Moment, interval| {
                let due = now.monotonic >= last.after(interval);
                *last = if due { now.monotonic } else { *last };
                due
            };
            let keeper = is_due(&mut intervals.keeper, KEEPER_INTERVAL);
            let books = is_due(&mut intervals.books, BOOKS_INTERVAL);
            (keeper, books, is_due(&mut intervals.metrics, METRICS_INTERVAL))
        };
        if keeper {
            // First what is to be kept, then what goes.
            let turn = self.turn();
            let settled = turn.is_ok().then(|| self.reconcile_if_due());
            drop((turn, settled));
            self.maintain(now);
        }
        if metrics {
            self.measure();
        }
        let Ok(_turn) = self.turn() else { return };
        if books && let Err(error) = self.books.save() {
            trace::warn(&self.home.directory, || format!("the checkpoints are not written: {error}"));
        }
    }

    fn maintain(&self, now: Now) {
        let topics = self.topics.load();
        let mut readings = Readings::default();
        for topic in topics.values() {
            readings.ask(self, topic);
            for partition in &topic.partitions {
                match partition.maintain_holding(now, readings.reached(topic, partition)) {
                    Ok(done) => {
                        measure_removal(topic, &done.removed);
                        self.tell_losses(&readings, topic, partition, &done.removed);
                    }
                    Err(Error::Poisoned { .. } | Error::Closed) => {}
                    Err(error) => trace::warn(&self.home.directory, || format!("maintenance failed: {error}")),
                }
                // Before what was appended is compacted or goes again.
                partition.appended();
            }
        }
        if let Err(error) = self.metadata.maintain(now) {
            trace::warn(&self.home.directory, || format!("maintenance of the catalogue failed: {error}"));
        }
    }
}
