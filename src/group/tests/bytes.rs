//! Records of the coordinator: Kafka's bytes, and bytes that nobody wrote.

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn read(key: &str, value: Option<&str>) -> std::result::Result<Option<Event>, String> {
    Coordinator::decode(&hex(key), value.map(hex).as_deref())
}

/// Reads a record, which is written again as it was.
fn same(key: &str, value: Option<&str>) -> Event {
    let event = read(key, value).unwrap().unwrap();
    assert_eq!(Coordinator::encode(&event), KeyValue { key: hex(key), value: value.map(hex) });
    event
}

const OFFSET_KEY: &str = "0001 0003677270 00066f7264657273 00000003";

fn committed(value: &str) -> Committed {
    match read(OFFSET_KEY, Some(value)).unwrap().unwrap() {
        Event::Committed { group, partition, committed: Some(committed) } => {
            assert_eq!((group.as_str(), partition.to_string().as_str()), ("grp", "orders-3"));
            committed
        }
        other => panic!("{other:?}"),
    }
}

/// Made by Kafka's generated classes.
#[test]
fn kafkas_own_positions_are_read_and_written() {
    let time = Timestamp(0x018b_cfe5_6800);
    let position = Position { offset: Offset(42), leader_epoch: Some(LeaderEpoch(7)), metadata: "m".to_owned() };
    let expected = Committed { position, committed: time, expires: None };
    let plain = "0003 000000000000002a 00000007 00016d 0000018bcfe56800";
    assert_eq!(committed(plain), expected);
    same(OFFSET_KEY, Some(plain));
    assert_eq!(committed("0004 000000000000002a 00000007 026d 0000018bcfe56800 00"), expected);
    let expiring = "0001 000000000000002a 0000 0000018bcfe56800 0000018bcfee8fc0";
    let position = Position { offset: Offset(42), leader_epoch: None, metadata: String::new() };
    let expected = Committed { position, committed: time, expires: Some(Timestamp(time.0 + 600_000)) };
    assert_eq!(committed(expiring), expected);
    same(OFFSET_KEY, Some(expiring));
    // Older ones, and one that never expires.
    let never = Committed { expires: None, ..expected };
    assert_eq!(committed("0001 000000000000002a 0000 0000018bcfe56800 ffffffffffffffff"), never);
    assert_eq!(committed("0000 000000000000002a 0000 0000018bcfe56800"), never);
    assert_eq!(committed("0002 000000000000002a 0000 0000018bcfe56800"), never);
    assert_eq!(committed("0003 000000000000002a ffffffff 0000 0000018bcfe56800"), never);
    let old_key = OFFSET_KEY.replacen("0001", "0000", 1);
    assert_eq!(read(&old_key, Some(plain)), read(OFFSET_KEY, Some(plain)));
    let gone = same(OFFSET_KEY, None);
    assert!(matches!(gone, Event::Committed { committed: None, .. }));
}

/// The first two are Kafka's; the others follow its schema, drawn in `codec`.
#[test]
fn records_of_members_are_kafkas() {
    let epoch = same("0003 0003677270", Some("0000 00000005 00"));
    assert_eq!(epoch, Event::Group { group: "grp".to_owned(), epoch: Some(Epoch(5)) });
    assert_eq!(same("0003 0003677270", None), Event::Group { group: "grp".to_owned(), epoch: None });
    let target = same("0006 0003677270", Some("0000 00000004 00"));
    assert_eq!(target, Event::TargetEpoch { group: "grp".to_owned(), epoch: Some(Epoch(4)) });

    let member = "0005 0003677270 00026d31";
    let bytes = "0000 0269 0272 0263 0268 02 076f7264657273 04612e2a 0000ea60 0672616e6765 00";
    let Event::Member { member: id, details: Some(details), .. } = same(member, Some(bytes)) else { panic!() };
    let expected = Details {
        instance: Some("i".to_owned()),
        rack: Some("r".to_owned()),
        client_id: "c".to_owned(),
        client_host: "h".to_owned(),
        subscription: Subscription { pattern: Some("a.*".to_owned()), ..named(&["orders"]) },
        assignor: Some(Assignor::Range),
        rebalance_timeout: Duration::from_secs(60),
        session_timeout: None,
    };
    assert_eq!((id.as_str(), details.as_ref()), ("m1", &expected));
    // Nothing that need not be there; an assignor of another's; a member of the classic protocol, by its tag.
    same(member, Some("0000 00 00 01 01 01 00 0000ea60 00 00"));
    let foreign = read(member, Some("0000 00 00 01 01 01 00 0000ea60 03 6d65 00")).unwrap();
    assert_eq!(foreign, read(member, Some("0000 00 00 01 01 01 00 0000ea60 00 01 00 03 aabbcc")).unwrap());

    let numbers = "02 6f726465727300000000000000000000 03 00000001 00000002 00";
    let target = same("0007 0003677270 00026d31", Some(&format!("0000 {numbers} 00")));
    assert!(matches!(target, Event::Target { partitions: Some(partitions), .. } if partitions == some("orders", 1..3)));
    let current = "0008 0003677270 00026d31";
    let bytes = format!("0000 00000007 00000006 01 01 {numbers} 00");
    let expected = Current {
        standing: Standing::Here(Epoch(7)),
        previous: Epoch(6),
        phase: Phase::Unrevoked,
        assigned: Partitions::default(),
        revoking: some("orders", 1..3),
    };
    assert!(
        matches!(same(current, Some(&bytes)), Event::Current { current: Some(current), .. } if current == expected)
    );
    let away = same(current, Some("0000 fffffffe 00000006 00 01 01 00"));
    assert!(matches!(away, Event::Current { current: Some(Current { standing: Standing::Away, .. }), .. }));
    same(current, Some("0000 00000001 00000000 02 01 01 00"));
    // Its member could not give back what it is to have: it waited for its time-out.
    let both = read(current, Some(&format!("0000 00000007 00000006 01 {numbers} {numbers} 00"))).unwrap();
    assert!(matches!(both, Some(Event::Current { current: Some(current), .. }) if current.revoking.is_empty()));
}

#[test]
fn what_is_not_minded_is_passed_over() {
    let classic = "0003 0008636f6e73756d6572 00000002 ffff ffff 0000018bcfe56800 00000000";
    assert_eq!(read("0002 0003677270", Some(classic)), Ok(None));
    assert_eq!(read("0004 0003677270", Some("0000 01 00")), Ok(None));
    for kind in [2, 4] {
        let key = format!("{kind:04x} 0003677270");
        assert!(matches!(same(&key, None), Event::Leftover { .. }));
    }
    assert_eq!(read("000a 0003677270 0001", Some("00")), Ok(None), "of a kind that is not known");
}

#[test]
fn what_no_record_holds_says_why() {
    let reason = |key: &str, value: &str| read(key, Some(value)).unwrap_err();
    assert_eq!(reason(OFFSET_KEY, "0009"), "the record is of version 9, which is not known");
    assert_eq!(reason("0003 0003677270", "0000 ffffffff 00"), "the epoch is -1");
    assert_eq!(reason("0003 0003677270", "0001 00000005 00"), "the record is of version 1, which is not known");
    assert_eq!(
        reason("0008 0003677270 00026d31", "0000 00000001 00000000 03 01 01 00"),
        "the state 3 is none that is stored"
    );
    let negative = "0003 ffffffffffffffff 00000007 00016d 0000018bcfe56800";
    assert_eq!(reason(OFFSET_KEY, negative), "the offset is -1");
    assert_eq!(reason("0001 0003677270 00066f7264657273 ffffffff", "0000"), "the partition is -1");
    assert_eq!(reason("0003 0003677270 00", "0000 00000005 00"), "1 bytes are left over");
    assert_eq!(read("0003 0005677270", None), Err("the group needs 5 bytes, 3 are left".to_owned()));
}

pub(super) fn any_partitions() -> impl Strategy<Value = Partitions> {
    vec((0_u8..3, 0_u32..=i32::MAX.unsigned_abs()), 0..5)
        .prop_map(|all| all.into_iter().map(|(topic, number)| (TopicId([topic; 16]), number)).collect())
}

pub(super) fn any_details() -> impl Strategy<Value = Details> {
    let texts = (option::of(".{0,9}"), option::of(".{0,9}"), ".{0,9}", ".{0,9}");
    let assignor = prop_oneof![Just(None), Just(Some(Assignor::Uniform)), Just(Some(Assignor::Range))];
    let topics = (btree_set("[a-z]{1,9}", 0..4), option::of(".{0,9}"));
    (texts, topics, assignor, 0..=i32::MAX.unsigned_abs()).prop_map(|(texts, (topics, pattern), assignor, millis)| {
        Details {
            instance: texts.0,
            rack: texts.1,
            client_id: texts.2,
            client_host: texts.3,
            subscription: Subscription { topics, pattern },
            assignor,
            rebalance_timeout: Duration::from_millis(millis.into()),
            session_timeout: None,
        }
    })
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    (0..=i32::MAX.unsigned_abs()).prop_map(Epoch)
}

fn any_current() -> impl Strategy<Value = Current> {
    let standing = prop_oneof![any_epoch().prop_map(Standing::Here), Just(Standing::Away)];
    let phase = prop_oneof![Just(Phase::Stable), Just(Phase::Unrevoked), Just(Phase::Unreleased)];
    (standing, any_epoch(), phase, any_partitions(), any_partitions()).prop_map(
        |(standing, previous, phase, assigned, revoking)| {
            let revoking = revoking.without(&assigned);
            Current { standing, previous, phase, assigned, revoking }
        },
    )
}

fn any_committed() -> impl Strategy<Value = Committed> {
    let epoch = option::of((0..=i32::MAX).prop_map(LeaderEpoch));
    (0..=Offset::MAX.0, epoch, ".{0,20}", any::<i64>(), option::of(0..i64::MAX)).prop_map(
        |(offset, leader_epoch, metadata, time, expires)| Committed {
            // One that expires has no leader epoch.
            position: Position {
                offset: Offset(offset),
                leader_epoch: leader_epoch.filter(|_| expires.is_none()),
                metadata,
            },
            committed: Timestamp(time),
            expires: expires.map(Timestamp),
        },
    )
}

pub(super) fn any_event() -> impl Strategy<Value = Event> {
    let (group, member) = ("[a-zé]{0,9}", "[a-z\u{1f600}]{0,9}");
    prop_oneof![
        (group, "[a-z]{0,9}", 0..=i32::MAX.unsigned_abs(), option::of(any_committed())).prop_map(
            |(group, topic, partition, committed)| Event::Committed {
                group,
                partition: TopicPartition { topic, partition },
                committed
            }
        ),
        (group, option::of(any_epoch())).prop_map(|(group, epoch)| Event::Group { group, epoch }),
        (group, option::of(any_epoch())).prop_map(|(group, epoch)| Event::TargetEpoch { group, epoch }),
        (group, member, option::of(any_details())).prop_map(|(group, member, details)| Event::Member {
            group,
            member,
            details: details.map(Arc::new)
        }),
        (group, member, option::of(any_partitions())).prop_map(|(group, member, partitions)| Event::Target {
            group,
            member,
            partitions
        }),
        (group, member, option::of(any_current())).prop_map(|(group, member, current)| Event::Current {
            group,
            member,
            current
        }),
        (group, prop_oneof![Just(Leftover::Classic), Just(Leftover::Topics)])
            .prop_map(|(group, of)| Event::Leftover { group, of }),
    ]
}

/// Reads them; what is taken reads the same once it was written again, and no state minds it.
fn check(key: &[u8], value: Option<&[u8]>) {
    if let Ok(Some(event)) = Coordinator::decode(key, value) {
        let record = Coordinator::encode(&event);
        assert_eq!(Coordinator::decode(&record.key, record.value.as_deref()), Ok(Some(event.clone())));
        let mut coordinator = Coordinator::default();
        coordinator.apply(Applied { offset: Offset::ZERO, timestamp: None, producer: None }, &event);
        coordinator.loaded(Now::default());
    }
}

proptest! {
    #[test]
    fn every_record_is_read_as_it_was_written(event in any_event()) {
        let KeyValue { key, value } = Coordinator::encode(&event);
        prop_assert_eq!(Coordinator::decode(&key, value.as_deref()), Ok(Some(event)));
    }

    #[test]
    fn every_cut_is_noticed_and_no_flipped_byte_panics(event in any_event(), at in any::<usize>(), by in 1_u8..) {
        let KeyValue { mut key, value } = Coordinator::encode(&event);
        if let Some(mut value) = value {
            let at = at % value.len();
            prop_assert!(Coordinator::decode(&key, Some(&value[..at])).is_err());
            value[at] ^= by;
            check(&key, Some(&value));
        }
        let at = at % key.len();
        prop_assert!(Coordinator::decode(&key[..at], None).is_err());
        key[at] ^= by;
        check(&key, None);
    }

    #[test]
    fn any_bytes_are_a_record_or_a_reason(
        kind in 0_u8..10,
        key in vec(any::<u8>(), 0..20),
        value in option::of(vec(any::<u8>(), 0..80)),
    ) {
        check(&key, value.as_deref());
        check(&[&[0, kind][..], &key].concat(), value.as_deref());
        check(&[&[0, kind, 0, 1, b'g', 0, 1, b'm'][..], &[0; 4][..(if kind < 2 { 4 } else { 0 })]].concat(), value.as_deref());
    }
}

/// A count that nothing stands behind takes no memory.
#[test]
fn a_count_is_not_trusted() {
    assert!(read("0007 0003677270 00026d31", Some("0000 ffffffff0f")).is_err());
    assert!(read("0005 0003677270 00026d31", Some("0000 00 00 01 01 ffffffff0f")).is_err());
}
