//! What a log of topics costs through its front doors: sending by the size of a record, the number of partitions and the
//! codec, and polling everything back. Topics are not synced (`Durability::Os`): what a sync costs is the disk's, and
//! `ratios` measures it beside a raw loop.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use taffrail::{Compression, Durability, Log, Record, Retention, TopicConfig};
use tempfile::TempDir;

const TOPIC: &str = "events";
/// How many bytes of values one iteration sends or polls.
const BYTES: usize = 8 << 20;

/// What a benchmark sends or polls.
#[derive(Clone, Copy)]
struct Case {
    record_bytes: usize,
    partitions: u32,
    codec: Compression,
}

impl Case {
    fn all() -> Vec<Self> {
        let case = |record_bytes, partitions, codec| Self { record_bytes, partitions, codec };
        let mut all = vec![
            case(100, 1, Compression::None),
            case(1024, 1, Compression::None),
            case(1024, 16, Compression::None),
            case(1024, 200, Compression::None),
            case(10_240, 1, Compression::None),
        ];
        let lz4 = || case(1024, 1, Compression::Lz4);
        all.extend(cfg!(feature = "lz4").then(lz4));
        let zstd = || case(1024, 1, Compression::Zstd);
        all.extend(cfg!(feature = "zstd").then(zstd));
        all
    }

    fn id(&self) -> BenchmarkId {
        BenchmarkId::new(self.codec.name(), format!("{} B to {}", self.record_bytes, self.partitions))
    }

    fn records(&self) -> usize {
        BYTES / self.record_bytes
    }

    /// A new log with the topic, in a directory that goes with it.
    fn log(&self) -> (Log, TempDir) {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let log = Log::open(home.path()).expect("a new directory opens");
        let config = TopicConfig::new()
            .partitions(self.partitions)
            .durability(Durability::Os)
            .retention(Retention::forever())
            .compression(self.codec);
        log.create_topic(TOPIC, config).expect("the topic is new");
        (log, home)
    }

    /// Text with some repetition, so that codecs find something.
    fn value(&self) -> String {
        let mut value: String = (0..).map(|word| format!("item {}; ", word % 97)).take(self.record_bytes / 7).collect();
        value.truncate(self.record_bytes);
        value
    }

    /// Sends one iteration's records and says how long that took.
    fn send(&self, log: &Log) -> Duration {
        let value = self.value();
        let keys: Vec<_> = (0..1000).map(|number| format!("customer-{number}")).collect();
        let producer = log.producer().open().expect("the settings are sound");
        let started = Instant::now();
        for number in 0..self.records() {
            let record = Record::new(&value).key(&keys[number % keys.len()]);
            let _not_waited_for = producer.send(TOPIC, record).expect("the record is taken");
        }
        producer.flush().expect("everything is appended");
        started.elapsed()
    }

    /// Polls all of it and says how long that took.
    fn poll(&self, log: &Log) -> Duration {
        let mut reader = log.reader().topics([TOPIC]).open().expect("the topic is there");
        let started = Instant::now();
        let mut left = self.records();
        while left > 0 {
            let polled = reader.poll(Duration::from_secs(10)).expect("the log is sound");
            for record in &polled {
                black_box(record.value());
                left -= 1;
            }
        }
        started.elapsed()
    }
}

/// Runs `each` for every case, once by bytes of values and once by records.
fn matrix(criterion: &mut Criterion, name: &str, each: impl Fn(&Case, u64) -> Duration) {
    for unit in ["bytes", "records"] {
        let mut group = criterion.benchmark_group(format!("{name}/{unit}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for case in Case::all() {
            let records = case.records() as u64;
            group.throughput(match unit {
                "bytes" => Throughput::Bytes(records * case.record_bytes as u64),
                _ => Throughput::Elements(records),
            });
            group.bench_with_input(case.id(), &case, |bencher, case| {
                bencher.iter_custom(|iterations| each(case, iterations));
            });
        }
        group.finish();
    }
}

/// One iteration sends 8 MiB of values to a new log.
fn producer(criterion: &mut Criterion) {
    matrix(criterion, "producer", |case, iterations| {
        let one = |_| {
            let (log, _home) = case.log();
            case.send(&log)
        };
        (0..iterations).map(one).sum()
    });
}

/// One iteration polls 8 MiB of values from the beginning.
fn reader(criterion: &mut Criterion) {
    matrix(criterion, "reader", |case, iterations| {
        let (log, _home) = case.log();
        case.send(&log);
        (0..iterations).map(|_| case.poll(&log)).sum()
    });
}

criterion_group!(benches, producer, reader);
criterion_main!(benches);
