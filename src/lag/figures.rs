//! From what is known of a position to what is said of it. Pure: time and rates are arguments.

use std::time::Duration;

use super::crossing::Nearness;
use super::samples::Pace;
use super::{Astray, GroupLag, Margin, PartitionLag, Rate, TotalLag};
use crate::metrics::number;
use crate::partition::Place;
use crate::types::{Offset, Timestamp, TopicPartition};

/// What is known of a group's position in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) partition: TopicPartition,
    pub(super) committed: Option<Offset>,
    /// Of what was committed, or of the start; behind a cut, of the cut.
    pub(super) place: Place,
    /// The timestamp of the next record to read, where there is one and it can be read.
    pub(super) next: Option<Timestamp>,
    pub(super) bounds: Bounds,
}

/// What retention keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) age: Option<Duration>,
    pub(super) bytes: Option<u64>,
    /// So much at most is held for groups that have not read this position.
    pub(super) held: Option<u64>,
}

/// What is left of one bound before it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// In milliseconds or bytes, as the whole.
    left: u64,
    whole: u64,
    /// When it will be used up; `None`: not as things are.
    time: Option<Duration>,
}

impl Room {
    fn is_within(self, part: crate::config::Ratio) -> bool {
        self.time.is_some() && !part.is_exceeded_by(self.left, self.whole)
    }
}

/// What lies between a position and the edge that retention moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edge {
    age: Option<Room>,
    size: Option<Room>,
    hold: Option<Room>,
}

impl Edge {
    /// Of a position that has something unread behind it.
    pub(super) fn of(place: &Place, bounds: Bounds, rate_in: Option<Rate>, now: Timestamp) -> Self {
        let grows = |bytes: u64| seconds(number(bytes), rate_in.map_or(0.0, |rate| rate.bytes));
        let age = bounds.age.zip(place.largest).map(|(age, largest)| {
            let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
            let left = largest.0.saturating_add(age).saturating_sub(now.0).max(0).unsigned_abs();
            Room { left, whole: age.unsigned_abs(), time: Some(Duration::from_millis(left)) }
        });
        let size = bounds.bytes.map(|keep| {
            let left = keep.saturating_sub(place.bytes_after);
            Room { left, whole: keep, time: if left == 0 { Some(Duration::ZERO) } else { grows(left) } }
        });
        let hold = bounds.held.map(|most| {
            let held = place.segment_bytes.saturating_add(place.bytes_after);
            let left = most.saturating_sub(held);
            Room { left, whole: most, time: if held > most { Some(Duration::ZERO) } else { grows(left) } }
        });
        Self { age, size, hold }
    }

    /// How long until the position is reached: by the first of the bounds, but not before the hold has no room.
    pub(super) fn left(&self) -> Option<Duration> {
        let policy = [self.age, self.size].into_iter().flatten().filter_map(|room| room.time).min()?;
        match self.hold {
            None => Some(policy),
            Some(hold) => hold.time.map(|held| held.max(policy)),
        }
    }

    /// Where that is, as far as the margin goes.
    pub(super) fn nearness(&self, margin: Margin) -> Nearness {
        match margin {
            margin if self.is_near(margin) => Nearness::Within,
            margin if self.is_near(margin.and_a_quarter()) => Nearness::Around,
            _ => Nearness::Beyond,
        }
    }

    /// Whether that is within the margin.
    pub(super) fn is_near(&self, margin: Margin) -> bool {
        match margin {
            Margin::Duration(margin) => self.left().is_some_and(|left| left <= margin),
            Margin::Fraction(part) => {
                let mut policy = [self.age, self.size].into_iter().flatten();
                policy.any(|room| room.is_within(part)) && self.hold.is_none_or(|hold| hold.is_within(part))
            }
        }
    }
}

/// What is said of a position, and what lies between it and the edge.
pub(super) fn figures(facts: &Facts, kept: Pace, now: Timestamp) -> (PartitionLag, Edge) {
    let place = &facts.place;
    let Pace { rate_in, rate_out, .. } = kept;
    let position = goes_on_at(facts.committed, place);
    let astray = astray(facts.committed, place);
    let records = place.last_stable.0.saturating_sub(position.0);
    let lost = facts.committed.filter(|committed| *committed < place.start).map(|committed| committed..place.start);
    let edge = if records == 0 { Edge::default() } else { Edge::of(place, facts.bounds, rate_in, now) };
    let age = |timestamp: Timestamp| Duration::from_millis(now.0.saturating_sub(timestamp.0).max(0).unsigned_abs());
    let lag = PartitionLag {
        partition: facts.partition.clone(),
        committed: facts.committed,
        start: place.start,
        end: place.last_stable,
        high_watermark: place.high_watermark,
        records,
        bytes: place.bytes_behind,
        time: facts.next.map(age).filter(|_| records > 0),
        rate_in,
        rate_out,
        catch_up: if astray.is_some() { None } else { catch_up(records, kept) },
        left: if lost.is_some() { Some(Duration::ZERO) } else { edge.left() },
        lost,
        astray,
    };
    (lag, edge)
}

/// Where a group goes on that has committed this, or nothing, as far as the log goes.
pub(super) fn goes_on_at(committed: Option<Offset>, place: &Place) -> Offset {
    place.cut.or(committed).unwrap_or(place.start).max(place.start)
}

fn astray(committed: Option<Offset>, place: &Place) -> Option<Astray> {
    let committed = committed?;
    match place.cut {
        Some(end) => Some(Astray::Cut { end }),
        None => (committed > place.end).then_some(Astray::BeyondEnd { end: place.end }),
    }
}

/// Nothing, where all that is unread has come in of late: whoever keeps pace has that much unread now and then.
fn catch_up(records: u64, pace: Pace) -> Option<Duration> {
    if records <= pace.lately {
        return Some(Duration::ZERO);
    }
    seconds(number(records), pace.rate_out?.records - pace.rate_in?.records)
}

/// How long `amount` takes at so much a second; `None` where that is never.
fn seconds(amount: f64, rate: f64) -> Option<Duration> {
    if rate > 0.0 { Duration::try_from_secs_f64(amount / rate).ok() } else { None }
}

/// What is said of a group.
pub(super) fn of_group(group: &str, partitions: Vec<PartitionLag>) -> GroupLag {
    let sum = |rate: fn(&PartitionLag) -> Option<Rate>| partitions.iter().filter_map(rate).reduce(Rate::plus);
    let catch_up = partitions.iter().map(|lag| lag.catch_up).reduce(|a, b| a.zip(b).map(|(a, b)| a.max(b))).flatten();
    let lost = partitions.iter().filter_map(|lag| lag.lost.as_ref());
    let total = TotalLag {
        records: partitions.iter().map(|lag| lag.records).sum(),
        bytes: partitions.iter().map(|lag| lag.bytes).sum(),
        time: partitions.iter().filter_map(|lag| lag.time).max(),
        rate_in: sum(|lag| lag.rate_in),
        rate_out: sum(|lag| lag.rate_out),
        catch_up,
        left: partitions.iter().filter_map(|lag| lag.left).min(),
        lost: lost.map(|lost| lost.end.0 - lost.start.0).sum(),
        astray: partitions.iter().filter(|lag| lag.astray.is_some()).count(),
    };
    GroupLag { group: group.to_owned(), partitions, total }
}
