//! Counts every flight once, although the program that counts is killed again and again.
//!
//! ```text
//! cargo run --release --example exactly_once                     the flights of examples/data, 12 rounds
//! cargo run --release --example exactly_once -- --rounds 40      killed 40 times
//! ```
//!
//! A child process reads the flights from a topic, a few at a time. What it adds up of them (flights and minutes of
//! delay, by carrier) and how far it has read go into one transaction: both count, or none. It is killed with SIGKILL
//! at a random moment and started again, and begins where the last committed transaction says. At the end the results
//! are read back and added up: they must be those of a plain loop over the file.

#[path = "shared/exactly_once.rs"]
pub(crate) mod exactly_once;
#[path = "shared/flights.rs"]
pub(crate) mod flights;

#[path = "shared/program.rs"]
pub(crate) mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use program::Outcome;

pub(crate) const USAGE: &str = "\
usage: exactly_once [--rounds N]

Counts the flights of examples/data in a child process that is killed N times (12), and checks what it has counted.";

const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.jsonl");
const ROUNDS: u64 = 12;

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), |arguments| work(&arguments))
}

fn work(arguments: &[String]) -> Outcome<()> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--count", directory] => exactly_once::count(Path::new(directory)),
        ["--rounds", rounds] => run(rounds.parse().map_err(|_| "--rounds needs a number")?),
        [] => run(ROUNDS),
        _ => Err("only --rounds N is known".into()),
    }
}

fn run(rounds: u64) -> Outcome<()> {
    let temporary = tempfile::tempdir()?;
    let directory: PathBuf = temporary.path().join("log");
    let this = std::env::current_exe()?;
    let child = |directory: &Path| {
        let mut child = Command::new(&this);
        child.arg("--count").arg(directory);
        child
    };
    let proof = exactly_once::run(Path::new(FLIGHTS), &directory, rounds, &child)?;
    println!("{proof}");
    Ok(())
}
