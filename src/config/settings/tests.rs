//! Settings as text: what is written is read as the same, and what no setting can be is refused.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::config::{Ratio, Retention};

fn any_millis() -> impl Strategy<Value = Duration> {
    let ends = proptest::sample::select(vec![0, 1, 5, 604_800_000, i64::MAX.cast_unsigned() - 1]);
    prop_oneof![ends, any::<u32>().prop_map(u64::from)].prop_map(Duration::from_millis)
}

/// The greatest time that Kafka's settings can say.
const MOST: Duration = Duration::from_millis(i64::MAX.cast_unsigned() - 1);

/// A number that can be a size, often a default one.
fn any_bytes() -> impl Strategy<Value = u32> {
    prop_oneof![proptest::sample::select(vec![70, 4096, 1_048_588, 10 << 20, 1 << 30]), 70..=i32::MAX.cast_unsigned()]
}

fn any_groups() -> impl Strategy<Value = std::collections::BTreeSet<String>> {
    proptest::collection::btree_set("[a-c,\\\\ ]{1,4}|.{1,8}", 1..4)
}

fn any_of<T: Copy + std::fmt::Debug>(words: &'static [(&'static str, T)]) -> impl Strategy<Value = T> {
    (0..words.len()).prop_map(|at| words[at].1)
}

/// One setting, set to something; a configuration is what many of them leave.
struct Change(Box<dyn Fn(TopicConfig) -> TopicConfig>);

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", (self.0)(TopicConfig::new()).settings())
    }
}

fn any_change() -> impl Strategy<Value = Change> {
    fn change<T: Clone + std::fmt::Debug + 'static>(
        values: impl Strategy<Value = T> + 'static,
        apply: fn(TopicConfig, T) -> TopicConfig,
    ) -> BoxedStrategy<Change> {
        values.prop_map(move |value| Change(Box::new(move |config| apply(config, value.clone())))).boxed()
    }
    let retention =
        (of(any_millis()), of(0..=i64::MAX.cast_unsigned()), of((any_groups(), 1..=i64::MAX.cast_unsigned())));
    let copies = (1..5_u32, 0..3_u32).prop_map(|(in_sync, more)| (in_sync, in_sync + more));
    proptest::strategy::Union::new([
        change(1..=100_000_u32, TopicConfig::partitions),
        change(copies, |config, (in_sync, copies)| config.replication_factor(copies).min_insync_replicas(in_sync)),
        change(any_of(COMPRESSION), TopicConfig::compression),
        change(any_of(CLEANUP), TopicConfig::cleanup),
        change(retention, |config, (age, bytes, hold)| {
            let (held_groups, held_bytes_max) = hold.unwrap_or_default();
            config.retention(Retention { age, bytes, held_groups, held_bytes_max })
        }),
        change(any_bytes(), TopicConfig::segment_bytes),
        change(of(any_millis()), TopicConfig::segment_age),
        change(any_bytes(), TopicConfig::index_bytes_max),
        change(any::<u32>(), TopicConfig::index_interval_bytes),
        change(any_bytes(), TopicConfig::batch_bytes_max),
        change(any::<usize>(), TopicConfig::decompressed_bytes_max),
        change(any_of(TIMESTAMP_TYPE), TopicConfig::timestamp_type),
        change(of(any_millis()), TopicConfig::timestamp_before_max),
        change(of(any_millis()), TopicConfig::timestamp_after_max),
        change(any_of(DURABILITY), TopicConfig::durability),
        change(any_of(COMMITS), TopicConfig::commits),
        change(any_millis(), TopicConfig::flush_interval),
        change(any_millis(), TopicConfig::checkpoint_interval),
        change(any_millis(), TopicConfig::idle_after),
        change(any_millis(), TopicConfig::producer_id_expiration),
        change((0..=1_000_000_u32).prop_map(|part| Ratio::new(f64::from(part) / 1e6)), TopicConfig::min_dirty_ratio),
        change(any_millis(), TopicConfig::delete_retention),
        change((any_millis(), of(any_millis())), |config, (least, more)| {
            let most = more.map(|more| (least + more).clamp(Duration::from_millis(1), MOST));
            config.min_compaction_lag(least).max_compaction_lag(most)
        }),
    ])
}

/// Any configuration that passes `check`.
pub(crate) fn any_config() -> impl Strategy<Value = TopicConfig> {
    let changed = vec(any_change(), 0..12).prop_map(|changes| {
        let config = changes.iter().fold(TopicConfig::new(), |config, change| (change.0)(config));
        // Most contradictions are between these.
        if config.check().is_ok() {
            config
        } else {
            config.cleanup(Cleanup::Delete).timestamp_type(TimestampType::CreateTime)
        }
    });
    changed.prop_filter("settings that contradict each other", |config| config.check().is_ok())
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(config in any_config()) {
        let mut read = TopicConfig::new().partitions(config.partitions);
        read.replication_factor = config.replication_factor;
        for (name, value) in config.settings() {
            prop_assert_eq!(read.apply(name, &value), Ok(()));
        }
        prop_assert_eq!(&read, &config);
        prop_assert_eq!(config.differences(&read), []);
    }

    #[test]
    fn any_text_is_taken_as_something_that_can_be_written_or_refused(at in 0..SETTINGS.len(), text in ".{0,24}|-?[0-9]{1,20}") {
        let mut config = TopicConfig::new();
        if config.apply(SETTINGS[at].name, &text).is_err() {
            prop_assert_eq!(config, TopicConfig::new());
        } else {
            let mut again = TopicConfig::new();
            for (name, value) in config.settings() {
                prop_assert_eq!(again.apply(name, &value), Ok(()));
            }
            prop_assert_eq!(again, config);
        }
    }
}

#[test]
fn every_setting_has_its_name() {
    let config = TopicConfig::new()
        .cleanup(Cleanup::CompactAndDelete)
        .retention(Retention::forever().bytes(7).hold_for(["b,c", "a"], 8))
        .segment_bytes(100)
        .segment_age(None)
        .index_bytes_max(48)
        .index_interval_bytes(0)
        .batch_bytes_max(99)
        .timestamp_before_max(Some(Duration::from_secs(3)))
        .timestamp_after_max(Some(Duration::ZERO))
        .compression(Compression::None)
        .min_insync_replicas(2)
        .durability(Durability::Os)
        .commits(Commits::ByHost)
        .flush_interval(Duration::from_millis(9))
        .checkpoint_interval(Duration::from_secs(1))
        .idle_after(Duration::from_secs(2))
        .min_dirty_ratio(Ratio::new(0.125))
        .min_compaction_lag(Duration::from_secs(4))
        .max_compaction_lag(Some(Duration::from_secs(5)))
        .delete_retention(Duration::from_secs(6))
        .decompressed_bytes_max(1 << 10);
    let text: Vec<_> = config.settings().iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected = [
        "cleanup.policy=compact,delete",
        "retention.ms=-1",
        "retention.bytes=7",
        "segment.bytes=100",
        "segment.ms=9223372036854775807",
        "segment.index.bytes=48",
        "index.interval.bytes=0",
        "max.message.bytes=99",
        "message.timestamp.before.max.ms=3000",
        "message.timestamp.after.max.ms=0",
        "min.cleanable.dirty.ratio=0.125",
        "min.compaction.lag.ms=4000",
        "max.compaction.lag.ms=5000",
        "delete.retention.ms=6000",
        "compression.type=uncompressed",
        "min.insync.replicas=2",
        "taffrail.durability=os",
        "taffrail.hold.groups=a,b\\,c",
        "taffrail.hold.bytes.max=8",
        "taffrail.commits=by-host",
        "taffrail.flush.interval.ms=9",
        "taffrail.checkpoint.interval.ms=1000",
        "taffrail.idle.after.ms=2000",
        "taffrail.decompressed.bytes.max=1024",
    ];
    assert_eq!(text, expected);
    let stamped = TopicConfig::new().timestamp_type(TimestampType::LogAppendTime);
    assert_eq!(stamped.settings(), [("message.timestamp.type", "LogAppendTime".to_owned())]);
}

#[test]
fn what_no_setting_can_be_is_refused() {
    let refused = [
        ("segment.byts", "1", "no setting is called \"segment.byts\""),
        ("segment.bytes", "-1", "setting segment.bytes: \"-1\" is no number that belongs here"),
        ("taffrail.hold.groups", "a,,b", "setting taffrail.hold.groups: \"a,,b\" names a group without a name"),
        ("retention.ms", "-2", "setting retention.ms: -2 is negative"),
        ("segment.ms", "-1", "setting segment.ms: -1 is negative"),
        ("taffrail.durability", "Os", "setting taffrail.durability: \"Os\" is none of [\"auto\", \"sync\", \"os\"]"),
        (
            "taffrail.idle.after.ms",
            "9223372036854775807",
            "setting taffrail.idle.after.ms: 9223372036854775807 is no time to wait",
        ),
    ];
    let mut config = TopicConfig::new();
    for (name, value, reason) in refused {
        assert_eq!(config.apply(name, value), Err(reason.to_owned()));
    }
    assert_eq!(config, TopicConfig::new());
}

#[test]
fn differences_name_both_sides() {
    let existing = TopicConfig::new().replication_factor(3).compression(Compression::Zstd);
    let requested = TopicConfig::new().partitions(9).segment_bytes(100);
    let text = |difference: SettingDifference| {
        format!("{} {:?} {:?}", difference.setting, difference.existing, difference.requested)
    };
    let found: Vec<_> = existing.differences(&requested).into_iter().map(text).collect();
    let expected = [
        r#"replication.factor Some("3") None"#,
        r#"segment.bytes Some("1073741824") Some("100")"#,
        r#"compression.type Some("zstd") None"#,
    ];
    assert_eq!(found, expected);
}
