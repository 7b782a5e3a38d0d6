//! Rounds, medians and how a row is printed.

use std::time::{Duration, Instant};

use crate::arguments::Arguments;

/// A quick run begins no further round of a row after this long, unless there were too few.
const QUICK: Duration = Duration::from_millis(1500);

/// One side of a row: does its work once and says how long the part that counts took.
pub(crate) type Side = Box<dyn FnMut() -> Duration>;

/// What a rate counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Work is bytes, rates are printed in GB/s.
    Bytes,
    /// Work is operations, rates are printed in operations a second.
    Operations,
}

/// A row to be measured. Both sides do `work` each time they are called.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    /// Builds both sides, ours first, and says how much work a call does. Files live as long as the sides.
    pub(crate) prepare: Box<dyn FnOnce() -> Prepared>,
    /// How many rounds in a full run and in a quick one.
    pub(crate) rounds: (usize, usize),
}

/// Both sides, ready to run.
pub(crate) struct Prepared {
    pub(crate) work: u64,
    pub(crate) ours: Side,
    pub(crate) raw: Side,
}

impl Row {
    /// Warms both sides up, then alternates; who begins a round alternates too.
    pub(crate) fn measure(self, arguments: &Arguments) -> Outcome {
        let mut prepared = (self.prepare)();
        (prepared.ours)();
        (prepared.raw)();
        let (mut rounds, started) = (Vec::new(), Instant::now());
        for round in 0..arguments.choose(self.rounds.0, self.rounds.1) {
            let (ours, raw) = if round % 2 == 0 {
                let ours = (prepared.ours)();
                (ours, (prepared.raw)())
            } else {
                let raw = (prepared.raw)();
                ((prepared.ours)(), raw)
            };
            let rate = |time: Duration| prepared.work as f64 / time.as_secs_f64();
            rounds.push((rate(ours), rate(raw)));
            if arguments.quick && rounds.len() >= arguments.rounds_least() && started.elapsed() > QUICK {
                break;
            }
        }
        Outcome { name: self.name, unit: self.unit, rounds }
    }
}

/// The rates of a row's rounds: ours, raw.
pub(crate) struct Outcome {
    name: &'static str,
    unit: Unit,
    rounds: Vec<(f64, f64)>,
}

impl Outcome {
    /// The line above the rows.
    pub(crate) fn heading(markdown: bool) -> String {
        if markdown {
            return "| row | ours | raw | ratio | quartiles |\n|---|--:|--:|--:|---|".to_owned();
        }
        format!("{:<28} {:>14} {:>14} {:>7}   quartiles of the ratio", "name", "ours", "raw", "ratio")
    }

    /// The row: medians, and the quartiles of the ratio.
    pub(crate) fn line(&self, markdown: bool) -> String {
        let ratios = self.sorted(|(ours, raw)| ours / raw);
        let ours = self.rate(quantile(&self.sorted(|(ours, _)| *ours), 0.5));
        let raw = self.rate(quantile(&self.sorted(|(_, raw)| *raw), 0.5));
        let [low, ratio, high] = [0.25, 0.5, 0.75].map(|part| quantile(&ratios, part));
        if markdown {
            return format!("| {} | {ours} | {raw} | {ratio:.2} | {low:.2} to {high:.2} |", self.name);
        }
        format!("{:<28} {ours:>14} {raw:>14} {ratio:>7.2}   {low:.2} to {high:.2}", self.name)
    }

    /// The median of the ratios.
    pub(crate) fn ratio(&self) -> f64 {
        quantile(&self.sorted(|(ours, raw)| ours / raw), 0.5)
    }

    fn sorted(&self, of: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn rate(&self, rate: f64) -> String {
        match self.unit {
            Unit::Bytes => format!("{:.2} GB/s", rate / 1e9),
            Unit::Operations => format!("{rate:.0} ops/s"),
        }
    }
}

/// The value below which `part` of the values lie.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}
