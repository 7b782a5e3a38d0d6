//! Random commands against what a producer may rely on: epochs rise, nothing is ended twice, and records say it all.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::random::Random;

const IDS: [&str; 3] = ["a", "b", "c"];

/// What the test knows of one id.
#[derive(Default)]
struct Known {
    /// Every identity that was given out.
    given: BTreeSet<ProducerIdentity>,
    /// The one that was given out last.
    owner: Option<ProducerIdentity>,
    /// The outcome that was promised for the transaction of each identity.
    promised: BTreeMap<ProducerIdentity, Outcome>,
    /// Markers by the identity that they carry, each seen once or more.
    markers: BTreeMap<ProducerIdentity, Outcome>,
}

struct Model {
    desk: Desk,
    random: Random,
    known: BTreeMap<&'static str, Known>,
    /// Every record, as bytes.
    log: Vec<KeyValue>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let known = IDS.into_iter().map(|id| (id, Known::default())).collect();
        Self { desk: Desk::new(), random: Random::seeded(seed), known, log: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.random.below(bound)).unwrap()
    }

    fn run(&mut self, command: Command) -> Result<Reply> {
        let decision = self.desk.coordinator.decide(self.desk.now, command);
        assert!(decision.reply.is_ok() || decision.events.is_empty());
        for event in &decision.events {
            legal::check(&self.desk.coordinator, event);
            self.log.push(Coordinator::encode(event));
            self.desk.apply(event);
        }
        decision.reply
    }

    fn fresh(&mut self, command: impl Fn(Option<ProducerId>) -> Command) -> Result<Reply> {
        match self.run(command(None))? {
            Reply::NeedsProducerId => {
                self.desk.ids += 1;
                let id = ProducerId(self.desk.ids);
                self.run(command(Some(id)))
            }
            other => Ok(other),
        }
    }

    /// An identity to try: the owner's most of the time, else any that was ever given out, or one that nobody has.
    fn somebody(&mut self, id: &'static str) -> ProducerIdentity {
        let choice = self.below(10);
        let known = &self.known[id];
        let all: Vec<_> = known.given.iter().copied().collect();
        match (choice, known.owner) {
            (0..=6, Some(owner)) => owner,
            (7..=8, _) if !all.is_empty() => all[self.below(all.len() as u64)],
            _ => producer(i64::try_from(choice).unwrap(), 0),
        }
    }

    fn step(&mut self) {
        let id = IDS[self.below(3)];
        match self.below(12) {
            0 => self.init(id),
            1..=4 => self.add(id),
            5..=7 => self.end(id),
            8..=9 => self.work(),
            10 => {
                let millis = self.random.below(50_000);
                self.desk.pass(Duration::from_millis(millis));
            }
            _ => self.restart(),
        }
        self.shorten_epochs(id);
    }

    /// Most of the epochs are skipped now and then, so that they are used up within the test.
    fn shorten_epochs(&mut self, id: &'static str) {
        let Some(kept) = self.desk.coordinator.transaction(id).map(|one| one.kept.clone()) else { return };
        if kept.status != Status::Empty || kept.producer_epoch.0 > 100 || self.below(8) > 0 {
            return;
        }
        let kept = Kept { producer_epoch: ProducerEpoch(i16::MAX - 4), ..kept };
        let now = ProducerIdentity { id: kept.producer_id, epoch: kept.producer_epoch };
        let event = Event::Changed { id: id.to_owned(), kept, bump: Some(Bump::ByOther) };
        self.log.push(Coordinator::encode(&event));
        self.desk.apply(&event);
        self.give(id, now);
    }

    fn give(&mut self, id: &'static str, identity: ProducerIdentity) {
        let known = self.known.get_mut(id).unwrap();
        let is_new = known.given.iter().all(|given| *given < identity);
        assert!(is_new, "{identity:?} of {id} does not rise above {:?}", known.given.last());
        known.given.insert(identity);
        known.owner = Some(identity);
    }

    fn init(&mut self, id: &'static str) {
        let expected = (self.below(3) == 0).then(|| self.somebody(id));
        let owner = self.known[id].owner;
        let reply = self.fresh(|fresh| Command::Init { id: id.to_owned(), timeout: MINUTE, expected, fresh });
        match reply {
            Ok(Reply::Identity(identity)) if self.known[id].given.contains(&identity) => {
                assert!(expected.is_some() && Some(identity) == owner, "only its own is given again");
            }
            Ok(Reply::Identity(identity)) => self.give(id, identity),
            Ok(Reply::Aborting) | Err(Error::ConcurrentTransactions) => {}
            Err(Error::ProducerFenced { .. }) => assert!(expected.is_some()),
            other => panic!("{other:?}"),
        }
    }

    fn add(&mut self, id: &'static str) {
        let producer = self.somebody(id);
        let partition = u32::try_from(self.below(3)).unwrap();
        let partitions = vec![TopicPartition { topic: "t".to_owned(), partition }];
        let reply = self.run(Command::Add { id: id.to_owned(), producer, partitions });
        let known = &self.known[id];
        match reply {
            Ok(reply) => {
                assert_eq!(reply, Reply::Done);
                assert_eq!(known.owner, Some(producer), "whoever was fenced adds nothing");
                assert!(!known.promised.contains_key(&producer), "an epoch has one transaction");
            }
            Err(
                Error::ConcurrentTransactions
                | Error::ProducerFenced { .. }
                | Error::UnknownTransactionalId { .. }
                | Error::TransactionAborted
                | Error::TransactionTimedOut { .. },
            ) => {}
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, id: &'static str) {
        let producer = self.somebody(id);
        let outcome = if self.below(2) == 0 { Outcome::Committed } else { Outcome::Aborted };
        let reply = self.fresh(|fresh| Command::End { id: id.to_owned(), producer, outcome, fresh });
        let Ok(Reply::Identity(next)) = reply else {
            assert!(
                matches!(
                    reply,
                    Err(Error::ConcurrentTransactions
                        | Error::ProducerFenced { .. }
                        | Error::InvalidTransactionState(_)
                        | Error::UnknownTransactionalId { .. }
                        | Error::TransactionAborted
                        | Error::TransactionTimedOut { .. })
                ),
                "{reply:?}"
            );
            return;
        };
        let known = self.known.get_mut(id).unwrap();
        let before = known.promised.insert(producer, outcome);
        assert!(before.is_none_or(|before| before == outcome), "{producer:?} of {id} was promised the other way");
        if !known.given.contains(&next) {
            self.give(id, next);
        }
    }

    /// Does one thing that is to be done; markers may be written again, and nothing is done in between.
    fn work(&mut self) {
        let actions = self.desk.coordinator.actions(self.desk.now);
        if actions.is_empty() {
            return;
        }
        let action = actions[self.below(actions.len() as u64)].clone();
        let command = match action {
            Action::WriteMarkers { id, producer, outcome, bumped, .. } => {
                assert!(bumped);
                let known = self.known.get_mut(id.as_str()).unwrap();
                let before = known.markers.insert(producer, outcome);
                assert!(before.is_none_or(|before| before == outcome), "two outcomes of one transaction");
                let of = ProducerIdentity { epoch: ProducerEpoch(producer.epoch.0 - 1), ..producer };
                let promised = known.promised.get(&of);
                assert!(promised.map_or(outcome == Outcome::Aborted, |promised| *promised == outcome));
                if self.below(3) == 0 {
                    return;
                }
                Command::Complete { id, producer }
            }
            Action::TimeOut { id, producer } => Command::TimeOut { id, producer },
            Action::Expire { ids } => Command::Expire { ids },
        };
        assert_eq!(self.run(command).unwrap(), Reply::Done);
    }

    /// The records, read back in order or only the latest of each key, give the same state.
    fn restart(&mut self) {
        let mut latest = BTreeMap::new();
        for (at, record) in self.log.iter().enumerate() {
            latest.insert(&record.key, at);
        }
        let whole = replayed(&self.log);
        let compacted: Vec<_> = self
            .log
            .iter()
            .enumerate()
            .filter(|(at, record)| latest[&record.key] == *at)
            .map(|(_, record)| record.clone())
            .collect();
        let compacted = replayed(&compacted);
        assert_eq!(kept(&whole), kept(&self.desk.coordinator));
        assert_eq!(kept(&compacted), kept(&whole));
        let now = self.desk.now;
        let mut next = if self.below(2) == 0 { whole } else { compacted };
        next.loaded(now);
        let markers = |one: &Coordinator| {
            let actions = one.actions(now).into_iter();
            actions.filter(|action| matches!(action, Action::WriteMarkers { .. })).collect::<Vec<_>>()
        };
        assert_eq!(markers(&next), markers(&self.desk.coordinator));
        self.desk.coordinator = next;
    }

    /// Everything ends by itself.
    fn settle(&mut self) {
        self.desk.pass(2 * MINUTE);
        self.desk.work();
        for (_, one) in self.desk.coordinator.transactions() {
            assert!(matches!(one.kept.status, Status::Empty | Status::Complete(_)));
        }
    }
}

fn replayed(log: &[KeyValue]) -> Coordinator {
    let mut coordinator = Coordinator::default();
    for KeyValue { key, value } in log {
        let event = Coordinator::decode(key, value.as_deref()).unwrap().unwrap();
        coordinator.apply(Applied { offset: Offset::ZERO, timestamp: None, producer: None }, &event);
    }
    coordinator
}

#[test]
fn whatever_comes_in_whatever_order_each_transaction_ends_once() {
    let seeds = std::env::var("TAFFRAIL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let mut model = Model::new(seed);
        for _ in 0..300 {
            model.step();
        }
        model.restart();
        model.settle();
    }
}
