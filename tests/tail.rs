//! The tail example: what it is told, where it begins, and that it sees what is published while it runs.

#[path = "../examples/tail.rs"]
#[expect(dead_code, reason = "the program's main is not called")]
mod example;

use example::tail::{self, Arguments, Source};
use taffrail::{Log, Offset, Partition, Record, StartAt, Timestamp, TopicConfig};

fn parse(line: &str) -> Result<Arguments, String> {
    Arguments::parse(line.split_whitespace().map(str::to_owned)).map_err(|error| error.to_string())
}

#[test]
fn the_command_line_says_what_and_from_where() {
    let source = |topic: &str, partition, offset: Option<u64>| Source {
        topic: topic.to_owned(),
        partition,
        offset: offset.map(Offset),
    };
    let parsed = parse("--data d orders orders:2 my.orders:3@2000 --since -5 --follow").expect("it is right");
    let sources =
        vec![source("orders", None, None), source("orders", Some(2), None), source("my.orders", Some(3), Some(2000))];
    let start = StartAt::Time(Timestamp(-5));
    assert_eq!(parsed, Arguments { directory: "d".into(), sources, start, follow: true });
    let plain = parse("orders --data d").expect("it is right");
    assert_eq!((plain.start, plain.follow), (StartAt::Earliest, false));
    assert_eq!(parse("orders --data d --latest").expect("it is right").start, StartAt::Latest);
}

#[test]
fn what_it_cannot_be_told_is_refused() {
    for (line, what) in [
        ("orders", "--data DIR is needed"),
        ("--data d", "a topic is needed"),
        ("orders --data", "--data needs a directory"),
        ("--data d orders@5", "an offset is one partition's"),
        ("--data d orders:x", "the partition"),
        ("--data d orders:1@-1", "the offset"),
        ("--data d orders --since", "--since needs a number"),
        ("--data d orders --since today", "--since"),
        ("--data d orders --since 1 --latest", "exclude each other"),
        ("--data d orders --tail", "--tail is not known"),
    ] {
        let refused = parse(line).expect_err(line);
        assert!(refused.contains(what), "{line}: {refused}");
    }
}

/// Two partitions with three records each, at times 10, 20 and 30.
fn log(directory: &tempfile::TempDir) -> Log {
    let log = Log::open(directory.path().join("data")).expect("it opens");
    let config = TopicConfig::new().partitions(2).retention(taffrail::Retention::forever());
    log.create_topic("orders", config).expect("it is new");
    let producer = log.producer().open().expect("it opens");
    for time in [10, 20, 30] {
        for partition in [0, 1] {
            let value = format!("{partition} at {time}");
            let record = Record::new(&value).timestamp(Timestamp(time)).partition(partition);
            drop(producer.send("orders", record).expect("it is taken"));
        }
    }
    producer.close().expect("all is stored");
    log
}

/// What it writes for a command line, without the topic, sorted by partition; the order within each is kept.
fn tailed(log: &Log, line: &str) -> Result<Vec<String>, String> {
    let mut reader = parse(line)?.open(log).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    tail::run(&mut reader, false, &mut out).map_err(|error| error.to_string())?;
    let text = String::from_utf8(out).expect("it is text");
    let mut lines: Vec<_> = text.lines().map(|line| line.trim_start_matches("orders\t").to_owned()).collect();
    lines.sort_by_key(|line| line.split('\t').next().map(str::to_owned));
    Ok(lines)
}

#[test]
fn it_begins_where_it_is_told() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = log(&home);
    let all = tailed(&log, "--data d orders").expect("it reads");
    assert_eq!(all[..3], ["0\t0\t10\t-\t0 at 10", "0\t1\t20\t-\t0 at 20", "0\t2\t30\t-\t0 at 30"]);
    assert_eq!(all[3..], ["1\t0\t10\t-\t1 at 10", "1\t1\t20\t-\t1 at 20", "1\t2\t30\t-\t1 at 30"]);
    assert_eq!(tailed(&log, "--data d orders:1@1").expect("it reads"), all[4..]);
    assert_eq!(tailed(&log, "--data d orders --since 25").expect("it reads"), [all[2].clone(), all[5].clone()]);
    assert_eq!(tailed(&log, "--data d orders orders:0@2").expect("it reads"), all[2..]);
    assert!(tailed(&log, "--data d orders --latest").expect("it reads").is_empty());
}

#[test]
fn an_offset_that_was_overtaken_is_an_error_with_both_ends() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = log(&home);
    let partition: Partition = log.partition("orders", 1).expect("it is there");
    partition.trim_before(Offset(2)).expect("nothing is held");
    let refused = tailed(&log, "--data d orders:1@0").expect_err("it is gone");
    let expected = "offset 0 is outside the log of orders-1, which goes from 2 to 3";
    assert_eq!(refused, expected);
    assert!(tailed(&log, "--data d orders:7").expect_err("there are two").contains("there is no partition 7"));
}

#[test]
fn what_is_published_meanwhile_is_tailed() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut out = Vec::new();
    let proof = example::publish_and_tail(home.path(), &mut out).expect("it holds");
    assert_eq!(proof, "published 200, tailed 200, the same in order in each of 4 partitions");
    assert_eq!(String::from_utf8(out).expect("it is text").lines().count(), 200);
}
