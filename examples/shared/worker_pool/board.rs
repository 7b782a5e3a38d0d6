//! What the workers report: which jobs are done, by whom, and who owns which partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::PATIENCE;

/// What all workers see.
#[derive(Default)]
pub(crate) struct Board {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: BTreeSet<(u64, u64)>,
    again: u64,
    shares: BTreeMap<usize, u64>,
    owners: BTreeMap<u32, usize>,
    polled: BTreeMap<usize, Instant>,
    complaint: Option<String>,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker polls: its time begins again.
    pub(crate) fn polls(&self, worker: usize) {
        self.state().polled.insert(worker, Instant::now());
    }

    /// A partition is a worker's now.
    pub(crate) fn owns(&self, worker: usize, partition: u32) {
        let mut state = self.state();
        let before = state.owners.insert(partition, worker);
        // One that has not polled for so long is out, whether it knows or not.
        if let Some(before) = before.filter(|before| *before != worker && state.is_awake(*before)) {
            state.complain(format!("partition {partition} is given to {worker} while {before} has it"));
        }
    }

    /// It is not any more.
    pub(crate) fn gives_back(&self, worker: usize, partition: u32) {
        let mut state = self.state();
        if state.owners.get(&partition) == Some(&worker) {
            state.owners.remove(&partition);
        }
    }

    /// A worker goes: nothing is its own any more.
    pub(crate) fn goes(&self, worker: usize) {
        self.state().owners.retain(|_, owner| *owner != worker);
    }

    /// A job is done.
    pub(crate) fn does(&self, worker: usize, partition: u32, customer: u64, job: u64) {
        let mut state = self.state();
        let owner = state.owners.get(&partition).copied();
        if owner != Some(worker) && state.is_awake(worker) {
            state.complain(format!("{worker} does a job of partition {partition}, which is {owner:?}'s"));
        }
        let is_in_order = job == 0 || state.done.contains(&(customer, job - 1));
        if !is_in_order {
            state.complain(format!("job {job} of customer {customer} is done before the one before it"));
        }
        state.again += u64::from(!state.done.insert((customer, job)));
        *state.shares.entry(worker).or_default() += 1;
    }

    pub(crate) fn done(&self) -> u64 {
        self.state().done.len() as u64
    }

    pub(crate) fn again(&self) -> u64 {
        self.state().again
    }

    /// How many jobs each worker has done since this was asked last.
    pub(crate) fn shares(&self) -> BTreeMap<usize, u64> {
        std::mem::take(&mut self.state().shares)
    }

    pub(crate) fn complaint(&self) -> Option<String> {
        self.state().complaint.clone()
    }
}

impl State {
    fn is_awake(&self, worker: usize) -> bool {
        self.polled.get(&worker).is_some_and(|polled| polled.elapsed() < PATIENCE)
    }

    fn complain(&mut self, what: String) {
        self.complaint.get_or_insert(what);
    }
}
