//! A group of many members, for the benchmarks. No part of the interface.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Moment, Now};
use crate::config::GroupConfig;
use crate::group::{
    Answer, Command, Coordinator, Details, Heartbeat, Incarnation, Intent, Partitions, Reply, Report, Subscription,
    Topic, Topics,
};
use crate::machine::{Applied, Machine};
use crate::types::{Offset, Timestamp, TopicId};

const TOPIC: &str = "orders";

/// A coordinator with one group, and its members.
#[derive(Debug)]
pub struct Crowd {
    coordinator: Coordinator,
    now: Now,
    offset: Offset,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    id: String,
    intent: Intent,
    number: u64,
    seen: Option<Incarnation>,
    owned: Partitions,
}

impl Crowd {
    /// A group that so many members may join, one after the other, with one topic of so many partitions.
    ///
    /// # Panics
    ///
    /// Never.
    #[must_use]
    pub fn outside(members: usize, partitions: u32) -> Self {
        let now = Now { wall: Timestamp(1), monotonic: Moment(1) };
        let member = |number: usize| Member {
            id: format!("member-{number:016}"),
            intent: Intent::Join,
            number: 0,
            seen: None,
            owned: Partitions::default(),
        };
        let members = (0..members).map(member).collect();
        let mut crowd = Self { coordinator: Coordinator::default(), now, offset: Offset::ZERO, members };
        crowd.coordinator.loaded(now);
        crowd.settings(crowd.members.len() + 1);
        crowd.topic(partitions);
        crowd
    }

    /// All of them in the group, and each with what is meant for it.
    #[must_use]
    pub fn settled(members: usize, partitions: u32) -> Self {
        let mut crowd = Self::outside(members, 0);
        for member in 0..members {
            crowd.report(member);
        }
        crowd.topic(partitions);
        while (0..members).map(|member| crowd.report(member)).sum::<usize>() > 0 {}
        crowd
    }

    /// The topic has so many partitions from now on.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn topic(&mut self, partitions: u32) {
        let topic = Topic { id: TopicId([7; 16]), partitions, racks: Vec::new(), is_internal: false };
        let topics = Topics([(TOPIC.to_owned(), topic)].into());
        assert_eq!(self.run(Command::Topics(Arc::new(topics))).1, Reply::Done);
    }

    fn settings(&mut self, members_max: usize) {
        let settings = GroupConfig::new().members_max(members_max);
        assert_eq!(self.run(Command::Settings(settings)).1, Reply::Done);
    }

    /// How many members there may be.
    #[must_use]
    pub const fn members(&self) -> usize {
        self.members.len()
    }

    /// One member's heartbeat; how many records it leads to. It takes and gives back at once what it is told to.
    ///
    /// # Panics
    ///
    /// Where there is no such member.
    pub fn report(&mut self, member: usize) -> usize {
        let beat = self.heartbeat(member);
        let (records, reply) = self.run(Command::Heartbeat(Box::new(beat)));
        let Reply::Answer(Answer { epoch, incarnation, assignment, .. }) = reply else { panic!("{reply:?}") };
        let member = &mut self.members[member];
        member.intent = Intent::Stay(epoch);
        member.seen = Some(incarnation);
        if let Some(assignment) = assignment {
            member.owned = assignment;
        }
        records
    }

    /// What the target of all members comes to, computed from nothing by the first heartbeat of one; nothing is kept of it.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn target_from_nothing(&mut self) -> usize {
        let beat = self.heartbeat(0);
        let decision = self.coordinator.decide(self.now, Command::Heartbeat(Box::new(beat)));
        assert!(decision.reply.is_ok());
        decision.events.len()
    }

    fn heartbeat(&mut self, member: usize) -> Heartbeat {
        let Member { id, intent, number, seen, owned } = &mut self.members[member];
        *number += 1;
        let topics = [TOPIC.to_owned()].into();
        let details = Details {
            subscription: Subscription { topics, pattern: None },
            rebalance_timeout: Duration::from_secs(60),
            ..Details::default()
        };
        let report = Report { number: *number, seen: *seen, owned: owned.clone() };
        Heartbeat { group: "billing".to_owned(), member: id.clone(), intent: *intent, details, report }
    }

    fn run(&mut self, command: Command) -> (usize, Reply) {
        let decision = self.coordinator.decide(self.now, command);
        for event in &decision.events {
            self.coordinator
                .apply(Applied { offset: self.offset, timestamp: Some(self.now.wall), producer: None }, event);
            self.offset = self.offset.plus(1);
        }
        (decision.events.len(), decision.reply.expect("nothing is refused"))
    }
}
