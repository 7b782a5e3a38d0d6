//! The simulator.
//!
//! ```text
//!   world.rs      what there is, and one step of it              plan.rs      what a seed is about
//!   producers.rs  readers.rs  admin.rs  holds.rs                 choice.rs    the one source of chance
//!   transactions.rs   instance.rs  one transaction, open         trace.rs     every step, in words
//!   groups.rs  members.rs  polls.rs  owning.rs  told.rs          model.rs     what must be true
//!   commits.rs  progress.rs  by itself, in transactions          topics.rs    the same, of topics
//!   compaction.rs     what of it goes, and what stays            fates.rs     the same, of transactions
//!   faults.rs     what the disk does                             positions.rs the same, of how far groups are
//!   restart.rs    power loss, kill, close, open                  record.rs    what was sent
//!   checks.rs     after every step    scan.rs  of everything
//!   ending.rs  settling.rs  faults are over: all is available again
//! ```

#![expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the numbers of a run are small")]

mod admin;
mod checks;
mod choice;
mod commits;
mod compaction;
mod ending;
mod fates;
mod faults;
mod groups;
mod holds;
mod instance;
mod members;
mod model;
mod owning;
mod plan;
mod polls;
mod positions;
mod producers;
mod progress;
mod readers;
mod record;
mod restart;
mod scan;
mod settling;
mod told;
mod topics;
mod trace;
mod transactions;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(crate) use trace::{SEEDS, Tally};
use world::World;

/// How a seed went.
pub(crate) struct Ran {
    /// Every step, and a digest of every file at the end.
    pub(crate) lines: Vec<String>,
    pub(crate) tally: Tally,
}

/// Runs one seed.
///
/// # Panics
/// Where a promise is broken.
pub(crate) fn run(seed: u64) -> Ran {
    let mut world = World::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    if let Err(panic) = outcome {
        eprintln!("{}", world.trace.story(seed));
        std::mem::forget(world);
        resume_unwind(panic);
    }
    world.ran()
}
