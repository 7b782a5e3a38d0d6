//! What follows from a command: records and a reply, or a refusal. Of the state only deadlines are moved here.

use std::time::Duration;

use super::state::{Bump, Coordinator, Kept, Partitions, Status, Transaction, VERSION};
use super::{Action, Command, EXPIRY_INTERVAL, Event, ID_EXPIRATION, Reply, TIMEOUT_MAX};
use crate::clock::{Moment, Now};
use crate::error::{Error, Result};
use crate::machine::ProducerIdentity;
use crate::record::control::Outcome;
use crate::types::{ProducerEpoch, ProducerId, Timestamp, TopicPartition};

type Decided = Result<(Vec<Event>, Reply)>;

/// So many ids are forgotten by one batch.
const EXPIRED_MAX: usize = 1000;
/// What a text of Kafka's plain messages holds.
const ID_BYTES_MAX: usize = i16::MAX as usize;

pub(super) fn decide(state: &mut Coordinator, now: Now, command: Command) -> Decided {
    match command {
        Command::Init { id, timeout, expected, fresh } => init(state, now, id, timeout, expected, fresh),
        Command::Add { id, producer, partitions } => add(state, now, id, producer, &partitions),
        Command::End { id, producer, outcome, fresh } => end(state, now, id, producer, outcome, fresh),
        Command::Complete { id, producer } => Ok((complete(state, now, id, producer), Reply::Done)),
        Command::TimeOut { id, producer } => Ok((time_out(state, now, id, producer), Reply::Done)),
        Command::Expire { ids } => Ok((expire(state, now, ids), Reply::Done)),
    }
}

fn init(
    state: &Coordinator,
    now: Now,
    id: String,
    timeout: Duration,
    expected: Option<ProducerIdentity>,
    fresh: Option<ProducerId>,
) -> Decided {
    check_id(&id)?;
    let timeout_ms = check_timeout(timeout)?;
    let Some(transaction) = state.transaction(&id) else {
        let Some(producer_id) = fresh else { return Ok(NEEDS_PRODUCER_ID) };
        let kept = Kept { timeout_ms, ..empty(producer_id, ProducerEpoch(0), now.wall) };
        return Ok(identified(id, kept, Bump::Unknown));
    };
    let kept = &transaction.kept;
    match kept.status {
        Status::Prepared(_) => Err(Error::ConcurrentTransactions),
        Status::Ongoing => {
            let bump = match expected {
                None => Bump::ByOther,
                Some(expected) if expected == identity(kept) => Bump::ByOwner(expected.epoch),
                Some(expected) => return Err(fenced(kept, expected)),
            };
            Ok((vec![changed(id, prepared(kept, now, Outcome::Aborted, None), Some(bump))], Reply::Aborting))
        }
        Status::Empty | Status::Complete(_) => {
            let bump = match expected {
                None => Bump::ByOther,
                Some(expected) if expected == identity(kept) => Bump::ByOwner(expected.epoch),
                Some(expected) if has_bumped(transaction, expected) && !kept.is_coordinators() => {
                    return Ok((Vec::new(), Reply::Identity(identity(kept))));
                }
                Some(expected) if has_bumped(transaction, expected) => Bump::ByOwner(expected.epoch),
                Some(expected) => return Err(fenced(kept, expected)),
            };
            let Some(next) = following(kept, now, fresh) else { return Ok(NEEDS_PRODUCER_ID) };
            Ok(identified(id, Kept { timeout_ms, ..next }, bump))
        }
    }
}

/// Whether the epoch that is in force came from this very producer's last request, or from a transaction of its that
/// took too long: nobody else has it.
fn has_bumped(transaction: &Transaction, asker: ProducerIdentity) -> bool {
    let Transaction { kept, bump } = transaction;
    let is_same = kept.producer_id == asker.id || kept.previous_producer_id == Some(asker.id);
    match bump {
        Bump::ByOwner(epoch) | Bump::ByTime(epoch) => is_same && *epoch == asker.epoch,
        Bump::ByOther => false,
        Bump::Unknown => has_ended(kept, asker),
    }
}

/// Whether the transaction of this very producer is the last one that has ended, as far as the records say: where another
/// has taken the id since, it stands at `Empty`, or has begun one of its own.
fn has_ended(kept: &Kept, asker: ProducerIdentity) -> bool {
    let is_ended = matches!(kept.status, Status::Prepared(_) | Status::Complete(_));
    is_ended && kept.follows(asker)
}

/// The state in which the next instance has the id; `None` where it needs another producer id.
fn following(kept: &Kept, now: Now, fresh: Option<ProducerId>) -> Option<Kept> {
    if !kept.is_exhausted() {
        return Some(empty(kept.producer_id, kept.next_epoch(), now.wall));
    }
    let previous_producer_id = Some(kept.producer_id);
    Some(Kept { previous_producer_id, ..empty(fresh?, ProducerEpoch(0), now.wall) })
}

fn add(
    state: &mut Coordinator,
    now: Now,
    id: String,
    producer: ProducerIdentity,
    partitions: &[TopicPartition],
) -> Decided {
    let transaction = known(state, &id)?;
    check_owner(&id, transaction, producer)?;
    let kept = &transaction.kept;
    let is_begun = match kept.status {
        Status::Prepared(_) => return Err(Error::ConcurrentTransactions),
        status => status == Status::Ongoing,
    };
    if partitions.iter().all(|partition| is_begun && kept.contains(partition)) {
        return Ok((Vec::new(), Reply::Done));
    }
    let mut all = if is_begun { kept.partitions.clone() } else { Partitions::new() };
    for TopicPartition { topic, partition } in partitions {
        all.entry(topic.clone()).or_default().insert(*partition);
    }
    let started = if is_begun { kept.started } else { Some(now.wall) };
    let next = Kept { status: Status::Ongoing, partitions: all, started, ..moved(kept, now) };
    if !is_begun {
        let too_late = now.monotonic.after(next.timeout());
        state.timeouts.insert(id.clone(), too_late);
    }
    Ok((vec![changed(id, next, None)], Reply::Done))
}

fn end(
    state: &Coordinator,
    now: Now,
    id: String,
    producer: ProducerIdentity,
    outcome: Outcome,
    fresh: Option<ProducerId>,
) -> Decided {
    let transaction = known(state, &id)?;
    let kept = &transaction.kept;
    if is_repeated_end(transaction, producer) {
        return repeated_end(&id, transaction, producer, outcome);
    }
    check_owner(&id, transaction, producer)?;
    match (kept.status, outcome) {
        (Status::Prepared(_), _) => return Err(Error::ConcurrentTransactions),
        (Status::Empty | Status::Complete(_), Outcome::Committed) => {
            return Err(Error::InvalidTransactionState("nothing was begun that could be committed"));
        }
        (Status::Ongoing, _) | (Status::Empty | Status::Complete(_), Outcome::Aborted) => {}
    }
    if kept.is_exhausted() && fresh.is_none() {
        return Ok(NEEDS_PRODUCER_ID);
    }
    let next = prepared(kept, now, outcome, fresh.filter(|_| kept.is_exhausted()));
    let follows = match next.next_producer_id {
        Some(id) => ProducerIdentity { id, epoch: ProducerEpoch(0) },
        None => identity(&next),
    };
    Ok((vec![changed(id, next, Some(Bump::ByOwner(producer.epoch)))], Reply::Identity(follows)))
}

/// Whether the end that `producer` asks for is that of the transaction that was prepared last: the epoch has risen by
/// one since, or the id has followed.
fn is_repeated_end(transaction: &Transaction, producer: ProducerIdentity) -> bool {
    has_ended(&transaction.kept, producer) && transaction.bump != Bump::ByOther
}

fn repeated_end(id: &str, transaction: &Transaction, producer: ProducerIdentity, outcome: Outcome) -> Decided {
    let kept = &transaction.kept;
    match kept.status {
        // It is aborted, as is asked for; else the asker is to know why.
        _ if outcome == Outcome::Committed && is_timed_out(transaction, producer) => Err(timed_out(id, kept)),
        Status::Prepared(decided) if decided == outcome => Err(Error::ConcurrentTransactions),
        // The last epoch of an id is nobody's: the asker has to begin again.
        Status::Complete(_) if kept.is_coordinators() && is_timed_out(transaction, producer) => {
            Err(timed_out(id, kept))
        }
        Status::Prepared(Outcome::Aborted) | Status::Complete(Outcome::Aborted) if outcome == Outcome::Committed => {
            Err(Error::TransactionAborted)
        }
        Status::Complete(_) if kept.is_coordinators() && transaction.bump == Bump::Unknown => {
            Err(Error::TransactionAborted)
        }
        Status::Complete(_) if kept.is_coordinators() => Err(fenced(kept, producer)),
        Status::Complete(decided) if decided == outcome => Ok((Vec::new(), Reply::Identity(identity(kept)))),
        _ => Err(Error::InvalidTransactionState("the transaction has ended the other way")),
    }
}

fn complete(state: &Coordinator, now: Now, id: String, producer: ProducerIdentity) -> Vec<Event> {
    let Some(kept) = state.transaction(&id).map(|transaction| &transaction.kept) else { return Vec::new() };
    let Status::Prepared(outcome) = kept.status else { return Vec::new() };
    if identity(kept) != producer {
        return Vec::new();
    }
    let mut next = Kept { status: Status::Complete(outcome), partitions: Partitions::new(), ..moved(kept, now) };
    if let Some(follows) = kept.next_producer_id {
        next.producer_id = follows;
        next.producer_epoch = ProducerEpoch(0);
        next.previous_producer_id = Some(kept.producer_id);
    }
    vec![changed(id, next, None)]
}

fn time_out(state: &Coordinator, now: Now, id: String, producer: ProducerIdentity) -> Vec<Event> {
    let is_due = state.timeouts.get(&id).is_some_and(|due| *due <= now.monotonic);
    let Some(kept) = state.transaction(&id).map(|transaction| &transaction.kept).filter(|_| is_due) else {
        return Vec::new();
    };
    if kept.status != Status::Ongoing || identity(kept) != producer {
        return Vec::new();
    }
    let next = prepared(kept, now, Outcome::Aborted, None);
    vec![changed(id, next, Some(Bump::ByTime(producer.epoch)))]
}

fn expire(state: &mut Coordinator, now: Now, ids: Vec<String>) -> Vec<Event> {
    if ids.len() < EXPIRED_MAX {
        state.next_expiry = now.monotonic.after(EXPIRY_INTERVAL);
    }
    let is_unused = |id: &String| state.transaction(id).is_some_and(|one| is_unused(&one.kept, now.wall));
    ids.into_iter().filter(is_unused).map(|id| Event::Forgotten { id }).collect()
}

fn is_unused(kept: &Kept, wall: Timestamp) -> bool {
    let unused = i64::try_from(ID_EXPIRATION.as_millis()).unwrap_or(i64::MAX);
    let is_idle = matches!(kept.status, Status::Empty | Status::Complete(_));
    is_idle && kept.updated.0.saturating_add(unused) <= wall.0
}

impl Coordinator {
    /// What is to be done at `now`.
    pub(super) fn due(&self, now: Now) -> Vec<Action> {
        let markers = self.prepared().filter_map(|(id, one)| write_markers(id, &one.kept));
        let late = self.timeouts.iter().filter(|(_, due)| **due <= now.monotonic);
        let late = late.filter_map(|(id, _)| {
            let producer = identity(&self.transaction(id)?.kept);
            Some(Action::TimeOut { id: id.clone(), producer })
        });
        let has_any = self.transactions().next().is_some();
        let expiry = (has_any && self.next_expiry <= now.monotonic).then(|| {
            let unused = self.transactions().filter(|(_, one)| is_unused(&one.kept, now.wall));
            Action::Expire { ids: unused.map(|(id, _)| id.clone()).take(EXPIRED_MAX).collect() }
        });
        markers.chain(late).chain(expiry).collect()
    }

    /// A transaction that was begun by the wall's clock so long ago has so much less time; one that seems to begin later
    /// than now has all of it.
    pub(super) fn start_deadlines(&mut self, now: Now) {
        let ongoing = self.transactions().filter(|(_, one)| one.kept.status == Status::Ongoing);
        let due = ongoing.map(|(id, one)| (id.clone(), late_at(&one.kept, now))).collect();
        self.timeouts = due;
        self.next_expiry = now.monotonic;
    }
}

fn late_at(kept: &Kept, now: Now) -> Moment {
    let begun = kept.started.unwrap_or(now.wall);
    let passed = u64::try_from(now.wall.0.saturating_sub(begun.0)).unwrap_or(0);
    now.monotonic.after(kept.timeout().saturating_sub(Duration::from_millis(passed)))
}

fn write_markers(id: &str, kept: &Kept) -> Option<Action> {
    let Status::Prepared(outcome) = kept.status else { return None };
    Some(Action::WriteMarkers {
        id: id.to_owned(),
        producer: identity(kept),
        outcome,
        partitions: kept.each_partition().collect(),
        bumped: kept.version >= VERSION,
    })
}

/// The transaction is decided: its markers get the epoch above that of its records.
fn prepared(kept: &Kept, now: Now, outcome: Outcome, next_producer_id: Option<ProducerId>) -> Kept {
    Kept {
        status: Status::Prepared(outcome),
        producer_epoch: kept.next_epoch(),
        next_producer_id,
        started: kept.started.filter(|_| kept.status == Status::Ongoing).or(Some(now.wall)),
        ..moved(kept, now)
    }
}

/// The same, changed now.
fn moved(kept: &Kept, now: Now) -> Kept {
    Kept { previous_producer_id: None, next_producer_id: None, updated: now.wall, version: VERSION, ..kept.clone() }
}

fn empty(producer_id: ProducerId, producer_epoch: ProducerEpoch, wall: Timestamp) -> Kept {
    Kept {
        producer_id,
        producer_epoch,
        previous_producer_id: None,
        next_producer_id: None,
        timeout_ms: 0,
        status: Status::Empty,
        partitions: Partitions::new(),
        updated: wall,
        started: None,
        version: VERSION,
    }
}

fn changed(id: String, kept: Kept, bump: Option<Bump>) -> Event {
    Event::Changed { id, kept, bump }
}

fn identified(id: String, kept: Kept, bump: Bump) -> (Vec<Event>, Reply) {
    let reply = Reply::Identity(identity(&kept));
    (vec![changed(id, kept, Some(bump))], reply)
}

const NEEDS_PRODUCER_ID: (Vec<Event>, Reply) = (Vec::new(), Reply::NeedsProducerId);

const fn identity(kept: &Kept) -> ProducerIdentity {
    ProducerIdentity { id: kept.producer_id, epoch: kept.producer_epoch }
}

fn known<'a>(state: &'a Coordinator, id: &str) -> Result<&'a Transaction> {
    state.transaction(id).ok_or_else(|| Error::UnknownTransactionalId { id: id.to_owned() })
}

fn check_owner(id: &str, transaction: &Transaction, producer: ProducerIdentity) -> Result<()> {
    let kept = &transaction.kept;
    if identity(kept) == producer {
        return Ok(());
    }
    if is_timed_out(transaction, producer) {
        return Err(timed_out(id, kept));
    }
    // Nobody has taken the id, as far as is known: the coordinator has ended the transaction, which was not its owner's.
    if transaction.bump == Bump::Unknown && has_ended(kept, producer) {
        return Err(Error::TransactionAborted);
    }
    let follows = ProducerIdentity { epoch: ProducerEpoch(0), ..producer };
    if kept.next_producer_id == Some(producer.id) && follows == producer {
        return Err(Error::ConcurrentTransactions);
    }
    if kept.producer_id == producer.id {
        return Err(fenced(kept, producer));
    }
    Err(Error::UnknownTransactionalId { id: id.to_owned() })
}

fn is_timed_out(transaction: &Transaction, producer: ProducerIdentity) -> bool {
    transaction.kept.producer_id == producer.id && transaction.bump == Bump::ByTime(producer.epoch)
}

fn timed_out(id: &str, kept: &Kept) -> Error {
    Error::TransactionTimedOut { id: id.to_owned(), timeout: kept.timeout() }
}

const fn fenced(kept: &Kept, producer: ProducerIdentity) -> Error {
    Error::ProducerFenced { producer_id: producer.id, epoch: producer.epoch, current: kept.producer_epoch }
}

fn check_id(id: &str) -> Result<()> {
    let invalid = |reason| Err(Error::InvalidName { name: id.to_owned(), reason });
    match id.len() {
        0 => invalid("a transactional id is not empty"),
        length if length > ID_BYTES_MAX => invalid("a transactional id has at most 32,767 bytes"),
        _ => Ok(()),
    }
}

fn check_timeout(timeout: Duration) -> Result<u32> {
    let reason = || format!("{timeout:?} is outside of 1 ms to {TIMEOUT_MAX:?}");
    let refused = || Error::InvalidConfig { setting: "transaction_timeout", reason: reason() };
    let millis = u32::try_from(timeout.as_millis()).ok().filter(|millis| *millis > 0);
    millis.filter(|_| timeout <= TIMEOUT_MAX).ok_or_else(refused)
}
