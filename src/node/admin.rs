//! Commands to the catalogue, and making them so.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Node;
use super::driver::{Input, Task};
use super::partitions::Failures;
use super::slot::Slot;
use crate::controller::{Command, Controller, Reply, check_name};
use crate::error::Result;
use crate::sync::Arc as Shared;
use crate::types::TopicId;

impl Node {
    /// What is committed of the catalogue.
    pub(crate) fn catalogue(&self) -> Shared<Controller> {
        self.image.load()
    }

    /// An id that no topic has.
    pub(crate) fn new_topic_id(&self) -> TopicId {
        TopicId(self.random.lock().uuid())
    }

    /// Has the catalogue decide a command about `topic`, and makes it so.
    pub(crate) fn administer(&self, topic: &str, command: Command) -> Result<Reply> {
        let _turn = self.turn()?;
        self.make_way(topic, &command)?;
        let reply = self.administer_alone(command);
        // After a refusal too: the command may have brought an earlier one to light that had failed half-way.
        let failure = self.reconcile_noting().remove(topic);
        let reply = reply?;
        failure.map_or(Ok(reply), Err)
    }

    /// Has the catalogue decide a command.
    pub(super) fn administer_alone(&self, command: Command) -> Result<Reply> {
        let slot = Arc::new(Slot::new());
        let tasks = self.driver.lock().step(self.clock.now(), Input::Command(Box::new(command), Arc::clone(&slot)));
        self.run_tasks(tasks);
        slot.wait()
    }

    /// Does what steps of the driver want done, until nothing is left.
    pub(super) fn run_tasks(&self, tasks: Vec<Task>) {
        let mut tasks = VecDeque::from(tasks);
        while let Some(task) = tasks.pop_front() {
            let input = match task {
                Task::Compact => {
                    self.driver.lock().compact();
                    continue;
                }
                Task::Sync(ticket, receipt) => match self.metadata.wait_stored(receipt) {
                    Ok(()) => Input::Synced(ticket),
                    Err(error) => Input::Failed(ticket, error),
                },
            };
            let more = self.driver.lock().step(self.clock.now(), input);
            tasks.extend(more);
        }
    }

    /// Has all that an earlier topic of that name left gone before the next one can be seen, and refuses partitions whose
    /// directories cannot be made: once the catalogue has them, every open would ask for them.
    fn make_way(&self, topic: &str, command: &Command) -> Result<()> {
        let total = match command {
            Command::Create { config, .. } | Command::Ensure { config, .. } => config.partitions,
            Command::AddPartitions { total, .. } => *total,
            _ => return Ok(()),
        };
        if check_name(topic).is_err() {
            return Ok(()); // the catalogue refuses it
        }
        // Asked, not looked up: a deletion that was answered with an error may be committed all the same.
        let count = Command::CountPartitions { name: topic.to_owned() };
        let known = match self.administer_alone(count)? {
            Reply::Partitions { count } => count,
            _ => 0,
        };
        let mut failures = self.reconcile_if_due();
        if known == 0 {
            self.forget_positions_in(topic)?;
        }
        let free = if known < total { self.home.check_free(topic, known..total) } else { Ok(()) };
        free.map_err(|in_the_way| failures.remove(topic).unwrap_or(in_the_way))
    }

    /// Makes the partitions what the catalogue says; what fails is tried again by the keeper.
    pub(super) fn reconcile_noting(&self) -> Failures {
        let image = self.image.load();
        let failures = self.reconcile();
        *self.reconciled.lock() = Some(image).filter(|_| failures.is_empty());
        failures
    }

    /// Tries again what an earlier reconciliation left, and does what has come to light since: a command that was answered
    /// with an error may be committed all the same. The caller has the turn.
    pub(super) fn reconcile_if_due(&self) -> Failures {
        let image = self.image.load();
        let is_done = self.reconciled.lock().as_ref().is_some_and(|reconciled| Shared::ptr_eq(reconciled, &image));
        if is_done { Failures::new() } else { self.reconcile_noting() }
    }
}
