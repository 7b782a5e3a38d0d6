//! The member's half: what a consumer owns, when it reports, and when it must not read on.
//!
//! ```text
//!           heartbeat ─────────► answered: epoch            max_poll_interval without a poll
//!  Joining ────────────────────────────────────► Joined ─────────────────────────────────────► Out ── polled ─┐
//!    ▲  ▲                                          │                                                           │
//!    │  └── fenced, forgotten, not given back in time: what was owned is lost, another member id ◄─────────────┘
//!    │                                             └── instance taken over, refused for good ──► Failed
//!    └── subscribe ───────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Two drive it. The node's thread calls [`Member::heartbeat`] when [`Member::deadline`] has come, sends what it is given,
//! and hands the answer to [`Member::answered`]; a heartbeat that is not answered is made again, with another number, and
//! whatever answers an earlier one is passed over. So each waits longer than the one before: answers that take longer than
//! the time between two heartbeats would all be passed over otherwise. The consumer calls [`Member::polled`] at the head of each poll, drops and
//! takes partitions as it is told, and reads of [`Member::readable`] only; [`Member::upcoming`] tells it before what it will
//! have to give back, so that it commits these positions first.
//!
//! A partition is given back by a poll, never for it: what is reported is what was owned at the last poll, together with
//! what the next one may take. What was offered and taken back between two polls was never owned.
//!
//! Invariants: what may be read is within what the last answer that counts has assigned, or has asked back; it ends with
//! the lease, before the coordinator gives anything to another.

use std::time::Duration;

use super::partitions::Partitions;
use super::protocol::{Answer, Claim, Details, Epoch, Heartbeat, Incarnation, Intent, Report, Subscription};
use super::stepped::SteppedClock;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::random::Random;
use crate::types::TopicId;

/// How long a consumer may take between two polls, as in Kafka (`max.poll.interval.ms`).
pub(crate) const MAX_POLL_INTERVAL: Duration = Duration::from_secs(300);

/// What is not known of the coordinator before it has answered.
const FIRST_INTERVAL: Duration = Duration::from_secs(5);

/// A refusal that may pass is followed by another try after this time.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The time that a heartbeat waits is doubled so often at most.
const REPEATS_MAX: u32 = 10;

/// What a member is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberSettings {
    pub(crate) group: String,
    /// `rebalance_timeout` is what [`Self::max_poll_interval`] says.
    pub(crate) details: Details,
    /// A consumer that does not poll for so long leaves its group.
    pub(crate) max_poll_interval: Duration,
}

impl MemberSettings {
    /// With Kafka's time between polls.
    pub(crate) const fn new(group: String, details: Details) -> Self {
        Self { group, details, max_poll_interval: MAX_POLL_INTERVAL }
    }
}

/// What a poll changes in what the consumer owns: first what is lost and revoked goes, then what is assigned comes, even
/// where it is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Gone without having been given back: another may own it already, and commits are refused.
    pub(crate) lost: Partitions,
    /// Given back by this poll.
    pub(crate) revoked: Partitions,
    /// The consumer's from now on.
    pub(crate) assigned: Partitions,
}

/// One membership in one group, and whatever memberships follow on it.
#[derive(Debug)]
pub(crate) struct Member {
    settings: MemberSettings,
    random: Random,
    id: String,
    /// Whether the coordinator may have heard of `id`.
    is_known: bool,
    standing: Standing,
    number: u64,
    seen: Option<Incarnation>,
    awaited: Option<Awaited>,
    /// So many in a row were made again.
    repeats: u32,
    /// What the consumer has, since its last poll.
    owned: Partitions,
    /// What it may have, as was answered last.
    offered: Partitions,
    /// Whether that is another than what it has.
    is_moved: bool,
    /// What it had, and has not been told the loss of.
    lost: Partitions,
    /// When it is to report again though nothing was heard yet of what it reported last.
    hurried: Option<Moment>,
    /// Until when what is owned may be read.
    lease: Option<Moment>,
    /// Until when what is asked back may be read.
    revoke_by: Option<Moment>,
    /// By when it is to be given back, on the clock below: the coordinator counts so, too.
    revoke_end: Option<Duration>,
    /// The leave of an earlier id, or of this one.
    parting: Option<Heartbeat>,
    interval: Duration,
    /// A heartbeat waits no longer than this for its answer: half of a session.
    patience: Duration,
    next: Moment,
    clock: SteppedClock,
    /// When the consumer polled last, on that clock.
    polled: Duration,
}

#[derive(Clone, Debug)]
enum Standing {
    Joining,
    Joined(Epoch),
    /// The consumer does not poll.
    Out,
    Failed(Error),
    Closed,
}

/// A heartbeat that is on its way.
#[derive(Clone, Debug)]
struct Awaited {
    number: u64,
    sent: Moment,
    reported: Partitions,
}

impl Member {
    /// A member that joins at once. Make it with the consumer's first poll: its time between polls begins here.
    pub(crate) fn new(now: Moment, mut settings: MemberSettings, mut random: Random) -> Self {
        settings.details.rebalance_timeout = settings.max_poll_interval;
        let id = fresh_id(&mut random);
        Self {
            settings,
            random,
            id,
            is_known: false,
            standing: Standing::Joining,
            number: 0,
            seen: None,
            awaited: None,
            repeats: 0,
            owned: Partitions::default(),
            offered: Partitions::default(),
            is_moved: false,
            lost: Partitions::default(),
            hurried: None,
            lease: None,
            revoke_by: None,
            revoke_end: None,
            parting: None,
            interval: FIRST_INTERVAL,
            patience: FIRST_INTERVAL,
            next: now,
            clock: SteppedClock::starting(now),
            polled: Duration::ZERO,
        }
    }

    /// The heartbeat that is to be sent now, if one is. There may be another one at once: ask until there is none.
    pub(crate) fn heartbeat(&mut self, now: Moment) -> Option<Heartbeat> {
        self.observe(now);
        if let Some(parting) = self.parting.take() {
            return Some(parting);
        }
        let intent = match self.standing {
            Standing::Joining => Intent::Join,
            Standing::Joined(epoch) => Intent::Stay(epoch),
            Standing::Out | Standing::Failed(_) | Standing::Closed => return None,
        };
        if self.next_due() > now {
            return None;
        }
        self.repeats = if self.awaited.is_some() { self.repeats.saturating_add(1) } else { 0 };
        let heartbeat = self.say(intent);
        let reported = heartbeat.report.owned.clone();
        self.awaited = Some(Awaited { number: self.number, sent: now, reported });
        self.next = now.after(self.interval);
        Some(heartbeat)
    }

    /// What was answered to the heartbeat of that number.
    pub(crate) fn answered(&mut self, now: Moment, number: u64, answer: Result<Answer>) {
        let Some(awaited) = self.awaited.take_if(|awaited| awaited.number == number) else { return };
        match answer {
            Ok(answer) => self.accept(now, awaited, answer),
            Err(Error::UnknownMember { .. }) => self.rejoin(now),
            Err(Error::FencedMember { .. }) => {
                self.part(Intent::Leave);
                self.rejoin(now);
            }
            Err(
                error @ (Error::FencedInstance { .. }
                | Error::GroupFull { .. }
                | Error::InvalidName { .. }
                | Error::InvalidPattern { .. }
                | Error::InvalidConfig { .. }),
            ) => {
                self.part(Intent::Leave);
                self.lose();
                self.standing = Standing::Failed(error);
            }
            Err(_) => self.next = now.after(RETRY_AFTER),
        }
    }

    /// The consumer polls: what it was asked for is given back, and what it was offered is its own. An error is for good,
    /// and nothing is owned any more; [`Self::subscribe`] begins again.
    #[cfg(test)]
    pub(crate) fn polled(&mut self, now: Moment) -> Result<Changes> {
        let all = self.owned.clone();
        self.polled_prepared(now, &all)
    }

    /// The same, but of what it was asked for only that is given back which the consumer is prepared to give, since
    /// [`Self::upcoming`] has told it so: what it was asked for meanwhile is its own until the next poll.
    pub(crate) fn polled_prepared(&mut self, now: Moment, prepared: &Partitions) -> Result<Changes> {
        self.observe(now);
        self.polled = self.clock.elapsed();
        let lost = std::mem::take(&mut self.lost);
        match &self.standing {
            Standing::Failed(error) => return Err(error.clone()),
            Standing::Closed => return Err(Error::Closed),
            Standing::Out => self.rejoin(now),
            Standing::Joining | Standing::Joined(_) => {}
        }
        let Changes { revoked, assigned, .. } = self.changes(now);
        let revoked = revoked.shared_with(prepared);
        if !revoked.is_empty() {
            self.next = now;
            self.awaited = None;
        }
        if !(revoked.is_empty() && assigned.is_empty()) {
            self.owned = self.owned.without(&revoked).joined_with(&assigned);
            self.is_moved = self.owned != self.offered;
        }
        Ok(Changes { lost, revoked, assigned })
    }

    /// What the next poll will change, if nothing else happens.
    pub(crate) fn upcoming(&self, now: Moment) -> Changes {
        Changes { lost: self.lost.clone(), ..self.changes(now) }
    }

    /// What the consumer may read now: what it owned at its last poll, or nothing where that may be another's by now, and
    /// before it has been told what it has lost.
    pub(crate) fn readable(&self, now: Moment) -> Option<&Partitions> {
        (self.is_certain(now) && self.lost.is_empty()).then_some(&self.owned)
    }

    /// Who commits; `None` where it is no member now, or has not been told what it has lost: it would commit that as the
    /// member that it is since.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let Standing::Joined(epoch) = self.standing else { return None };
        if !self.lost.is_empty() {
            return None;
        }
        Some(Claim { member: self.id.clone(), instance: self.settings.details.instance.clone(), epoch })
    }

    /// Why it is no member for good.
    pub(crate) fn failure(&self) -> Option<&Error> {
        if let Standing::Failed(error) = &self.standing { Some(error) } else { None }
    }

    /// There may be something to hear: it reports by then.
    pub(crate) fn hurry(&mut self, by: Moment) {
        match &self.awaited {
            None => self.next = self.next.min(by),
            Some(_) => self.hurried = Some(by),
        }
    }

    /// Wants other topics from now on.
    pub(crate) fn subscribe(&mut self, now: Moment, subscription: Subscription) {
        self.settings.details.subscription = subscription;
        self.next = now;
        self.awaited = None;
        if let Standing::Failed(_) = self.standing {
            self.rejoin(now);
        }
    }

    /// The consumer closes, and owns nothing any more: the heartbeat that says so, where anybody may have heard of it. It
    /// is not answered, and need not arrive.
    pub(crate) fn close(&mut self) -> Option<Heartbeat> {
        if matches!(self.standing, Standing::Joining | Standing::Joined(_)) {
            self.part(Intent::LeaveForNow);
        }
        self.lose();
        self.standing = Standing::Closed;
        self.parting.take()
    }

    /// When [`Self::heartbeat`] is to be called next; `None` where only a poll changes anything.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        match self.standing {
            _ if self.parting.is_some() => Some(Moment::default()),
            Standing::Joining | Standing::Joined(_) => Some(self.next_due().min(self.clock.next())),
            Standing::Out | Standing::Failed(_) | Standing::Closed => None,
        }
    }

    /// Time has passed.
    fn observe(&mut self, now: Moment) {
        self.clock.step(now);
        if !matches!(self.standing, Standing::Joining | Standing::Joined(_)) {
            return;
        }
        if self.clock.elapsed().saturating_sub(self.polled) > self.settings.max_poll_interval {
            self.part(Intent::LeaveForNow);
            self.lose();
            self.standing = Standing::Out;
        } else if self.revoke_end.is_some_and(|end| end <= self.clock.elapsed()) && !self.owned.is_within(&self.offered)
        {
            self.part(Intent::Leave);
            self.rejoin(now);
        }
    }

    fn next_due(&self) -> Moment {
        match &self.awaited {
            Some(awaited) => {
                let longer = self.interval.saturating_mul(1 << self.repeats.min(REPEATS_MAX));
                awaited.sent.after(longer.min(self.patience).max(self.interval))
            }
            None => self.next,
        }
    }

    fn say(&mut self, intent: Intent) -> Heartbeat {
        self.number += 1;
        self.is_known = true;
        let owned = match intent {
            Intent::Join | Intent::Stay(_) => self.owned.joined_with(&self.offered),
            Intent::Leave | Intent::LeaveForNow => Partitions::default(),
        };
        Heartbeat {
            group: self.settings.group.clone(),
            member: self.id.clone(),
            intent,
            details: self.settings.details.clone(),
            report: Report { number: self.number, seen: self.seen, owned },
        }
    }

    fn accept(&mut self, now: Moment, awaited: Awaited, answer: Answer) {
        let Awaited { sent, reported, .. } = awaited;
        self.standing = Standing::Joined(answer.epoch);
        self.seen = Some(answer.incarnation);
        self.interval = answer.heartbeat_interval;
        self.patience = answer.session_timeout / 2;
        self.lease = Some(sent.after(answer.session_timeout));
        self.clock.step(now);
        self.revoke_by = answer.revoke_within.map(|left| sent.after(left));
        self.revoke_end = answer.revoke_within.map(|left| self.clock.elapsed() + left);
        self.offered = answer.assignment.unwrap_or_else(|| reported.clone());
        self.is_moved = self.owned != self.offered;
        let hurried = self.hurried.take();
        self.next = hurried.map_or(sent.after(self.interval), |by| by.min(sent.after(self.interval)));
        // What was offered, was never taken, and is asked back need not wait for a poll.
        if !reported.is_within(&self.owned.joined_with(&self.offered)) {
            self.next = now;
        }
    }

    fn changes(&self, now: Moment) -> Changes {
        if !self.is_moved || !self.is_certain(now) {
            return Changes::default();
        }
        let revoked = self.owned.without(&self.offered);
        let assigned = self.offered.without(&self.owned);
        Changes { lost: Partitions::default(), revoked, assigned }
    }

    /// Whether the coordinator cannot have given away what is owned.
    fn is_certain(&self, now: Moment) -> bool {
        let is_joined = matches!(self.standing, Standing::Joined(_));
        is_joined && self.lease.is_some_and(|end| now < end) && self.revoke_by.is_none_or(|end| now < end)
    }

    /// Tells the coordinator to forget this id.
    fn part(&mut self, intent: Intent) {
        if self.is_known {
            self.parting = Some(self.say(intent));
        }
    }

    /// Nothing is owned any more.
    fn lose(&mut self) {
        let owned = std::mem::take(&mut self.owned);
        self.lost = self.lost.joined_with(&owned);
        self.offered = Partitions::default();
        self.is_moved = false;
        self.lease = None;
        self.revoke_by = None;
        self.revoke_end = None;
        self.awaited = None;
        self.seen = None;
    }

    /// Begins again, as another member.
    fn rejoin(&mut self, now: Moment) {
        self.lose();
        self.id = fresh_id(&mut self.random);
        self.is_known = false;
        self.standing = Standing::Joining;
        self.next = now;
    }
}

/// As Kafka makes them: a uuid in base64url.
fn fresh_id(random: &mut Random) -> String {
    TopicId(random.uuid()).to_string()
}
