//! What the tests share: how long they run, and which seeds they take.
//!
//! `TAFFRAIL_SEEDS=5000` runs every seeded test with that many seeds; `TAFFRAIL_SEED=17` repeats one.
#![allow(dead_code, reason = "each file in tests/ is a program of its own that uses a part of this")]

pub(crate) mod kafka;
pub(crate) mod segments;
pub(crate) mod trees;

use std::ops::Range;

/// The number in the environment variable `name`, or `default` where it is not set.
///
/// # Panics
/// Where it is set to something that is no number: a run that was meant to be long must not be short.
pub(crate) fn env_count(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")),
        Err(std::env::VarError::NotPresent) => default,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// The seeds of a seeded test: one where `TAFFRAIL_SEED` names it, else `TAFFRAIL_SEEDS` of them, by default 200.
pub(crate) fn seeds() -> Range<u64> {
    match env_count("TAFFRAIL_SEED", u64::MAX) {
        u64::MAX => 0..env_count("TAFFRAIL_SEEDS", 200),
        seed => seed..seed + 1,
    }
}
