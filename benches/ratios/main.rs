//! Each row: what taffrail does, beside a raw loop that moves the same bytes in the same blocks to a fresh file
//! of the same filesystem. Both alternate in one run, so that a noisy machine is noisy for both.
//!
//! ```text
//! cargo bench --bench ratios                        every row
//! cargo bench --bench ratios -- --quick             every row, in under 40 s
//! cargo bench --bench ratios -- --row 'read 1 KiB'  the row of that name (can be given several times)
//! cargo bench --bench ratios -- --noise             the raw loop against itself: what the machine adds
//! cargo bench --bench ratios -- --markdown          a table, as in the README
//! cargo bench --bench ratios -- --filled            synced rows against files that were filled from the start
//! ```
//!
//! A row is printed as `name  ours  raw  ratio`: the medians of both rates, the median of the ratios of the
//! rounds, and behind it the quartiles of those ratios. The raw loops are described in `raw.rs`; the directory
//! is a temporary one (`TMPDIR` chooses the filesystem).

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and places in a list, for people to read"
)]

mod arguments;
mod beside;
mod compaction;
mod groups;
mod measure;
mod ours;
mod raw;
mod raw_sync;
mod rows;
mod topics;
mod transactions;
mod work;

use std::process::ExitCode;

use arguments::Arguments;
use measure::Outcome;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", Outcome::heading(arguments.markdown));
    let mut found = false;
    for row in rows::all(&arguments) {
        if arguments.wants(row.name) {
            found = true;
            let is_compaction = row.name == compaction::NAME;
            let is_synced = row.name == transactions::SYNCED;
            let outcome = row.measure(&arguments);
            println!("{}", outcome.line(arguments.markdown));
            if is_compaction && !arguments.markdown {
                println!("  {:.1} bytes of memory a key", compaction::bytes_per_key(100_000));
            }
            if is_synced && !arguments.markdown {
                println!("{}", transactions::note(outcome.ratio()));
            }
        }
    }
    if found {
        return ExitCode::SUCCESS;
    }
    eprintln!("no row has that name; there are: {}", rows::names(&arguments).join(", "));
    ExitCode::FAILURE
}
