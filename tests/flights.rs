//! The events that the examples publish: their times, what is no event, and the example that publishes them all.

#[path = "../examples/quickstart.rs"]
#[expect(dead_code, reason = "the program's main is not called")]
mod quickstart;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quickstart::flights::{self, Flight, unix_millis};
use taffrail::Timestamp;

#[test]
fn times_are_read_as_rfc_3339_has_them() {
    for (text, millis) in [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2013-01-01T05:15:00-05:00", 1_357_035_300_000),
        ("2000-02-29t12:00:00.25+01:30", 951_820_200_250),
        ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("2016-12-31 23:59:60z", 1_483_228_800_000),
        ("2013-01-01T00:00:00.1239Z", 1_356_998_400_123),
    ] {
        assert_eq!(unix_millis(text), Some(millis), "{text}");
    }
}

#[test]
fn what_is_no_time_is_refused() {
    for text in [
        "",
        "2013-01-01",
        "2013-01-01T05:15:00",
        "2013-01-01T05:15Z",
        "2013-02-29T00:00:00Z",
        "2013-13-01T00:00:00Z",
        "2013-00-01T00:00:00Z",
        "2013-01-01T24:00:00Z",
        "2013-01-01T00:60:00Z",
        "2013-01-01T00:00:00.Z",
        "2013-01-01T00:00:00,5Z",
        "2013-01-01T00:00:00+5:00",
        "2013-01-01T00:00:00+24:00",
        "2013-01-01T00:00:00-",
        "+013-01-01T00:00:00Z",
        "2013-01-0éT00:00:00Z",
    ] {
        assert_eq!(unix_millis(text), None, "{text}");
    }
}

#[test]
fn an_event_without_an_aircraft_has_no_key() {
    let line = r#"{"tail":null,"scheduled":"2013-01-01T05:15:00-05:00"}"#;
    let flight = Flight::parse(line).expect("it is one");
    assert_eq!((flight.tail, flight.scheduled, flight.line.as_str()), (None, Timestamp(1_357_035_300_000), line));
}

#[test]
fn what_is_no_event_is_refused() {
    for (line, what) in [
        ("{", "EOF"),
        (r#"{"tail":7,"scheduled":"2013-01-01T05:15:00-05:00"}"#, "tail is 7"),
        (r#"{"tail":"N1"}"#, "scheduled is missing"),
        (r#"{"tail":"N1","scheduled":"yesterday"}"#, "yesterday"),
    ] {
        let refused = Flight::parse(line).expect_err(line).to_string();
        assert!(refused.contains(what), "{refused}");
    }
}

fn week() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/flights.jsonl")
}

#[test]
fn the_week_of_flights_is_whole() {
    let flights = flights::read(&week()).expect("the file is sound");
    assert_eq!(flights.len(), 6099);
    assert!(flights.is_sorted_by_key(|flight| flight.scheduled));
}

/// The second run publishes behind what the first has left, and checks its own part.
#[test]
fn quickstart_runs_again_on_the_log_that_it_kept() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let directory = home.path().join("log");
    for _ in 0..2 {
        let summary = quickstart::run(&week(), &directory, &mut io::sink()).expect("what was published comes back");
        assert_eq!(summary.to_string(), "published 6099, read 6099, keys 2048, order kept");
    }
    let log = taffrail::Log::open(&directory).expect("it opens");
    let described = log.describe_topic("flights").expect("it is there");
    let records: u64 = described.partitions.iter().map(|partition| partition.end.0).sum();
    assert_eq!((described.partitions.len(), records), (8, 2 * 6099));
}

#[test]
fn quickstart_takes_files_that_hardly_have_anything() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let line = |tail: &str| format!("{{\"tail\":{tail},\"scheduled\":\"2013-01-01T05:15:00-05:00\"}}\n");
    let (one, two) = (line("\"N1\""), line("\"N1\"") + &line("null"));
    for (number, (text, keys)) in [("", 0), (one.as_str(), 1), (two.as_str(), 1)].into_iter().enumerate() {
        let (path, directory) = (home.path().join("flights.jsonl"), home.path().join(format!("log-{number}")));
        fs::write(&path, text).expect("it can be written");
        let summary = quickstart::run(&path, &directory, &mut io::sink()).expect("what was published comes back");
        let count = text.lines().count();
        assert_eq!(summary, quickstart::Summary { published: count, read: count, keys });
    }
}
