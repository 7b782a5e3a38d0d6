//! Records of the coordinators of groups, and whether a machine of any records comes to order again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Moment, Now};
use crate::config::GroupConfig;
use crate::error::Result;
use crate::group::{
    Action, Answer, Command, Coordinator, Description, Details, Epoch, GroupState, Heartbeat, Incarnation, Intent,
    Partitions, Reply, Report, Subscription, Topic, Topics,
};
use crate::machine::{Applied, Machine, ProducerIdentity, Recorded};
use crate::record::control::Outcome;
use crate::types::{Offset, ProducerEpoch, ProducerId, Timestamp, TopicId};

/// Every partition of this topic is somebody's in the end.
const ORDERS: TopicId = TopicId(*b"orders\0\0\0\0\0\0\0\0\0\0");
const BILLS: TopicId = TopicId(*b"bills\0\0\0\0\0\0\0\0\0\0\0");
/// An epoch that is this great may not have room to rise.
const EPOCH_MAX: u32 = i32::MAX.unsigned_abs() - 100;

/// Takes the bytes as records of a coordinator of groups, each with the lengths of its key and value before it; the key's
/// has a bit that says that it is in a transaction, and an empty key ends that. What is taken reads the same once it was
/// written again. A machine of them, whatever they say, answers; and where the members that it tells of go on, no partition
/// is two members' once their sessions are over, and each is one's.
pub fn group_state(mut bytes: &[u8]) {
    let mut desk = Desk { coordinator: Coordinator::default(), now: Now::default(), offset: Offset::ZERO };
    while let Some((lengths, rest)) = bytes.split_first_chunk::<2>() {
        let [key, value] = lengths.map(usize::from);
        let producer = (key & 0x80 != 0).then_some(PRODUCER);
        let (key, rest) = rest.split_at(rest.len().min(key & 0x7f));
        let (behind, rest) = rest.split_at(rest.len().min(value));
        bytes = rest;
        if key.is_empty() {
            let outcome = if value.is_multiple_of(2) { Outcome::Committed } else { Outcome::Aborted };
            desk.end(outcome);
        } else if let Ok(Some(event)) = Coordinator::decode(key, (value > 0).then_some(behind)) {
            desk.apply(producer, &event);
        }
    }
    desk.coordinator.loaded(desk.now);
    desk.run(Command::Settings(GroupConfig::new())).expect("it is taken");
    desk.topics(3);
    desk.recover();
}

const PRODUCER: ProducerIdentity = ProducerIdentity { id: ProducerId(7), epoch: ProducerEpoch(0) };

struct Desk {
    coordinator: Coordinator,
    now: Now,
    offset: Offset,
}

/// A member that goes on, or comes.
struct Peer {
    group: String,
    member: String,
    intent: Intent,
    details: Details,
    number: u64,
    seen: Option<Incarnation>,
    owned: Partitions,
}

impl Desk {
    /// What is taken in reads the same once it was written.
    fn apply(&mut self, producer: Option<ProducerIdentity>, event: &<Coordinator as Machine>::Event) {
        let record = Coordinator::encode(event);
        assert_eq!(Coordinator::decode(&record.key, record.value.as_deref()).as_ref(), Ok(&Some(event.clone())));
        let timestamp = Some(self.now.wall).filter(|_| self.offset.0.is_multiple_of(2));
        self.coordinator.apply(Applied { offset: self.offset, timestamp, producer }, event);
        self.offset = self.offset.plus(1);
    }

    fn end(&mut self, outcome: Outcome) {
        self.coordinator.end_transaction(self.offset, PRODUCER, outcome);
        self.offset = self.offset.plus(1);
    }

    fn run(&mut self, command: Command) -> Result<Reply> {
        let decision = self.coordinator.decide(self.now, command);
        assert!(decision.reply.is_ok() || decision.events.is_empty());
        for event in &decision.events {
            self.apply(decision.producer, event);
        }
        decision.reply
    }

    fn topics(&mut self, partitions: u32) {
        let topic = |id| Topic { id, partitions, racks: Vec::new(), is_internal: false };
        let topics = [("orders".to_owned(), topic(ORDERS)), ("bills".to_owned(), topic(BILLS))];
        self.run(Command::Topics(Arc::new(Topics(topics.into())))).expect("they are taken");
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.monotonic = Moment(self.now.monotonic.0 + 1_000_000_000);
            self.now.wall = Timestamp(self.now.wall.0 + 1000);
            for action in self.coordinator.actions(self.now) {
                let command = match action {
                    Action::Tick => Command::Tick,
                    Action::Expire => Command::Expire,
                };
                self.run(command).expect("it is done");
            }
        }
    }

    fn groups(&mut self) -> Vec<String> {
        let Ok(Reply::Listed(groups)) = self.run(Command::List) else { panic!("they are listed") };
        groups.into_iter().map(|one| one.group).collect()
    }

    fn describe(&mut self, group: &str) -> Option<Description> {
        match self.run(Command::Describe { group: group.to_owned() }) {
            Ok(Reply::Described(description)) => Some(*description),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    }

    fn recover(&mut self) {
        let groups = self.groups();
        let mut peers: Vec<_> = groups.iter().flat_map(|group| self.peers_of(group)).collect();
        for round in 0..16 {
            self.pass(5);
            peers.retain_mut(|peer| self.report(peer));
            if round == 6 {
                self.topics(4);
                peers.extend(groups.iter().filter(|group| !group.is_empty()).map(|group| Peer::coming(group)));
            }
        }
        for group in groups.iter().filter(|group| !group.is_empty()) {
            let description = self.describe(group).expect("it has a member");
            if description.epoch <= Epoch(EPOCH_MAX) {
                check(&description);
            }
        }
        for peer in &mut peers {
            peer.intent = Intent::Leave;
            self.report(peer);
        }
        self.end(Outcome::Aborted);
        self.pass(GroupConfig::new().session_timeout.as_secs() + 1);
        for group in groups {
            // Its positions may have expired, and it with them.
            if self.describe(&group).is_some() {
                let deleted = self.run(Command::DeleteGroup { group });
                assert!(matches!(deleted, Ok(Reply::Done)), "{deleted:?}");
            }
        }
        assert_eq!(self.groups(), Vec::<String>::new());
    }

    /// Those of a group that can go on.
    fn peers_of(&mut self, group: &str) -> Vec<Peer> {
        let members = self.describe(group).map(|description| description.members).unwrap_or_default();
        let peers = members.into_iter().filter(|one| !one.is_replaced).filter_map(|one| {
            let intent = Intent::Stay(one.epoch?);
            let owned = one.assigned.iter().chain(one.revoking.iter()).collect();
            let (group, details) = (group.to_owned(), one.details?);
            Some(Peer { group, member: one.member, intent, details, number: 0, seen: None, owned })
        });
        peers.collect()
    }

    /// One heartbeat; whether it is a member still. What is asked back is given back at once.
    fn report(&mut self, peer: &mut Peer) -> bool {
        peer.number += 1;
        let report = Report { number: peer.number, seen: peer.seen, owned: peer.owned.clone() };
        let (group, member) = (peer.group.clone(), peer.member.clone());
        let beat = Heartbeat { group, member, intent: peer.intent, details: peer.details.clone(), report };
        match self.run(Command::Heartbeat(Box::new(beat))) {
            Ok(Reply::Answer(Answer { epoch, incarnation, assignment, .. })) => {
                peer.intent = Intent::Stay(epoch);
                peer.seen = Some(incarnation);
                peer.owned = assignment.unwrap_or_else(|| peer.owned.clone());
                true
            }
            _ => false,
        }
    }
}

impl Peer {
    fn coming(group: &str) -> Self {
        let topics = BTreeSet::from(["orders".to_owned()]);
        Self {
            group: group.to_owned(),
            member: "\u{1f6a2} comes".to_owned(),
            intent: Intent::Join,
            details: Details {
                subscription: Subscription { topics, pattern: None },
                rebalance_timeout: Duration::from_secs(60),
                ..Details::default()
            },
            number: 0,
            seen: None,
            owned: Partitions::default(),
        }
    }
}

fn check(description: &Description) {
    let mut held = BTreeSet::new();
    for member in &description.members {
        for one in member.assigned.iter().chain(member.revoking.iter()) {
            assert!(held.insert(one), "{one:?} is two members': {description:?}");
        }
    }
    assert_eq!(description.state, GroupState::Stable, "{description:?}");
    assert!((0..4).all(|number| held.contains(&(ORDERS, number))), "{description:?}");
}
