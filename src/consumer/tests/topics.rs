//! Topics that grow, go, and come again.

use super::{Rig, drain, offsets, take};
use crate::consumer::{Reader, StartAt, Which};
use crate::error::Error;
use crate::types::Offset;

fn assignment(reader: &Reader) -> Vec<String> {
    reader.assignment().iter().map(ToString::to_string).collect()
}

#[test]
fn partitions_that_are_added_are_read_from_their_first_record() {
    let rig = Rig::new();
    rig.topic("t", 1, 1);
    rig.topic("a", 2, 1);
    let mut reader = rig.reader().topics(["t"]).start_at(StartAt::Latest).open().expect("opened");
    let mut fixed = rig.reader().partitions([("t", 0)]).open().expect("opened");
    rig.topic("t", 1, 3);
    rig.append("t", 0, 1);
    rig.append("t", 2, 2);
    assert_eq!(offsets(&drain(&mut reader), "t", 2), [0, 1]);
    assert_eq!(assignment(&reader), ["t-0", "t-1", "t-2"]);
    assert_eq!(drain(&mut fixed), [("t".to_owned(), 0, 0)]);
    assert_eq!(assignment(&fixed), ["t-0"]);
    reader.seek("t", 2, Offset(1)).expect("assigned");
    rig.topic("t", 1, 4);
    reader.pause(("t", 3)).expect("noticed at once");
}

#[test]
fn growth_takes_nobodys_turn() {
    let rig = Rig::new();
    rig.topic("a", 1, 1);
    rig.topic("b", 2, 2);
    for (topic, number) in [("a", 0), ("b", 0), ("b", 1)] {
        (0..3).for_each(|_| rig.append(topic, number, 1));
    }
    let mut reader = rig.reader().topics(["a", "b"]).max_bytes(1).open().expect("opened");
    take(&mut reader).expect("readable");
    take(&mut reader).expect("readable");
    rig.topic("a", 1, 2);
    let next = take(&mut reader).expect("readable").expect("something comes");
    assert_eq!((next.0.as_str(), next.1), ("b", 1));
}

#[test]
fn a_topic_that_is_named_twice_is_read_once() {
    let rig = Rig::new();
    rig.topic("t", 1, 2);
    rig.append("t", 1, 1);
    let mut reader = rig.reader().topics(["t", "t"]).partitions([("t", 1)]).open().expect("opened");
    assert_eq!(drain(&mut reader), [("t".to_owned(), 1, 0)]);
    assert_eq!(assignment(&reader), ["t-0", "t-1"]);
}

#[test]
fn a_topic_that_goes_is_an_error_at_its_turn() {
    let rig = Rig::new();
    rig.topic("gone", 1, 1);
    rig.topic("t", 2, 1);
    rig.append("t", 0, 1);
    let mut reader = rig.reader().topics(["gone", "t"]).open().expect("opened");
    rig.partition("gone", 0).close().expect("closed");
    rig.delete("gone");
    assert!(matches!(take(&mut reader), Err(Error::UnknownTopic { name }) if name == "gone"));
    assert_eq!(take(&mut reader).expect("readable"), Some(("t".to_owned(), 0, vec![0])));
    assert!(matches!(take(&mut reader), Err(Error::UnknownTopic { .. })));
    reader.seek_to_beginning(Which::All).expect("the others");
    assert!(matches!(reader.seek_to_beginning("gone"), Err(Error::UnknownTopic { .. })));
    reader.pause("gone").expect("assigned");
    assert_eq!(drain(&mut reader), [("t".to_owned(), 0, 0)]);
}

/// Whoever reads a topic that was replaced is told so once, however often it looked meanwhile.
#[test]
fn a_topic_that_comes_again_is_another_one() {
    for looks_between in [false, true] {
        let rig = Rig::new();
        rig.topic("t", 1, 1);
        rig.append("t", 0, 5);
        let mut reader = rig.reader().topics(["t"]).open().expect("opened");
        assert_eq!(drain(&mut reader).len(), 5);
        rig.delete("t");
        if looks_between {
            assert!(matches!(take(&mut reader), Err(Error::UnknownTopic { .. })));
        }
        rig.topic("t", 9, 2);
        rig.append("t", 0, 8);
        if !looks_between {
            assert!(matches!(take(&mut reader), Err(Error::UnknownTopic { .. })));
        }
        assert_eq!(offsets(&drain(&mut reader), "t", 0), (0..8).collect::<Vec<_>>());
    }
}

/// Partitions that a topic does not have any more go with the answer that it was deleted; the others are read, and moved.
#[test]
fn a_topic_that_comes_again_smaller_is_read_as_it_is() {
    let rig = Rig::new();
    rig.topic("t", 1, 3);
    let mut reader = rig.reader().topics(["t"]).open().expect("opened");
    rig.delete("t");
    rig.topic("t", 9, 1);
    rig.append("t", 0, 4);
    let mut told = 0;
    let mut read = Vec::new();
    for _ in 0..12 {
        match take(&mut reader) {
            Ok(taken) => read.extend(taken),
            Err(Error::UnknownTopic { .. }) => told += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((told, read), (3, vec![("t".to_owned(), 0, vec![0, 1, 2, 3])]));
    assert_eq!(assignment(&reader), ["t-0"]);
    reader.seek_to_beginning("t").expect("it is there");
    rig.topic("t", 9, 2);
    rig.append("t", 1, 1);
    assert_eq!(drain(&mut reader).len(), 5, "one that comes later is read");
}

/// A turn that is dropped is nobody else's.
#[test]
fn what_goes_takes_nobodys_turn() {
    let rig = Rig::new();
    rig.topic("a", 1, 2);
    rig.topic("b", 2, 2);
    let mut reader = rig.reader().topics(["a", "b"]).max_bytes(1).open().expect("opened");
    rig.delete("a");
    rig.topic("a", 9, 1);
    (0..3).for_each(|_| ["b"].iter().for_each(|topic| [0, 1].iter().for_each(|number| rig.append(topic, *number, 1))));
    assert!(take(&mut reader).is_err() && take(&mut reader).is_err());
    let next: Vec<_> = (0..2).map(|_| take(&mut reader).expect("readable").expect("something comes").1).collect();
    assert_eq!((assignment(&reader), next), (["a-0", "b-0", "b-1"].map(str::to_owned).to_vec(), vec![0, 1]));
}

/// Whoever named the partition is told that there is none, until there is one again.
#[test]
fn a_named_partition_that_is_no_more_says_so_at_its_turns() {
    let rig = Rig::new();
    rig.topic("t", 1, 2);
    let mut reader = rig.reader().partitions([("t", 0), ("t", 1)]).open().expect("opened");
    rig.delete("t");
    rig.topic("t", 9, 1);
    rig.append("t", 0, 2);
    for _ in 0..2 {
        assert!(matches!(take(&mut reader), Err(Error::UnknownTopic { .. })));
    }
    for _ in 0..2 {
        let (mut read, mut missing) = (0, 0);
        for _ in 0..2 {
            match take(&mut reader) {
                Ok(taken) => read += taken.map_or(0, |(_, _, offsets)| offsets.len()),
                Err(Error::UnknownPartition { partition: 1, partitions: 1, .. }) => missing += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((read, missing), (2, 1));
        reader.seek_to_beginning("t").expect("the one that is there");
    }
    assert!(matches!(reader.seek_to_end(("t", 1)), Err(Error::UnknownPartition { .. })));
    rig.topic("t", 9, 2);
    rig.append("t", 1, 3);
    assert_eq!(offsets(&drain(&mut reader), "t", 1), [0, 1, 2]);
    rig.delete("t");
    assert!(matches!(take(&mut reader), Err(Error::UnknownTopic { .. })));
}
