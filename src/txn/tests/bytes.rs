//! Records of the coordinator: Kafka's bytes, and bytes that nobody wrote.

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const KEY: &str = "0000 000474782d31";

fn decoded(value: &str) -> Kept {
    match Coordinator::decode(&hex(KEY), Some(&hex(value))).unwrap().unwrap() {
        Event::Changed { id, kept, .. } if id == "tx-1" => kept,
        other => panic!("{other:?}"),
    }
}

/// Made by Kafka's generated classes.
#[test]
fn kafkas_own_records_are_read_and_written() {
    let ongoing = decoded(
        "0000 00000000000003e8 0005 0000ea60 01 00000001 00066f7264657273 00000002 00000000 00000003
         0000018bcfe56864 0000018bcfe56832",
    );
    let partitions = |numbers: &[u32]| Partitions::from([("orders".to_owned(), numbers.iter().copied().collect())]);
    let expected = Kept {
        producer_id: ProducerId(1000),
        producer_epoch: ProducerEpoch(5),
        previous_producer_id: None,
        next_producer_id: None,
        timeout_ms: 60_000,
        status: Status::Ongoing,
        partitions: partitions(&[0, 3]),
        updated: Timestamp(0x018b_cfe5_6864),
        started: Some(Timestamp(0x018b_cfe5_6832)),
        version: 0,
    };
    assert_eq!(ongoing, expected);

    let empty = decoded("0000 00000000000003e8 0000 0000ea60 00 ffffffff 0000018bcfe56864 ffffffffffffffff");
    let (epoch, none) = (ProducerEpoch(0), Partitions::new());
    let expected =
        Kept { producer_epoch: epoch, status: Status::Empty, partitions: none, started: None, ..expected.clone() };
    assert_eq!(empty, expected);

    let bytes = "0001 00000000000003e8 0006 0000ea60 02 02 076f7264657273 02 00000000 00
                 0000018bcfe56864 0000018bcfe56832 01 02 02 0002";
    let prepared = decoded(bytes);
    let expected = Kept {
        producer_epoch: ProducerEpoch(6),
        status: Status::Prepared(Outcome::Committed),
        partitions: partitions(&[0]),
        version: 2,
        ..ongoing
    };
    assert_eq!(prepared, expected);
    let event = Event::Changed { id: "tx-1".to_owned(), kept: prepared, bump: None };
    assert_eq!(Coordinator::encode(&event), KeyValue { key: hex(KEY), value: Some(hex(bytes)) });

    let forgotten = Event::Forgotten { id: "tx-1".to_owned() };
    assert_eq!(Coordinator::encode(&forgotten), KeyValue { key: hex(KEY), value: None });
    assert_eq!(Coordinator::decode(&hex(KEY), None), Ok(Some(forgotten)));
    assert_eq!(Coordinator::decode(&hex("0001 000474782d31 0000 01"), None), Ok(None), "of a kind that is not known");
}

#[test]
fn the_ids_before_and_after_are_tags() {
    let kept = Kept {
        producer_id: ProducerId(7),
        producer_epoch: ProducerEpoch(1),
        previous_producer_id: Some(ProducerId(5)),
        next_producer_id: Some(ProducerId(9)),
        timeout_ms: 1,
        status: Status::Empty,
        partitions: Partitions::new(),
        updated: Timestamp(2),
        started: None,
        version: 2,
    };
    let value = Coordinator::encode(&Event::Changed { id: "a".to_owned(), kept: kept.clone(), bump: None }).value;
    let bytes = value.unwrap();
    assert!(bytes.ends_with(&hex("03 00 08 0000000000000005 01 08 0000000000000009 02 02 0002")));
    // A tag that a later release writes is passed over.
    let longer = [&bytes[..bytes.len() - 25], &hex("01 09 02 aabb")].concat();
    let kept = Kept { previous_producer_id: None, next_producer_id: None, version: 0, ..kept };
    let Ok(Some(Event::Changed { kept: read, .. })) = Coordinator::decode(&hex(KEY), Some(&longer)) else { panic!() };
    assert_eq!(read, kept);
}

#[test]
fn what_no_coordinator_writes_is_refused_by_name() {
    let refused = |value: &str| Coordinator::decode(&hex(KEY), Some(&hex(value))).unwrap_err();
    assert_eq!(refused("0002"), "the record is of version 2, this release reads 0 and 1");
    assert_eq!(refused("0000 ffffffffffffffff"), "the producer id is -1");
    assert_eq!(refused("0000 0000000000000001 ffff"), "the producer epoch is -1");
    assert_eq!(refused("0000 0000000000000001 0000 ffffffff"), "the time-out is -1");
    let until_status = "0000 0000000000000001 0000 00000001";
    for status in ["06", "07", "ff"] {
        assert!(refused(&format!("{until_status} {status}")).starts_with("the status "));
    }
    assert_eq!(
        refused(&format!("{until_status} 01 7fffffff")),
        "a topic's name needs 2 bytes, 0 are left",
        "nothing is allocated by a count"
    );
    assert_eq!(refused(&format!("{until_status} 01 00000001 0001 61 00000001 ffffffff")), "a partition's number is -1");
    let whole = format!("{until_status} 00 ffffffff 0000000000000002 ffffffffffffffff");
    assert!(Coordinator::decode(&hex(KEY), Some(&hex(&whole))).is_ok());
    assert_eq!(refused(&format!("{whole} 00")), "1 bytes are left over");
    assert_eq!(Coordinator::decode(&[0], None).unwrap_err(), "the version of the key needs 2 bytes, 1 are left");
    assert_eq!(Coordinator::decode(&hex("0000 0000 00"), None).unwrap_err(), "1 bytes are left over");
}

pub(super) fn any_kept() -> impl Strategy<Value = Kept> {
    let statuses = [
        Status::Empty,
        Status::Ongoing,
        Status::Prepared(Outcome::Committed),
        Status::Prepared(Outcome::Aborted),
        Status::Complete(Outcome::Committed),
        Status::Complete(Outcome::Aborted),
    ];
    let producer = (0..=i64::MAX, 0..=i16::MAX, option::of(0..=i64::MAX), option::of(0..=i64::MAX));
    let numbers = btree_set(0..=i32::MAX.unsigned_abs(), 0..5);
    let rest = (0..=i32::MAX.unsigned_abs(), proptest::sample::select(statuses.to_vec()), any::<i64>(), any::<i16>());
    (producer, btree_map("[a-zé]{0,200}", numbers, 0..4), rest, option::of(0..=i64::MAX)).prop_map(
        |((id, epoch, previous, next), partitions, (timeout_ms, status, updated, version), started)| Kept {
            producer_id: ProducerId(id),
            producer_epoch: ProducerEpoch(epoch),
            previous_producer_id: previous.map(ProducerId),
            next_producer_id: next.map(ProducerId),
            timeout_ms,
            status,
            partitions: match status {
                Status::Ongoing | Status::Prepared(_) => partitions,
                Status::Empty | Status::Complete(_) => Partitions::new(),
            },
            updated: Timestamp(updated),
            started: started.map(Timestamp),
            version,
        },
    )
}

/// Reads them; what is taken reads the same once it was written again.
fn check(key: &[u8], value: Option<&[u8]>) {
    if let Ok(Some(event)) = Coordinator::decode(key, value) {
        let KeyValue { key, value } = Coordinator::encode(&event);
        assert_eq!(Coordinator::decode(&key, value.as_deref()), Ok(Some(event)));
    }
}

proptest! {
    #[test]
    fn every_state_is_read_as_it_was_written(id in "[a-zé\u{1f600}]{0,50}", kept in any_kept()) {
        let event = Event::Changed { id, kept, bump: Some(Bump::Unknown) };
        let KeyValue { key, value } = Coordinator::encode(&event);
        prop_assert_eq!(Coordinator::decode(&key, value.as_deref()), Ok(Some(event)));
    }

    #[test]
    fn every_cut_is_noticed_and_no_flipped_byte_panics(kept in any_kept(), at in any::<usize>(), by in 1_u8..) {
        let event = Event::Changed { id: "tx".to_owned(), kept, bump: None };
        let KeyValue { key, value } = Coordinator::encode(&event);
        let mut value = value.unwrap();
        let at = at % value.len();
        prop_assert!(Coordinator::decode(&key, Some(&value[..at])).is_err());
        value[at] ^= by;
        check(&key, Some(&value));
    }

    #[test]
    fn any_bytes_are_a_record_or_a_reason(key in vec(any::<u8>(), 0..20), value in option::of(vec(any::<u8>(), 0..80))) {
        check(&key, value.as_deref());
        check(&hex(KEY), value.as_deref());
    }
}
