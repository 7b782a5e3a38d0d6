//! What happened, line by line, and how often.

use std::collections::BTreeMap;
use std::fmt;

/// So many lines are told of a failure.
const TOLD: usize = 40;

/// Every step of a run.
#[derive(Debug, Default)]
pub(super) struct Trace {
    pub(super) lines: Vec<String>,
    pub(super) step: u64,
    pub(super) tally: Tally,
    /// Every line is told at once (`SIM_TRACE` is set).
    is_told: bool,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { is_told: std::env::var_os("SIM_TRACE").is_some(), ..Self::default() }
    }

    /// Notes something, under the number of the step.
    pub(super) fn note(&mut self, line: impl fmt::Display) {
        let line = format!("{:>4} {line}", self.step);
        if self.is_told {
            eprintln!("{line}");
        }
        self.lines.push(line);
    }

    /// Counts something that a good run has seen.
    pub(super) fn count(&mut self, what: &'static str) {
        *self.tally.0.entry(what).or_default() += 1;
    }

    /// What is told of a failure.
    pub(super) fn story(&self, seed: u64) -> String {
        let told = &self.lines[self.lines.len().saturating_sub(TOLD)..];
        format!(
            "\n{}\n\nseed {seed} fails at step {}; again: SIM_SEED={seed} cargo test --release --test sim",
            told.join("\n"),
            self.step
        )
    }
}

/// How often what happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// A simulator in which nothing happens finds nothing. In so many seeds it has to.
    pub(crate) fn assert_busy(&self, seeds: u64) {
        let due = [(SEEDS, BUSY), (SEEDS_OF_RARE, RARE)].into_iter().filter(|(least, _)| seeds >= *least);
        for what in due.flat_map(|(_, due)| due) {
            assert!(self.0.contains_key(what), "no run has seen: {what}\n{self}");
        }
    }
}

/// How many seeds see everything that is not rare.
pub(crate) const SEEDS: u64 = 100;
const SEEDS_OF_RARE: u64 = 1_000;

const RARE: &[&str] = &[
    "commits without an answer",
    "replaced consumers told so",
    "groups sent elsewhere",
    "groups forgotten",
    "groups cut off",
    "damaged positions",
    "positions expired",
    "consumers that found a group full",
];

const BUSY: &[&str] = &[
    "power losses",
    "kills",
    "closes",
    "failed opens",
    "faults",
    "acknowledged, power",
    "acknowledged, process",
    "failed deliveries",
    "records read",
    "out of range",
    "topics deleted",
    "partitions added",
    "retention moved a start",
    "records deleted by hand",
    "holds in the way",
    "reopened partitions",
    "damaged batches met",
    "ids taken",
    "transactions committed",
    "transactions aborted",
    "transactions timed out",
    "fenced instances told so",
    "compactions",
    "partitions assigned",
    "partitions given back",
    "partitions lost",
    "records read in groups",
    "positions committed",
    "commits that nobody waits for",
    "automatic commits",
    "positions in transactions",
    "refused commits",
    "progress of what was given up",
    "failed commits",
    "consumers dropped",
    "consumers closed",
    "groups out of range",
    "beginnings before what has come",
];

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, times) in &self.0 {
            writeln!(f, "{times:>10} {what}")?;
        }
        Ok(())
    }
}
