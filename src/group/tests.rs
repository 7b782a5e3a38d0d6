//! What the coordinator decides, that its state follows from records, and what members that it leads own.

use std::collections::{BTreeMap, BTreeSet};

use super::protocol::Incarnation;
use super::reconcile::Standing;
use super::*;
use crate::error::Error;
use crate::types::{LeaderEpoch, ProducerEpoch, ProducerId, Timestamp, TopicId};

mod bytes;
mod expiry;
mod fencing;
mod foreign;
mod halves;
mod positions;
mod reconciling;
mod simulation;
mod statics;
mod timing;

const SECOND: Duration = Duration::from_secs(1);
const SESSION: Duration = Duration::from_secs(45);
const POLLS: Duration = Duration::from_secs(60);
const GROUP: &str = "billing";

/// What a log holds.
#[derive(Clone, Debug)]
enum Entry {
    Record(KeyValue, Applied),
    Marker(Offset, ProducerIdentity, Outcome),
}

/// A coordinator, its log, and a clock.
struct Desk {
    coordinator: Coordinator,
    now: Now,
    log: Vec<Entry>,
}

impl Desk {
    /// A coordinator that knows these topics, by their numbers of partitions.
    fn new(topics: &[(&str, u32)]) -> Self {
        let now = Now { wall: Timestamp(1_000_000), monotonic: Moment(1) };
        let mut desk = Self { coordinator: Coordinator::default(), now, log: Vec::new() };
        desk.coordinator.loaded(now);
        desk.topics(topics);
        desk
    }

    fn topics(&mut self, topics: &[(&str, u32)]) {
        let topics = topics.iter().map(|(name, partitions)| ((*name).to_owned(), topic(name, *partitions)));
        let topics = Arc::new(Topics(topics.collect()));
        assert_eq!(self.run(Command::Topics(topics)).unwrap(), Reply::Done);
    }

    /// Decides, and applies what was decided. Each record is read as it was written, and nothing is two members'.
    fn run(&mut self, command: Command) -> Result<Reply> {
        let reply = self.run_on_damage(command);
        check_owners(&self.coordinator);
        reply
    }

    /// As [`Self::run`], where records say that something is two members'.
    fn run_on_damage(&mut self, command: Command) -> Result<Reply> {
        let decision = self.coordinator.decide(self.now, command);
        assert!(decision.reply.is_ok() || decision.events.is_empty(), "a refusal has no events");
        for event in &decision.events {
            let record = Coordinator::encode(event);
            let read = Coordinator::decode(&record.key, record.value.as_deref());
            assert_eq!(read.as_ref(), Ok(&Some(event.clone())));
            let offset = Offset(self.log.len() as u64);
            let at = Applied { offset, timestamp: Some(self.now.wall), producer: decision.producer };
            self.coordinator.apply(at, event);
            self.log.push(Entry::Record(record, at));
        }
        decision.reply
    }

    /// How many records a command writes.
    fn records_of(&mut self, command: Command) -> usize {
        let before = self.log.len();
        self.run(command).unwrap();
        self.log.len() - before
    }

    fn end(&mut self, producer: ProducerIdentity, outcome: Outcome) {
        let at = Offset(self.log.len() as u64);
        self.log.push(Entry::Marker(at, producer, outcome));
        self.coordinator.end_transaction(at, producer, outcome);
    }

    /// Lets time pass in small steps, and does what falls due.
    fn pass(&mut self, time: Duration) {
        let end = self.now.monotonic.after(time);
        while self.now.monotonic < end {
            self.skip(Duration::from_millis(100));
            self.work();
        }
    }

    /// Lets time pass in one step.
    fn skip(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
        self.now.wall.0 += i64::try_from(time.as_millis()).unwrap();
    }

    fn work(&mut self) {
        for action in self.coordinator.actions(self.now) {
            let command = match action {
                Action::Tick => Command::Tick,
                Action::Expire => Command::Expire,
            };
            assert_eq!(self.run(command).unwrap(), Reply::Done);
        }
    }

    /// The machine is made again from its records, and knows the same topics.
    fn restart(&mut self) {
        let next = replayed(&self.log);
        assert!(next.is_like(&self.coordinator), "the records say something else");
        let before = std::mem::replace(&mut self.coordinator, next);
        self.skip(Duration::from_millis(1));
        self.coordinator.loaded(self.now);
        self.run(Command::Settings(before.soft.settings)).unwrap();
        if let Some(catalogue) = before.soft.catalogue {
            self.run(Command::Topics(Arc::clone(catalogue.topics()))).unwrap();
        }
    }

    fn describe(&mut self) -> Description {
        match self.run(Command::Describe { group: GROUP.to_owned() }).unwrap() {
            Reply::Described(description) => *description,
            other => panic!("{other:?}"),
        }
    }

    fn member(&mut self, member: &str) -> Option<MemberDescription> {
        self.describe().members.into_iter().find(|one| one.member == member)
    }

    fn commit(&mut self, member: Option<Claim>, topic: &str, offset: u64) -> Result<Reply> {
        self.run(commit_of(member, topic, offset, None))
    }

    fn position(&mut self, topic: &str) -> Option<u64> {
        let command = Command::Fetch { group: GROUP.to_owned(), partitions: None, require_stable: false };
        let Ok(Reply::Fetched(found)) = self.run(command) else { panic!("it is not refused") };
        let found = found.into_iter().find(|(partition, _)| partition.topic == topic);
        found.map(|(_, committed)| committed.position.offset.0)
    }
}

fn commit_of(member: Option<Claim>, topic: &str, offset: u64, producer: Option<ProducerIdentity>) -> Command {
    let positions = vec![(partition(topic), position(offset))];
    Command::Commit { group: GROUP.to_owned(), member, positions, producer }
}

fn partition(topic: &str) -> TopicPartition {
    TopicPartition { topic: topic.to_owned(), partition: 0 }
}

fn position(offset: u64) -> Position {
    Position { offset: Offset(offset), leader_epoch: Some(LeaderEpoch(3)), metadata: "m".to_owned() }
}

fn producer(id: i64) -> ProducerIdentity {
    ProducerIdentity { id: ProducerId(id), epoch: ProducerEpoch(0) }
}

/// A topic whose id follows from its name.
fn topic(name: &str, partitions: u32) -> Topic {
    Topic { id: id(name), partitions, racks: Vec::new(), is_internal: name.starts_with("__") }
}

fn id(name: &str) -> TopicId {
    let mut bytes = [0; 16];
    for (byte, letter) in bytes.iter_mut().zip(name.bytes()) {
        *byte = letter;
    }
    TopicId(bytes)
}

fn some(topic: &str, numbers: impl IntoIterator<Item = u32>) -> Partitions {
    numbers.into_iter().map(|number| (id(topic), number)).collect()
}

fn named(topics: &[&str]) -> Subscription {
    Subscription { topics: topics.iter().map(|name| (*name).to_owned()).collect(), pattern: None }
}

fn details(topics: &[&str]) -> Details {
    Details { subscription: named(topics), rebalance_timeout: POLLS, ..Details::default() }
}

/// No partition is in two current assignments of a group.
fn check_owners(coordinator: &Coordinator) {
    for (_, group) in coordinator.groups() {
        let mut held = BTreeSet::new();
        for (member, seat) in group.roster.seats() {
            let Some(current) = &seat.current else { continue };
            for one in current.assigned.iter().chain(current.revoking.iter()) {
                assert!(held.insert(one), "{one:?} is {member}'s and another's");
            }
        }
    }
}

fn replayed(log: &[Entry]) -> Coordinator {
    let mut coordinator = Coordinator::default();
    for entry in log {
        match entry {
            Entry::Record(KeyValue { key, value }, at) => {
                if let Some(event) = Coordinator::decode(key, value.as_deref()).unwrap() {
                    coordinator.apply(*at, &event);
                }
            }
            Entry::Marker(at, producer, outcome) => coordinator.end_transaction(*at, *producer, *outcome),
        }
    }
    coordinator
}

/// What compaction leaves: the latest record of each key.
fn compacted(log: &[Entry]) -> Vec<Entry> {
    let mut latest: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (at, entry) in log.iter().enumerate() {
        if let Entry::Record(record, _) = entry {
            latest.insert(&record.key, at);
        }
    }
    let is_latest = |(at, entry): &(usize, &Entry)| match entry {
        Entry::Record(record, _) => record.value.is_some() && latest[record.key.as_slice()] == *at,
        Entry::Marker(..) => true,
    };
    log.iter().enumerate().filter(is_latest).map(|(_, entry)| entry.clone()).collect()
}

/// A member that is led by hand.
#[derive(Clone)]
struct Peer {
    id: &'static str,
    details: Details,
    number: u64,
    seen: Option<Incarnation>,
    epoch: Epoch,
    /// What it reports.
    owned: Partitions,
    /// What it was told last.
    assigned: Partitions,
    within: Option<Duration>,
}

impl Peer {
    fn new(id: &'static str, details: Details) -> Self {
        Self {
            id,
            details,
            number: 0,
            seen: None,
            epoch: Epoch(0),
            owned: Partitions::default(),
            assigned: Partitions::default(),
            within: None,
        }
    }

    fn heartbeat(&mut self, intent: Intent) -> Heartbeat {
        self.number += 1;
        Heartbeat {
            group: GROUP.to_owned(),
            member: self.id.to_owned(),
            intent,
            details: self.details.clone(),
            report: Report { number: self.number, seen: self.seen, owned: self.owned.clone() },
        }
    }

    fn say(&mut self, desk: &mut Desk, intent: Intent) -> Result<Answer> {
        let beat = self.heartbeat(intent);
        let reported = beat.report.owned.clone();
        match desk.run(Command::Heartbeat(Box::new(beat)))? {
            Reply::Answer(answer) => {
                assert_eq!(answer.number, self.number);
                self.epoch = answer.epoch;
                self.seen = Some(answer.incarnation);
                self.assigned = answer.assignment.clone().unwrap_or(reported);
                self.within = answer.revoke_within;
                Ok(answer)
            }
            Reply::Left => Err(Error::Closed),
            other => panic!("{other:?}"),
        }
    }

    fn join(desk: &mut Desk, id: &'static str, details: Details) -> Self {
        let mut peer = Self::new(id, details);
        peer.say(desk, Intent::Join).unwrap();
        peer
    }

    fn stay(&mut self, desk: &mut Desk) -> Result<Answer> {
        self.say(desk, Intent::Stay(self.epoch))
    }

    /// Reports until it has what it is to have, and gives back what it is asked for.
    fn follow(&mut self, desk: &mut Desk) {
        for _ in 0..4 {
            self.stay(desk).unwrap();
            self.owned = self.assigned.clone();
        }
    }

    fn leave(&mut self, desk: &mut Desk, intent: Intent) {
        assert!(matches!(self.say(desk, intent), Err(Error::Closed)));
    }

    fn claim(&self) -> Claim {
        Claim { member: self.id.to_owned(), instance: self.details.instance.clone(), epoch: self.epoch }
    }
}

/// All of them report until nothing moves.
fn settle(desk: &mut Desk, peers: &mut [&mut Peer]) {
    for _ in 0..4 {
        for peer in &mut *peers {
            peer.stay(desk).unwrap();
            peer.owned = peer.assigned.clone();
        }
    }
}
