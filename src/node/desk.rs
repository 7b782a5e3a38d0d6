//! Coordinators as several threads use them: who asks waits for its answer, and does meanwhile what has to be waited for.
//!
//! ```text
//!   ask ─► step ─► tasks ─┬─ by whoever waits for an answer that rests on them ([`serve`]): one at a time, the others sleep
//!                         └─ where nobody waits: looked after by the timed thread, once their partition has synced
//! ```
//!
//! Who has its answer goes, and wakes another of those that wait: nobody works for the others longer than for itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::coordinator::{Asker, Coordinator, Input, Task};
use super::slot::Slot;
use crate::clock::{Moment, Now};
use crate::error::Result;
use crate::machine::Recorded;
use crate::sync::Mutex;

const NEVER: u64 = u64::MAX;
/// A machine that could not be made is tried again after so long.
const REVIVE: Duration = Duration::from_millis(100);
/// What nobody waits for is looked after so often; partitions sync it sooner.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The desks of one kind, by partition of their topic; none until the topic is there.
#[derive(Debug)]
pub(super) struct Desks<D> {
    desks: OnceLock<Vec<Mutex<D>>>,
    /// When any of them has something to do, in nanoseconds of [`Moment`]; never later than that.
    due: AtomicU64,
}

impl<D> Desks<D> {
    pub(super) const fn new() -> Self {
        Self { desks: OnceLock::new(), due: AtomicU64::new(NEVER) }
    }

    pub(super) fn all(&self) -> &[Mutex<D>] {
        self.desks.get().map_or(&[], Vec::as_slice)
    }

    pub(super) fn or_open(&self, open: impl FnOnce() -> Vec<Mutex<D>>) -> &[Mutex<D>] {
        self.desks.get_or_init(open)
    }

    /// One of them has something to do then; says whether that is earlier than was known.
    pub(super) fn is_due_by(&self, due: Moment) -> bool {
        due.0 < self.due.fetch_min(due.0, Ordering::AcqRel)
    }

    pub(super) fn due(&self) -> Option<Moment> {
        let due = self.due.load(Ordering::Acquire);
        (due != NEVER).then_some(Moment(due))
    }

    /// Everybody is asked now, and says again when it has something to do.
    pub(super) fn take_due(&self, now: Moment) -> bool {
        let is_due = self.due().is_some_and(|due| due <= now);
        if is_due {
            self.due.store(NEVER, Ordering::Release);
        }
        is_due
    }
}

/// What has a coordinator, and tasks.
pub(super) trait AsDesk {
    type Machine: Recorded<Reply = Result<Self::Reply>> + Default;
    type Reply;

    fn desk(&mut self) -> &mut Desk<Self::Machine, Self::Reply>;
}

/// One coordinator, and what is to be waited for.
#[derive(Debug)]
pub(super) struct Desk<M: Recorded<Reply = Result<R>>, R> {
    pub(super) coordinator: Coordinator<M, R>,
    tasks: Vec<Task>,
}

impl<M: Recorded<Reply = Result<R>> + Default, R> Desk<M, R> {
    pub(super) const fn new(coordinator: Coordinator<M, R>) -> Self {
        Self { coordinator, tasks: Vec::new() }
    }

    /// Feeds one input; what has to be waited for then is done by whoever serves.
    pub(super) fn step(&mut self, now: Now, input: Input<M::Command, R>) {
        let tasks = self.coordinator.step(now, input);
        self.tasks.extend(tasks);
    }

    /// A command that nobody waits for the answer of.
    pub(super) fn order(&mut self, now: Now, command: M::Command) -> Asker<R> {
        let asker = Asker::new(Slot::new());
        self.step(now, Input::Command(command, Asker::clone(&asker)));
        asker
    }

    /// A machine that was dropped since its records could not be written is made anew: what it has decided is to be
    /// carried out, and what is open to time out, whether or not anybody asks.
    pub(super) fn revive(&mut self, now: Now) {
        if self.coordinator.has_stopped() {
            self.step(now, Input::Load);
        }
    }

    /// Goes on with what is stored by now.
    pub(super) fn look_after_tasks(&mut self, now: Now) {
        for task in std::mem::take(&mut self.tasks) {
            match self.coordinator.partition().try_stored(task.receipt) {
                Some(stored) => self.step(now, Input::Stored(task.ticket, stored)),
                None => self.tasks.push(task),
            }
        }
    }

    pub(super) fn due(&self, now: Now) -> Option<Moment> {
        let tasks = (!self.tasks.is_empty()).then(|| now.monotonic.after(LOOK_AGAIN));
        let stopped = self.coordinator.has_stopped().then(|| now.monotonic.after(REVIVE));
        tasks.into_iter().chain(stopped).chain(self.coordinator.deadline()).min()
    }
}

/// Waits for an answer. Meanwhile this thread does what the desk wants waited for, where no other does.
pub(super) fn serve<D: AsDesk>(desk: &Mutex<D>, asker: &Asker<D::Reply>, now: impl Fn() -> Now) -> Result<D::Reply> {
    serve_until(desk, asker, now);
    asker.wait()
}

/// The same, and leaves the answer where it is.
pub(super) fn serve_until<D: AsDesk, T>(desk: &Mutex<D>, slot: &Slot<T>, now: impl Fn() -> Now) {
    slot.is_awaited();
    while !slot.is_filled() {
        if !serve_once(desk, &now) {
            slot.sleep();
        }
    }
    hand_over(desk);
}

/// Does one task, if there is one, and waits for it.
pub(super) fn serve_once<D: AsDesk>(desk: &Mutex<D>, now: impl Fn() -> Now) -> bool {
    let task = {
        let mut locked = desk.lock();
        let Some(task) = locked.desk().tasks.pop() else { return false };
        (task, locked.desk().coordinator.partition().clone())
    };
    let (Task { ticket, receipt }, partition) = task;
    let stored = partition.wait_stored(receipt);
    desk.lock().desk().step(now(), Input::Stored(ticket, stored));
    true
}

/// Has another of those that wait go on.
fn hand_over<D: AsDesk>(desk: &Mutex<D>) {
    let mut desk = desk.lock();
    let Desk { coordinator, tasks } = desk.desk();
    if !tasks.is_empty() {
        coordinator.wake_one();
    }
}
