//! What the controller decides, and that its state follows from bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::config::settings::tests::any_config;
use crate::config::{Cleanup, Retention};
use crate::error::Error;
use crate::machine::ProducerIdentity;
use crate::record::control::Outcome;
use crate::types::{Offset, ProducerEpoch, ProducerId};

const CLUSTER: &str = "ASNFZ4mrze_-3LqYdlQyEA";

fn id(number: u8) -> TopicId {
    TopicId([number; 16])
}

fn create(name: &str, number: u8, config: TopicConfig) -> Command {
    Command::Create { name: name.to_owned(), id: id(number), config }
}

fn ensure(name: &str, number: u8, config: TopicConfig) -> Command {
    Command::Ensure { name: name.to_owned(), id: id(number), config }
}

fn adopt(name: &str, number: u8, partitions: u32) -> Command {
    Command::Adopt { name: name.to_owned(), id: id(number), partitions }
}

fn delete(name: &str) -> Command {
    Command::Delete { name: name.to_owned() }
}

/// Decides, and applies what was decided.
fn run(controller: &mut Controller, command: Command) -> Result<Reply> {
    let before = controller.clone();
    let decision = controller.decide(Now::default(), command);
    assert_eq!(*controller, before, "deciding changes nothing");
    assert!(decision.reply.is_ok() || decision.events.is_empty(), "a refusal has no events");
    decision.events.iter().for_each(|event| apply(controller, event));
    decision.reply
}

fn apply(controller: &mut Controller, event: &Event) {
    controller.apply(Applied { offset: Offset::ZERO, timestamp: None, producer: None }, event);
}

fn with(commands: impl IntoIterator<Item = Command>) -> Controller {
    let mut controller = Controller::default();
    commands.into_iter().for_each(|command| drop(run(&mut controller, command).unwrap()));
    controller
}

fn refusal(controller: &Controller, command: Command) -> Error {
    let mut after = controller.clone();
    let error = run(&mut after, command).unwrap_err();
    assert_eq!(after, *controller);
    error
}

#[test]
fn a_cluster_is_formatted_once() {
    let mut controller = Controller::default();
    let format = |cluster: &str| Command::Format { cluster: cluster.to_owned() };
    assert!(matches!(refusal(&controller, format("a b")), Error::InvalidName { name, .. } if name == "a b"));
    assert!(matches!(refusal(&controller, format("")), Error::InvalidName { .. }));
    let formatted = Reply::Formatted { cluster: CLUSTER.to_owned() };
    assert_eq!(run(&mut controller, format(CLUSTER)).unwrap(), formatted);
    assert_eq!(run(&mut controller, format("AAAAAAAAAAAAAAAAAAAAAQ")).unwrap(), formatted);
    assert_eq!((controller.cluster(), controller.version()), (Some(CLUSTER), 1));
}

#[test]
fn the_topics_of_groups_and_transactions_are_adopted_and_not_made() {
    for name in ["__consumer_offsets", "__transaction_state"] {
        let controller = Controller::default();
        assert!(matches!(refusal(&controller, create(name, 1, TopicConfig::new())), Error::InvalidName { .. }));
        assert!(with([adopt(name, 1, 50)]).topic(name).is_some());
    }
}

#[test]
fn a_topic_of_the_logs_own_is_made_once_and_stays_as_it_has_to_be() {
    let name = "__transaction_state";
    let config = TopicConfig::new().partitions(50).cleanup(Cleanup::Compact);
    let ensure = |number| Command::EnsureInternal { name: name.to_owned(), id: id(number), config: config.clone() };
    let mut controller = Controller::default();
    assert_eq!(run(&mut controller, ensure(1)).unwrap(), Reply::Created { id: id(1) });
    assert!(matches!(run(&mut controller, ensure(2)).unwrap(), Reply::Found { id: found, .. } if found == id(1)));
    assert!(matches!(refusal(&controller, delete(name)), Error::InvalidName { .. }));
    let add = Command::AddPartitions { name: name.to_owned(), total: 60 };
    assert!(matches!(refusal(&controller, add), Error::InvalidName { .. }));
    let configure = |config| Command::Configure { name: name.to_owned(), config };
    let losing = config.clone().cleanup(Cleanup::Delete);
    assert!(matches!(refusal(&controller, configure(losing)), Error::InvalidConfig { setting: "cleanup.policy", .. }));
    run(&mut controller, configure(config.clone().segment_bytes(1 << 20))).unwrap();
    assert!(is_internal(name) && !is_internal("__transaction_states"));
}

#[test]
fn without_a_cluster_there_is_one_copy() {
    let controller = with([create("there", 1, TopicConfig::new())]);
    for config in
        [TopicConfig::new().replication_factor(2), TopicConfig::new().replication_factor(2).min_insync_replicas(2)]
    {
        assert!(matches!(refusal(&controller, create("new", 2, config.clone())), Error::InvalidConfig { .. }));
        let configure = Command::Configure { name: "there".to_owned(), config };
        assert!(matches!(refusal(&controller, configure), Error::InvalidConfig { .. }));
    }
}

#[test]
fn a_name_or_an_id_that_is_taken_is_refused() {
    let controller =
        with([create("a.b", 1, TopicConfig::new()), create("gone", 2, TopicConfig::new()), delete("gone")]);
    let new = TopicConfig::new;
    assert!(matches!(refusal(&controller, create("a.b", 3, new())), Error::TopicExists { name } if name == "a.b"));
    let collides = refusal(&controller, create("a_b", 3, new()));
    assert!(matches!(collides, Error::TopicNameCollides { name, existing } if name == "a_b" && existing == "a.b"));
    for (number, owner) in [(1, "a.b"), (2, "gone")] {
        let taken = [create("c", number, new()), ensure("c", number, new()), adopt("c", number, 1)];
        for command in taken {
            let error = refusal(&controller, command);
            assert!(matches!(error, Error::TopicIdTaken { existing, .. } if existing == owner));
        }
    }
    assert!(matches!(refusal(&controller, create("c", 0, new())), Error::InvalidName { .. }));
}

#[test]
fn names_of_the_logs_own_and_no_names_at_all_are_refused() {
    let long = "n".repeat(250);
    for name in ["", ".", "..", "a/b", "__taffrail_metadata", "__cluster_metadata", &long] {
        for command in [create(name, 1, TopicConfig::new()), ensure(name, 1, TopicConfig::new()), adopt(name, 1, 1)] {
            let error = refusal(&Controller::default(), command);
            assert!(matches!(error, Error::InvalidName { name: refused, .. } if refused == name));
        }
    }
    assert!(with([adopt("__consumer_offsets", 1, 1)]).topic("__consumer_offsets").is_some(), "a broker's is taken in");
}

#[test]
fn settings_are_checked_before_anything_happens() {
    let impossible = TopicConfig::new().partitions(0);
    let controller = with([create("a", 1, TopicConfig::new())]);
    let configure = Command::Configure { name: "a".to_owned(), config: TopicConfig::new().segment_bytes(1) };
    let many = Command::AddPartitions { name: "a".to_owned(), total: 100_001 };
    let commands = [create("b", 2, impossible.clone()), ensure("a", 2, impossible.clone()), ensure("b", 2, impossible)];
    for command in commands.into_iter().chain([configure, many, adopt("b", 2, 0)]) {
        assert!(matches!(refusal(&controller, command), Error::InvalidConfig { .. }));
    }
}

#[test]
fn ensure_makes_a_topic_or_reports_what_differs() {
    let mut controller = Controller::default();
    let config = TopicConfig::new().partitions(4);
    assert_eq!(run(&mut controller, ensure("a", 1, config.clone())).unwrap(), Reply::Created { id: id(1) });
    let reply = run(&mut controller, ensure("a", 2, config.clone().segment_bytes(100))).unwrap();
    let Reply::Found { id: found, differences } = reply else { panic!("it was there: {reply:?}") };
    assert_eq!((found, differences.len(), differences[0].setting), (id(1), 1, "segment.bytes"));
    assert_eq!(controller.topic("a").unwrap().config, config);
    let error = refusal(&controller, ensure("a", 2, TopicConfig::new()));
    assert!(matches!(error, Error::PartitionCount { partitions: 4, requested: 1, .. }));
}

#[test]
fn partitions_are_only_added() {
    let mut controller = with([create("a", 1, TopicConfig::new().partitions(3))]);
    let add = |name: &str, total| Command::AddPartitions { name: name.to_owned(), total };
    for total in [0, 2, 3] {
        let error = refusal(&controller, add("a", total));
        assert!(matches!(error, Error::PartitionCount { partitions: 3, requested, .. } if requested == total));
    }
    assert!(matches!(refusal(&controller, add("b", 9)), Error::UnknownTopic { .. }));
    assert!(matches!(run(&mut controller, add("a", 4)).unwrap(), Reply::Grown { .. }));
    assert_eq!(controller.topic("a").unwrap().config, TopicConfig::new().partitions(4));
}

#[test]
fn what_was_found_keeps_everything_until_it_is_configured() {
    let mut controller = with([create("a.b", 2, TopicConfig::new()), adopt("a_b", 1, 3)]);
    let topic = controller.topic("a_b").unwrap();
    assert!(topic.adopted && topic.config.partitions == 3);
    let partition = topic.config.partition_config();
    assert_eq!((partition.retention, partition.cleanup), (Retention::forever(), Cleanup::Delete));
    let configure = |config| Command::Configure { name: "a_b".to_owned(), config };
    let error = refusal(&controller, configure(TopicConfig::new()));
    assert!(matches!(error, Error::PartitionCount { partitions: 3, requested: 1, .. }));
    // Even the settings that it has: somebody has said now that they are meant.
    let same = topic.config.clone();
    assert_eq!(run(&mut controller, configure(same.clone())).unwrap(), Reply::Done);
    assert!(!controller.topic("a_b").unwrap().adopted);
    let version = controller.version();
    assert_eq!(run(&mut controller, configure(same)).unwrap(), Reply::Done);
    assert_eq!(controller.version(), version, "nothing happened");
}

#[test]
fn a_deleted_topic_is_removed_until_that_is_done() {
    let mut controller = with([create("a", 1, TopicConfig::new().partitions(2)), delete("a")]);
    assert!(matches!(refusal(&controller, delete("a")), Error::UnknownTopic { .. }));
    let remove = Action::RemoveTopic { name: "a".to_owned(), id: id(1), partitions: 2 };
    let due = controller.actions(Now::default());
    assert_eq!(due, [remove]);
    run(&mut controller, create("a", 2, TopicConfig::new())).unwrap();
    assert_eq!(controller.actions(Now::default()), due);
    let removed = |number| Command::Removed { id: id(number) };
    assert_eq!(run(&mut controller, removed(1)).unwrap(), Reply::Done);
    assert!(controller.actions(Now::default()).is_empty());
    let after = controller.clone();
    run(&mut controller, removed(1)).unwrap();
    run(&mut controller, removed(2)).unwrap();
    assert_eq!(controller, after);
    assert_eq!(controller.topics().map(|topic| topic.id).collect::<Vec<_>>(), [id(2)]);
}

#[test]
fn no_producer_id_is_in_two_blocks() {
    let mut controller = Controller::default();
    let mut allocate = |from| match run(&mut controller, Command::AllocateProducerIds { from: ProducerId(from) }) {
        Ok(Reply::ProducerIds { first }) => first.0,
        other => panic!("{other:?}"),
    };
    assert_eq!([allocate(0), allocate(0), allocate(1500), allocate(7000), allocate(1)], [0, 1000, 2000, 7000, 8000]);
    let last = i64::MAX - PRODUCER_IDS_PER_BLOCK;
    assert_eq!(allocate(last), last);
    let error = refusal(&controller, Command::AllocateProducerIds { from: ProducerId(0) });
    assert!(matches!(error, Error::ProducerIdsExhausted));
    // An event that is read late takes nothing back.
    apply(&mut controller, &Event::ProducerIdsAllocated { next: ProducerId(5) });
    assert_eq!(controller.next_producer_id(), ProducerId(i64::MAX));
}

#[test]
fn a_snapshot_without_producer_ids_is_read() {
    use crate::storage::checkpoint::own;
    let (mut events, _) = samples();
    events.pop();
    let mut state = Controller::default();
    for event in &events {
        apply(&mut state, event);
    }
    let mut content = state.snapshot().split_off(10);
    content.truncate(content.len() - 8);
    assert_eq!(Controller::restore(&own::frame(0, &content)), Ok(state));
}

#[test]
fn it_waits_for_nothing() {
    let mut controller = samples().1;
    let before = controller.clone();
    controller.loaded(Now::default());
    let producer = ProducerIdentity { id: ProducerId(1), epoch: ProducerEpoch(0) };
    controller.end_transaction(Offset::ZERO, producer, Outcome::Aborted);
    assert_eq!((&controller, controller.deadline()), (&before, None));
}

/// One of each kind, and a state with all of them in it.
fn samples() -> (Vec<Event>, Controller) {
    let config = TopicConfig::new().partitions(7).replication_factor(3).segment_bytes(100);
    let created = |name: &str, number, adopted| Event::Created {
        name: name.to_owned(),
        id: id(number),
        config: config.clone(),
        adopted,
    };
    let events = vec![
        Event::Formatted { cluster: CLUSTER.to_owned() },
        created("a", 1, false),
        created("b", 2, true),
        created("c", 3, false),
        created("d", 4, false),
        Event::PartitionsAdded { id: id(1), total: 9 },
        Event::Configured { id: id(1), config: TopicConfig::new().partitions(9) },
        Event::Deleted { id: id(3) },
        Event::Deleted { id: id(4) },
        Event::Removed { id: id(4) },
        Event::ProducerIdsAllocated { next: ProducerId(2000) },
    ];
    let mut state = Controller::default();
    for event in &events {
        apply(&mut state, event);
    }
    (events, state)
}

fn encoded(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    Controller::encode(event, &mut bytes);
    bytes
}

#[test]
fn the_layout_is_the_one_drawn() {
    let event = Event::Created {
        name: "ab".to_owned(),
        id: id(5),
        config: TopicConfig::new().partitions(2).replication_factor(3).segment_bytes(100),
        adopted: true,
    };
    let mut expected = vec![0, 1, 0, 2, b'a', b'b'];
    expected.extend_from_slice(&[5; 16]);
    expected.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1, 0, 13]);
    expected.extend_from_slice(b"segment.bytes\0\x03100");
    assert_eq!(encoded(&event), expected);
    let retention = Retention::forever().hold_for(["a", "b"], 7);
    let mut expected = [&[0, 3][..], &[5; 16], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 3]].concat();
    for (name, value) in [("retention.ms", "-1"), ("taffrail.hold.groups", "a,b"), ("taffrail.hold.bytes.max", "7")] {
        for text in [name, value] {
            expected.extend_from_slice(&u16::try_from(text.len()).unwrap().to_be_bytes());
            expected.extend_from_slice(text.as_bytes());
        }
    }
    assert_eq!(encoded(&Event::Configured { id: id(5), config: TopicConfig::new().retention(retention) }), expected);
    let added = encoded(&Event::PartitionsAdded { id: id(5), total: 0x0102 });
    assert_eq!((&added[..2], &added[18..]), (&[0, 2][..], &[0, 0, 1, 2][..]));
    let state = samples().1.snapshot();
    assert_eq!(
        (&state[..4], &state[8..10], &state[10..19]),
        (&b"TAFF"[..], &[0, 1][..], &[0, 0, 0, 0, 0, 0, 0, 11, 1][..])
    );
}

#[test]
fn every_cut_is_noticed_and_no_flipped_byte_panics() {
    let (events, _) = samples();
    for event in &events {
        let bytes = encoded(event);
        assert_eq!(Controller::decode(&bytes).as_ref(), Ok(event));
        for length in 0..bytes.len() {
            assert!(Controller::decode(&bytes[..length]).is_err(), "{length} bytes of {event:?}");
        }
        assert_eq!(Controller::decode(&[&bytes[..], &[0]].concat()), Err("1 bytes are left over".to_owned()));
        for at in 0..bytes.len() * 255 {
            let mut flipped = bytes.clone();
            flipped[at / 255] ^= u8::try_from(at % 255 + 1).unwrap();
            if let Ok(other) = Controller::decode(&flipped) {
                assert_eq!(Controller::decode(&encoded(&other)), Ok(other));
            }
        }
    }
}

#[test]
fn every_flipped_byte_and_every_cut_of_a_snapshot_is_noticed() {
    let (_, state) = samples();
    let bytes = state.snapshot();
    assert_eq!(Controller::restore(&bytes), Ok(state));
    for length in 0..bytes.len() {
        assert!(Controller::restore(&bytes[..length]).is_err(), "{length} bytes");
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x55;
        assert!(Controller::restore(&flipped).is_err(), "byte {at}");
    }
}

#[test]
fn a_snapshot_with_a_right_checksum_is_not_trusted_either() {
    use crate::storage::checkpoint::own;
    let content = samples().1.snapshot().split_off(10);
    for at in 0..content.len() {
        let mut flipped = content.clone();
        flipped[at] ^= 0x81;
        if let Ok(state) = Controller::restore(&own::frame(1, &flipped)) {
            assert_eq!(Controller::restore(&state.snapshot()), Ok(state));
        }
        assert!(Controller::restore(&own::frame(1, &content[..at])).is_err());
    }
    assert_eq!(
        Controller::restore(&own::frame(3, &content)),
        Err("the snapshot is of version 3, this release reads 1".to_owned())
    );
    let longer = own::frame(1, &[&content[..], &[0]].concat());
    assert_eq!(Controller::restore(&longer), Err("1 bytes are left over".to_owned()));
    let endless = [&[0; 9][..], &[0xff; 4][..]].concat();
    assert_eq!(
        Controller::restore(&own::frame(1, &endless)),
        Err("the topic's name needs 2 bytes, 0 are left".to_owned())
    );
}

#[test]
fn what_no_controller_writes_is_refused_by_name() {
    let with_id = |kind: u8, rest: &[u8]| [&[0, kind][..], &[1; 16], rest].concat();
    let setting = [&[0, 0, 0, 1, 0, 0, 0, 0, 0, 1][..], b"\0\x03abc\0\x011"].concat();
    let refused = [
        (vec![1, 0], "the event is of version 1, this release reads 0"),
        (vec![0, 7], "an event of kind 7 is not known"),
        ([&[0, 6][..], &[0xff; 8]].concat(), "the next producer id is -1"),
        ([&[0, 4][..], &[0; 16]].concat(), "a topic's id is not zero"),
        (with_id(2, &[0, 0, 0, 0]), "setting partitions: 0 is outside of 1 to 100000"),
        (with_id(3, &[0; 10]), "setting partitions: 0 is outside of 1 to 100000"),
        (with_id(3, &[0xff; 10]), "the name of a setting needs 2 bytes, 0 are left"),
        (with_id(3, &setting), "no setting is called \"abc\""),
        (b"\0\0\0\x01 ".to_vec(), "the cluster \" \": a cluster's id is printable ASCII, no blanks"),
        (
            [&b"\0\x01\0\x0b__taffrail_"[..], &[1; 16], &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat(),
            "the topic \"__taffrail_\": names that begin with __taffrail_ or __cluster_metadata are not for topics",
        ),
    ];
    for (bytes, reason) in refused {
        assert_eq!(Controller::decode(&bytes), Err(reason.to_owned()));
    }
}

fn any_name() -> impl Strategy<Value = String> {
    let names = ["a.b", "a_b", "orders", "clicks", "", "no/name", "__taffrail_x"].map(str::to_owned).to_vec();
    proptest::sample::select(names)
}

fn any_command() -> impl Strategy<Value = Command> {
    let id = || (0..6_u8).prop_map(id);
    let small = || (0..4_u32, any_config()).prop_map(|(partitions, config)| config.partitions(partitions));
    prop_oneof![
        1 => proptest::sample::select(vec![CLUSTER, "AAAAAAAAAAAAAAAAAAAAAQ", "x"])
            .prop_map(|cluster| Command::Format { cluster: cluster.to_owned() }),
        4 => (any_name(), id(), small()).prop_map(|(name, id, config)| Command::Create { name, id, config }),
        2 => (any_name(), id(), small()).prop_map(|(name, id, config)| Command::Ensure { name, id, config }),
        3 => any_name().prop_map(|name| Command::Delete { name }),
        2 => (any_name(), 0..6_u32).prop_map(|(name, total)| Command::AddPartitions { name, total }),
        2 => (any_name(), small()).prop_map(|(name, config)| Command::Configure { name, config }),
        2 => (any_name(), id(), 0..4_u32).prop_map(|(name, id, partitions)| Command::Adopt { name, id, partitions }),
        2 => id().prop_map(|id| Command::Removed { id }),
        1 => (0..5000_i64).prop_map(|from| Command::AllocateProducerIds { from: ProducerId(from) }),
        1 => any_name().prop_map(|name| Command::CountPartitions { name }),
    ]
}

/// What holds of every state.
fn check_invariants(controller: &Controller) {
    let names: Vec<_> = controller.topics().map(|topic| &topic.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next));
    for topic in controller.topics() {
        assert!(decide::check_name(&topic.name).is_ok() && topic.config.check().is_ok());
        assert!(controller.topic(&topic.name) == Some(topic) && !controller.removing().contains_key(&topic.id));
        assert_eq!(controller.name_of(topic.id), Some(topic.name.as_str()));
    }
}

proptest! {
    #[test]
    fn the_state_follows_from_bytes(commands in vec(any_command(), 0..40)) {
        let mut controller = Controller::default();
        let mut follower = Controller::default();
        for command in commands {
            let before = controller.clone();
            let decision = controller.decide(Now::default(), command);
            prop_assert_eq!(&controller, &before);
            prop_assert!(decision.reply.is_ok() || decision.events.is_empty());
            for event in &decision.events {
                apply(&mut controller, event);
                apply(&mut follower, &Controller::decode(&encoded(event)).unwrap());
            }
            prop_assert_eq!(controller.version() - before.version(), decision.events.len() as u64);
            check_invariants(&controller);
            prop_assert_eq!(&follower, &controller);
        }
        prop_assert_eq!(Controller::restore(&controller.snapshot()), Ok(controller));
    }

    #[test]
    fn any_bytes_are_an_event_or_a_reason(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(event) = Controller::decode(&bytes) {
            prop_assert_eq!(Controller::decode(&encoded(&event)), Ok(event));
        }
        drop(Controller::restore(&bytes));
    }
}
