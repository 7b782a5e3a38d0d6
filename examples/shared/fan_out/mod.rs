//! A day in the life of one stream and the four groups that read it.

mod payments;
pub(crate) mod table;
mod team;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use taffrail::{
    Clock, Durability, GroupConfig, Log, ManualClock, Monitor, Producer, Retention, Timestamp, TopicConfig,
};

use crate::program::Outcome;
use payments::Payments;
use team::Team;

pub(crate) const TOPIC: &str = "payments";
const PARTITIONS: u32 = 8;
/// What passes with each step.
const STEP: Duration = Duration::from_secs(30);
/// How many payments are published in a step: one a second.
const PAYMENTS_PER_STEP: u64 = 30;
/// How much faster than the stream the loader is.
const SPEED: u64 = 6;
const OUTAGE: Duration = Duration::from_secs(24 * 3600);
/// Before the outage, and behind the catch-up.
const CALM: Duration = Duration::from_secs(3600);
/// The loader comes back six hours before the edge.
const RETENTION: Duration = Duration::from_secs(30 * 3600);
const STEPS_PER_FRAME: u64 = 20;
const LOADER: &str = "warehouse-loader";

/// The log, who publishes, and who reads.
pub(crate) struct Day {
    log: Log,
    clock: Arc<ManualClock>,
    producer: Producer,
    payments: Payments,
    teams: Vec<Team>,
    steps: u64,
    alerts: Receiver<String>,
    /// The figures of the tables need samples: this takes them.
    _monitor: Monitor,
    /// What part of its outage each catch-up took.
    caught_up: Vec<f64>,
}

impl Day {
    pub(crate) fn begin(directory: &Path) -> Outcome<Self> {
        let clock = Arc::new(ManualClock::at(Timestamp(1_700_000_000_000)));
        let log = Log::builder(directory).clock(clock.clone()).background(false).groups(GroupConfig::new()).open()?;
        // A power failure is not what this is about.
        let config = TopicConfig::new().partitions(PARTITIONS).durability(Durability::Os);
        let config = config.retention(Retention::forever().age(RETENTION)).segment_age(Some(Duration::from_secs(3600)));
        log.create_topic(TOPIC, config)?;
        let (alert, alerts) = channel();
        let monitor = log.monitor().window(Duration::from_secs(600)).on_alert(move |said| {
            drop(alert.send(said.to_string()));
        });
        let monitor = monitor.start()?;
        let producer = log.producer().open()?;
        let teams = [("fraud-check", 2, None), ("ledger", 1, None), (LOADER, 2, Some(SPEED)), ("dashboard", 1, None)];
        let teams = teams.map(|(name, members, speed)| Team::new(name, members, speed.map(|s| s * PAYMENTS_PER_STEP)));
        let (payments, steps) = (Payments::new(), 0);
        let mut day = Self {
            log,
            clock,
            producer,
            payments,
            teams: teams.into(),
            steps,
            alerts,
            _monitor: monitor,
            caught_up: Vec::new(),
        };
        for team in &mut day.teams {
            team.come(&day.log)?;
        }
        Ok(day)
    }

    /// An hour of calm, a day without the loader, and however long it takes to catch up.
    pub(crate) fn outage(&mut self, mut show: impl FnMut(&Self) -> Outcome<()>) -> Outcome<()> {
        self.pass(CALM, &mut show)?;
        self.loader().leave()?;
        self.pass(OUTAGE, &mut show)?;
        let log = self.log.clone();
        self.loader().come(&log)?;
        let came_back = self.clock.monotonic();
        while self.loader().count() < self.payments.count() {
            self.pass(STEP, &mut show)?;
            if self.clock.monotonic().since(came_back) > OUTAGE {
                return Err("the loader does not catch up".into());
            }
        }
        self.caught_up.push(self.clock.monotonic().since(came_back).as_secs_f64() / OUTAGE.as_secs_f64());
        self.pass(CALM, &mut show)
    }

    fn pass(&mut self, time: Duration, show: &mut impl FnMut(&Self) -> Outcome<()>) -> Outcome<()> {
        for _ in 0..time.as_secs() / STEP.as_secs() {
            self.step()?;
            if self.steps.is_multiple_of(STEPS_PER_FRAME) {
                show(self)?;
            }
        }
        Ok(())
    }

    /// Half a minute.
    fn step(&mut self) -> Outcome<()> {
        self.steps += 1;
        self.clock.advance(STEP);
        for _ in 0..PAYMENTS_PER_STEP {
            let payment = self.payments.next();
            self.producer.send(TOPIC, payment.record())?;
        }
        self.producer.flush()?;
        self.log.tick();
        for team in &mut self.teams {
            team.work()?;
        }
        Ok(())
    }

    /// Whether a team that is there has more to read than what has just come.
    fn is_catching_up(&self) -> bool {
        self.teams
            .iter()
            .any(|team| team.is_there() && team.count() + SPEED * PAYMENTS_PER_STEP < self.payments.count())
    }

    fn loader(&mut self) -> &mut Team {
        self.teams.iter_mut().find(|team| team.name() == LOADER).expect("it was made")
    }

    /// What holds in the end.
    pub(crate) fn prove(mut self) -> Outcome<String> {
        for team in &mut self.teams {
            team.work()?;
            team.leave()?;
            team.check(&self.payments)?;
        }
        if let Some(wrong) = self.caught_up.iter().find(|part| (*part - 0.2).abs() > 0.2 * 0.05) {
            return Err(format!("a catch-up took {wrong:.3} of the outage, not a fifth").into());
        }
        for team in &self.teams {
            let lag = self.log.lag(team.name())?.total;
            if lag.records != 0 {
                return Err(format!("{} has committed all but {} payments", team.name(), lag.records).into());
            }
        }
        self.log.close()?;
        let parts: Vec<_> = self.caught_up.iter().map(|part| format!("{part:.3}")).collect();
        Ok(format!(
            "proved: {} payments to {} groups, none lost, none doubled, each account in order; 24 h behind were caught up \
             in {} of the outage",
            self.payments.count(),
            self.teams.len(),
            parts.join(", ")
        ))
    }
}
