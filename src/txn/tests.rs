//! What the coordinator decides, that its state follows from records, and that records are Kafka's.

use std::collections::BTreeMap;

use super::*;
use crate::error::Error;
use crate::types::{Offset, ProducerEpoch, Timestamp};

mod bytes;
mod legal;
mod model;

const MINUTE: Duration = Duration::from_secs(60);

/// A coordinator, and a clock.
struct Desk {
    coordinator: Coordinator,
    now: Now,
    /// Producer ids that were handed out.
    ids: i64,
}

impl Desk {
    fn new() -> Self {
        let now = Now { wall: Timestamp(1_000_000), monotonic: Moment(0) };
        Self { coordinator: Coordinator::default(), now, ids: 0 }
    }

    /// Decides, and applies what was decided. Whatever changes is legal.
    fn run(&mut self, command: Command) -> Result<Reply> {
        let decision = self.coordinator.decide(self.now, command);
        assert!(decision.reply.is_ok() || decision.events.is_empty(), "a refusal has no events");
        assert_eq!(decision.producer, None);
        for event in &decision.events {
            legal::check(&self.coordinator, event);
            self.apply(event);
        }
        decision.reply
    }

    fn apply(&mut self, event: &Event) {
        self.coordinator.apply(Applied { offset: Offset::ZERO, timestamp: None, producer: None }, event);
    }

    /// As `run`; hands out a producer id where one is needed.
    fn run_fresh(&mut self, command: impl Fn(Option<ProducerId>) -> Command) -> Result<Reply> {
        match self.run(command(None))? {
            Reply::NeedsProducerId => {
                self.ids += 1;
                self.run(command(Some(ProducerId(self.ids))))
            }
            other => Ok(other),
        }
    }

    fn try_init(&mut self, expected: Option<ProducerIdentity>) -> Result<Reply> {
        self.run_fresh(|fresh| Command::Init { id: "tx".to_owned(), timeout: MINUTE, expected, fresh })
    }

    fn init(&mut self) -> ProducerIdentity {
        identity(self.try_init(None))
    }

    fn add(&mut self, producer: ProducerIdentity, topic: &str, partition: u32) -> Result<Reply> {
        let partitions = vec![TopicPartition { topic: topic.to_owned(), partition }];
        self.run(Command::Add { id: "tx".to_owned(), producer, partitions })
    }

    fn end(&mut self, producer: ProducerIdentity, outcome: Outcome) -> Result<Reply> {
        self.run_fresh(|fresh| Command::End { id: "tx".to_owned(), producer, outcome, fresh })
    }

    /// Does what is to be done, until nothing is; answers the markers.
    fn work(&mut self) -> Vec<(ProducerIdentity, Outcome, usize)> {
        let mut markers = Vec::new();
        loop {
            let actions = self.coordinator.actions(self.now);
            if actions.is_empty() {
                return markers;
            }
            for action in actions {
                let command = match action {
                    Action::WriteMarkers { id, producer, outcome, partitions, .. } => {
                        markers.push((producer, outcome, partitions.len()));
                        Command::Complete { id, producer }
                    }
                    Action::TimeOut { id, producer } => Command::TimeOut { id, producer },
                    Action::Expire { ids } => Command::Expire { ids },
                };
                assert_eq!(self.run(command).unwrap(), Reply::Done);
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
        self.now.wall.0 += i64::try_from(time.as_millis()).unwrap();
    }

    fn status(&self) -> Status {
        self.coordinator.transaction("tx").unwrap().kept.status
    }

    /// Makes `tx` stand at this epoch, and nothing begun.
    fn at_epoch(&mut self, epoch: i16) -> ProducerIdentity {
        let ProducerIdentity { id, .. } = self.init();
        let mut kept = self.coordinator.transaction("tx").unwrap().kept.clone();
        kept.producer_epoch = ProducerEpoch(epoch);
        self.apply(&Event::Changed { id: "tx".to_owned(), kept, bump: Some(Bump::Unknown) });
        ProducerIdentity { id, epoch: ProducerEpoch(epoch) }
    }
}

fn identity(reply: Result<Reply>) -> ProducerIdentity {
    match reply {
        Ok(Reply::Identity(identity)) => identity,
        other => panic!("{other:?}"),
    }
}

fn producer(id: i64, epoch: i16) -> ProducerIdentity {
    ProducerIdentity { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
}

/// What the records say of each id.
fn kept(coordinator: &Coordinator) -> BTreeMap<String, Kept> {
    coordinator.transactions().map(|(id, transaction)| (id.clone(), transaction.kept.clone())).collect()
}

#[test]
fn each_transaction_has_an_epoch_of_its_own() {
    let mut desk = Desk::new();
    let first = desk.init();
    assert_eq!(first, producer(1, 0));
    assert_eq!(desk.add(first, "orders", 0).unwrap(), Reply::Done);
    assert_eq!(desk.add(first, "orders", 3).unwrap(), Reply::Done);
    let second = identity(desk.end(first, Outcome::Committed));
    assert_eq!((second, desk.status()), (producer(1, 1), Status::Prepared(Outcome::Committed)));
    // Until the markers are there, neither the next transaction nor another instance comes in.
    assert!(matches!(desk.add(second, "orders", 0), Err(Error::ConcurrentTransactions)));
    assert!(matches!(desk.try_init(None), Err(Error::ConcurrentTransactions)));
    assert_eq!(desk.work(), [(producer(1, 1), Outcome::Committed, 2)]);
    assert_eq!(desk.status(), Status::Complete(Outcome::Committed));
    desk.add(second, "orders", 0).unwrap();
    let third = identity(desk.end(second, Outcome::Aborted));
    assert_eq!((third, desk.work()), (producer(1, 2), vec![(producer(1, 2), Outcome::Aborted, 1)]));
}

#[test]
fn a_partition_that_is_in_the_transaction_is_not_written_again() {
    let mut desk = Desk::new();
    let producer = desk.init();
    desk.add(producer, "orders", 0).unwrap();
    let before = desk.coordinator.clone();
    desk.pass(Duration::from_secs(1));
    desk.add(producer, "orders", 0).unwrap();
    assert_eq!(desk.coordinator, before);
}

#[test]
fn a_new_instance_fences_the_one_before() {
    let mut desk = Desk::new();
    let old = desk.init();
    let new = desk.init();
    assert_eq!(new, producer(1, 1));
    let fenced = |outcome: Result<Reply>| match outcome {
        Err(Error::ProducerFenced { producer_id, epoch, current }) => (producer_id.0, epoch.0, current.0),
        other => panic!("{other:?}"),
    };
    assert_eq!(fenced(desk.add(old, "orders", 0)), (1, 0, 1));
    assert_eq!(fenced(desk.end(old, Outcome::Committed)), (1, 0, 1));
    assert_eq!(fenced(desk.try_init(Some(old))), (1, 0, 1));
    desk.add(new, "orders", 0).unwrap();
}

#[test]
fn what_the_instance_before_has_begun_is_aborted_first() {
    let mut desk = Desk::new();
    let old = desk.init();
    desk.add(old, "orders", 0).unwrap();
    assert_eq!(desk.try_init(None).unwrap(), Reply::Aborting);
    assert!(matches!(desk.try_init(None), Err(Error::ConcurrentTransactions)));
    // Its end is refused for what it is, and not taken for one that was asked for before.
    for outcome in [Outcome::Aborted, Outcome::Committed] {
        assert!(matches!(desk.end(old, outcome), Err(Error::ProducerFenced { .. })));
    }
    assert_eq!(desk.work(), [(producer(1, 1), Outcome::Aborted, 1)]);
    assert_eq!(desk.init(), producer(1, 2));
    assert!(matches!(desk.end(old, Outcome::Committed), Err(Error::ProducerFenced { .. })));
}

#[test]
fn whoever_knows_its_epoch_goes_on_unless_another_came() {
    let mut desk = Desk::new();
    let first = desk.init();
    let second = identity(desk.try_init(Some(first)));
    assert_eq!(second, producer(1, 1));
    let before = desk.coordinator.clone();
    assert_eq!(identity(desk.try_init(Some(first))), second, "it is the same request again");
    assert_eq!(desk.coordinator, before);
    desk.init();
    for old in [first, second] {
        assert!(matches!(desk.try_init(Some(old)), Err(Error::ProducerFenced { .. })));
    }
    assert!(matches!(desk.try_init(Some(producer(9, 0))), Err(Error::ProducerFenced { .. })));
}

#[test]
fn an_owner_that_begins_again_within_a_transaction_goes_on_behind_its_abort() {
    let mut desk = Desk::new();
    let first = desk.init();
    desk.add(first, "orders", 0).unwrap();
    assert_eq!(desk.try_init(Some(first)).unwrap(), Reply::Aborting);
    desk.work();
    assert_eq!(identity(desk.try_init(Some(first))), producer(1, 1));
}

#[test]
fn an_end_that_is_asked_for_again_is_recognised() {
    let mut desk = Desk::new();
    let first = desk.init();
    desk.add(first, "orders", 0).unwrap();
    let second = identity(desk.end(first, Outcome::Committed));
    assert!(matches!(desk.end(first, Outcome::Committed), Err(Error::ConcurrentTransactions)));
    assert!(matches!(desk.end(first, Outcome::Aborted), Err(Error::InvalidTransactionState(_))));
    desk.work();
    let before = desk.coordinator.clone();
    assert_eq!(identity(desk.end(first, Outcome::Committed)), second);
    assert!(matches!(desk.end(first, Outcome::Aborted), Err(Error::InvalidTransactionState(_))));
    assert_eq!(desk.coordinator, before);
    desk.add(second, "orders", 0).unwrap();
    assert!(matches!(desk.end(first, Outcome::Committed), Err(Error::ProducerFenced { .. })));
}

#[test]
fn nothing_cannot_be_committed_and_can_be_aborted() {
    let mut desk = Desk::new();
    let first = desk.init();
    assert!(matches!(desk.end(first, Outcome::Committed), Err(Error::InvalidTransactionState(_))));
    let second = identity(desk.end(first, Outcome::Aborted));
    assert_eq!((second, desk.work()), (producer(1, 1), vec![(producer(1, 1), Outcome::Aborted, 0)]));
    assert!(matches!(desk.end(second, Outcome::Committed), Err(Error::InvalidTransactionState(_))));
}

#[test]
fn used_up_epochs_lead_to_another_producer_id() {
    let mut desk = Desk::new();
    let last = desk.at_epoch(i16::MAX - 1);
    desk.add(last, "orders", 0).unwrap();
    let command = |fresh| Command::End { id: "tx".to_owned(), producer: last, outcome: Outcome::Committed, fresh };
    assert_eq!(desk.run(command(None)).unwrap(), Reply::NeedsProducerId);
    let next = identity(desk.run(command(Some(ProducerId(77)))));
    assert_eq!(next, producer(77, 0));
    assert!(matches!(desk.add(next, "orders", 0), Err(Error::ConcurrentTransactions)));
    assert_eq!(desk.work(), [(producer(1, i16::MAX), Outcome::Committed, 1)]);
    assert_eq!(identity(desk.end(last, Outcome::Committed)), next, "it is the same request again");
    desk.add(next, "orders", 0).unwrap();
    assert!(matches!(desk.end(last, Outcome::Committed), Err(Error::UnknownTransactionalId { .. })));

    let mut desk = Desk::new();
    let last = desk.at_epoch(i16::MAX - 1);
    let next = identity(desk.try_init(Some(last)));
    assert_eq!(next, producer(2, 0));
    assert_eq!(identity(desk.try_init(Some(last))), next, "it is the same request again");
    assert_eq!(desk.init(), producer(2, 1));
    assert!(matches!(desk.try_init(Some(last)), Err(Error::ProducerFenced { .. })));
}

#[test]
fn a_transaction_that_takes_too_long_is_aborted_and_says_so() {
    let mut desk = Desk::new();
    let first = desk.init();
    desk.add(first, "orders", 0).unwrap();
    desk.pass(Duration::from_millis(59_999));
    desk.add(first, "orders", 1).unwrap();
    desk.work();
    assert_eq!((desk.status(), desk.coordinator.deadline().unwrap().0), (Status::Ongoing, 60_000_000_000));
    desk.pass(Duration::from_millis(1));
    assert_eq!(desk.work(), [(producer(1, 1), Outcome::Aborted, 2)]);
    let timed_out = |outcome: Result<Reply>| matches!(outcome, Err(Error::TransactionTimedOut { .. }));
    assert!(timed_out(desk.add(first, "orders", 0)));
    assert!(timed_out(desk.end(first, Outcome::Committed)));
    assert_eq!(identity(desk.end(first, Outcome::Aborted)), producer(1, 1), "it is aborted");
    assert_eq!(identity(desk.try_init(Some(first))), producer(1, 1));
    // Unless another came.
    desk.init();
    assert!(matches!(desk.add(first, "orders", 0), Err(Error::ProducerFenced { .. })));
}

/// Why an epoch rose is in no record. The owner of a transaction that took too long was told that it had ended the other
/// way, again and again, once the records had been read anew.
#[test]
fn what_was_decided_for_a_transaction_is_known_after_a_reload() {
    for is_last_epoch in [false, true] {
        let mut desk = Desk::new();
        let first = if is_last_epoch { desk.at_epoch(i16::MAX - 1) } else { desk.init() };
        desk.add(first, "orders", 0).unwrap();
        desk.pass(MINUTE);
        desk.work();
        let kept = desk.coordinator.transaction("tx").unwrap().kept.clone();
        desk.apply(&Event::Changed { id: "tx".to_owned(), kept, bump: Some(Bump::Unknown) });
        let is_aborted = |outcome: Result<Reply>| matches!(outcome, Err(Error::TransactionAborted));
        assert!(is_aborted(desk.add(first, "orders", 0)));
        assert!(is_aborted(desk.end(first, Outcome::Committed)));
        if is_last_epoch {
            assert!(is_aborted(desk.end(first, Outcome::Aborted)), "it has to begin again");
            assert_eq!(identity(desk.try_init(Some(first))).epoch, ProducerEpoch(0));
            continue;
        }
        assert_eq!(identity(desk.end(first, Outcome::Aborted)), producer(1, 1), "it is aborted");
        assert_eq!(identity(desk.try_init(Some(first))), producer(1, 1));
        // Unless another came.
        desk.init();
        for refused in [desk.add(first, "orders", 0), desk.end(first, Outcome::Committed), desk.try_init(Some(first))] {
            assert!(matches!(refused, Err(Error::ProducerFenced { .. })), "{refused:?}");
        }
    }
}

#[test]
fn a_time_out_that_comes_late_takes_nothing_back() {
    let mut desk = Desk::new();
    let first = desk.init();
    desk.add(first, "orders", 0).unwrap();
    let early = Command::TimeOut { id: "tx".to_owned(), producer: first };
    desk.run(early.clone()).unwrap();
    assert_eq!(desk.status(), Status::Ongoing);
    let second = identity(desk.end(first, Outcome::Committed));
    desk.pass(2 * MINUTE);
    desk.run(early).unwrap();
    assert_eq!(desk.work(), [(second, Outcome::Committed, 1)]);
    // Nor does a completion of an earlier transaction end a later one.
    desk.add(second, "orders", 0).unwrap();
    identity(desk.end(second, Outcome::Aborted));
    desk.run(Command::Complete { id: "tx".to_owned(), producer: second }).unwrap();
    assert_eq!(desk.status(), Status::Prepared(Outcome::Aborted));
}

#[test]
fn the_clock_of_the_wall_cannot_lengthen_a_time_out() {
    let mut desk = Desk::new();
    let first = desk.init();
    desk.add(first, "orders", 0).unwrap();
    let loaded = |wall: i64| {
        let mut coordinator = desk.coordinator.clone();
        coordinator.loaded(Now { wall: Timestamp(wall), monotonic: Moment(0) });
        coordinator.timeouts["tx"].0 / 1_000_000
    };
    let began = desk.now.wall.0;
    assert_eq!([loaded(began), loaded(began + 20_000), loaded(began + 90_000)], [60_000, 40_000, 0]);
    assert_eq!(loaded(began - 1_000_000), 60_000);
}

#[test]
fn ids_that_nobody_uses_are_forgotten() {
    let mut desk = Desk::new();
    let first = desk.init();
    desk.add(first, "orders", 0).unwrap();
    let second = identity(desk.end(first, Outcome::Committed));
    desk.work();
    desk.pass(ID_EXPIRATION.saturating_sub(Duration::from_secs(1)));
    desk.work();
    assert_eq!(desk.status(), Status::Complete(Outcome::Committed));
    desk.pass(EXPIRY_INTERVAL);
    desk.work();
    assert_eq!((desk.coordinator.transaction("tx"), desk.coordinator.deadline()), (None, None));
    assert!(matches!(desk.add(second, "orders", 0), Err(Error::UnknownTransactionalId { .. })));
    assert_eq!(desk.init(), producer(2, 0), "its producer id is given to nobody else");
}

#[test]
fn what_no_producer_can_be_is_refused() {
    let mut desk = Desk::new();
    let mut init = |id: &str, timeout| {
        desk.run(Command::Init { id: id.to_owned(), timeout, expected: None, fresh: Some(ProducerId(1)) })
    };
    assert!(matches!(init("", MINUTE), Err(Error::InvalidName { .. })));
    assert!(matches!(init(&"n".repeat(32_768), MINUTE), Err(Error::InvalidName { .. })));
    for timeout in [Duration::ZERO, Duration::from_micros(900), TIMEOUT_MAX + Duration::from_millis(1), Duration::MAX] {
        assert!(matches!(init("tx", timeout), Err(Error::InvalidConfig { setting: "transaction_timeout", .. })));
    }
    init(&"n".repeat(32_767), TIMEOUT_MAX).unwrap();
    assert!(matches!(desk.add(producer(1, 0), "orders", 0), Err(Error::UnknownTransactionalId { .. })));
}
