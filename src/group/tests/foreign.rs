//! A reader that knows nothing of ours: the messages spelled out by their schemas. Where the crate kafka-protocol, which is
//! generated from Kafka's definitions, has the same fields in a message of its own (it has no coordinator's records), it
//! reads them. What we write reads as what we meant, and what is written by these schemas we read.

use ::bytes::{Buf, BufMut, Bytes};
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::protocol::{Decodable, Encodable};
use proptest::prelude::*;

use super::bytes::{any_details, any_event, any_partitions, hex};
use super::*;

/// A length of a flexible message.
fn uvarint(from: &mut Bytes) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = from.get_u8();
        value |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn text(from: &mut Bytes, length: usize) -> String {
    String::from_utf8(from.split_to(length).to_vec()).unwrap()
}

/// A text of a plain message.
fn plain(from: &mut Bytes) -> String {
    let length = from.get_i16();
    text(from, usize::try_from(length).unwrap())
}

/// A text of a flexible message, which may be none.
fn nullable(from: &mut Bytes) -> Option<String> {
    let length = uvarint(from).checked_sub(1)?;
    Some(text(from, length))
}

fn compact(from: &mut Bytes) -> String {
    nullable(from).unwrap()
}

fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap()
}

/// The event that a record is.
fn read(key: &[u8], value: Option<&[u8]>) -> Event {
    let (key, value) = (&mut Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
    let kind = key.get_i16();
    let group = plain(key);
    let event = match kind {
        0 | 1 => {
            let topic = plain(key);
            let partition = TopicPartition { topic, partition: unsigned(key.get_i32()) };
            Event::Committed { group, partition, committed: value.map(committed) }
        }
        2 => Event::Leftover { group, of: Leftover::Classic },
        3 => Event::Group { group, epoch: value.map(epoch) },
        4 => Event::Leftover { group, of: Leftover::Topics },
        6 => Event::TargetEpoch { group, epoch: value.map(epoch) },
        _ => {
            let member = plain(key);
            match kind {
                5 => Event::Member { group, member, details: value.map(details).map(Arc::new) },
                7 => Event::Target { group, member, partitions: value.map(target) },
                8 => Event::Current { group, member, current: value.map(current) },
                other => panic!("it is of kind {other}"),
            }
        }
    };
    assert!(!key.has_remaining());
    event
}

/// `OffsetCommitValue`.
fn committed(mut value: Bytes) -> Committed {
    let value = &mut value;
    let version = value.get_i16();
    let offset = u64::try_from(value.get_i64()).unwrap();
    let leader_epoch = if version >= 3 { value.get_i32() } else { -1 };
    let metadata = if version >= 4 { compact(value) } else { plain(value) };
    let committed = value.get_i64();
    let expires = if version == 1 { value.get_i64() } else { -1 };
    if version >= 4 {
        assert_eq!(uvarint(value), 0);
    }
    assert!(!value.has_remaining());
    let leader_epoch = (leader_epoch >= 0).then_some(LeaderEpoch(leader_epoch));
    let position = Position { offset: Offset(offset), leader_epoch, metadata };
    Committed { position, committed: Timestamp(committed), expires: (expires >= 0).then_some(Timestamp(expires)) }
}

/// `ConsumerGroupMetadataValue`, `ConsumerGroupTargetAssignmentMetadataValue`.
fn epoch(mut value: Bytes) -> Epoch {
    begin(&mut value);
    let epoch = unsigned(value.get_i32());
    end(&mut value);
    Epoch(epoch)
}

/// `ConsumerGroupMemberMetadataValue`.
fn details(mut value: Bytes) -> Details {
    let value = &mut value;
    begin(value);
    let (instance, rack) = (nullable(value), nullable(value));
    let (client_id, client_host) = (compact(value), compact(value));
    let topics = (1..uvarint(value)).map(|_| compact(value)).collect();
    let pattern = nullable(value);
    let rebalance_timeout = Duration::from_millis(unsigned(value.get_i32()).into());
    let assignor = nullable(value).map(|name| match name.as_str() {
        "uniform" => Assignor::Uniform,
        "range" => Assignor::Range,
        other => panic!("{other}"),
    });
    end(value);
    let subscription = Subscription { topics, pattern };
    let session_timeout = None;
    Details { instance, rack, client_id, client_host, subscription, assignor, rebalance_timeout, session_timeout }
}

/// `ConsumerGroupTargetAssignmentMemberValue`: its fields are those of the assignment in a heartbeat's answer.
fn target(mut value: Bytes) -> Partitions {
    begin(&mut value);
    let assignment = Assignment::decode(&mut value, 0).unwrap();
    assert!(!value.has_remaining() && assignment.unknown_tagged_fields.is_empty());
    let each = assignment.topic_partitions.iter().flat_map(|topic| {
        let id = TopicId(*topic.topic_id.as_bytes());
        topic.partitions.iter().map(move |number| (id, unsigned(*number)))
    });
    each.collect()
}

/// `ConsumerGroupCurrentMemberAssignmentValue`: two such lists behind each other.
fn current(mut value: Bytes) -> Current {
    let value = &mut value;
    begin(value);
    let epoch = value.get_i32();
    let previous = Epoch(unsigned(value.get_i32()));
    let phase = [Phase::Stable, Phase::Unrevoked, Phase::Unreleased][usize::from(value.get_u8())];
    let (assigned, revoking) = (partitions(value), partitions(value));
    end(value);
    let standing = if epoch == -2 { Standing::Away } else { Standing::Here(Epoch(unsigned(epoch))) };
    Current { standing, previous, phase, assigned, revoking }
}

fn partitions(from: &mut Bytes) -> Partitions {
    let mut all = Partitions::default();
    for _ in 1..uvarint(from) {
        let mut id = [0; 16];
        from.copy_to_slice(&mut id);
        for _ in 1..uvarint(from) {
            all.insert(TopicId(id), unsigned(from.get_i32()));
        }
        assert_eq!(uvarint(from), 0);
    }
    all
}

/// The version of a flexible value.
fn begin(value: &mut Bytes) {
    assert_eq!(value.get_i16(), 0);
}

/// No tags, and nothing behind them.
fn end(value: &mut Bytes) {
    assert_eq!(uvarint(value), 0);
    assert!(!value.has_remaining());
}

fn put_uvarint(mut value: usize, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    into.push(u8::try_from(value).unwrap());
}

fn put_text(text: Option<&str>, into: &mut Vec<u8>) {
    put_uvarint(text.map_or(0, |text| text.len() + 1), into);
    into.extend_from_slice(text.unwrap_or_default().as_bytes());
}

/// A member's record, with a field behind it that another version may have.
fn written(details: &Details, tag: Option<(usize, &[u8])>) -> Vec<u8> {
    let mut into = vec![0, 0];
    put_text(details.instance.as_deref(), &mut into);
    put_text(details.rack.as_deref(), &mut into);
    put_text(Some(&details.client_id), &mut into);
    put_text(Some(&details.client_host), &mut into);
    put_uvarint(details.subscription.topics.len() + 1, &mut into);
    for topic in &details.subscription.topics {
        put_text(Some(topic), &mut into);
    }
    put_text(details.subscription.pattern.as_deref(), &mut into);
    into.put_i32(i32::try_from(details.rebalance_timeout.as_millis()).unwrap());
    put_text(details.assignor.map(Assignor::name), &mut into);
    put_uvarint(usize::from(tag.is_some()), &mut into);
    if let Some((tag, payload)) = tag {
        put_uvarint(tag, &mut into);
        put_uvarint(payload.len(), &mut into);
        into.extend_from_slice(payload);
    }
    into
}

proptest! {
    #[test]
    fn another_reads_what_is_written(event in any_event()) {
        let KeyValue { key, value } = Coordinator::encode(&event);
        prop_assert_eq!(read(&key, value.as_deref()), event);
    }

    #[test]
    fn what_another_writes_is_read(details in any_details(), payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let key = hex("0005 0003677270 00026d31");
        for tag in [None, Some((0, payload.as_slice())), Some((700, payload.as_slice()))] {
            let read = Coordinator::decode(&key, Some(&written(&details, tag)));
            let Ok(Some(Event::Member { details: Some(read), .. })) = read else { panic!("{read:?}") };
            prop_assert_eq!(read.as_ref(), &details);
        }
    }

    #[test]
    fn what_the_crate_writes_is_read(all in any_partitions()) {
        let mut list = Assignment::default();
        for (topic, numbers) in all.topics() {
            let mut one = TopicPartitions::default();
            one.topic_id = format!("{:032x}", u128::from_be_bytes(topic.0)).parse().unwrap();
            one.partitions = numbers.iter().map(|number| number.cast_signed()).collect();
            list.topic_partitions.push(one);
        }
        let mut value = vec![0, 0];
        list.encode(&mut value, 0).unwrap();
        let read = Coordinator::decode(&hex("0007 0003677270 00026d31"), Some(&value));
        let Ok(Some(Event::Target { partitions: Some(read), .. })) = read else { panic!("{read:?}") };
        prop_assert_eq!(read, all);
    }
}

/// What Kafka's generated classes have written: both read the same.
#[test]
fn both_read_kafkas_bytes() {
    for (key, value) in [
        ("0001 0003677270 00066f7264657273 00000003", "0003 000000000000002a 00000007 00016d 0000018bcfe56800"),
        ("0001 0003677270 00066f7264657273 00000003", "0001 000000000000002a 0000 0000018bcfe56800 0000018bcfee8fc0"),
        ("0001 0003677270 00066f7264657273 00000003", "0004 000000000000002a 00000007 026d 0000018bcfe56800 00"),
        ("0003 0003677270", "0000 00000005 00"),
    ] {
        let (key, value) = (hex(key), hex(value));
        assert_eq!(Coordinator::decode(&key, Some(&value)), Ok(Some(read(&key, Some(&value)))));
    }
    // A member's record of a group of the classic protocol, as a whole: it is passed over, whatever is in it.
    let classic = "00030008636f6e73756d657200000001000572616e676500036d2d310000018bcfe568000000000100036d2d31ffff000163000a2f\
        3132372e302e302e31000493e00000afc8000000020001000000020002";
    assert_eq!(Coordinator::decode(&hex("0002 0003677270"), Some(&hex(classic))), Ok(None));
}
