//! Who is behind, how fast they catch up, and when they would lose data: a table that is drawn over where somebody
//! watches, and printed now and then where nobody does.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use taffrail::{Clock, TotalLag};

use super::Day;
use super::team::Team;
use crate::program::Outcome;

/// Where nobody watches, one table in so many is printed: every six hours, and every hour while somebody catches up.
const FRAMES_PER_PRINT: u64 = 36;
const FRAMES_PER_PRINT_BEHIND: u64 = 6;
const BAR: usize = 24;

/// Where the tables go.
pub(crate) struct Screen {
    draws_over: bool,
    prints_all: bool,
    frames: u64,
    /// How many lines the table has that is to be drawn over.
    lines: usize,
}

impl Screen {
    pub(crate) fn new(prints_all: bool) -> Self {
        Self { draws_over: io::stdout().is_terminal(), prints_all, frames: 0, lines: 0 }
    }

    pub(crate) fn show(&mut self, day: &Day, out: &mut impl Write) -> Outcome<()> {
        for alert in day.alerts.try_iter() {
            writeln!(out, "  ALERT  {alert}")?;
            self.lines = 0;
        }
        self.frames += 1;
        let frames = if day.is_catching_up() { FRAMES_PER_PRINT_BEHIND } else { FRAMES_PER_PRINT };
        if !(self.draws_over || self.prints_all || self.frames % frames == 1) {
            return Ok(());
        }
        let lines = lines(day)?;
        if self.draws_over && self.lines > 0 {
            write!(out, "\x1b[{}A\x1b[0J", self.lines)?;
        }
        self.lines = lines.len();
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(out.flush()?)
    }
}

fn lines(day: &Day) -> Outcome<Vec<String>> {
    let passed = day.clock.monotonic().since(taffrail::Moment::default());
    let mut lines = vec![format!(
        "{:>9}  {:<17}{:>8}{:>10}{:>8}{:>8}{:>11}{:>10}  read",
        time(Some(passed)),
        "group",
        "lag",
        "behind",
        "in/s",
        "out/s",
        "caught up",
        "the edge"
    )];
    for team in &day.teams {
        let lag = day.log.lag(team.name()).map(|lag| lag.total);
        let line = lag.map_or_else(|error| format!("{:>11}{:<17}{error}", "", team.name()), |lag| row(day, team, &lag));
        lines.push(line);
    }
    Ok(lines)
}

fn row(day: &Day, team: &Team, lag: &TotalLag) -> String {
    let rate = |rate: Option<taffrail::Rate>| rate.map_or("-".to_owned(), |rate| format!("{:.1}", rate.records));
    format!(
        "{:>11}{:<17}{:>8}{:>10}{:>8}{:>8}{:>11}{:>10}  {}{}",
        "",
        team.name(),
        lag.records,
        time(lag.time),
        rate(lag.rate_in),
        rate(lag.rate_out),
        time(lag.catch_up),
        time(lag.left),
        bar(team.count(), day.payments.count()),
        if team.is_there() { "" } else { "  stopped" }
    )
}

fn bar(done: u64, all: u64) -> String {
    let filled = usize::try_from(done * BAR as u64 / all.max(1)).unwrap_or(BAR).min(BAR);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled))
}

/// Hours and minutes.
fn time(time: Option<Duration>) -> String {
    match time.map(|time| time.as_secs()) {
        None => "-".to_owned(),
        Some(seconds) if seconds < 60 => format!("{seconds} s"),
        Some(seconds) if seconds < 3600 => format!("{} min", seconds / 60),
        Some(seconds) => format!("{} h {:02}", seconds / 3600, seconds / 60 % 60),
    }
}
