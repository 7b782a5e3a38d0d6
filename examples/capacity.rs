//! Works out what a log needs before it is built: disk, nodes, partitions, and how long an outage is felt.
//!
//! ```text
//! cargo run --example capacity                                    a million events of 1 KB a second
//! cargo run --example capacity -- --node-mb-per-second 500        the same on faster nodes
//! cargo run --example capacity -- --events-per-second 500000 --consumers 10 --consumer-mb-per-second 50
//! cargo run --example capacity -- --help                          every flag
//! ```
//!
//! Nothing is measured: these are sums. The last line says that the cases which are worked out in writing come out as
//! written; where one does not, the program fails.

#[path = "shared/capacity.rs"]
mod capacity;
#[path = "shared/program.rs"]
pub(crate) mod program;

use std::io::{self, Write};
use std::process::ExitCode;

use capacity::{FLAGS, Workload, bytes, count, documented};
use program::Outcome;

fn main() -> ExitCode {
    program::run(&usage(), std::env::args().skip(1), work)
}

pub(crate) fn usage() -> String {
    let flags = FLAGS.iter().map(|(name, _, meaning)| format!("\n  {name:<32}{meaning}"));
    std::iter::once("usage: capacity [FLAG NUMBER]...\n".to_owned()).chain(flags).collect()
}

pub(crate) fn work(arguments: Vec<String>) -> Outcome<()> {
    let workload = Workload::parse(arguments).map_err(|reason| format!("{reason}; --help names every flag"))?;
    let mut out = io::stdout();
    print(&workload, &mut out)?;
    Ok(writeln!(out, "{}", prove()?)?)
}

fn print(workload: &Workload, out: &mut impl Write) -> io::Result<()> {
    let size = bytes(workload.event_bytes.into());
    let plural = |number: u64, one: &str, more: &str| {
        format!("{} {}", count(number.into()), if number == 1 { one } else { more })
    };
    let events = plural(workload.events_per_second, "event", "events");
    let days = plural(workload.retention_days, "day", "days");
    let copies = plural(workload.copies, "copy", "copies");
    writeln!(out, "{events} of {size} a second, kept for {days} in {copies}:")?;
    write!(out, "{}", workload.plan())
}

/// Says whether the documented figures come out.
fn prove() -> Outcome<String> {
    let figures = documented();
    let wrong = figures.iter().filter(|figure| figure.found != figure.documented);
    let wrong: Vec<_> =
        wrong.map(|figure| format!("{}: {}, documented is {}", figure.what, figure.found, figure.documented)).collect();
    if wrong.is_empty() {
        return Ok(format!("checked: all {} documented figures come out as documented", figures.len()));
    }
    Err(wrong.join("; ").into())
}
