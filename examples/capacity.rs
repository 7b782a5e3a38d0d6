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

use std::process::ExitCode;

use capacity::{FLAGS, Workload, bytes, count, documented};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        for (name, _, meaning) in FLAGS {
            println!("{name:<32}{meaning}");
        }
        return ExitCode::SUCCESS;
    }
    match Workload::parse(arguments) {
        Ok(workload) => print(&workload),
        Err(reason) => {
            eprintln!("{reason}; --help names every flag");
            return ExitCode::FAILURE;
        }
    }
    prove()
}

fn print(workload: &Workload) {
    let (events, size) = (count(workload.events_per_second.into()), bytes(workload.event_bytes.into()));
    println!(
        "{events} events of {size} a second, kept for {} days in {} copies:",
        workload.retention_days, workload.copies
    );
    print!("{}", workload.plan());
}

/// Says whether the documented figures come out.
fn prove() -> ExitCode {
    let figures = documented();
    let wrong: Vec<_> = figures.iter().filter(|figure| figure.found != figure.documented).collect();
    for figure in &wrong {
        eprintln!("{}: {}, documented is {}", figure.what, figure.found, figure.documented);
    }
    if wrong.is_empty() {
        println!("checked: all {} documented figures come out as documented", figures.len());
        return ExitCode::SUCCESS;
    }
    ExitCode::FAILURE
}
