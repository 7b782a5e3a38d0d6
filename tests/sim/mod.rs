//! The simulator.
//!
//! ```text
//!   world.rs      what there is, and one step of it              plan.rs      what a seed is about
//!   producers.rs  readers.rs  admin.rs  holds.rs                 choice.rs    the one source of chance
//!   faults.rs     what the disk does                             trace.rs     every step, in words
//!   restart.rs    power loss, kill, close, open                  model.rs     what must be true
//!   checks.rs     after every step    scan.rs  of everything     topics.rs    the same, of topics
//!   ending.rs     faults are over: all is available again        record.rs    what was sent
//! ```

mod admin;
mod checks;
mod choice;
mod ending;
mod faults;
mod holds;
mod model;
mod plan;
mod producers;
mod readers;
mod record;
mod restart;
mod scan;
mod topics;
mod trace;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub(crate) use trace::Tally;
use world::World;

/// How a seed went.
pub(crate) struct Ran {
    pub(crate) lines: Vec<String>,
    /// A digest of every file at the end.
    pub(crate) disk: u64,
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
