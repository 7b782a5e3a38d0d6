//! What there is, and one step of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use taffrail::{Clock, Error, Log, ManualClock, MemoryStorage, Partition, Timestamp, TopicDescription, TopicId};

use super::Ran;
use super::choice::Choice;
use super::faults::Doom;
use super::groups::GroupActor;
use super::holds::Held;
use super::model::{Model, Slot};
use super::plan::Plan;
use super::positions::GroupModel;
use super::producers::ProducerActor;
use super::readers::ReaderActor;
use super::trace::Trace;
use super::transactions::TransactionActor;

pub(super) const DIRECTORY: &str = "data";
const NAMES: [&str; 4] = ["t0", "t1", "t2", "t3"];

/// A run.
pub(super) struct World {
    pub(super) choice: Choice,
    pub(super) trace: Trace,
    pub(super) plan: Plan,
    pub(super) model: Model,
    pub(super) storage: MemoryStorage,
    pub(super) clock: Arc<ManualClock>,
    /// None only while it is opened.
    pub(super) log: Option<Log>,
    pub(super) producers: Vec<ProducerActor>,
    pub(super) transactors: Vec<TransactionActor>,
    pub(super) readers: Vec<ReaderActor>,
    pub(super) groups: Vec<GroupActor>,
    /// How many consumers of groups there have been.
    pub(super) consumers: u64,
    /// And how often they have polled.
    pub(super) polls: u64,
    /// The latest that the wall has said.
    pub(super) latest: Timestamp,
    pub(super) holds: Vec<Held>,
    /// The end that comes at an operation on the disk.
    pub(super) doom: Option<Doom>,
    /// A fault was armed since the log was opened: calls may answer errors.
    pub(super) excused: bool,
    /// Faults are armed now.
    pub(super) armed: bool,
    /// A partition was recovered anew since the log was opened.
    pub(super) reopened: bool,
}

#[derive(Clone, Copy)]
enum Turn {
    Produce,
    Transact,
    Compact,
    Read,
    Assemble,
    Tick,
    Administer,
    Hold,
    Fault,
    Restart,
    Scan,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut choice = Choice::seeded(seed);
        let plan = Plan::new(&mut choice);
        let producers = (0..plan.producers).map(|number| ProducerActor::new(number, &mut choice)).collect();
        let transactors = (0..plan.transactors).map(|index| TransactionActor::new(index, &mut choice)).collect();
        let readers = (0..plan.readers).map(|_| ReaderActor::new(&mut choice)).collect();
        let groups = |index| GroupActor::new(index, &plan, &NAMES[..plan.topics], &mut choice);
        let groups: Vec<_> = (0..plan.groups).map(groups).collect();
        let mut model = Model::default();
        model.groups.extend(groups.iter().map(|_| GroupModel::default()));
        let storage = MemoryStorage::new(choice.seed());
        let mut trace = Trace::new();
        trace.note(format_args!("{plan:?}"));
        Self {
            choice,
            trace,
            plan,
            model,
            storage,
            clock: Arc::new(ManualClock::at(Timestamp(1_700_000_000_000))),
            log: None,
            producers,
            transactors,
            readers,
            groups,
            consumers: 0,
            polls: 0,
            latest: Timestamp(0),
            holds: Vec::new(),
            doom: None,
            excused: false,
            armed: false,
            reopened: false,
        }
    }

    /// The whole run.
    pub(super) fn run(&mut self) {
        self.advance(Duration::from_secs(1));
        self.open();
        for step in 1..=self.plan.steps {
            self.trace.step = step;
            self.step();
            self.meet_doom();
            self.check();
            // Looking at the log takes operations, too.
            self.meet_doom();
        }
        self.trace.step += 1;
        self.end();
    }

    fn step(&mut self) {
        let (transacts, groups) = (self.plan.transactors > 0, self.plan.groups > 0);
        let turns = [
            (if transacts { 22 } else { 45 }, Turn::Produce),
            (if transacts { 33 } else { 0 }, Turn::Transact),
            (if self.plan.compacts { 4 } else { 0 }, Turn::Compact),
            (if groups { 12 } else { 25 }, Turn::Read),
            (if groups { 35 } else { 0 }, Turn::Assemble),
            (18, Turn::Tick),
            (3, Turn::Administer),
            (4, Turn::Hold),
            (1, Turn::Scan),
        ];
        let turn = match (self.plan.one_fault_in, self.plan.one_restart_in) {
            (faults, _) if faults > 0 && self.choice.one_in(faults) => Turn::Fault,
            (_, restarts) if self.choice.one_in(restarts) => Turn::Restart,
            _ => self.choice.weighted(&turns),
        };
        match turn {
            Turn::Produce => self.produce(),
            Turn::Transact => self.transact(),
            Turn::Compact => self.compact(),
            Turn::Read => self.read(),
            Turn::Assemble => self.assemble(),
            Turn::Tick => self.tick(),
            Turn::Administer => self.administer(),
            Turn::Hold => self.hold(),
            Turn::Fault => self.arm(),
            Turn::Restart => self.restart(),
            Turn::Scan => self.scan_all(),
        }
    }

    fn tick(&mut self) {
        let millis = self.choice.pick(&[0, 0, 1, 5, 5, 20, 100, 1_000, 1_000, 6_000, 11_000, 120_000, 5_400_000]);
        self.advance(Duration::from_millis(millis));
        if self.choice.one_in(40) {
            let back = i64::try_from(self.choice.below(5_000)).unwrap_or(0);
            self.clock.set_wall(Timestamp(self.clock.wall().0 - back));
            self.model.wall = self.clock.wall();
        }
        self.trace.note(format_args!("{millis} ms pass, tick"));
        self.log().tick();
    }

    pub(super) fn advance(&mut self, time: Duration) {
        self.note_inhabited();
        self.clock.advance(time);
        self.model.wall = self.clock.wall();
        self.latest = self.latest.max(self.model.wall);
        self.storage.set_time(self.clock.wall());
    }

    pub(super) fn log(&self) -> &Log {
        self.log.as_ref().expect("it is open but while it is opened")
    }

    pub(super) fn names(&self) -> &'static [&'static str] {
        &NAMES[..self.plan.topics]
    }

    pub(super) fn a_name(&mut self) -> &'static str {
        self.choice.pick(&NAMES[..self.plan.topics])
    }

    /// The topic as the log says it is, which it may be.
    pub(super) fn describe(&mut self, name: &str) -> Option<TopicDescription> {
        let found = self.ask(name);
        self.model.topic(name).look(name, found.as_ref());
        found
    }

    pub(super) fn ask(&self, name: &str) -> Option<TopicDescription> {
        match self.log().describe_topic(name) {
            Ok(found) => Some(found),
            Err(Error::UnknownTopic { .. }) => None,
            Err(error) => panic!("{name} cannot be described: {error}"),
        }
    }

    /// A partition that is open, and the topic's name.
    pub(super) fn a_partition(&mut self) -> Option<(&'static str, Slot, Partition)> {
        let name = self.a_name();
        let topic = self.describe(name)?;
        let number = u32::try_from(self.choice.index(topic.partitions.len())).ok()?;
        self.partition(name, topic.id, number).map(|partition| (name, (topic.id, number), partition))
    }

    /// The open partition of a topic, if that is still the one of this id.
    pub(super) fn partition(&self, name: &str, id: TopicId, number: u32) -> Option<Partition> {
        let open = self.ask(name).filter(|topic| topic.id == id && topic.partitions.len() > number as usize);
        open.and_then(|_| self.log().partition(name, number).ok())
    }

    /// What an error may be, where nothing is wrong with the log.
    pub(super) fn excuse(&self, error: &Error, what: &str) {
        assert!(self.excused, "{what}: {error}, and the disk is sound");
        assert!(!matches!(error, Error::Closed), "{what}: {error}, and the log is open");
    }

    pub(super) fn ran(&mut self) -> Ran {
        for path in self.storage.paths() {
            let mut digest = DefaultHasher::new();
            self.storage.bytes_of(&path).hash(&mut digest);
            self.trace.note(format_args!("{} {:x}", path.display(), digest.finish()));
        }
        Ran { lines: std::mem::take(&mut self.trace.lines), tally: self.trace.tally.clone() }
    }
}
