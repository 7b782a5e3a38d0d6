//! One worker: polls, does the jobs, commits, until its contract ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use taffrail::{Error, Log, Rebalance, RebalanceListener, Result, TopicPartition};

use super::board::Board;
use super::{GROUP, PATIENCE, Scene, TOPIC};

/// How a worker is to end, once it is.
#[derive(Default)]
pub(crate) struct Contract(Mutex<Option<Scene>>);

impl Contract {
    pub(crate) fn end(&self, how: Scene) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
    }

    fn ends(&self) -> Option<Scene> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports what it owns.
struct Reporter {
    board: Arc<Board>,
    me: usize,
}

impl RebalanceListener for Reporter {
    fn assigned(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        partitions.iter().for_each(|one| self.board.owns(self.me, one.partition));
        Ok(())
    }

    fn revoked(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        partitions.iter().for_each(|one| self.board.gives_back(self.me, one.partition));
        Ok(())
    }
}

pub(crate) fn work(log: &Log, board: &Arc<Board>, me: usize, contract: &Contract) -> Result<()> {
    let reporter = Reporter { board: Arc::clone(board), me };
    let builder = log.consumer(GROUP).subscribe([TOPIC]).client_id(format!("worker-{me}")).max_bytes(2_000);
    let mut consumer = builder.max_poll_interval(PATIENCE).session_timeout(PATIENCE).on_rebalance(reporter).open()?;
    loop {
        board.polls(me);
        let jobs = consumer.poll(Duration::from_millis(20))?;
        for job in &jobs {
            let numbers = job.value_str().and_then(|text| text.split_once(':'));
            let numbers = numbers.and_then(|(customer, job)| Some((customer.parse().ok()?, job.parse().ok()?)));
            let (customer, job) = numbers.unwrap_or_default();
            board.does(me, jobs.partition(), customer, job);
        }
        match contract.ends() {
            None => commit(consumer.commit())?,
            Some(Scene::Goodbye | Scene::Hire) => {
                commit(consumer.commit())?;
                board.goes(me);
                return consumer.close();
            }
            Some(Scene::WalkOut) => {
                board.goes(me);
                return Ok(());
            }
            Some(Scene::Sleep) => {
                // It is neither polled nor dropped as long as the program runs.
                std::mem::forget(consumer);
                return Ok(());
            }
        }
    }
}

/// A worker that was out for too long, on a busy machine, commits nothing: its jobs are done again.
fn commit(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Error::UnknownMember { .. } | Error::FencedMember { .. } | Error::StaleMember { .. }) => Ok(()),
        other => other,
    }
}
