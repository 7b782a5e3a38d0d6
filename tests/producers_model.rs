//! Producers of one partition against a plain list of batches: plain, idempotent and transactional ones, whose requests are
//! repeated, late, lost and out of order; retention, truncation, reopening, faults and losses of power in between.
//!
//! The model knows what each producer has sent by going through the list. After every step: what
//! [`Isolation::Committed`] shows is what it says, in order, each record once; [`Isolation::Uncommitted`] shows the log;
//! the last stable offset never passes an open transaction, and goes back only where the log is cut.
//!
//! `TAFFRAIL_SEEDS` says how many seeds are tried, `TAFFRAIL_SEED` repeats one.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::seeds;
use taffrail::{
    BatchBuilder, Clock, Durability, Error, Fault, Force, Isolation, ManualClock, Marker, MemoryStorage, Offset,
    Outcome, Partition, PartitionConfig, ProducerEpoch, ProducerId, ReadOptions, Record, Result, Retention, Sequence,
    Timestamp, TransactionVersion, UpTo,
};

const STEPS: u64 = 120;
/// 0 is plain, 1 and 2 are idempotent, 3 and 4 transactional.
const PRODUCERS: u64 = 5;

/// A seeded source of choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What is handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Data { producer: u64, epoch: i16, first: i32, transactional: bool, values: Vec<String> },
    Marker { producer: u64, epoch: i16, aborts: bool, coordinator: i32, version: TransactionVersion },
}

/// What is in the log.
#[derive(Clone, Debug)]
struct Entry {
    base: u64,
    request: Request,
}

impl Entry {
    fn end(&self) -> u64 {
        self.base + self.request.count()
    }
}

impl Request {
    fn count(&self) -> u64 {
        match self {
            Self::Data { values, .. } => values.len() as u64,
            Self::Marker { .. } => 1,
        }
    }

    fn producer(&self) -> u64 {
        match self {
            Self::Data { producer, .. } | Self::Marker { producer, .. } => *producer,
        }
    }
}

/// What the list says of a producer.
#[derive(Clone, Debug, Default)]
struct Known {
    epoch: i16,
    coordinator: i32,
    /// First and last sequence, base, and whether it must be recognised: it was appended since the partition was loaded,
    /// or is the last.
    window: Vec<(i32, i32, u64, bool)>,
    open: bool,
}

/// Whose it is, its first record, its marker and whether that aborts it.
type Transaction = (u64, u64, Option<(u64, bool)>);

/// What is to come of a request.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    New,
    /// Already there, at this base; an old one may be forgotten since the partition was loaded.
    Duplicate {
        base: u64,
        must: bool,
    },
    /// A marker that is there.
    Ended,
    Fenced,
    OutOfOrder {
        expected: i32,
    },
    Transaction,
    Coordinator,
}

struct Model {
    choices: Choices,
    clock: Arc<ManualClock>,
    storage: MemoryStorage,
    durability: Durability,
    partition: Partition,
    log: Vec<Entry>,
    start: u64,
    /// What was appended before is known from the disk.
    loaded_at: usize,
    stable: u64,
    /// Handed in before, whatever came of it.
    sent: Vec<Request>,
    coordinator: i32,
    values: u64,
    /// Counted, so that the test is known to have tried them.
    seen: [u64; 7],
}

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>, durability: Durability) -> Result<Partition> {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    let config = PartitionConfig::new()
        .durability(durability)
        .segment_bytes(900)
        .index_interval_bytes(150)
        .checkpoint_interval(Duration::from_secs(2))
        .retention(Retention::forever().bytes(5_000));
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).clock(clock).open()
}

impl Model {
    fn new(seed: u64, durability: Durability) -> Self {
        let (storage, clock) = (MemoryStorage::new(seed), Arc::new(ManualClock::at(Timestamp(1_000_000))));
        let partition = open(&storage, &clock, durability).expect("it opens");
        Self {
            choices: Choices(seed),
            clock,
            storage,
            durability,
            partition,
            log: Vec::new(),
            start: 0,
            loaded_at: 0,
            stable: 0,
            sent: Vec::new(),
            coordinator: 0,
            values: 0,
            seen: [0; 7],
        }
    }

    fn end(&self) -> u64 {
        self.log.last().map_or(0, Entry::end)
    }

    /// What is known of a producer; `None` where it was never heard of.
    fn known(&self, producer: u64) -> Option<Known> {
        let mut known: Option<Known> = None;
        for (index, entry) in self.log.iter().enumerate().filter(|(_, entry)| entry.request.producer() == producer) {
            let sure = index >= self.loaded_at;
            match &entry.request {
                Request::Data { epoch, first, transactional, values, .. } => {
                    let known =
                        known.get_or_insert_with(|| Known { epoch: *epoch, coordinator: -1, ..Known::default() });
                    known.turn(*epoch);
                    let last = plus(*first, values.len() as u64 - 1);
                    known.window.push((*first, last, entry.base, sure));
                    if known.window.len() > 5 {
                        known.window.remove(0);
                    }
                    known.open |= *transactional;
                }
                Request::Marker { epoch, coordinator, .. } => {
                    let known =
                        known.get_or_insert_with(|| Known { epoch: *epoch, coordinator: -1, ..Known::default() });
                    known.turn(*epoch);
                    known.coordinator = *coordinator;
                    known.open = false;
                }
            }
        }
        if let Some(last) = known.as_mut().and_then(|known| known.window.last_mut()) {
            last.3 = true;
        }
        known
    }

    fn due(&self, request: &Request) -> Due {
        if request.producer() == 0 {
            return Due::New;
        }
        let Some(known) = self.known(request.producer()) else { return Due::New };
        match request {
            Request::Data { epoch, first, transactional, values, .. } => {
                let last = plus(*first, values.len() as u64 - 1);
                let found = known.window.iter().find(|(f, l, ..)| (f, l) == (first, &last));
                if let Some((_, _, base, must)) = found.filter(|_| *epoch == known.epoch) {
                    return Due::Duplicate { base: *base, must: *must };
                }
                let expected = match known.window.last().filter(|_| *epoch == known.epoch) {
                    Some((_, last, ..)) => plus(*last, 1),
                    None => 0,
                };
                match () {
                    () if *epoch < known.epoch => Due::Fenced,
                    () if *first != expected => Due::OutOfOrder { expected },
                    () if known.open && (!transactional || *epoch > known.epoch) => Due::Transaction,
                    () => Due::New,
                }
            }
            Request::Marker { epoch, coordinator, version, aborts, .. } => match () {
                () if *epoch < known.epoch => Due::Fenced,
                () if *coordinator < known.coordinator => Due::Coordinator,
                // A power cut has taken the end of the one that is open, and this one is repeated.
                () if known.open && !aborts && *epoch > known.epoch + 1 => Due::Transaction,
                () if *version == TransactionVersion::V1 || *epoch > known.epoch => Due::New,
                () if known.open => Due::Fenced,
                () => Due::Ended,
            },
        }
    }

    fn values(&mut self) -> Vec<String> {
        let count = 1 + self.choices.below(3);
        let bytes = usize::try_from(self.choices.below(60)).expect("small");
        let mut value = || {
            self.values += 1;
            format!("{}:{}", self.values, "v".repeat(bytes))
        };
        (0..count).map(|_| value()).collect()
    }

    /// A request as a producer would make it, or as a network would spoil it.
    fn request(&mut self) -> Request {
        if !self.sent.is_empty() && self.choices.one_in(4) {
            let back = self.choices.below(12.min(self.sent.len() as u64));
            let index = self.sent.len() - 1 - usize::try_from(back).expect("small");
            return self.sent[index].clone();
        }
        let producer = self.choices.below(PRODUCERS);
        let known = self.known(producer);
        let epoch = known.as_ref().map_or(0, |known| known.epoch);
        let is_open = known.as_ref().is_some_and(|known| known.open);
        if producer > 2 && (is_open && self.choices.one_in(3) || self.choices.one_in(12)) {
            return self.marker(producer, epoch);
        }
        // Rarely a gap, an older epoch, or another instance of the producer; sequences begin near their end.
        let jump = if self.choices.one_in(15) { 1 + self.choices.below(3) } else { 0 };
        let begin = if self.choices.one_in(2) { 0 } else { i32::MAX - 3 };
        let next = match known.as_ref().map(|known| known.window.last()) {
            None => begin,
            Some(last) => last.map_or(0, |last| plus(last.1, 1)),
        };
        let (epoch, next) = match self.choices.below(30) {
            0 if epoch > 0 => (epoch - 1, next),
            1 if known.is_some() => (epoch + 1, 0),
            _ => (epoch, next),
        };
        let transactional = producer > 2 && (is_open || !self.choices.one_in(6)) && !self.choices.one_in(20);
        Request::Data { producer, epoch, first: plus(next, jump), transactional, values: self.values() }
    }

    fn marker(&mut self, producer: u64, epoch: i16) -> Request {
        let version = if self.choices.one_in(2) { TransactionVersion::V1 } else { TransactionVersion::V2 };
        let bumps = version == TransactionVersion::V2 && !self.choices.one_in(8) || self.choices.one_in(8);
        if self.choices.one_in(6) {
            self.coordinator += 1;
        }
        let coordinator = self.coordinator - i32::from(self.choices.one_in(10));
        let aborts = self.choices.one_in(2);
        Request::Marker { producer, epoch: epoch + i16::from(bumps), aborts, coordinator: coordinator.max(0), version }
    }

    /// Appends; answers the offsets and whether it was a duplicate.
    fn hand_in(&self, request: &Request) -> Result<(u64, u64, bool)> {
        let appended = match request {
            Request::Data { producer, epoch, first, transactional, values } => {
                let mut batch = BatchBuilder::new();
                for value in values {
                    batch.push(&Record::new(value).timestamp(Timestamp(7))).expect("small");
                }
                if *producer > 0 {
                    batch.producer(id(*producer), ProducerEpoch(*epoch), Sequence(*first));
                    batch.transactional(*transactional);
                }
                self.partition.append(&mut batch)?
            }
            Request::Marker { producer, epoch, aborts, coordinator, version } => {
                let marker = Marker {
                    outcome: if *aborts { Outcome::Aborted } else { Outcome::Committed },
                    producer_id: id(*producer),
                    producer_epoch: ProducerEpoch(*epoch),
                    coordinator_epoch: *coordinator,
                    timestamp: Timestamp(8),
                };
                self.partition.append_marker(&marker, *version)?
            }
        };
        Ok((appended.offsets.start.0, appended.offsets.end.0, appended.duplicate))
    }

    fn append(&mut self, request: Request) {
        let due = self.due(&request);
        let outcome = self.hand_in(&request);
        let end = self.end();
        match (&due, &outcome) {
            (Due::New, Ok((base, next, false))) => {
                assert_eq!((*base, *next), (end, end + request.count()), "{request:?}");
                self.log.push(Entry { base: end, request: request.clone() });
                self.seen[0] += 1;
            }
            (Due::Duplicate { base, .. }, Ok((from, to, true))) => {
                assert_eq!((*from, *to), (*base, base + request.count()), "{request:?}");
                self.seen[1] += 1;
            }
            (
                Due::Duplicate { must: false, .. } | Due::OutOfOrder { .. },
                Err(Error::OutOfOrderSequence { expected, .. }),
            ) => {
                assert!(due != Due::Duplicate { base: 0, must: true });
                if let Due::OutOfOrder { expected: due } = due {
                    assert_eq!(expected.0, due, "{request:?}");
                }
                self.seen[2] += 1;
            }
            (Due::Ended, Ok((from, to, true))) => {
                assert_eq!((*from, *to), (end, end));
                self.seen[3] += 1;
            }
            (Due::Fenced, Err(Error::ProducerFenced { .. })) => self.seen[4] += 1,
            (Due::Transaction, Err(Error::InvalidTransactionState(_))) => self.seen[5] += 1,
            (Due::Coordinator, Err(Error::CoordinatorFenced { .. })) => self.seen[6] += 1,
            _ => panic!("{request:?}: {due:?} was due, {outcome:?}"),
        }
        self.sent.push(request);
    }

    /// An append while the disk fails, or the power does, at one of its operations.
    fn append_failing(&mut self, loses_power: bool) {
        let request = self.request();
        let at = self.storage.operations() + self.choices.below(12);
        if loses_power {
            self.storage.crash_at(at);
        } else {
            self.storage.fail_at(at, Fault::Io);
        }
        let due = self.due(&request);
        let outcome = self.hand_in(&request);
        let synced = if outcome.is_ok() { self.partition.sync() } else { Ok(()) };
        self.storage.clear_faults();
        let pending = (due == Due::New).then(|| Entry { base: self.end(), request: request.clone() });
        self.sent.push(request);
        let has_lost_power = self.storage.has_lost_power();
        if let (Ok(_), false) = (&outcome, has_lost_power) {
            self.log.extend(pending.clone());
        }
        if has_lost_power {
            let seed = self.choices.below(1 << 40);
            let stored = self.partition.high_watermark().0;
            self.log.extend(pending);
            let storage = self.storage.crash(seed);
            self.survive(storage, stored);
        } else if outcome.is_err() && !matches!(outcome, Err(Error::Poisoned { .. })) {
            assert_eq!(self.partition.end().0, self.end(), "nothing was written: {outcome:?}");
        } else if outcome.is_err() || synced.is_err() {
            if outcome.is_err() {
                self.log.extend(pending);
            }
            self.partition.reopen().expect("the disk is well again");
            self.loaded();
        }
    }

    /// The log is what the disk has: a prefix.
    fn loaded(&mut self) {
        let end = self.partition.end().0;
        assert!(self.log.iter().any(|entry| entry.end() == end) || end == 0, "half a batch at {end}");
        self.log.retain(|entry| entry.base < end);
        self.loaded_at = self.log.len();
        self.stable = self.stable.min(self.expected_stable());
    }

    fn survive(&mut self, storage: MemoryStorage, stored: u64) {
        self.storage = storage;
        self.partition = open(&self.storage, &self.clock, self.durability).expect("it opens");
        let end = self.partition.end().0;
        assert!(end >= stored || self.durability == Durability::Os, "ends at {end}, {stored} was stored");
        self.loaded();
    }

    fn step(&mut self) {
        match self.choices.below(40) {
            0 => self.partition.sync().expect("synced"),
            1 => self.truncate(),
            2 => {
                self.partition.reopen().expect("reopened");
                self.loaded();
            }
            3 => {
                self.partition.clone().close().expect("closed");
                self.partition = open(&self.storage, &self.clock, self.durability).expect("it opens");
                assert!(self.partition.recovery().clean);
                self.loaded();
            }
            4 => {
                let (storage, stored) = (self.storage.kill(), self.partition.high_watermark().0);
                self.survive(storage, stored);
            }
            5 => {
                if self.durability == Durability::Os {
                    self.partition.sync().expect("synced");
                }
                let stored = self.partition.high_watermark().0;
                let storage = self.storage.crash(self.choices.below(1 << 40));
                self.survive(storage, stored);
            }
            6 | 7 => self.append_failing(false),
            8 => self.append_failing(self.durability == Durability::Sync),
            9 | 10 => {
                self.clock.advance(Duration::from_millis(self.choices.below(3_000)));
                self.partition.maintain(self.clock.now()).expect("maintained");
            }
            11 => self.partition.roll().expect("rolled"),
            12 => {
                let reach = self.partition.high_watermark().0 - self.start;
                let to = self.start + self.choices.below(reach.min(9) + 1);
                self.partition.trim_before(Offset(to)).expect("it is in the log");
            }
            _ => {
                let request = self.request();
                self.append(request);
            }
        }
        self.start = self.partition.start().0;
        self.compare();
    }

    fn truncate(&mut self) {
        let reach = (self.end() - self.start).min(12);
        let at = self.end() - self.choices.below(reach + 1);
        let cut = self.log.iter().find(|entry| entry.end() > at).map_or(self.end(), |entry| entry.base);
        if cut < self.start || at == self.end() {
            return;
        }
        let end = self.partition.truncate_from(Offset(at), Force::Yes).expect("cut");
        assert_eq!(end.0, cut);
        self.loaded();
    }

    /// The first record of every transaction, the marker that ends it, and whether that aborts it.
    fn transactions(&self) -> Vec<Transaction> {
        let mut found: Vec<Transaction> = Vec::new();
        for entry in &self.log {
            let producer = entry.request.producer();
            let open = found.iter_mut().find(|(other, _, marker)| *other == producer && marker.is_none());
            match (&entry.request, open) {
                (Request::Marker { aborts, .. }, Some(open)) => open.2 = Some((entry.base, *aborts)),
                (Request::Data { transactional: true, .. }, None) => found.push((producer, entry.base, None)),
                _ => {}
            }
        }
        found
    }

    fn expected_stable(&self) -> u64 {
        let high_watermark = self.partition.high_watermark().0;
        let is_undecided = |marker: Option<(u64, bool)>| marker.is_none_or(|(at, _)| at >= high_watermark);
        let transactions = self.transactions();
        let unstable =
            transactions.iter().filter(|(.., marker)| is_undecided(*marker)).map(|(_, first, _)| *first).min();
        unstable.unwrap_or(high_watermark).min(high_watermark).max(self.partition.start().0)
    }

    fn compare(&mut self) {
        assert_eq!(self.partition.end().0, self.end());
        let stable = self.partition.last_stable().0;
        assert_eq!(stable, self.expected_stable(), "last stable offset");
        assert!(stable >= self.stable, "it went back from {} to {stable}", self.stable);
        self.stable = stable;
        let transactions = self.transactions();
        let is_aborted = |entry: &&Entry| {
            let of = |(producer, first, marker): &&Transaction| {
                *producer == entry.request.producer()
                    && (*first..marker.map_or(u64::MAX, |(at, _)| at)).contains(&entry.base)
            };
            transactions.iter().find(of).and_then(|(.., marker)| *marker).is_some_and(|(_, aborts)| aborts)
        };
        let committed = self.log.iter().filter(|entry| !is_aborted(entry) || !is_transactional(entry));
        let expected = shown(committed, self.start, stable);
        assert_eq!(self.read(ReadOptions::new()), expected, "committed");
        let all = ReadOptions::new().isolation(Isolation::Uncommitted).up_to(UpTo::LogEnd);
        assert_eq!(self.read(all), shown(self.log.iter(), self.start, self.end()), "uncommitted");
    }

    fn read(&self, options: ReadOptions) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        let mut at = Offset(self.start);
        loop {
            let fetched = self.partition.try_read(at, options).expect("it reads");
            let text =
                |record: taffrail::RecordView<'_>| (record.offset().0, record.value_str().expect("text").to_owned());
            found.extend(fetched.records().map(text));
            if fetched.next_offset() == at {
                return found;
            }
            at = fetched.next_offset();
        }
    }
}

impl Known {
    fn turn(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window.clear();
        }
    }
}

fn id(producer: u64) -> ProducerId {
    ProducerId(1_000 + producer.cast_signed())
}

fn plus(sequence: i32, count: u64) -> i32 {
    Sequence(sequence).plus(u32::try_from(count).expect("small")).0
}

fn is_transactional(entry: &Entry) -> bool {
    matches!(entry.request, Request::Data { transactional: true, .. })
}

/// Offsets and values of data from `start` on, below `end`.
fn shown<'a>(entries: impl Iterator<Item = &'a Entry>, start: u64, end: u64) -> Vec<(u64, String)> {
    let records = |entry: &'a Entry| match &entry.request {
        Request::Data { values, .. } => (entry.base..).zip(values.clone()).collect(),
        Request::Marker { .. } => Vec::new(),
    };
    entries.flat_map(records).filter(|(offset, _)| (start..end).contains(offset)).collect()
}

fn run(durability: Durability) {
    let mut seen = [0; 7];
    for seed in seeds() {
        let mut model = Model::new(seed, durability);
        for step in 0..STEPS {
            let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.step()));
            if let Err(panic) = stepped {
                eprintln!("TAFFRAIL_SEED={seed}, step {step}: {:?} with {:?}", model.partition, model.log);
                std::panic::resume_unwind(panic);
            }
        }
        for (all, of_this) in seen.iter_mut().zip(model.seen) {
            *all += of_this;
        }
    }
    println!("new, duplicates, out of order, ended before, fenced, in a transaction, older coordinators: {seen:?}");
    assert!(seeds().count() < 100 || seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn producers_of_a_synced_partition() {
    run(Durability::Sync);
}

#[test]
fn producers_of_a_partition_of_the_page_cache() {
    run(Durability::Os);
}
