//! One group of consumers, and what they have read.

use std::time::Duration;

use taffrail::{Consumer, Log};

use super::TOPIC;
use super::payments::{Payments, Read};
use crate::program::Outcome;

/// A step: who keeps pace has committed all but what came since the monitor looked last but once.
const COMMIT_INTERVAL: Duration = Duration::from_secs(120);

/// A group.
pub(crate) struct Team {
    name: &'static str,
    members: usize,
    /// How many payments it takes in one step, all its members together; `None`: all that there are.
    per_step: Option<u64>,
    /// What it has taken beyond that: a poll hands out whole batches.
    ahead: u64,
    consumers: Vec<Consumer>,
    read: Read,
}

impl Team {
    pub(crate) fn new(name: &'static str, members: usize, per_step: Option<u64>) -> Self {
        Self { name, members, per_step, ahead: 0, consumers: Vec::new(), read: Read::default() }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn count(&self) -> u64 {
        self.read.count()
    }

    pub(crate) fn is_there(&self) -> bool {
        !self.consumers.is_empty()
    }

    /// Its members join: each gets its part of the partitions, from where the group has committed.
    pub(crate) fn come(&mut self, log: &Log) -> Outcome<()> {
        for _ in 0..self.members {
            // Commits what was polled before, every two minutes and whenever a partition goes to another member.
            let consumer = log.consumer(self.name).subscribe([TOPIC]).auto_commit(COMMIT_INTERVAL);
            self.consumers.push(consumer.max_bytes(4096).open()?);
        }
        Ok(())
    }

    /// Its members commit and go.
    pub(crate) fn leave(&mut self) -> Outcome<()> {
        for consumer in self.consumers.drain(..) {
            consumer.close()?;
        }
        Ok(())
    }

    /// What it does in one step.
    pub(crate) fn work(&mut self) -> Outcome<()> {
        let mut left = self.per_step.map_or(u64::MAX, |most| most.saturating_sub(self.ahead));
        self.ahead = self.per_step.map_or(0, |most| self.ahead.saturating_sub(most));
        loop {
            let mut is_idle = true;
            for consumer in &mut self.consumers {
                if left == 0 {
                    return Ok(());
                }
                let polled = consumer.try_poll()?;
                let before = self.read.count();
                for record in &polled {
                    self.read.take(&record).map_err(|wrong| format!("{}: {wrong}", self.name))?;
                }
                let taken = self.read.count() - before;
                self.ahead += taken.saturating_sub(left);
                left = left.saturating_sub(taken);
                is_idle &= polled.is_empty();
            }
            if is_idle {
                return Ok(());
            }
        }
    }

    /// Whether it has read everything, once.
    pub(crate) fn check(&self, payments: &Payments) -> Outcome<()> {
        if self.read.is_all_of(payments) {
            return Ok(());
        }
        Err(format!("{} has read {} payments of {}", self.name, self.read.count(), payments.count()).into())
    }
}
