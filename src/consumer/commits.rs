//! Committing: how far the group has come, told to its coordinator.
//!
//! ```text
//!   commit         earlier ones are answered ─▶ what has moved is sent ─▶ answered, stored
//!   commit_async                                what has moved is sent ─▶ a later call tells the callback
//!   automatically  as commit, at the head of a poll, before partitions are given back, and by the close
//! ```
//!
//! Invariants: commits of one consumer count in the order in which they were made; what is under way is not sent again, and
//! what has failed is sent with the next commit. Nobody commits under an id that it has not got its partitions by.
//!
//! One whose member has been led on meanwhile is sent again: behind those that were made after it, some of which the
//! coordinator has taken already. So all of these are sent once more, each when the one before it is answered, and nobody
//! is told of them before. Before partitions are given back all is answered; of those that were lost nothing is sent again.

use std::collections::VecDeque;
use std::time::Duration;

use super::core::Core;
use super::position::Position;
use super::progress::Handed;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::group;
use crate::group::Claim;
use crate::node::Committing;
use crate::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

/// A position of a group in a partition, as it is committed.
///
/// ```
/// use taffrail::{CommittedOffset, Offset};
/// let plain = CommittedOffset::from(Offset(40));
/// let noted = CommittedOffset::from(Offset(40)).metadata("up to the invoice of May");
/// assert_eq!(plain.offset, noted.offset);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "OffsetAndMetadata")]
pub struct CommittedOffset {
    /// The next record to read: behind the last one that is done with.
    pub offset: Offset,
    /// The leader epoch of the record before it, as a [`Position`] has it. `None`: not known, nothing is compared.
    pub epoch: Option<LeaderEpoch>,
    /// Whatever the host notes with it, at most 4,096 bytes (Kafka: `offset.metadata.max.bytes`).
    pub metadata: String,
}

impl CommittedOffset {
    /// The same with this note.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.metadata = metadata.into();
        self
    }

    /// Where reading goes on, for a seek.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { offset: self.offset, epoch: self.epoch }
    }
}

impl From<Offset> for CommittedOffset {
    fn from(offset: Offset) -> Self {
        Position::from(offset).into()
    }
}

impl From<Position> for CommittedOffset {
    fn from(Position { offset, epoch }: Position) -> Self {
        Self { offset, epoch, metadata: String::new() }
    }
}

impl From<group::Position> for CommittedOffset {
    fn from(group::Position { offset, leader_epoch, metadata }: group::Position) -> Self {
        Self { offset, epoch: leader_epoch, metadata }
    }
}

impl From<CommittedOffset> for group::Position {
    fn from(CommittedOffset { offset, epoch, metadata }: CommittedOffset) -> Self {
        Self { offset, leader_epoch: epoch, metadata }
    }
}

/// Positions by partition.
pub(super) type Positions = Vec<(TopicPartition, group::Position)>;

/// Positions, and which topic each of them is of.
pub(super) type Placed = (Positions, Vec<TopicId>);

/// Who is told what became of a commit.
pub(super) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// So many bytes of positions, as records have them, are sent at once: half of what a coordinator takes.
const PART_BYTES: usize = 256 << 10;

/// What a record of a position has besides its texts, at most.
const RECORD_BYTES: usize = 64;

/// A member that has been led on commits again with its new epoch, so many times.
const TRIES: u32 = 8;

/// What is committed by itself, and what is under way.
#[derive(Default)]
pub(super) struct Commits {
    /// How often it is committed without being asked for.
    pub(super) interval: Option<Duration>,
    /// When next.
    due: Moment,
    pending: VecDeque<Pending>,
    /// What a transaction may commit.
    pub(super) handed: Option<Handed>,
    /// What was given up though something of it was handed out that nobody has committed.
    pub(super) given_up: Option<TopicPartition>,
}

/// A commit that nobody waits for.
struct Pending {
    sent: Sent,
    callback: Callback,
}

/// What was sent of one commit.
struct Sent {
    parts: VecDeque<Part>,
    outcome: Result<()>,
}

impl Sent {
    fn hold_back(&mut self) {
        for part in &mut self.parts {
            (part.committing, part.claim) = (None, None);
        }
    }
}

/// As much as a coordinator takes at once.
struct Part {
    positions: Positions,
    topics: Vec<TopicId>,
    claim: Option<Claim>,
    /// `None`: to be sent again, as its member has been led on.
    committing: Option<Committing>,
    tries: u32,
    /// Some of it is read no more: it is not sent again.
    is_void: bool,
}

impl Part {
    fn of((positions, topics): Placed) -> Self {
        Self { positions, topics, claim: None, committing: None, tries: TRIES, is_void: false }
    }
}

impl Commits {
    pub(super) fn new(interval: Option<Duration>, now: Moment) -> Self {
        let due = now.after(interval.unwrap_or_default());
        Self { interval, due, pending: VecDeque::new(), handed: None, given_up: None }
    }

    /// When the next automatic commit is due.
    pub(super) fn due(&self) -> Option<Moment> {
        self.interval.map(|_| self.due)
    }

    /// Whether something is under way.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether something waits to be sent again.
    fn is_held_back(&self) -> bool {
        let mut parts = self.pending.iter().flat_map(|pending| &pending.sent.parts);
        parts.any(|part| part.committing.is_none())
    }

    /// These, in order, are read no more: another may have come further in them.
    pub(super) fn withdraw(&mut self, partitions: &[TopicPartition]) {
        for part in self.pending.iter_mut().flat_map(|pending| &mut pending.sent.parts) {
            part.is_void |= part.positions.iter().any(|(name, _)| partitions.binary_search(name).is_ok());
        }
    }

    /// What was sent behind a part that is sent again is sent again, too.
    fn hold_back(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.sent.hold_back());
    }
}

impl Core {
    /// Commits what polls have handed out.
    pub(super) fn commit(&mut self) -> Result<()> {
        // What has failed of them is committed again.
        self.finish_commits();
        self.fetcher.update()?;
        let moved = self.moved();
        self.store(moved)?;
        self.commits.given_up = None;
        Ok(())
    }

    /// Commits these.
    pub(super) fn commit_offsets(&mut self, positions: Positions) -> Result<()> {
        self.finish_commits();
        self.look_at_progress();
        self.fetcher.update()?;
        let topics = self.fetcher.node().topics();
        let topic_of = |(name, _): &(TopicPartition, group::Position)| {
            let topic = topics.get(&*name.topic).ok_or_else(|| Error::UnknownTopic { name: name.topic.clone() })?;
            topic.partition(name.partition).map(|_| topic.id)
        };
        let ids = positions.iter().map(topic_of).collect::<Result<_>>()?;
        self.store((positions, ids))
    }

    /// Commits what polls have handed out, and waits for nothing.
    pub(super) fn commit_async(&mut self, callback: Callback) {
        self.look_at_commits();
        self.begin_commit(callback);
    }

    /// The same, whatever has become of those before.
    pub(super) fn begin_commit(&mut self, callback: Callback) {
        let sent = match self.fetcher.update() {
            Ok(()) => {
                let moved = self.moved();
                self.send(moved)
            }
            Err(error) => Sent { parts: VecDeque::new(), outcome: Err(error) },
        };
        self.commits.pending.push_back(Pending { sent, callback });
    }

    /// Commits what polls have handed out, if that is on and due.
    pub(super) fn commit_if_due(&mut self) -> Result<()> {
        let Some(interval) = self.commits.interval else { return Ok(()) };
        let now = self.now();
        if now < self.commits.due {
            return Ok(());
        }
        self.commits.due = now.after(interval);
        self.commit()
    }

    /// Whether partitions go on where the group does not have it.
    pub(super) fn has_moved(&self) -> bool {
        self.fetcher.assignment().slots().iter().any(|slot| slot.to_commit().is_some())
    }

    /// Tells the callbacks of commits that were answered meanwhile.
    pub(super) fn look_at_commits(&mut self) {
        self.tell_callbacks(false);
    }

    /// Waits until all commits that are under way are answered, and tells their callbacks.
    pub(super) fn finish_commits(&mut self) {
        self.tell_callbacks(true);
    }

    fn tell_callbacks(&mut self, waits: bool) {
        while let Some(mut pending) = self.commits.pending.pop_front() {
            match self.answer(&mut pending.sent, waits) {
                Some(outcome) => (pending.callback)(outcome),
                None => return self.commits.pending.push_front(pending),
            }
        }
    }

    fn store(&mut self, positions: Placed) -> Result<()> {
        let mut sent = self.send(positions);
        self.answer(&mut sent, true).unwrap_or(Ok(()))
    }

    fn send(&mut self, positions: Placed) -> Sent {
        let mut sent = Sent { parts: VecDeque::new(), outcome: Ok(()) };
        for mut part in parts(&self.group, positions) {
            self.note(&part.positions, true);
            let is_sent = if self.commits.is_held_back() { Ok(()) } else { self.send_part(&mut part) };
            match is_sent {
                Ok(()) => sent.parts.push_back(part),
                Err(error) => self.fail(&mut sent, &part, error),
            }
        }
        sent
    }

    fn send_part(&self, part: &mut Part) -> Result<()> {
        part.claim = self.claim()?;
        let positions = (part.positions.clone(), &*part.topics);
        part.committing = Some(self.fetcher.node().begin_commit(&self.group, part.claim.clone(), positions)?);
        Ok(())
    }

    fn fail(&mut self, sent: &mut Sent, part: &Part, error: Error) {
        self.note(&part.positions, false);
        if sent.outcome.is_ok() {
            sent.outcome = Err(error);
        }
    }

    /// What became of it, once all of that is known.
    fn answer(&mut self, sent: &mut Sent, waits: bool) -> Option<Result<()>> {
        while let Some(mut part) = sent.parts.pop_front() {
            let tries = part.tries;
            let answer = self.answer_to(&mut part, waits);
            if part.tries < tries {
                sent.hold_back();
                self.commits.hold_back();
            }
            match answer {
                Some(Ok(())) => {}
                Some(Err(error)) => self.fail(sent, &part, error),
                None => {
                    sent.parts.push_front(part);
                    return None;
                }
            }
        }
        Some(std::mem::replace(&mut sent.outcome, Ok(())))
    }

    fn answer_to(&self, part: &mut Part, waits: bool) -> Option<Result<()>> {
        loop {
            if part.committing.is_none() {
                match self.send_again(part, waits) {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
            let answer = if waits { part.committing.take()?.wait() } else { part.committing.as_ref()?.try_take()? };
            part.committing = None;
            match answer {
                Err(Error::StaleMember { .. }) if part.tries > 0 => part.tries -= 1,
                answer => return Some(answer),
            }
        }
    }

    /// Sends a part with the epoch that its member has been led to, where that is known by now.
    fn send_again(&self, part: &mut Part, waits: bool) -> Result<bool> {
        if part.is_void {
            return Err(self.no_member());
        }
        if let Some(membership) = self.seat.as_ref().and_then(|seat| seat.membership()).filter(|_| waits) {
            membership.settle();
        }
        if !waits && self.claim()? == part.claim {
            return Ok(false);
        }
        self.send_part(part).map(|()| true)
    }

    /// Notes that the group has these positions, or that it has not got them.
    pub(super) fn note(&mut self, positions: &Positions, is_sent: bool) {
        for (name, position) in positions {
            if let Some(index) = self.fetcher.assignment().find(&name.topic, name.partition) {
                let position = Position { offset: position.offset, epoch: position.leader_epoch };
                self.fetcher.assignment_mut().slot(index).committed = is_sent.then_some(position);
            }
        }
    }
}

/// Divides positions into parts that a coordinator takes.
fn parts(group: &str, (positions, topics): Placed) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut room = 0;
    for ((name, position), topic) in positions.into_iter().zip(topics) {
        let size = group.len() + name.topic.len() + position.metadata.len() + RECORD_BYTES;
        match parts.last_mut() {
            Some(part) if size <= room => {
                part.positions.push((name, position));
                part.topics.push(topic);
            }
            _ => {
                parts.push(Part::of((vec![(name, position)], vec![topic])));
                room = PART_BYTES;
            }
        }
        room = room.saturating_sub(size);
    }
    parts
}
