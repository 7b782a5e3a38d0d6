//! A compacted partition against a plain list of what was appended: keys, deletions and transactions, while compaction
//! goes on step by step and the log is truncated, trimmed, reopened and killed in between; settings change in the middle of a
//! round, producers are forgotten, and power goes inside of a round.
//!
//! After every step: no record has another offset, key or value than it was appended with; none that was gone is there
//! again; one that is gone was aborted, or has a later one of its key that counts, or was a deletion whose time is over;
//! a transaction that left a batch behind has its marker; readers of committed records see those that are decided.

mod support {
    pub(crate) mod compacted;
}

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use support::compacted::*;
use taffrail::{
    CleanerConfig, Cleanup, Clock, Compacting, CompactionEnd, Error, Force, Isolation, ManualClock, MemoryStorage,
    Offset, Outcome, Partition, PartitionConfig, Ratio, Timestamp,
};

const RETENTION: u16 = 500;

#[derive(Clone, Debug)]
enum Step {
    Append {
        keys: Vec<(u8, bool)>,
    },
    Transactional {
        producer: u8,
        keys: Vec<(u8, bool)>,
    },
    Mark {
        producer: u8,
        commits: bool,
    },
    Roll,
    Compact {
        steps: u8,
    },
    CompactAll,
    Wait {
        millis: u16,
    },
    Truncate {
        back: u8,
    },
    Trim {
        forward: u8,
    },
    Reopen,
    CloseAndOpen,
    Kill,
    /// A transaction over two segments: a snapshot lies between its data and its marker.
    Split {
        producer: u8,
        keys: Vec<(u8, bool)>,
        commits: bool,
    },
    /// Producers are forgotten, and everything that can go goes: the horizons of deletions and of markers pass.
    Settle,
    Configure {
        segment_bytes: u32,
        lag: u16,
        retention: u16,
        compacts: bool,
    },
    /// Checkpoints, and producers that are forgotten.
    Maintain,
    PowerLoss {
        after: u8,
        seed: u64,
    },
}

fn keys() -> impl Strategy<Value = Vec<(u8, bool)>> {
    prop::collection::vec((0..6_u8, prop::bool::weighted(0.25)), 1..5)
}

fn configure() -> impl Strategy<Value = Step> {
    let lag = prop_oneof![3 => Just(0), 1 => 1..600_u16];
    (300..1500_u32, lag, 0..RETENTION, prop::bool::weighted(0.8)).prop_map(
        |(segment_bytes, lag, retention, compacts)| Step::Configure { segment_bytes, lag, retention, compacts },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => keys().prop_map(|keys| Step::Append { keys }),
        4 => (0..3_u8, keys()).prop_map(|(producer, keys)| Step::Transactional { producer, keys }),
        3 => (0..3_u8, any::<bool>()).prop_map(|(producer, commits)| Step::Mark { producer, commits }),
        4 => Just(Step::Roll),
        5 => (1..30_u8).prop_map(|steps| Step::Compact { steps }),
        2 => Just(Step::CompactAll),
        2 => (0..700_u16).prop_map(|millis| Step::Wait { millis }),
        1 => any::<u8>().prop_map(|back| Step::Truncate { back }),
        1 => any::<u8>().prop_map(|forward| Step::Trim { forward }),
        1 => Just(Step::Reopen),
        1 => Just(Step::CloseAndOpen),
        2 => Just(Step::Kill),
        2 => (0..3_u8, keys(), any::<bool>())
            .prop_map(|(producer, keys, commits)| Step::Split { producer, keys, commits }),
        1 => Just(Step::Settle),
        1 => configure(),
        2 => Just(Step::Maintain),
        1 => (0..60_u8, any::<u64>()).prop_map(|(after, seed)| Step::PowerLoss { after, seed }),
    ]
}

/// A record that was appended and is there still.
#[derive(Clone, Debug)]
struct Known {
    key: String,
    value: Option<String>,
    producer: Option<i64>,
    /// When the first round of a compaction began that could have met it.
    met: Option<i64>,
}

/// What the batches say of transactions, by offset.
#[derive(Clone, Copy, Debug)]
enum Event {
    Data { producer: i64, last: u64 },
    Marker { producer: i64, commits: bool },
}

struct Model {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    partition: Partition,
    map_bytes: usize,
    config: PartitionConfig,
    /// The shortest that deletions ever had to stay, in milliseconds.
    retention_least: i64,
    records: BTreeMap<u64, Known>,
    events: BTreeMap<u64, Event>,
    sequences: BTreeMap<i64, i32>,
    value: u64,
}

fn settings() -> PartitionConfig {
    config()
        .segment_bytes(700)
        .min_dirty_ratio(Ratio::new(0.1))
        .delete_retention(Duration::from_millis(RETENTION.into()))
        .producer_id_expiration(Duration::from_millis(200))
        .checkpoint_interval(Duration::from_millis(100))
}

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>, map_bytes: usize, config: &PartitionConfig) -> Partition {
    let cleaner = CleanerConfig::new().map_bytes_max(map_bytes).read_bytes(150);
    builder(storage, clock, config.clone()).cleaner(cleaner).open().expect("it opens")
}

impl Model {
    fn new(map_bytes: usize) -> Self {
        let (storage, clock) = (MemoryStorage::new(5), Arc::new(ManualClock::at(Timestamp(1000))));
        let (config, retention_least) = (settings(), RETENTION.into());
        let partition = open(&storage, &clock, map_bytes, &config);
        let (records, events, sequences) = Default::default();
        let value = 0;
        Self { storage, clock, partition, map_bytes, config, retention_least, records, events, sequences, value }
    }

    fn now(&self) -> i64 {
        self.clock.wall().0
    }

    fn append(&mut self, producer: Option<i64>, keys: &[(u8, bool)]) {
        let rows: Vec<(String, Option<String>)> = keys
            .iter()
            .map(|(key, deletes)| {
                self.value += 1;
                (format!("k{key}"), (!deletes).then(|| self.value.to_string()))
            })
            .collect();
        let now = self.now();
        let borrowed: Vec<Row<'_>> = rows.iter().map(|(key, value)| (Some(&**key), value.as_deref(), now)).collect();
        let at = match producer {
            None => put(&self.partition, &borrowed).0,
            Some(id) => {
                let sequence = self.sequences.entry(id).or_default();
                let at = put_of(&self.partition, id, *sequence, true, &borrowed).0;
                *sequence += i32::try_from(keys.len()).expect("small");
                self.events.insert(at, Event::Data { producer: id, last: at + keys.len() as u64 - 1 });
                at
            }
        };
        for (offset, (key, value)) in (at..).zip(rows) {
            self.records.insert(offset, Known { key, value, producer, met: None });
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Append { keys } => self.append(None, keys),
            Step::Transactional { producer, keys } => self.append(Some(10 + i64::from(*producer)), keys),
            Step::Mark { producer, commits } => {
                let producer = 10 + i64::from(*producer);
                let outcome = if *commits { Outcome::Committed } else { Outcome::Aborted };
                let at = mark(&self.partition, producer, outcome, self.now());
                self.events.insert(at.0, Event::Marker { producer, commits: *commits });
            }
            Step::Roll => self.partition.roll().expect("rolled"),
            Step::Compact { steps } => {
                for _ in 0..*steps {
                    self.meet();
                    let done = self.partition.compact(self.clock.now(), 1).expect("compacted");
                    if matches!(done, Compacting::Idle) {
                        break;
                    }
                }
            }
            Step::CompactAll => {
                self.meet();
                match self.partition.compact_all(self.clock.now()) {
                    Err(Error::Policy(_)) => assert!(!self.config.cleanup.compacts()),
                    done => assert_eq!(done.expect("compacted").end, CompactionEnd::Complete),
                }
            }
            Step::Wait { millis } => self.clock.advance(Duration::from_millis(u64::from(*millis))),
            Step::Truncate { back } => self.truncate(u64::from(back % 12)),
            Step::Trim { forward } => {
                let to = (self.partition.start().0 + u64::from(forward % 10)).min(self.partition.last_stable().0);
                let start = self.partition.trim_before(Offset(to)).expect("trimmed").0;
                self.records.retain(|offset, _| *offset >= start);
            }
            Step::Reopen => self.partition.reopen().expect("reopened"),
            Step::CloseAndOpen => {
                self.partition.clone().close().expect("closed");
                self.open();
                assert!(self.partition.recovery().clean);
            }
            Step::Kill => {
                self.storage = self.storage.kill();
                self.open();
            }
            Step::Split { producer, keys, commits } => {
                self.append(Some(10 + i64::from(*producer)), keys);
                let mark = Step::Mark { producer: *producer, commits: *commits };
                self.steps(&[Step::Roll, Step::Wait { millis: 100 }, Step::Maintain, mark, Step::Roll]);
            }
            Step::Settle => {
                self.steps(&[Step::Roll, Step::Wait { millis: 700 }, Step::Maintain]);
                (0..4).for_each(|_| self.steps(&[Step::CompactAll, Step::Wait { millis: RETENTION }]));
            }
            Step::Configure { segment_bytes, lag, retention, compacts } => {
                self.retention_least = self.retention_least.min((*retention).into());
                let cleanup = if *compacts { Cleanup::Compact } else { Cleanup::Delete };
                let millis = |millis: &u16| Duration::from_millis((*millis).into());
                self.config = settings()
                    .cleanup(cleanup)
                    .segment_bytes(*segment_bytes)
                    .min_compaction_lag(millis(lag))
                    .delete_retention(millis(retention));
                self.partition.set_config(self.config.clone()).expect("set");
            }
            Step::Maintain => {
                self.meet();
                self.partition.maintain(self.clock.now()).expect("maintained");
            }
            Step::PowerLoss { after, seed } => {
                self.meet();
                self.storage.crash_at(self.storage.operations() + 1 + u64::from(*after));
                let goes_on = |partition: &Partition, now| {
                    matches!(partition.compact(now, 200), Ok(Compacting::Working { .. } | Compacting::Ended(_)))
                };
                (0..60).take_while(|_| goes_on(&self.partition, self.clock.now())).count();
                self.storage = self.storage.crash(*seed);
                self.storage.clear_faults();
                self.open();
            }
        }
        let is_cut = matches!(step, Step::Truncate { .. } | Step::Trim { .. });
        let before = (!self.config.cleanup.compacts() && !is_cut).then_some(self.records.len());
        self.check();
        assert!(before.is_none_or(|before| before == self.records.len()), "something has gone under another policy");
    }

    fn open(&mut self) {
        self.partition = open(&self.storage, &self.clock, self.map_bytes, &self.config);
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            self.run(step);
        }
    }

    /// A round may begin now.
    fn meet(&mut self) {
        let now = self.now();
        self.records.values_mut().for_each(|known| known.met = Some(known.met.unwrap_or(now)));
    }

    fn truncate(&mut self, back: u64) {
        let to = self.partition.end().0.saturating_sub(back).max(self.partition.start().0);
        let end = self.partition.truncate_from(Offset(to), Force::Yes).expect("truncated").0;
        self.records.retain(|offset, _| *offset < end);
        self.events.retain(|offset, _| *offset < end);
    }

    /// Which batches of data are aborted, which are not decided, and the marker of each that is; by base offset.
    fn decisions(&self) -> (BTreeSet<u64>, BTreeSet<u64>, BTreeMap<u64, u64>) {
        let (mut aborted, mut markers) = (BTreeSet::new(), BTreeMap::new());
        let mut open: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for (offset, event) in &self.events {
            match event {
                Event::Data { producer, .. } => open.entry(*producer).or_default().push(*offset),
                Event::Marker { producer, commits } => {
                    for data in open.remove(producer).unwrap_or_default() {
                        markers.insert(data, *offset);
                        if !commits {
                            aborted.insert(data);
                        }
                    }
                }
            }
        }
        (aborted, open.into_values().flatten().collect(), markers)
    }

    fn batch_of(&self, offset: u64) -> u64 {
        self.events.range(..=offset).next_back().map_or(offset, |(base, _)| *base)
    }

    fn check(&mut self) {
        let found = self.compare();
        self.records.retain(|offset, _| found.contains_key(offset));
    }

    /// Compares, and answers what is there.
    fn compare(&self) -> BTreeMap<u64, Seen> {
        let (aborted, open, markers) = self.decisions();
        let headers = headers(&self.partition);
        let bases: BTreeSet<u64> = headers.iter().map(|header| header.base_offset().0).collect();
        for header in &headers {
            let base = header.base_offset().0;
            if let Some(Event::Data { last, .. }) = self.events.get(&base) {
                assert_eq!(header.last_offset().0, *last, "a batch has other offsets");
                let marker = markers.get(&base);
                assert!(marker.is_none_or(|marker| bases.contains(marker)), "the marker of {base} is gone before it");
            }
        }
        let counts = |offset: u64, known: &Known| {
            let batch = self.batch_of(offset);
            known.producer.is_none() || !aborted.contains(&batch) && !open.contains(&batch)
        };
        let mut latest: BTreeMap<&str, u64> = BTreeMap::new();
        for (offset, known) in self.records.iter().filter(|(offset, known)| counts(**offset, known)) {
            latest.insert(&known.key, *offset);
        }
        let found: BTreeMap<u64, Seen> = read_all(&self.partition).into_iter().map(|seen| (seen.0, seen)).collect();
        for (offset, (_, key, value)) in &found {
            let known = self.records.get(offset).unwrap_or_else(|| panic!("offset {offset} is there again"));
            assert_eq!((key.as_deref(), value), (Some(&*known.key), &known.value), "offset {offset}");
        }
        let now = self.now();
        for (offset, known) in self.records.iter().filter(|(offset, _)| !found.contains_key(offset)) {
            let batch = self.batch_of(*offset);
            let is_aborted = known.producer.is_some() && aborted.contains(&batch);
            let is_replaced = latest.get(&*known.key).is_some_and(|last| last > offset);
            let is_over = known.value.is_none() && known.met.is_some_and(|met| now >= met + self.retention_least);
            assert!(is_aborted || is_replaced || is_over, "offset {offset} is gone: {known:?}, now {now}");
        }
        let start = self.partition.start().0;
        // Where a cut took the marker of a transaction that lies below the start, its files decide whether it counts.
        if open.iter().any(|base| *base < start) {
            return found;
        }
        let stable_by = |undecided: Option<u64>| {
            let stable = undecided.unwrap_or(u64::MAX).min(self.partition.high_watermark().0);
            stable.max(start)
        };
        let by_batches = stable_by(open.iter().filter(|base| bases.contains(base)).min().copied());
        // Where a cut took a marker, and compaction the data before, a snapshot may still tell of the transaction: of any.
        let mut by_snapshots = open.iter().map(|base| stable_by(Some(*base)).min(by_batches));
        let stable = self.partition.last_stable().0;
        let is_known = stable == by_batches || by_snapshots.any(|known| known == stable);
        assert!(is_known, "last stable: {stable}, {by_batches}, {open:?}");
        let committed: Vec<u64> = read(&self.partition, Isolation::Committed).iter().map(|seen| seen.0).collect();
        let expected: Vec<u64> =
            found.keys().copied().filter(|offset| *offset < stable && counts(*offset, &self.records[offset])).collect();
        assert_eq!(committed, expected, "what readers of committed records see");
        found
    }
}

/// Everything up to the end, whether it is decided or not.
fn read_all(partition: &Partition) -> Vec<Seen> {
    read(partition, Isolation::Uncommitted)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn a_compacted_partition_is_its_model(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new(1 << 20);
        for step in &steps {
            model.run(step);
        }
    }

    #[test]
    fn with_a_map_that_is_too_small_it_is_its_model_too(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new(24 * 4);
        for step in &steps {
            model.run(step);
        }
    }

    /// What was compacted and is compacted again, at the same time, stays as it is.
    #[test]
    fn compaction_is_idempotent(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::new(1 << 20);
        for step in &steps {
            model.run(step);
        }
        model.partition.set_config(settings()).expect("set");
        let compact = |model: &Model| {
            model.partition.compact_all(model.clock.now()).expect("compacted");
            batches(&model.partition)
        };
        // A pass takes the data, the next one a header that was kept for it, and the next sets the horizon of its marker.
        (0..3).for_each(|_| drop(compact(&model)));
        let settled = compact(&model);
        prop_assert_eq!(compact(&model), settled);
    }
}
