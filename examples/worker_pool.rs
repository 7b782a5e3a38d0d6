//! A pool of workers shares a topic of jobs. Workers come and go while jobs keep coming: one is hired, one says goodbye,
//! one walks out without a word, and one falls asleep over its work. The others take over, and no job is lost.
//!
//! ```text
//! cargo run --release --example worker_pool                  two rounds of coming and going
//! cargo run --release --example worker_pool -- --rounds 10   ten
//! ```
//!
//! The last line is the proof: every job was done at least once, those of one customer in order, and who did it owned its
//! partition at that time.

#[path = "shared/program.rs"]
mod program;
#[path = "shared/worker_pool/mod.rs"]
mod worker_pool;

use std::io::{self, Write};
use std::process::ExitCode;

use program::Outcome;
use worker_pool::{Pool, Scene};

const USAGE: &str = "\
usage: worker_pool [--rounds NUMBER]

Has workers come and go while jobs are published, NUMBER times all over (2), and checks that none is lost.";
const ROUNDS: u32 = 2;

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), work)
}

fn work(arguments: Vec<String>) -> Outcome<()> {
    let rounds = parse(arguments)?;
    let directory = tempfile::tempdir()?;
    let mut out = io::stdout();
    let mut pool = Pool::open(&directory.path().join("data"))?;
    for _ in 0..3 {
        pool.play(Scene::Hire, &mut out)?;
    }
    for _ in 0..rounds {
        for scene in [Scene::Hire, Scene::Goodbye, Scene::Hire, Scene::WalkOut, Scene::Hire, Scene::Sleep] {
            pool.play(scene, &mut out)?;
        }
    }
    Ok(writeln!(out, "{}", pool.prove()?)?)
}

fn parse(arguments: Vec<String>) -> Outcome<u32> {
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(ROUNDS),
        ["--rounds", number] => match number.parse() {
            Ok(rounds) if rounds > 0 => Ok(rounds),
            _ => Err(format!("--rounds is a whole number from 1 on, not {number:?}").into()),
        },
        _ => Err(format!("{arguments:?} is not known; --help says what is").into()),
    }
}
