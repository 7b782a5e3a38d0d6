//! How fast something grows, by what it was at several moments of the last while.
//!
//! Invariant: samples are ascending in time, no more than fit into the window at an even distance, and one at most is
//! older than the window: the one that it begins with.

use std::collections::VecDeque;
use std::time::Duration;

use super::Rate;
use crate::clock::Moment;
use crate::metrics::number;

/// The window is divided into so many parts, of which each has one sample.
const PARTS: u32 = 12;

/// What was counted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) at: Moment,
    pub(super) records: u64,
    /// May be below zero: only differences count.
    pub(super) bytes: i64,
}

/// What was counted of late.
#[derive(Clone, Debug, Default)]
pub(super) struct Series {
    samples: VecDeque<Sample>,
}

impl Series {
    /// Takes a sample in. One that goes back (a log was cut, a position was reset) begins anew.
    pub(super) fn push(&mut self, sample: Sample, window: Duration) {
        if self.samples.back().is_some_and(|last| sample.records < last.records || sample.at < last.at) {
            self.samples.clear();
        }
        // The newest one is replaced as long as it is near to the one before.
        let before = self.samples.len().checked_sub(2).and_then(|at| self.samples.get(at));
        if before.is_some_and(|before| sample.at < before.at.after(window / PARTS)) {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
        while self.samples.get(1).is_some_and(|second| second.at.after(window) <= sample.at) {
            self.samples.pop_front();
        }
    }

    /// How fast it grew within the window before `now`; `None` where fewer than two samples say so, or none is young
    /// enough.
    pub(super) fn rate(&self, now: Moment, window: Duration) -> Option<Rate> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        let seconds = last.at.since(first.at).as_secs_f64();
        if seconds <= 0.0 || last.at.after(window) < now {
            return None;
        }
        let records = number(last.records - first.records);
        let bytes = number(last.bytes.saturating_sub(first.bytes).max(0).unsigned_abs());
        Some(Rate { records: records / seconds, bytes: bytes / seconds })
    }

    /// How much of the records has come since the last sample but one, or since the first.
    pub(super) fn lately(&self) -> u64 {
        let before = self.samples.len().checked_sub(3).and_then(|at| self.samples.get(at)).or(self.samples.front());
        self.samples.back().zip(before).map_or(0, |(last, before)| last.records - before.records)
    }

    /// Whether there was a sample within the window before `now`.
    pub(super) fn is_young(&self, now: Moment, window: Duration) -> bool {
        self.samples.back().is_some_and(|last| last.at.after(window) >= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn second(second: u64) -> Moment {
        Moment::default().after(Duration::from_secs(second))
    }

    fn sample(at: u64, records: u64, bytes: i64) -> Sample {
        Sample { at: second(at), records, bytes }
    }

    fn series(samples: impl IntoIterator<Item = Sample>) -> Series {
        let mut series = Series::default();
        samples.into_iter().for_each(|sample| series.push(sample, WINDOW));
        series
    }

    fn rate(series: &Series, now: u64) -> Option<(f64, f64)> {
        series.rate(second(now), WINDOW).map(|rate| (rate.records, rate.bytes))
    }

    #[test]
    fn one_sample_is_no_rate_and_two_are() {
        assert_eq!(rate(&series([]), 0), None);
        assert_eq!(rate(&series([sample(5, 100, 0)]), 5), None);
        assert_eq!(rate(&series([sample(5, 100, -50), sample(5, 100, -50)]), 5), None, "no time has passed");
        assert_eq!(rate(&series([sample(5, 100, -50), sample(9, 120, 50)]), 9), Some((5.0, 25.0)));
    }

    /// A hundred records a second for a minute, then none: the rate falls as the window moves on.
    #[test]
    fn the_window_slides() {
        let at = |second: u64| sample(second, 100 * second.min(60), 0);
        let rate_at = |end: u64| rate(&series((0..=end).step_by(5).map(at)), end);
        assert_eq!(rate_at(60), Some((100.0, 0.0)));
        assert_eq!(rate_at(90), Some((50.0, 0.0)));
        assert_eq!(rate_at(120), Some((0.0, 0.0)));
    }

    #[test]
    fn samples_are_few_however_often_they_are_taken() {
        let often = (0..6_000).map(|tenth| Sample {
            at: Moment::default().after(Duration::from_millis(100 * tenth)),
            records: tenth,
            bytes: 0,
        });
        let series = series(often);
        assert!(series.samples.len() <= PARTS as usize + 2, "{}", series.samples.len());
        assert_eq!(rate(&series, 600).map(|rate| rate.0.round()), Some(10.0));
    }

    /// The newest is moved on until it is a part of the window away: the last but one is of 10 s, of 15 s, of 15 s.
    #[test]
    fn what_came_lately_is_what_came_since_the_last_sample_but_one() {
        assert_eq!(series([]).lately(), 0);
        assert_eq!(series([sample(5, 100, 0)]).lately(), 0);
        assert_eq!(series([sample(5, 100, 0), sample(10, 107, 0)]).lately(), 7);
        let mut series = series((0..=4).map(|at| sample(5 * at, 10 * at, 0)));
        assert_eq!(series.lately(), 20);
        series.push(sample(22, 45, 0), WINDOW);
        assert_eq!(series.lately(), 15, "since 15 s");
        series.push(sample(24, 46, 0), WINDOW);
        assert_eq!(series.lately(), 16);
    }

    #[test]
    fn what_goes_back_begins_anew() {
        let mut series = series([sample(1, 100, 0), sample(2, 200, 0), sample(3, 150, 0)]);
        assert_eq!(rate(&series, 3), None);
        series.push(sample(5, 160, 0), WINDOW);
        assert_eq!(rate(&series, 5), Some((5.0, 0.0)));
    }

    #[test]
    fn what_nobody_has_sampled_of_late_is_not_known() {
        let series = series([sample(0, 0, 0), sample(10, 100, 0)]);
        assert_eq!(rate(&series, 70), Some((10.0, 0.0)));
        assert_eq!(rate(&series, 71), None);
        assert!(series.is_young(second(70), WINDOW) && !series.is_young(second(71), WINDOW));
    }
}
