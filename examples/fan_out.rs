//! One stream, four groups: a fraud check, a ledger, a warehouse loader and a dashboard read the same payments, each at
//! its own pace. The loader stands still for a day, is warned of the edge of the retention, comes back with six times the
//! speed of the stream and catches up, while publishing goes on.
//!
//! ```text
//! cargo run --release --example fan_out                   one outage of a day
//! cargo run --release --example fan_out -- --rounds 3     three, one after the other
//! cargo run --release --example fan_out -- --follow       every ten minutes of it, slowly enough to watch
//! ```
//!
//! Time is virtual: a `ManualClock` that goes on 30 seconds with each step, so that two days pass in some seconds. The
//! last line is the proof: nothing was lost or doubled, each account's payments came in order, and the catch-up took a
//! fifth of the outage.

#[path = "shared/fan_out/mod.rs"]
mod fan_out;
#[path = "shared/program.rs"]
mod program;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use fan_out::{Day, table};
use program::Outcome;

const USAGE: &str = "\
usage: fan_out [--rounds NUMBER] [--follow]

Lets one of four groups stand still for a day, NUMBER times (1), and checks that nothing is lost; --follow is slow enough
to be watched.";
/// How long a table stands where it is followed.
const FRAME: Duration = Duration::from_millis(150);

fn main() -> ExitCode {
    program::run(USAGE, std::env::args().skip(1), work)
}

fn work(arguments: Vec<String>) -> Outcome<()> {
    let (rounds, follow) = parse(arguments)?;
    let directory = tempfile::tempdir()?;
    let mut out = io::stdout();
    let mut day = Day::begin(&directory.path().join("data"))?;
    let mut screen = table::Screen::new(follow);
    for round in 1..=rounds {
        writeln!(out, "round {round} of {rounds}: the loader will stand still for a day")?;
        day.outage(|day| {
            screen.show(day, &mut out)?;
            if follow {
                std::thread::sleep(FRAME);
            }
            Ok(())
        })?;
    }
    Ok(writeln!(out, "{}", day.prove()?)?)
}

fn parse(arguments: Vec<String>) -> Outcome<(u32, bool)> {
    let (mut rounds, mut follow) = (1, false);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => {
                let text = arguments.next().unwrap_or_default();
                let number = text.parse().ok().filter(|number| *number > 0);
                rounds = number.ok_or_else(|| format!("--rounds is a whole number from 1 on, not {text:?}"))?;
            }
            "--follow" => follow = true,
            other => return Err(format!("{other} is not known; --help names every flag").into()),
        }
    }
    Ok((rounds, follow))
}
