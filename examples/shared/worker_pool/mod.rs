//! The pool: who works in it, and what becomes of the jobs.

mod board;
mod worker;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use taffrail::{Durability, GroupConfig, Log, Producer, Record, TopicConfig};

use crate::program::Outcome;
use board::Board;
use worker::Contract;

pub(crate) const TOPIC: &str = "jobs";
pub(crate) const GROUP: &str = "workers";
const PARTITIONS: u32 = 16;
const CUSTOMERS: u64 = 100;
/// So many jobs come in each scene.
const JOBS_PER_SCENE: u64 = 4_000;
/// How long a worker may be silent before the others take over; minutes, in a pool that does real work.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// Far longer than it takes the others to take over.
const TOO_LONG: Duration = Duration::from_secs(20);

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scene {
    /// A worker comes.
    Hire,
    /// The one that was there first leaves: its partitions are free at once.
    Goodbye,
    /// It leaves without having committed what it did last: that is done again.
    WalkOut,
    /// It does not poll any more: the others take over when its time is up.
    Sleep,
}

/// The pool.
pub(crate) struct Pool {
    log: Log,
    producer: Producer,
    board: Arc<Board>,
    workers: Vec<(usize, Arc<Contract>, JoinHandle<Result<(), taffrail::Error>>)>,
    hired: usize,
    jobs: u64,
}

impl Pool {
    pub(crate) fn open(directory: &Path) -> Outcome<Self> {
        let groups = GroupConfig::new().session_timeout(PATIENCE).heartbeat_interval(PATIENCE / 10);
        let log = Log::builder(directory).groups(groups).open()?;
        log.create_topic(TOPIC, TopicConfig::new().partitions(PARTITIONS).durability(Durability::Os))?;
        let (producer, board) = (log.producer().open()?, Arc::new(Board::default()));
        Ok(Self { log, producer, board, workers: Vec::new(), hired: 0, jobs: 0 })
    }

    /// Something happens while jobs come in; it ends when they are done.
    pub(crate) fn play(&mut self, scene: Scene, out: &mut impl Write) -> Outcome<()> {
        let begun = Instant::now();
        self.publish(JOBS_PER_SCENE / 2)?;
        let who = match scene {
            Scene::Hire => self.hire(),
            Scene::Goodbye | Scene::WalkOut | Scene::Sleep => self.dismiss(scene)?,
        };
        self.publish(JOBS_PER_SCENE / 2)?;
        self.wait_until_done()?;
        let what = match scene {
            Scene::Hire => "is hired",
            Scene::Goodbye => "says goodbye",
            Scene::WalkOut => "walks out",
            Scene::Sleep => "falls asleep",
        };
        let shares: Vec<_> = self.board.shares().iter().map(|(who, count)| format!("#{who}: {count}")).collect();
        let time = begun.elapsed().as_secs_f64();
        Ok(writeln!(out, "worker #{who} {what:<13} all jobs done after {time:>5.2} s   {}", shares.join("  "))?)
    }

    fn publish(&mut self, count: u64) -> Outcome<()> {
        for _ in 0..count {
            let (customer, job) = (self.jobs * 31 % CUSTOMERS, self.jobs / CUSTOMERS);
            let value = format!("{customer}:{job}");
            self.producer.send(TOPIC, Record::new(&value).key(&format!("customer-{customer}")))?;
            self.jobs += 1;
        }
        Ok(self.producer.flush()?)
    }

    fn hire(&mut self) -> usize {
        self.hired += 1;
        let (me, contract) = (self.hired, Arc::new(Contract::default()));
        let (log, board, mine) = (self.log.clone(), Arc::clone(&self.board), Arc::clone(&contract));
        let thread = std::thread::spawn(move || worker::work(&log, &board, me, &mine));
        self.workers.push((me, contract, thread));
        me
    }

    fn dismiss(&mut self, how: Scene) -> Outcome<usize> {
        let (who, contract, thread) = self.workers.remove(0);
        contract.end(how);
        thread.join().map_err(|_| format!("worker {who} has panicked"))??;
        Ok(who)
    }

    fn wait_until_done(&self) -> Outcome<()> {
        let begun = Instant::now();
        while self.board.done() < self.jobs {
            if begun.elapsed() > TOO_LONG {
                return Err(format!("{} of {} jobs are done, and nobody goes on", self.board.done(), self.jobs).into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// What holds in the end.
    pub(crate) fn prove(mut self) -> Outcome<String> {
        while !self.workers.is_empty() {
            self.dismiss(Scene::Goodbye)?;
        }
        if let Some(wrong) = self.board.complaint() {
            return Err(wrong.into());
        }
        let lag = self.log.lag(GROUP)?.total.records;
        if lag > 0 {
            return Err(format!("{lag} jobs are done, and not committed").into());
        }
        let again = self.board.again();
        self.log.close()?;
        Ok(format!(
            "proved: {} jobs by {} workers that came and went, each done at least once, {again} of them again, those of a \
             customer in order, none by two at once",
            self.jobs, self.hired
        ))
    }
}
