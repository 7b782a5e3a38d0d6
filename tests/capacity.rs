//! The capacity example: its documented cases, what it rounds, and what it refuses.

#[path = "../examples/shared/capacity.rs"]
mod capacity;

use capacity::{FLAGS, Workload, bytes, count, documented};

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
