//! A partition against a plain list of batches: random operations, reopened, killed and crashed in between.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use taffrail::{
    BatchBuilder, Clock, Compression, Durability, Error, Force, Isolation, ManualClock, MemoryStorage, Offset,
    Partition, PartitionConfig, ReadOptions, Record, Retention, Timestamp, UpTo,
};

#[derive(Clone, Debug)]
enum Step {
    Append { records: u8, bytes: u16, compression: u8, age: i16 },
    AppendAt { shift: u8 },
    Read { at: u16, max_bytes: u16 },
    FindTimestamp { timestamp: i16 },
    Roll,
    Truncate { back: u8, force: bool },
    Trim { forward: u8 },
    DeleteRecords { forward: u8 },
    Hold { forward: u8 },
    Release,
    Maintain { millis: u16 },
    Sync,
    Reopen,
    CloseAndOpen,
    Kill,
    Crash { seed: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..6_u8, 0..240_u16, 0..5_u8, any::<i16>())
            .prop_map(|(records, bytes, compression, age)| Step::Append { records, bytes, compression, age }),
        1 => (0..3_u8).prop_map(|shift| Step::AppendAt { shift }),
        6 => (any::<u16>(), any::<u16>()).prop_map(|(at, max_bytes)| Step::Read { at, max_bytes }),
        2 => any::<i16>().prop_map(|timestamp| Step::FindTimestamp { timestamp }),
        1 => Just(Step::Roll),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(back, force)| Step::Truncate { back, force }),
        1 => any::<u8>().prop_map(|forward| Step::Trim { forward }),
        1 => any::<u8>().prop_map(|forward| Step::DeleteRecords { forward }),
        1 => any::<u8>().prop_map(|forward| Step::Hold { forward }),
        1 => Just(Step::Release),
        2 => any::<u16>().prop_map(|millis| Step::Maintain { millis }),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
        1 => Just(Step::CloseAndOpen),
        1 => Just(Step::Kill),
        1 => any::<u8>().prop_map(|seed| Step::Crash { seed }),
    ]
}

/// One batch of the model.
#[derive(Clone, Debug)]
struct Known {
    base: u64,
    records: Vec<(i64, Vec<u8>)>,
}

impl Known {
    fn end(&self) -> u64 {
        self.base + self.records.len() as u64
    }
}

struct Model {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    partition: Partition,
    durability: Durability,
    log: Vec<Known>,
    start: u64,
    high_watermark: u64,
    hold: Option<taffrail::Hold>,
    next_value: u64,
}

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>, durability: Durability) -> Partition {
    let config = PartitionConfig::new()
        .durability(durability)
        .segment_bytes(1_500)
        .index_interval_bytes(200)
        .segment_age(Some(Duration::from_secs(20)))
        .idle_after(Duration::from_secs(3))
        .retention(Retention::forever().bytes(6_000));
    let clock: Arc<ManualClock> = Arc::clone(clock);
    Partition::builder("data/wal-0").config(config).storage(storage.shared()).clock(clock).open().expect("it opens")
}

impl Model {
    fn new(durability: Durability) -> Self {
        let storage = MemoryStorage::new(5);
        let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
        let partition = open(&storage, &clock, durability);
        Self {
            storage,
            clock,
            partition,
            durability,
            log: Vec::new(),
            start: 0,
            high_watermark: 0,
            hold: None,
            next_value: 0,
        }
    }

    fn end(&self) -> u64 {
        self.log.last().map_or(self.start, Known::end).max(self.start)
    }

    fn batch(&mut self, records: u8, bytes: u16, compression: u8, age: i16) -> (BatchBuilder, Known) {
        let codec = [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
        let enabled = cfg!(all(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd"));
        let codec = if enabled { codec[usize::from(compression)] } else { Compression::None };
        let mut builder = BatchBuilder::new().compression(codec);
        let mut known = Known { base: self.end(), records: Vec::new() };
        for index in 0..records {
            self.next_value += 1;
            let timestamp = 1_000_000 + i64::from(age) + i64::from(index % 2) * 7;
            let mut value = self.next_value.to_string().into_bytes();
            value.resize(value.len().max(usize::from(bytes)), b'v');
            builder.push(&Record::new(&value).key("k").timestamp(Timestamp(timestamp))).expect("small");
            known.records.push((timestamp, value));
        }
        (builder, known)
    }

    fn push(&mut self, known: Known) {
        self.log.push(known);
        if self.durability == Durability::Os {
            self.high_watermark = self.end();
        }
    }

    fn held(&self) -> u64 {
        self.hold.as_ref().map_or(u64::MAX, |hold| hold.offset().0)
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Append { records, bytes, compression, age } => {
                let (mut builder, known) = self.batch(records, bytes, compression, age);
                let offsets = self.partition.append(&mut builder).expect("it fits").offsets;
                assert_eq!(offsets, Offset(known.base)..Offset(known.end()));
                self.push(known);
            }
            Step::AppendAt { shift } => self.append_at(shift),
            Step::Read { at, max_bytes } => self.read(at, max_bytes),
            Step::FindTimestamp { timestamp } => self.find_timestamp(1_000_000 + i64::from(timestamp)),
            Step::Roll => self.partition.roll().expect("rolled"),
            Step::Truncate { back, force } => self.truncate(back, force),
            Step::Trim { forward } => self.trim(forward),
            Step::DeleteRecords { forward } => self.delete_records(forward),
            Step::Hold { forward } => {
                let offset = (self.start + u64::from(forward)).min(self.end());
                self.hold = Some(self.partition.hold(Offset(offset)).expect("it is in the log"));
            }
            Step::Release => self.hold = None,
            Step::Maintain { millis } => self.maintain(millis),
            Step::Sync => {
                self.partition.sync().expect("synced");
                self.high_watermark = self.end();
            }
            Step::Reopen => {
                self.partition.reopen().expect("reopened");
                self.high_watermark = self.end();
            }
            Step::CloseAndOpen => {
                self.hold = None;
                self.partition.clone().close().expect("closed");
                self.partition = open(&self.storage, &self.clock, self.durability);
                assert!(self.partition.recovery().clean);
                self.high_watermark = self.end();
            }
            Step::Kill => self.survive(self.storage.kill()),
            Step::Crash { seed } => {
                if self.durability == Durability::Os {
                    self.partition.sync().expect("synced");
                }
                self.survive(self.storage.crash(u64::from(seed)));
            }
        }
        self.compare_marks();
    }

    fn append_at(&mut self, shift: u8) {
        let (mut builder, known) = self.batch(1, 10, 0, 0);
        let expected = Offset(known.base + u64::from(shift));
        match self.partition.append_at(expected, &mut builder) {
            Ok(_) => {
                assert_eq!(shift, 0);
                self.push(known);
            }
            Err(Error::UnexpectedEnd { expected: told, end }) => {
                assert!(shift > 0 && told == expected && end == Offset(known.base));
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn read(&self, at: u16, max_bytes: u16) {
        let span = self.end() - self.start + 4;
        let at = (self.start + u64::from(at) % span).saturating_sub(2);
        let options =
            ReadOptions::new().isolation(Isolation::Uncommitted).up_to(UpTo::LogEnd).max_bytes(max_bytes.into());
        let fetched = match self.partition.try_read(Offset(at), options) {
            Ok(fetched) => fetched,
            Err(Error::OffsetOutOfRange { start, end, .. }) => {
                assert!(at < start.0 || at > end.0);
                assert_eq!((start.0, end.0), (self.start, self.end()));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let got: Vec<_> = fetched
            .records()
            .map(|record| {
                (record.offset().0, record.timestamp().expect("set").0, record.value().expect("set").to_vec())
            })
            .collect();
        let expected: Vec<_> =
            self.log.iter().flat_map(records_of).filter(|(offset, ..)| *offset >= at).take(got.len()).collect();
        assert_eq!(got, expected);
        assert_eq!(got.is_empty(), at == self.end());
        assert_eq!(fetched.next_offset().0, got.last().map_or(at, |(offset, ..)| offset + 1));
    }

    fn find_timestamp(&self, timestamp: i64) {
        let found = self.partition.find_timestamp(Timestamp(timestamp)).expect("searched");
        let visible = |(offset, time, _): &(u64, i64, Vec<u8>)| {
            *time >= timestamp && *offset >= self.start && *offset < self.high_watermark
        };
        let expected = self.log.iter().flat_map(records_of).find(visible).map(|(offset, time, _)| (offset, time));
        assert_eq!(found.map(|found| (found.offset.0, found.timestamp.0)), expected, "at {timestamp}");
    }

    fn truncate(&mut self, back: u8, force: bool) {
        let offset = self.end().saturating_sub(u64::from(back % 12)).max(self.start);
        let cut = self.log.iter().find(|known| known.end() > offset).map_or(self.end(), |known| known.base);
        let policy = if force { Force::Yes } else { Force::No };
        match self.partition.truncate_from(Offset(offset), policy) {
            Ok(end) => {
                assert!(force || cut >= self.high_watermark || offset >= self.end());
                self.log.retain(|known| known.base < cut);
                self.start = self.start.min(cut);
                self.high_watermark = self.high_watermark.min(cut);
                assert_eq!(end.0, cut);
            }
            Err(Error::BelowHighWatermark { .. }) => assert!(!force && cut < self.high_watermark),
            Err(error) => panic!("{error}"),
        }
    }

    fn drop_below(&mut self, start: u64) {
        self.start = self.start.max(start);
        self.log.retain(|known| known.end() > self.start);
    }

    fn trim(&mut self, forward: u8) {
        let offset = self.start + u64::from(forward % 10);
        match self.partition.trim_before(Offset(offset)) {
            Ok(start) => {
                assert!(offset <= self.high_watermark);
                let expected = offset.min(self.held()).max(self.start);
                assert_eq!(start.0, expected);
                self.drop_below(expected);
            }
            Err(Error::OffsetOutOfRange { .. }) => assert!(offset > self.high_watermark),
            Err(error) => panic!("{error}"),
        }
    }

    fn delete_records(&mut self, forward: u8) {
        let offset = self.start + u64::from(forward % 10);
        match self.partition.delete_records(Some(Offset(offset))) {
            Ok(start) => {
                assert_eq!(start.0, offset);
                self.drop_below(offset);
            }
            Err(Error::OffsetOutOfRange { .. }) => assert!(offset > self.high_watermark),
            Err(Error::Held { held, .. }) => assert!(held.0 == self.held() && self.held() < offset),
            Err(error) => panic!("{error}"),
        }
    }

    fn maintain(&mut self, millis: u16) {
        self.clock.advance(Duration::from_millis(millis.into()));
        let done = self.partition.maintain(self.clock.now()).expect("maintained");
        if done.synced {
            self.high_watermark = self.end();
        }
        for removed in &done.removed {
            assert!(removed.end_offset.0 <= self.held().min(self.high_watermark));
            self.drop_below(removed.end_offset.0);
        }
        let stats = self.partition.stats();
        assert!(stats.bytes <= 6_000 + 3_000 || self.hold.is_some() || self.high_watermark < self.end());
    }

    /// What was acknowledged is there; what was not may be, as a prefix of what was appended.
    fn survive(&mut self, storage: MemoryStorage) {
        self.hold = None;
        self.storage = storage;
        self.partition = open(&self.storage, &self.clock, self.durability);
        let end = self.partition.end().0;
        assert!(end >= self.high_watermark, "ends at {end}, {} was stored", self.high_watermark);
        assert!(end <= self.end());
        self.log.retain(|known| known.base < end);
        assert_eq!(self.end(), end, "a batch is half there");
        self.high_watermark = end;
    }

    /// A roll of a synced partition syncs as well: there the high watermark may have risen.
    fn compare_marks(&mut self) {
        assert_eq!(self.partition.start().0, self.start, "start");
        assert_eq!(self.partition.end().0, self.end(), "end");
        let high_watermark = self.partition.high_watermark().0;
        assert!((self.high_watermark..=self.end()).contains(&high_watermark), "high watermark {high_watermark}");
        assert!(self.durability == Durability::Sync || high_watermark == self.high_watermark);
        self.high_watermark = high_watermark;
        assert_eq!(self.partition.last_stable().0, high_watermark, "last stable offset");
    }
}

fn records_of(known: &Known) -> impl Iterator<Item = (u64, i64, Vec<u8>)> + '_ {
    (known.base..).zip(&known.records).map(|(offset, (timestamp, value))| (offset, *timestamp, value.clone()))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_synced_partition_is_its_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = Model::new(Durability::Sync);
        for step in &steps {
            model.run(step);
        }
    }

    #[test]
    fn a_partition_of_the_page_cache_is_its_model(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = Model::new(Durability::Os);
        for step in &steps {
            model.run(step);
        }
    }
}
