//! What a partition costs on the disk of this machine: appending, fetching, and opening; by the size of a record, the
//! records in a batch, and the codec. Appends are not synced (`Durability::Os`): what a sync costs is the disk's, and
//! `ratios` measures it beside a raw loop.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::{Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use taffrail::{BatchBuilder, Compression, Durability, Partition, PartitionConfig, ReadOptions, Record, Timestamp};
use tempfile::TempDir;

const TIMESTAMP: Timestamp = Timestamp(1_700_000_000_000);
const CONFIG: PartitionConfig = PartitionConfig::new().durability(Durability::Os);

/// The sizes of a value in bytes, and how many records a batch has.
const SHAPES: [(usize, usize); 5] = [(100, 1), (100, 100), (1024, 1), (1024, 100), (10_240, 10)];
/// A log is begun anew when it has this many bytes of values.
const LOG_BYTES: usize = 64 << 20;
/// What one iteration of a fetch goes through.
const FETCH_BYTES: usize = 4 << 20;

fn codecs() -> Vec<Compression> {
    let all = [
        (true, Compression::None),
        (cfg!(feature = "gzip"), Compression::Gzip),
        (cfg!(feature = "snappy"), Compression::Snappy),
        (cfg!(feature = "lz4"), Compression::Lz4),
        (cfg!(feature = "zstd"), Compression::Zstd),
    ];
    all.into_iter().filter(|(is_there, _)| *is_there).map(|(_, codec)| codec).collect()
}

/// What a benchmark appends or fetches.
#[derive(Clone, Copy)]
struct Case {
    record_bytes: usize,
    batch_records: usize,
    codec: Compression,
}

impl Case {
    fn all() -> Vec<Self> {
        let shapes = SHAPES.iter();
        let case =
            |codec| shapes.clone().map(move |(record_bytes, batch_records)| (*record_bytes, *batch_records, codec));
        let cases = codecs().into_iter().flat_map(case);
        // A codec works on batches: one record at a time says nothing about it.
        let tells = |(_, records, codec): &(usize, usize, Compression)| *records > 1 || *codec == Compression::None;
        let make = |(record_bytes, batch_records, codec)| Self { record_bytes, batch_records, codec };
        cases.filter(tells).map(make).collect()
    }

    fn id(&self) -> BenchmarkId {
        BenchmarkId::new(self.codec.name(), format!("{} x {} B", self.batch_records, self.record_bytes))
    }

    fn batch_bytes(&self) -> usize {
        self.record_bytes * self.batch_records
    }

    /// Text with some repetition, so that codecs find something.
    fn values(&self) -> Vec<String> {
        let words = |number: usize| (0..).map(move |word| format!("{:04x} item {}; ", word * number, word % 7));
        let value = |number: usize| {
            let mut value = words(number).take(self.record_bytes / 12 + 1).collect::<Vec<_>>().concat();
            value.truncate(self.record_bytes);
            value
        };
        (1..=self.batch_records).map(value).collect()
    }

    fn builder(&self) -> BatchBuilder {
        BatchBuilder::new().compression(self.codec)
    }
}

fn fill(batch: &mut BatchBuilder, values: &[String]) {
    for value in values {
        batch.push(&Record::new(value).key("customer-7").timestamp(TIMESTAMP)).expect("it fits");
    }
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory can be made")
}

fn open(path: &Path) -> Partition {
    Partition::open(path, CONFIG).expect("the partition opens")
}

/// Runs `each` for every case, once by bytes of values and once by records.
fn matrix(
    criterion: &mut Criterion,
    name: &str,
    work: impl Fn(&Case) -> usize,
    each: impl Fn(&mut Bencher<'_>, &Case),
) {
    for unit in ["bytes", "records"] {
        let mut group = criterion.benchmark_group(format!("{name}/{unit}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for case in Case::all() {
            let batches = work(&case) as u64;
            group.throughput(match unit {
                "bytes" => Throughput::Bytes(batches * case.batch_bytes() as u64),
                _ => Throughput::Elements(batches * case.batch_records as u64),
            });
            group.bench_with_input(case.id(), &case, &each);
        }
        group.finish();
    }
}

/// One iteration appends one batch. Logs are made and removed outside of the time that counts.
fn append(criterion: &mut Criterion) {
    matrix(
        criterion,
        "append",
        |_| 1,
        |bencher, case| {
            let (values, mut batch, directory) = (case.values(), case.builder(), temporary());
            let path = directory.path().join("append-0");
            bencher.iter_custom(|iterations| {
                let (mut time, mut left) = (Duration::ZERO, iterations);
                while left > 0 {
                    let count = left.min((LOG_BYTES / case.batch_bytes()) as u64);
                    let partition = open(&path);
                    let started = Instant::now();
                    for _ in 0..count {
                        fill(&mut batch, &values);
                        let _not_waited_for = partition.append(&mut batch).expect("it is taken");
                    }
                    time += started.elapsed();
                    drop(partition);
                    fs::remove_dir_all(&path).expect("it is there");
                    left -= count;
                }
                time
            });
        },
    );
}

/// One iteration fetches a log of 4 MiB and visits its records.
fn fetch(criterion: &mut Criterion) {
    let batches = |case: &Case| FETCH_BYTES / case.batch_bytes();
    matrix(criterion, "fetch", batches, |bencher, case| {
        let (values, mut batch, directory) = (case.values(), case.builder(), temporary());
        let partition = open(&directory.path().join("fetch-0"));
        for _ in 0..batches(case) {
            fill(&mut batch, &values);
            let _not_waited_for = partition.append(&mut batch).expect("it is taken");
        }
        bencher.iter(|| {
            let mut offset = partition.start();
            while offset < partition.end() {
                let fetched = partition.read(offset, ReadOptions::new()).expect("it is sound");
                for record in &fetched {
                    black_box((record.key(), record.value()));
                }
                offset = fetched.next_offset();
            }
        });
    });
}

/// A closed partition with this many segments of 1 MiB each.
fn closed(directory: &Path, segments: usize) -> PathBuf {
    let case = Case { record_bytes: 1024, batch_records: 100, codec: Compression::None };
    let (values, mut batch, path) = (case.values(), case.builder(), directory.join("open-0"));
    let partition = open(&path);
    for number in 0..segments {
        if number > 0 {
            partition.roll().expect("it rolls");
        }
        for _ in 0..(1 << 20) / case.batch_bytes() {
            fill(&mut batch, &values);
            let _not_waited_for = partition.append(&mut batch).expect("it is taken");
        }
    }
    partition.close().expect("it closes");
    path
}

/// One iteration opens a partition, closed cleanly or not; where not, all of it is checked.
fn opening(criterion: &mut Criterion) {
    for (name, is_clean) in [("clean", true), ("after a crash", false)] {
        let mut group = criterion.benchmark_group(format!("open/{name}"));
        group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
        for segments in [1, 10, 100] {
            let directory = temporary();
            let path = closed(directory.path(), segments);
            group.throughput(if is_clean {
                Throughput::Elements(segments as u64)
            } else {
                Throughput::Bytes((segments << 20) as u64)
            });
            group.bench_function(BenchmarkId::from_parameter(format!("{segments} segments")), |bencher| {
                bencher.iter_custom(|iterations| (0..iterations).map(|_| time_of_open(&path, is_clean)).sum());
            });
        }
        group.finish();
    }
}

fn time_of_open(path: &Path, is_clean: bool) -> Duration {
    if !is_clean {
        for file in [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"] {
            fs::remove_file(path.join(file)).expect("a closed partition has it");
        }
    }
    let started = Instant::now();
    let partition = open(path);
    let time = started.elapsed();
    assert_eq!(partition.recovery().clean, is_clean, "it was opened as it was left");
    time
}

criterion_group!(benches, append, fetch, opening);
criterion_main!(benches);
