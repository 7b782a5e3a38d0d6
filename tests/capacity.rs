//! The capacity example: its documented cases, what it rounds, and what it refuses.

#[path = "../examples/shared/capacity.rs"]
mod capacity;

use capacity::{FLAGS, Workload, bytes, count, documented};
use taffrail::{Log, MemoryStorage, TopicConfig};

fn parse(arguments: &str) -> Result<Workload, String> {
    Workload::parse(arguments.split_whitespace().map(str::to_owned))
}

#[test]
fn the_documented_figures_come_out() {
    for figure in documented() {
        assert_eq!(figure.found, figure.documented, "{}", figure.what);
    }
}

#[test]
fn the_first_case_to_the_byte() {
    let plan = Workload::default().plan();
    assert_eq!(plan.events_a_day, 86_400_000_000);
    assert_eq!(plan.copied_bytes_a_day, 259_200_000_000_000);
    assert_eq!((plan.kept_bytes, plan.disk_bytes), (604_800_000_000_000, 1_814_400_000_000_000));
    assert_eq!((plan.nodes, plan.disk_bytes_per_node), (20, 90_720_000_000_000));
    assert_eq!((plan.segment_seconds, plan.kept_bytes_per_partition), (200, 3_024_000_000_000));
    assert_eq!((plan.backlog_events, plan.backlog_bytes), (86_400_000_000, 86_400_000_000_000));
    assert_eq!((plan.drain_events, plan.catch_up_seconds), (5_000_000, Some(17_280)));
}

#[test]
fn flags_say_what_the_struct_says() {
    assert_eq!(parse(""), Ok(Workload::default()));
    let all = parse(
        "--events-per-second 1 --event-bytes 2 --retention-days 3 --copies 4 --node-mb-per-second 5 --consumers 6 \
         --consumer-events-per-second 7 --consumer-mb-per-second 8 --outage-hours 9",
    );
    let expected = Workload {
        events_per_second: 1,
        event_bytes: 2,
        retention_days: 3,
        copies: 4,
        node_mb_per_second: 5,
        consumers: 6,
        consumer_events_per_second: Some(7),
        consumer_mb_per_second: Some(8),
        outage_hours: 9,
    };
    assert_eq!(all, Ok(expected));
    let by_bytes = parse("--consumer-mb-per-second 50").expect("it is right");
    assert_eq!((by_bytes.consumer_events_per_second, by_bytes.consumer_mb_per_second), (None, Some(50)));
}

#[test]
fn what_is_no_flag_or_number_is_refused() {
    for arguments in [
        "--events 5",
        "5",
        "--copies",
        "--copies 0",
        "--copies -1",
        "--copies three",
        "--copies 1.5",
        "--copies 101",
        "--consumers --copies",
        "--event-bytes 99999999999999999999999",
    ] {
        assert!(parse(arguments).is_err(), "{arguments}");
    }
}

#[test]
fn the_greatest_workload_and_the_least_can_be_worked_out() {
    let greatest: Vec<String> =
        FLAGS.iter().flat_map(|(name, most, _)| [(*name).to_owned(), most.to_string()]).collect();
    let plan = Workload::parse(greatest).expect("it is inside of every bound").plan();
    assert!(plan.disk_bytes > plan.kept_bytes && !plan.to_string().is_empty());
    let least: Vec<String> = FLAGS.iter().flat_map(|(name, ..)| [(*name).to_owned(), "1".to_owned()]).collect();
    let plan = Workload::parse(least).expect("it is inside of every bound").plan();
    assert_eq!((plan.nodes, plan.partitions, plan.catch_up_seconds), (1, 1, None));
}

#[test]
fn what_is_bought_is_rounded_up() {
    let plan = parse("--events-per-second 1000001 --consumers 1").expect("it is right").plan();
    assert_eq!((plan.nodes, plan.partitions), (21, 34));
    assert_eq!(plan.catch_up_seconds, None, "one consumer of 34 that are needed");
    let exact = parse("--events-per-second 6000000").expect("it is right").plan();
    assert_eq!((exact.partitions, exact.catch_up_seconds), (200, None), "they only match");
    let hardly = parse("--events-per-second 5999999 --outage-hours 1").expect("it is right").plan();
    assert_eq!(hardly.catch_up_seconds, Some(5_999_999 * 3600));
}

/// The line of a plan that begins with this name, without it.
fn line(arguments: &str, name: &str) -> Option<String> {
    let plan = parse(arguments).expect("it is right").plan().to_string();
    let mut lines = plan.lines().filter_map(|line| line.trim_start().strip_prefix(name));
    lines.next().map(|rest| rest.trim_start().to_owned())
}

/// An outage of ten days was caught up with, though nine of them were gone.
#[test]
fn what_an_outage_longer_than_the_retention_loses_is_said() {
    let plan = parse("--retention-days 1 --outage-hours 240").expect("it is right").plan();
    assert_eq!((plan.lost_hours, plan.lost_events), (216, 777_600_000_000));
    assert_eq!((plan.backlog_events, plan.catch_up_seconds), (86_400_000_000, Some(17_280)), "what is kept of it");
    let lost = line("--retention-days 1 --outage-hours 240", "LOST").expect("it is said");
    assert_eq!(lost, "777.6 billion events, 778 TB: the outage is 216 h longer than events are kept");
    for outage in [1, 24] {
        assert_eq!(line(&format!("--retention-days 1 --outage-hours {outage}"), "LOST"), None);
    }
    assert!(line("--retention-days 1 --outage-hours 25", "LOST").is_some());
}

#[test]
fn more_partitions_than_a_topic_can_have_are_named() {
    let most = "a topic has at most 100,000: divide it, or take fewer consumers that do more each";
    let says = |consumers: u32| line(&format!("--consumers {consumers}"), "a topic has");
    assert_eq!(says(100_001).map(|rest| format!("a topic has {rest}")).as_deref(), Some(most));
    assert_eq!(says(100_000), None);
    // What is said is what a topic is held to.
    let log = Log::builder("data").storage(MemoryStorage::new(1).shared()).background(false).open().expect("it opens");
    let refused = log.create_topic("orders", TopicConfig::new().partitions(100_001)).expect_err("it is one too many");
    assert!(refused.to_string().contains("100000"), "{refused}");
}

#[test]
fn shares_of_less_than_one_are_said_as_such() {
    let plan = |arguments: &str, name: &str| line(arguments, name).expect("it is there");
    let few = "--events-per-second 1 --event-bytes 100";
    assert_eq!(plan(few, "partitions"), "200 of an event in 200 s, less than 1 B a second");
    assert_eq!(plan("--events-per-second 300", "partitions"), "200 of 1 event and 1.5 KB a second");
    assert_eq!(plan("--events-per-second 150", "partitions"), "200 of less than 1 event and 750 B a second");
    assert_eq!(
        plan("--consumers 1000000000 --events-per-second 1 --event-bytes 1", "a partition"),
        "less than 1 B in one copy"
    );
    assert_eq!(
        plan("--event-bytes 1000000 --consumers 1 --consumer-mb-per-second 1000000", "a segment of 1 GB"),
        "fills in less than 1 s"
    );
    let outage = |hours: u32, each: u32| {
        let flags = format!("--events-per-second 1 --consumers 1 --outage-hours {hours}");
        plan(&format!("{flags} --consumer-events-per-second {each}"), "catching up")
    };
    assert_eq!(outage(1, 3601), "3,600 events a second more than come: 1 s");
    assert_eq!(outage(1, 61), "60 events a second more than come: 60 s = 1 min");
    assert_eq!(outage(2, 3), "2 events a second more than come: 3,600 s = 1 h");
    assert_eq!(plan("--node-mb-per-second 1", "nodes"), "3,000, by what they write; 605 GB each");
}

/// A consumer that processes less than an event a second was taken for one that does nothing.
#[test]
fn events_larger_than_what_a_consumer_does_in_a_second_are_read() {
    let large = "--events-per-second 1 --event-bytes 3000000 --consumers 4 --consumer-mb-per-second 1";
    let plan = parse(large).expect("it is right").plan();
    assert_eq!((plan.read_bytes, plan.drain_events), (4_000_000, 0));
    assert_eq!(plan.catch_up_seconds, Some(3 * 86_400));
    let says = line(large, "catching up");
    assert_eq!(says.as_deref(), Some("less than an event a second more than come: 259,200 s = 72 h"));
    assert_eq!(line(large, "read meanwhile").as_deref(), Some("4 MB a second by each group"));
}

#[test]
fn numbers_are_written_for_people() {
    for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (999_999_999, "999,999,999")] {
        assert_eq!(count(number), text);
    }
    assert_eq!([count(1_000_000_000), count(86_400_000_000)], ["1 billion", "86.4 billion"]);
    for (number, text) in [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1024, "1.02 KB"),
        (30_240_000_000_000, "30.2 TB"),
        (604_800_000_000_000, "605 TB"),
        (5_000_000_000_000_000_000, "5,000 PB"),
    ] {
        assert_eq!(bytes(number), text);
    }
}
