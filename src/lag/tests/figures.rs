//! The figures, by examples that were worked out by hand; and when an alert is due.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::Ratio;
use crate::lag::crossing::{Crossings, Nearness};
use crate::lag::figures::{Bounds, Facts, figures, of_group};
use crate::lag::samples::Pace;
use crate::lag::{Alert, Astray, Margin, PartitionLag, Rate};
use crate::partition::Place;
use crate::types::{Offset, Timestamp, TopicPartition};

const DAY: Duration = Duration::from_secs(86_400);
const NOW: Timestamp = Timestamp(1_000_000_000);

fn partition() -> TopicPartition {
    TopicPartition { topic: "orders".to_owned(), partition: 2 }
}

fn rate(records: f64, bytes: f64) -> Rate {
    Rate { records, bytes }
}

/// The log has the offsets 1,000 to 10,000. The position is 4,000, in a segment of 300,000 bytes whose youngest record is
/// of an hour ago; 500,000 bytes lie behind that segment, 650,000 behind the position.
fn facts() -> Facts {
    let place = Place {
        start: Offset(1_000),
        last_stable: Offset(10_000),
        high_watermark: Offset(10_500),
        end: Offset(10_700),
        cut: None,
        bytes_behind: 650_000,
        bytes_after: 500_000,
        segment_bytes: 300_000,
        largest: Some(Timestamp(NOW.0 - 3_600_000)),
    };
    let next = Some(Timestamp(NOW.0 - 5_400_000));
    Facts { partition: partition(), committed: Some(Offset(4_000)), place, next, bounds: Bounds::default() }
}

fn with(bounds: Bounds) -> Facts {
    Facts { bounds, ..facts() }
}

fn lag(facts: &Facts, rate_in: Option<Rate>, rate_out: Option<Rate>) -> PartitionLag {
    figures(facts, Pace { rate_in, rate_out, lately: 0 }, NOW).0
}

fn left(bounds: Bounds, bytes_in: f64) -> Option<Duration> {
    lag(&with(bounds), Some(rate(1.0, bytes_in)), None).left
}

fn by_age(age: Duration) -> Bounds {
    Bounds { age: Some(age), ..Bounds::default() }
}

fn by_size(bytes: u64) -> Bounds {
    Bounds { bytes: Some(bytes), ..Bounds::default() }
}

#[test]
fn what_is_behind_a_position() {
    let lag = lag(&facts(), None, None);
    assert_eq!((lag.records, lag.bytes, lag.time), (6_000, 650_000, Some(Duration::from_secs(5_400))));
    assert_eq!((lag.start, lag.end, lag.high_watermark), (Offset(1_000), Offset(10_000), Offset(10_500)));
    assert_eq!((lag.catch_up, lag.left, lag.lost), (None, None, None), "no rates are known, and nothing is removed");
}

/// 6,000 records, at 50 in and 80 out: 200 seconds.
#[test]
fn catching_up() {
    let catch_up =
        |records_in, records_out| lag(&facts(), Some(rate(records_in, 0.0)), Some(rate(records_out, 0.0))).catch_up;
    assert_eq!(catch_up(50.0, 80.0), Some(Duration::from_secs(200)));
    assert_eq!(catch_up(0.0, 0.5), Some(Duration::from_secs(12_000)));
    assert_eq!(catch_up(80.0, 80.0), None, "no ground is gained");
    assert_eq!(catch_up(80.0, 50.0), None);
    assert_eq!(lag(&facts(), Some(rate(0.0, 0.0)), None).catch_up, None);
    let caught_up = Facts { committed: Some(Offset(10_000)), ..facts() };
    assert_eq!(lag(&caught_up, None, None).catch_up, Some(Duration::ZERO));
}

/// Of 6,000 that are unread all have come in of late, or all but one.
#[test]
fn who_keeps_pace_has_nothing_to_catch_up() {
    let catch_up = |records_out: f64, lately| {
        let pace = Pace { rate_in: Some(rate(50.0, 0.0)), rate_out: Some(rate(records_out, 0.0)), lately };
        figures(&facts(), pace, NOW).0
    };
    assert_eq!(catch_up(50.0, 6_000).catch_up, Some(Duration::ZERO));
    assert_eq!(catch_up(50.0, 5_999).catch_up, None);
    // What little ground is gained by chance is not reckoned with either.
    assert_eq!(catch_up(50.001, 6_000).catch_up, Some(Duration::ZERO));
    // Of a group the one that keeps pace says nothing, and the one that is behind all.
    let total = |lags| of_group("billing", lags).total.catch_up;
    assert_eq!(total(vec![catch_up(80.0, 0), catch_up(50.0, 6_000)]), Some(Duration::from_secs(200)));
    assert_eq!(total(vec![catch_up(80.0, 0), catch_up(50.0, 5_999)]), None);
}

/// The log ends at 10,700, and is readable up to 10,000.
#[test]
fn a_position_at_which_nothing_can_be_read_is_astray() {
    let at = |offset| lag(&Facts { committed: Some(Offset(offset)), next: None, ..with(by_age(DAY)) }, None, None);
    let beyond = at(10_701);
    assert_eq!(beyond.astray, Some(Astray::BeyondEnd { end: Offset(10_700) }));
    assert_eq!((beyond.records, beyond.catch_up, beyond.left, beyond.lost.clone()), (0, None, None, None));
    assert_eq!((at(10_700).astray, at(10_700).catch_up), (None, Some(Duration::ZERO)), "it is at the end");
    // The same position behind a cut: what is unread begins at the cut.
    let facts = with(by_age(DAY));
    let facts = Facts { place: Place { cut: Some(Offset(3_000)), ..facts.place }, ..facts };
    let cut = lag(&facts, Some(rate(50.0, 0.0)), Some(rate(80.0, 0.0)));
    assert_eq!(cut.astray, Some(Astray::Cut { end: Offset(3_000) }));
    assert_eq!((cut.records, cut.catch_up), (7_000, None));
    assert_eq!((cut.committed, cut.left), (Some(Offset(4_000)), Some(Duration::from_secs(23 * 3_600))));
    let done = lag(&Facts { committed: Some(Offset(10_000)), next: None, ..facts }, None, None);
    let nobody = lag(&Facts { committed: None, ..with(by_age(DAY)) }, None, None);
    assert_eq!(nobody.astray, None);
    let total = of_group("billing", vec![beyond, cut, at(10_000)]).total;
    assert_eq!((total.astray, total.catch_up), (2, None));
    assert_eq!(of_group("billing", vec![at(10_000)]).total.astray, 0);
    assert_eq!(done.astray, Some(Astray::Cut { end: Offset(3_000) }));
}

/// The segment's youngest record is an hour old: of a day, 23 hours are left.
#[test]
fn the_edge_by_age() {
    assert_eq!(left(by_age(DAY), 0.0), Some(Duration::from_secs(23 * 3_600)));
    assert_eq!(left(by_age(Duration::from_secs(3_600)), 0.0), Some(Duration::ZERO));
    assert_eq!(left(by_age(Duration::from_millis(3_600_001)), 0.0), Some(Duration::from_millis(1)));
    assert_eq!(left(by_age(Duration::from_secs(60)), 0.0), Some(Duration::ZERO), "it is past the edge already");
    assert_eq!(left(by_age(Duration::MAX), 0.0).map(|left| left > 365 * DAY), Some(true));
}

/// 500,000 bytes lie behind the segment: of 800,000, 300,000 are left, at 1,000 a second 300 seconds.
#[test]
fn the_edge_by_size() {
    assert_eq!(left(by_size(800_000), 1_000.0), Some(Duration::from_secs(300)));
    assert_eq!(left(by_size(800_000), 0.0), None, "what does not grow pushes nothing out");
    assert_eq!(lag(&with(by_size(800_000)), None, None).left, None, "how fast it grows is not known");
    assert_eq!(left(by_size(500_000), 0.0), Some(Duration::ZERO));
    let both = Bounds { bytes: Some(800_000), ..by_age(DAY) };
    assert_eq!(left(both, 1_000.0), Some(Duration::from_secs(300)), "the smaller counts");
    assert_eq!(left(both, 1.0), Some(Duration::from_secs(23 * 3_600)));
    assert_eq!(left(both, 0.0), Some(Duration::from_secs(23 * 3_600)));
}

/// 800,000 bytes from the segment's start on: of 1,000,000 that are held, 200,000 are left, at 1 a second.
#[test]
fn the_edge_of_what_is_held() {
    let held = |most| Bounds { held: Some(most), ..by_age(DAY) };
    assert_eq!(left(held(1_000_000), 1.0), Some(Duration::from_secs(200_000)));
    assert_eq!(left(held(1_000_000), 1_000.0), Some(Duration::from_secs(23 * 3_600)), "the policy keeps it for longer");
    assert_eq!(left(held(1_000_000), 0.0), None);
    assert_eq!(left(held(800_000), 0.0), None, "the bound is met, and not passed");
    assert_eq!(left(held(799_999), 0.0), Some(Duration::from_secs(23 * 3_600)), "it is not held any more");
    let nothing_removes = Bounds { held: Some(1), ..Bounds::default() };
    assert_eq!(left(nothing_removes, 1_000.0), None);
}

#[test]
fn where_nothing_is_unread_nothing_can_be_lost() {
    let caught_up = Facts { committed: Some(Offset(10_000)), next: None, ..with(by_age(Duration::ZERO)) };
    let lag = lag(&caught_up, Some(rate(1.0, 1.0)), None);
    assert_eq!((lag.records, lag.time, lag.left, lag.lost), (0, None, None, None));
}

#[test]
fn who_was_overtaken_is_told_what_is_lost() {
    let overtaken = Facts { committed: Some(Offset(400)), ..with(by_age(DAY)) };
    let lag = lag(&overtaken, None, None);
    assert_eq!((lag.lost, lag.left), (Some(Offset(400)..Offset(1_000)), Some(Duration::ZERO)));
    assert_eq!(lag.records, 9_000, "what is left to read");
}

#[test]
fn without_a_position_it_is_counted_from_the_start() {
    let lag = lag(&Facts { committed: None, ..facts() }, None, None);
    assert_eq!((lag.committed, lag.records, lag.lost), (None, 9_000, None));
}

#[test]
fn a_timestamp_of_tomorrow_is_no_lag() {
    let lag = lag(&Facts { next: Some(Timestamp(NOW.0 + 1)), ..facts() }, None, None);
    assert_eq!(lag.time, Some(Duration::ZERO));
}

#[test]
fn a_group_is_as_late_as_its_latest_partition() {
    let one = lag(&with(by_age(DAY)), Some(rate(50.0, 10.0)), Some(rate(80.0, 20.0)));
    let two = lag(&Facts { committed: Some(Offset(400)), next: None, ..facts() }, None, Some(rate(1.0, 2.0)));
    let done = lag(&Facts { committed: Some(Offset(10_000)), next: None, ..facts() }, None, None);
    let group = of_group("billing", vec![one.clone(), done.clone()]).total;
    assert_eq!((group.records, group.catch_up), (6_000, Some(Duration::from_secs(200))));
    let group = of_group("billing", vec![one, two, done]);
    let total = group.total;
    assert_eq!((total.records, total.bytes, total.lost), (15_000, 1_950_000, 600));
    assert_eq!((total.time, total.left), (Some(Duration::from_secs(5_400)), Some(Duration::ZERO)));
    assert_eq!((total.rate_in, total.rate_out), (Some(rate(50.0, 10.0)), Some(rate(81.0, 22.0))));
    assert_eq!(total.catch_up, None, "of one it is not known");
    assert_eq!(of_group("nobody", Vec::new()).total, super::super::TotalLag::default());
}

fn is_near(bounds: Bounds, bytes_in: f64, margin: Margin) -> bool {
    let pace = Pace { rate_in: Some(rate(1.0, bytes_in)), ..Pace::default() };
    figures(&with(bounds), pace, NOW).1.is_near(margin)
}

/// Of a day and an hour's age, 23 hours are left; a margin of a quarter begins at 6.
#[test]
fn the_margin_is_exact() {
    let quarter = Margin::default();
    let age = |left: Duration, whole: Duration| {
        // The position's segment is so old that of `whole` just `left` is left.
        let largest = Some(Timestamp(NOW.0 - i64::try_from(whole.checked_sub(left).unwrap().as_millis()).unwrap()));
        let facts = with(by_age(whole));
        let facts = Facts { place: Place { largest, ..facts.place }, ..facts };
        figures(&facts, Pace::default(), NOW).1
    };
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let more = Duration::from_millis(1);
    assert!(age(hours(6), DAY).is_near(quarter));
    assert!(!age(hours(6) + more, DAY).is_near(quarter));
    assert!(age(hours(5), DAY).is_near(Margin::Duration(hours(5))));
    assert!(!age(hours(5) + more, DAY).is_near(Margin::Duration(hours(5))));
    assert!(!age(hours(1), DAY).is_near(Margin::Fraction(Ratio::new(0.0))));
    // By size, the fraction is one of bytes: 300,000 of 1,200,000 are left.
    assert!(is_near(Bounds { bytes: Some(666_666), ..Bounds::default() }, 1.0, quarter), "166,666 of 666,666");
    assert!(!is_near(Bounds { bytes: Some(666_668), ..Bounds::default() }, 1.0, quarter), "166,668 of 666,668");
    assert!(!is_near(Bounds { bytes: Some(666_666), ..Bounds::default() }, 0.0, quarter), "nothing comes");
    // What is held for groups is near where both are: 800,000 bytes of 1,066,666 are used, or of 1,066,668.
    let held = |most| Bounds { held: Some(most), ..by_age(Duration::from_secs(3_600)) };
    assert!(is_near(held(1_066_666), 1.0, quarter));
    assert!(!is_near(held(1_066_668), 1.0, quarter));
}

const WITHIN: Nearness = Nearness::Within;
const BEYOND: Nearness = Nearness::Beyond;

/// A position with so many milliseconds left, or overtaken.
fn at(left: Option<u64>, lost: bool) -> PartitionLag {
    let mut lag = lag(&facts(), None, None);
    lag.left = left.map(Duration::from_millis);
    lag.lost = lost.then_some(Offset(400)..Offset(1_000));
    lag
}

fn kinds(steps: &[(PartitionLag, Nearness)]) -> Vec<Option<&'static str>> {
    let mut crossings = Crossings::default();
    steps.iter().map(|(lag, near)| crossings.cross("billing", lag, *near).map(|alert| alert.kind())).collect()
}

#[test]
fn an_alert_is_once_per_crossing_and_again_when_overtaken() {
    let (beyond, near, overtaken) =
        ((at(Some(9), false), BEYOND), (at(Some(5), false), WITHIN), (at(Some(0), true), BEYOND));
    let steps = [&beyond, &near, &near, &beyond, &near, &overtaken, &overtaken, &beyond, &overtaken];
    let said = kinds(&steps.map(Clone::clone));
    let (near_edge, gone) = (Some("near_edge"), Some("overtaken"));
    assert_eq!(said, [None, near_edge, None, None, near_edge, gone, None, None, gone]);
    // A little beyond it, it has not left it; and it does not come near by being there.
    let around = (at(Some(6), false), Nearness::Around);
    let steps = [&around, &near, &around, &near, &beyond, &around, &near, &overtaken, &around, &near];
    let said = kinds(&steps.map(Clone::clone));
    assert_eq!(said, [None, near_edge, None, None, None, None, near_edge, gone, None, near_edge]);
    // Back within the margin it has crossed nothing.
    assert_eq!(kinds(&[overtaken.clone(), near.clone(), overtaken]), [gone, None, gone]);
}

#[test]
fn who_is_astray_is_told_of_once_and_again_after_it_stood_well() {
    let (well, near, overtaken) =
        ((at(Some(9), false), BEYOND), (at(Some(5), false), WITHIN), (at(Some(0), true), BEYOND));
    let astray = |astray| (PartitionLag { astray: Some(astray), ..at(None, false) }, WITHIN);
    let (cut, beyond) = (astray(Astray::Cut { end: Offset(7) }), astray(Astray::BeyondEnd { end: Offset(7) }));
    let (near_edge, gone, is_astray) = (Some("near_edge"), Some("overtaken"), Some("astray"));
    let said = kinds(&[&well, &cut, &cut, &beyond, &well, &beyond, &near, &well, &near, &cut].map(Clone::clone));
    assert_eq!(said, [None, is_astray, None, None, None, is_astray, None, None, near_edge, is_astray]);
    assert_eq!(kinds(&[overtaken.clone(), cut, overtaken]), [gone, is_astray, gone]);
    let said = |(lag, nearness)| Crossings::default().cross("billing", &lag, nearness).unwrap();
    let [group, position] = ["billing".to_owned(), "4000".to_owned()];
    assert_eq!(
        said(beyond.clone()).to_string(),
        format!("group {group} stands at offset {position} of orders-2, beyond its end at 7")
    );
    let (position, astray) = (Offset(4_000), Astray::BeyondEnd { end: Offset(7) });
    assert_eq!(said(beyond), Alert::Astray { group, partition: partition(), position, astray });
}

#[test]
fn a_margin_is_left_by_a_quarter() {
    let quarter = Margin::Fraction(Ratio::new(0.25)).and_a_quarter();
    assert_eq!(quarter, Margin::Fraction(Ratio::new(0.3125)));
    assert_eq!(Margin::Fraction(Ratio::new(0.9)).and_a_quarter(), Margin::Fraction(Ratio::new(1.0)));
    let minutes = |minutes: u64| Margin::Duration(Duration::from_secs(60 * minutes));
    assert_eq!(minutes(60).and_a_quarter(), minutes(75));
}

#[test]
fn an_alert_says_whose_and_what() {
    let mut crossings = Crossings::default();
    let near = at(Some(5), false);
    let (group, left) = ("billing".to_owned(), Duration::from_millis(5));
    let expected = Alert::NearEdge { group, partition: partition(), left, lag: Box::new(near.clone()) };
    assert_eq!(crossings.cross("billing", &near, WITHIN), Some(expected));
    let other = crossings.cross("audit", &near, WITHIN);
    assert!(matches!(other, Some(Alert::NearEdge { group, .. }) if group == "audit"), "each group has its own");
    let (group, lost) = ("billing".to_owned(), Offset(400)..Offset(1_000));
    let expected = Alert::Overtaken { group, partition: partition(), lost };
    assert_eq!(crossings.cross("billing", &at(None, true), BEYOND), Some(expected.clone()));
    assert_eq!(expected.to_string(), "group billing in orders-2 was overtaken: offsets 400 to 1000 are gone");
    let nobody = PartitionLag { committed: None, ..near };
    assert_eq!(Crossings::default().cross("billing", &nobody, WITHIN), None, "without a position nothing is overtaken");
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut crossings = Crossings::default();
    let near = at(Some(5), false);
    let again = |crossings: &mut Crossings| crossings.cross("billing", &near, WITHIN).is_some();
    assert!(again(&mut crossings) && !again(&mut crossings));
    crossings.keep("audit", &BTreeSet::new());
    crossings.keep("billing", &BTreeSet::from([partition()]));
    assert!(!again(&mut crossings));
    crossings.keep("billing", &BTreeSet::new());
    assert!(again(&mut crossings));
    crossings.keep_groups(&BTreeSet::from(["billing".to_owned()]));
    assert!(!again(&mut crossings));
    crossings.keep_groups(&BTreeSet::new());
    assert!(again(&mut crossings));
}
