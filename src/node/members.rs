//! The members that live in this process: each has a half of the protocol that is driven from two sides.
//!
//! ```text
//!   consumer: polled, upcoming, may_read, claim ──► Member ◄── heartbeats that are due: the timed thread, a tick, a poll
//!                                                     ▲              │
//!                                                     └── answers ◄── coordinator (group_desks.rs)
//! ```
//!
//! A member is dropped with its consumer: its leave is queued, and said by whoever drives the members next.
//!
//! When there is something to do for a member is noted whenever that may have become earlier, behind the change, first with
//! the member, then with all of them: so whoever looks after many asks none, and what changes while it looks is noted anew.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Node;
use super::coordinator::Asker;
use super::due::Due;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::group::{Changes, Claim, Heartbeat, Intent, Member, MemberSettings, Partitions, Reply, Subscription};
use crate::random::Random;
use crate::sync::{Arc as Pointer, Mutex, Signal};

/// Answers are looked for so often where nobody waits for them.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// One consumer's membership in its group.
#[derive(Debug)]
pub(crate) struct Membership {
    node: Arc<Node>,
    group: String,
    member: Mutex<Member>,
    /// Heartbeats that are on their way, by number.
    awaiting: Mutex<VecDeque<(u64, Asker<Reply>)>>,
    /// Raised where something may have changed.
    signal: Pointer<Signal>,
    /// When there is something to do for it.
    due: Due,
}

/// Those that live in this process.
#[derive(Debug)]
pub(super) struct Members {
    all: Mutex<Vec<Weak<Membership>>>,
    /// When there is something to do for any of them.
    pub(super) due: Due,
}

impl Members {
    pub(super) fn new() -> Self {
        Self { all: Mutex::new(Vec::new()), due: Due::never() }
    }

    pub(super) fn all(&self) -> Vec<Arc<Membership>> {
        let mut all = self.all.lock();
        all.retain(|member| member.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Drives those that are due.
    pub(super) fn drive(&self, node: &Node, now: Moment) {
        if !self.due.take(now) {
            return;
        }
        let (due, others): (Vec<_>, Vec<_>) = self.all().into_iter().partition(|member| member.due.take(now));
        for member in &due {
            member.drive(now);
        }
        let next = others.iter().filter_map(|member| member.due.get()).min();
        if next.is_some_and(|next| self.due.is_by(next)) {
            node.wake();
        }
    }

    /// Takes in what was answered to any of them.
    pub(super) fn collect(&self, now: Moment) {
        self.all().iter().for_each(|member| member.collect(now));
    }
}

impl Membership {
    /// Joins, as of now.
    pub(crate) fn join(node: &Arc<Node>, settings: MemberSettings, signal: &Pointer<Signal>) -> Result<Arc<Self>> {
        let group = settings.group.clone();
        node.ensure_groups()?;
        // Whoever was dropped before has left by then.
        node.say_leaves();
        let now = node.clock.monotonic();
        let member = Member::new(now, settings, Random::seeded(node.seed_in_group(&group)));
        let (member, awaiting) = (Mutex::new(member), Mutex::new(VecDeque::new()));
        let (node, signal) = (Arc::clone(node), Pointer::clone(signal));
        let membership = Arc::new(Self { node, group, member, awaiting, signal, due: Due::never() });
        membership.node.groups.members.all.lock().push(Arc::downgrade(&membership));
        membership.drive(now);
        Ok(membership)
    }

    /// The consumer polls: of what is to be given back it gives what it is prepared for, and what was offered is its own.
    pub(crate) fn polled(&self, prepared: &Partitions) -> Result<Changes> {
        let now = self.now();
        self.collect(now);
        let changes = self.member.lock().polled_prepared(now, prepared);
        self.drive(now);
        changes
    }

    /// What the next poll will change, as far as that is known.
    pub(crate) fn upcoming(&self) -> Changes {
        let now = self.now();
        self.collect(now);
        self.member.lock().upcoming(now)
    }

    /// Whether nobody else can have what the consumer owns.
    pub(crate) fn may_read(&self) -> bool {
        self.member.lock().readable(self.now()).is_some()
    }

    /// Who commits; `None` where it is no member now.
    pub(crate) fn claim(&self) -> Option<Claim> {
        self.member.lock().claim()
    }

    /// Why it is no member for good.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.member.lock().failure().cloned()
    }

    /// Wants other topics from now on.
    pub(crate) fn subscribe(&self, subscription: Subscription) {
        let now = self.now();
        self.member.lock().subscribe(now, subscription);
        self.drive(now);
    }

    /// Waits until what is on its way is answered. Where nothing is, it returns at once.
    pub(crate) fn settle(&self) {
        let awaited: Vec<_> = self.awaiting.lock().iter().map(|(_, asker)| Arc::clone(asker)).collect();
        for asker in awaited {
            self.node.serve_group(&self.group, &asker);
        }
        self.collect(self.now());
    }

    /// Leaves, and waits until the coordinator has stored it.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(leave) = self.part() else { return Ok(()) };
        let asker = self.node.send_heartbeat(leave)?;
        self.node.serve_group(&self.group, &asker);
        asker.wait().map(drop)
    }

    /// Owns nothing any more; what is left to be said.
    pub(super) fn part(&self) -> Option<Heartbeat> {
        self.member.lock().close()
    }

    pub(super) fn group(&self) -> &str {
        &self.group
    }

    /// Its coordinator may have something for it: it reports by then.
    pub(super) fn hurry(&self, now: Moment, by: Moment) {
        self.member.lock().hurry(by);
        self.note_due(now);
    }

    /// Whoever drives the members knows from now on when there is something to do for this one.
    fn note_due(&self, now: Moment) {
        let answers = (!self.awaiting.lock().is_empty()).then(|| now.after(LOOK_AGAIN));
        let due = self.member.lock().deadline().into_iter().chain(answers).min();
        if due.is_some_and(|due| self.due.is_by(due) && self.node.groups.members.due.is_by(due)) {
            self.node.wake();
        }
    }

    /// Says what is due to be said, and takes in what was answered.
    fn drive(&self, now: Moment) {
        loop {
            let heartbeat = self.member.lock().heartbeat(now);
            let Some(heartbeat) = heartbeat else { break };
            let (number, intent) = (heartbeat.report.number, heartbeat.intent);
            match (self.node.send_heartbeat(heartbeat), intent) {
                (_, Intent::Leave | Intent::LeaveForNow) => {}
                (Ok(asker), _) => self.awaiting.lock().push_back((number, asker)),
                (Err(error), _) => self.member.lock().answered(now, number, Err(error)),
            }
        }
        self.collect(now);
        self.note_due(now);
    }

    /// Takes in what was answered.
    fn collect(&self, now: Moment) {
        let mut answers = Vec::new();
        self.awaiting.lock().retain(|(number, asker)| match asker.take() {
            Some(answer) => {
                answers.push((*number, answer));
                false
            }
            None => true,
        });
        if answers.is_empty() {
            return;
        }
        let mut member = self.member.lock();
        for (number, answer) in answers {
            match answer {
                Ok(Reply::Answer(answer)) => member.answered(now, number, Ok(answer)),
                Ok(_) => {}
                Err(error) => member.answered(now, number, Err(error)),
            }
        }
        drop(member);
        self.note_due(now);
        self.signal.raise();
    }

    fn now(&self) -> Moment {
        self.node.clock.monotonic()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Some(leave) = self.part() {
            self.node.groups.leaving.lock().push(leave);
            self.node.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::clock::ManualClock;
    use crate::config::TopicConfig;
    use crate::controller::Command;
    use crate::group::Details;
    use crate::storage::MemoryStorage;
    use crate::types::Timestamp;

    /// What is noted of each, and of all, is not later than what each says that is asked.
    fn check(node: &Node) {
        let members = &node.groups.members;
        for member in members.all() {
            let (asked, noted) = (member.member.lock().deadline().unwrap(), member.due.get().unwrap());
            assert!(noted <= asked, "noted {noted:?}, due {asked:?}");
            assert!(members.due.get().unwrap() <= noted);
            let is_awaiting = !member.awaiting.lock().is_empty();
            assert!(!is_awaiting || noted <= node.clock.monotonic().after(LOOK_AGAIN), "answers are looked for");
        }
    }

    /// Members join one after the other, so that each is due at moments of its own, and hears of the next.
    #[test]
    fn nobody_is_due_before_that_is_known() {
        let clock = Arc::new(ManualClock::at(Timestamp(0)));
        let node = Node::on(&MemoryStorage::new(1), Arc::clone(&clock) as _);
        let (name, id, config) = ("t".to_owned(), node.new_topic_id(), TopicConfig::new().partitions(8));
        node.administer("t", Command::Create { name, id, config }).unwrap();
        let mut members: Vec<Arc<Membership>> = Vec::new();
        for round in 0..1_000 {
            if round % 150 == 0 {
                let subscription = Subscription { topics: BTreeSet::from(["t".to_owned()]), pattern: None };
                let details = Details { subscription, ..Details::default() };
                let settings = MemberSettings::new("g".to_owned(), details);
                members.push(Membership::join(&node, settings, &Pointer::new(Signal::new())).unwrap());
                check(&node);
            }
            clock.advance(Duration::from_millis(7));
            node.tick();
            check(&node);
            if round % 40 == 0 {
                let member = &members[round / 40 % members.len()];
                member.polled(&member.upcoming().revoked).unwrap();
                check(&node);
            }
        }
    }
}
