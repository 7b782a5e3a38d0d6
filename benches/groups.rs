//! What a coordinator of groups costs, without its log: 1,000 members over 1,000 partitions. The target of all of them, a
//! heartbeat where nothing changes, one where a member is led on, and all of them joining one after the other.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use taffrail::testkit::crowd::Crowd;

const MEMBERS: usize = 1000;
const PARTITIONS: u32 = 1000;

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("groups/1000 members");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    let mut crowd = Crowd::settled(MEMBERS, 0);
    crowd.topic(PARTITIONS);
    group.bench_function("target of 1000 partitions", |bencher| {
        bencher.iter(|| black_box(crowd.target_from_nothing()));
    });
    let mut crowd = Crowd::settled(MEMBERS, PARTITIONS);
    let mut member = 0;
    group.bench_function("heartbeat", |bencher| {
        bencher.iter(|| {
            member = (member + 1) % MEMBERS;
            assert_eq!(crowd.report(member), 0, "nothing changes");
        });
    });
    group.finish();
}

/// One iteration is all heartbeats.
fn rounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("groups/all of 1000 members");
    group.sample_size(10).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(3));
    group.bench_function("are led on", |bencher| {
        bencher.iter_custom(|iterations| (0..iterations).map(|_| time_of_leading()).sum());
    });
    group.bench_function("join one after the other", |bencher| {
        bencher.iter_batched(
            || Crowd::outside(MEMBERS, PARTITIONS),
            |mut crowd| (0..MEMBERS).map(|member| crowd.report(member)).sum::<usize>(),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// The heartbeats behind a new target: the first computes it, and each is given its partition.
fn time_of_leading() -> Duration {
    let mut crowd = Crowd::settled(MEMBERS, 0);
    crowd.topic(PARTITIONS);
    let started = Instant::now();
    let records = (0..MEMBERS).map(|member| crowd.report(member)).sum::<usize>();
    let time = started.elapsed();
    assert_eq!(records, 2 * MEMBERS + 1);
    time
}

criterion_group!(benches, steps, rounds);
criterion_main!(benches);
