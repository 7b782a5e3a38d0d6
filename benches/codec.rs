//! What batches cost: building them, checking them as a read does, and visiting their records; by the size of a record,
//! the records in a batch, and the codec.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use taffrail::{BatchBuilder, Batches, Compression, Record, Timestamp};

const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;
const TIMESTAMP: Timestamp = Timestamp(1_700_000_000_000);

/// The sizes of a value in bytes, and how many records a batch has.
const SHAPES: [(usize, usize); 6] = [(100, 1), (100, 100), (1024, 1), (1024, 100), (10_240, 1), (10_240, 10)];

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

/// Values like those of events: words out of a small set, so that they compress some three to one.
fn values(size: usize, count: usize) -> Vec<Vec<u8>> {
    let words = [&b"departure "[..], b"arrival ", b"flight=", b"gate=", b"delayed ", b"{\"carrier\":", b"2013-07-01T"];
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 40).unwrap_or(0)
    };
    let mut value = || {
        let mut value = Vec::with_capacity(size + 16);
        while value.len() < size {
            value.extend_from_slice(words[next() % words.len()]);
            value.extend_from_slice((next() % 1000).to_string().as_bytes());
        }
        value.truncate(size);
        value
    };
    (0..count).map(|_| value()).collect()
}

fn fill(builder: &mut BatchBuilder, values: &[Vec<u8>]) {
    builder.clear();
    for value in values {
        builder.push(&Record::new(value).key("customer-7").timestamp(TIMESTAMP)).expect("it fits");
    }
}

/// Runs `each` for every shape and codec, once by bytes and once by records.
fn matrix(criterion: &mut Criterion, name: &str, mut each: impl FnMut(&mut criterion::Bencher<'_>, &Case)) {
    for (unit, by_bytes) in [("bytes", true), ("records", false)] {
        let mut group = criterion.benchmark_group(format!("{name}/{unit}"));
        for case in cases() {
            let count = case.values.len() as u64;
            let bytes = Throughput::Bytes(case.size as u64 * count);
            group.throughput(if by_bytes { bytes } else { Throughput::Elements(count) });
            let id = BenchmarkId::new(case.codec.name(), format!("{}x{}B", case.values.len(), case.size));
            group.bench_with_input(id, &case, |bencher, case| each(bencher, case));
        }
        group.finish();
    }
}

struct Case {
    codec: Compression,
    size: usize,
    values: Vec<Vec<u8>>,
    batch: Bytes,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for codec in codecs() {
        for (size, count) in SHAPES {
            let values = values(size, count);
            let mut builder = BatchBuilder::new().compression(codec);
            fill(&mut builder, &values);
            let batch = Bytes::copy_from_slice(builder.encode().expect("it has records"));
            cases.push(Case { codec, size, values, batch });
        }
    }
    cases
}

fn build(criterion: &mut Criterion) {
    matrix(criterion, "build", |bencher, case| {
        let mut builder = BatchBuilder::new().compression(case.codec);
        bencher.iter(|| {
            fill(&mut builder, black_box(&case.values));
            black_box(builder.encode().expect("it has records").len())
        });
    });
}

fn check(criterion: &mut Criterion) {
    matrix(criterion, "check", |bencher, case| {
        bencher.iter(|| Batches::parse(black_box(case.batch.clone()), DECOMPRESSED_BYTES_MAX).expect("it is whole"));
    });
}

fn check_and_visit(criterion: &mut Criterion) {
    matrix(criterion, "check and visit", |bencher, case| {
        bencher.iter(|| {
            let batches = Batches::parse(black_box(case.batch.clone()), DECOMPRESSED_BYTES_MAX).expect("it is whole");
            for batch in &batches {
                for record in batch.records() {
                    black_box((record.key(), record.value()));
                }
            }
        });
    });
}

criterion_group!(benches, build, check, check_and_visit);
criterion_main!(benches);
