//! One node on a disk in memory, in virtual time: producers, readers, groups of consumers, an admin and a clock take turns by
//! a seed, while power fails, processes are killed and the disk answers errors; what was promised is checked after every
//! step.
//!
//! `SIM_SEEDS=2000` runs so many seeds, from `SIM_FIRST` on (0), `SIM_SEED=17` that one and nothing else. A failure says
//! the seed, the step, and what happened before it; the same seed repeats it to the last byte.
//!
//! With `RUSTFLAGS="--cfg mutants"` the variable `MUTANT` puts one of the bugs of `src/mutants.rs` in, which the seeds
//! have to find.

#[path = "sim/mod.rs"]
mod sim;

use std::time::Instant;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

/// Without a word from outside this many seeds are run.
const SEEDS: u64 = sim::SEEDS;

#[test]
fn what_was_promised_holds_whatever_happens() {
    let (first, count) = match number("SIM_SEED") {
        Some(seed) => (seed, 1),
        None => (number("SIM_FIRST").unwrap_or(0), number("SIM_SEEDS").unwrap_or(SEEDS)),
    };
    let seeds = first..first + count;
    let (began, mut tally) = (Instant::now(), sim::Tally::default());
    for seed in seeds {
        tally.add(&sim::run(seed).tally);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} seeds in {seconds:.1} s\n{tally}");
    tally.assert_busy(count);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    if number("SIM_SEED").is_some() {
        return;
    }
    for seed in 1_000_000..1_000_004 {
        let (one, other) = (sim::run(seed), sim::run(seed));
        let parts = one.lines.iter().zip(&other.lines).find(|(one, other)| one != other);
        assert!(parts.is_none(), "seed {seed} went two ways: {parts:#?}");
        assert_eq!(one.lines.len(), other.lines.len(), "seed {seed} went two ways");
    }
}
