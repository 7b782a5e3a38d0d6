//! The settings of a topic as text: Kafka's names and forms, and names of ours where Kafka has none.
//!
//! | form | is written as |
//! |---|---|
//! | a duration | milliseconds; it has no part of one, which [`TopicConfig::check`] has seen to |
//! | no bound | `-1` for retention, 9223372036854775807 for the age of a segment or the distance of a timestamp |
//! | groups | their names, separated by commas; a comma or backslash in one stands behind a backslash |
//! | a choice | Kafka's word, or that of the enum in lower case with dashes |
//!
//! Invariant: for a configuration that was checked, applying its settings to a default one gives it back, but for the
//! number of partitions and copies, which are no settings.

use std::str::FromStr;
use std::time::Duration;

use super::retention::{held_groups, held_text};
use super::{Cleanup, Commits, Durability, TimestampType, TopicConfig};
use crate::error::{Error, Result};
use crate::types::Compression;

type Parsed<T> = std::result::Result<T, String>;

/// One setting, by its name: how it is written, where it is set, and how it is read.
struct Setting {
    name: &'static str,
    text: fn(&TopicConfig) -> Option<String>,
    apply: fn(&mut TopicConfig, &str) -> Parsed<()>,
}

/// What Kafka writes for no bound.
const NEVER: i64 = i64::MAX;

const SETTINGS: &[Setting] = &[
    Setting {
        name: "cleanup.policy",
        text: |of| word(CLEANUP, of.partition.cleanup),
        apply: |of, text| set(&mut of.partition.cleanup, choice(CLEANUP, text)),
    },
    Setting {
        name: "retention.ms",
        text: |of| Some(of.partition.retention.age.map_or("-1".to_owned(), millis)),
        apply: |of, text| {
            set(&mut of.partition.retention.age, unless(text, -1).map(|ms| ms.map(Duration::from_millis)))
        },
    },
    Setting {
        name: "retention.bytes",
        text: |of| Some(of.partition.retention.bytes.map_or("-1".to_owned(), |bytes| bytes.to_string())),
        apply: |of, text| set(&mut of.partition.retention.bytes, unless(text, -1)),
    },
    Setting {
        name: "segment.bytes",
        text: |of| Some(of.partition.segment_bytes.to_string()),
        apply: |of, text| set(&mut of.partition.segment_bytes, number(text)),
    },
    Setting {
        name: "segment.ms",
        text: |of| Some(distance(of.partition.segment_age)),
        apply: |of, text| set(&mut of.partition.segment_age, bounded(text)),
    },
    Setting {
        name: "segment.index.bytes",
        text: |of| Some(of.partition.index_bytes_max.to_string()),
        apply: |of, text| set(&mut of.partition.index_bytes_max, number(text)),
    },
    Setting {
        name: "index.interval.bytes",
        text: |of| Some(of.partition.index_interval_bytes.to_string()),
        apply: |of, text| set(&mut of.partition.index_interval_bytes, number(text)),
    },
    Setting {
        name: "max.message.bytes",
        text: |of| Some(of.partition.batch_bytes_max.to_string()),
        apply: |of, text| set(&mut of.partition.batch_bytes_max, number(text)),
    },
    Setting {
        name: "message.timestamp.type",
        text: |of| word(TIMESTAMP_TYPE, of.partition.timestamp_type),
        apply: |of, text| set(&mut of.partition.timestamp_type, choice(TIMESTAMP_TYPE, text)),
    },
    Setting {
        name: "message.timestamp.before.max.ms",
        text: |of| Some(distance(of.partition.timestamp_before_max)),
        apply: |of, text| set(&mut of.partition.timestamp_before_max, bounded(text)),
    },
    Setting {
        name: "message.timestamp.after.max.ms",
        text: |of| Some(distance(of.partition.timestamp_after_max)),
        apply: |of, text| set(&mut of.partition.timestamp_after_max, bounded(text)),
    },
    Setting {
        name: "min.cleanable.dirty.ratio",
        text: |of| Some(of.partition.min_dirty_ratio.to_string()),
        apply: |of, text| set(&mut of.partition.min_dirty_ratio, text.parse()),
    },
    Setting {
        name: "min.compaction.lag.ms",
        text: |of| Some(millis(of.partition.min_compaction_lag)),
        apply: |of, text| set(&mut of.partition.min_compaction_lag, duration(text)),
    },
    Setting {
        name: "max.compaction.lag.ms",
        text: |of| Some(distance(of.partition.max_compaction_lag)),
        apply: |of, text| set(&mut of.partition.max_compaction_lag, bounded(text)),
    },
    Setting {
        name: "delete.retention.ms",
        text: |of| Some(millis(of.partition.delete_retention)),
        apply: |of, text| set(&mut of.partition.delete_retention, duration(text)),
    },
    Setting {
        name: "compression.type",
        text: |of| of.compression.and_then(|compression| word(COMPRESSION, compression)),
        apply: |of, text| set(&mut of.compression, choice(COMPRESSION, text).map(Some)),
    },
    Setting {
        name: "min.insync.replicas",
        text: |of| of.min_insync_replicas.map(|copies| copies.to_string()),
        apply: |of, text| set(&mut of.min_insync_replicas, number(text).map(Some)),
    },
    Setting {
        name: "taffrail.durability",
        text: |of| word(DURABILITY, of.partition.durability),
        apply: |of, text| set(&mut of.partition.durability, choice(DURABILITY, text)),
    },
    Setting {
        name: "taffrail.hold.groups",
        text: |of| Some(held_text(&of.partition.retention.held_groups)),
        apply: |of, text| set(&mut of.partition.retention.held_groups, held_groups(text)),
    },
    Setting {
        name: "taffrail.hold.bytes.max",
        text: |of| Some(of.partition.retention.held_bytes_max.to_string()),
        apply: |of, text| set(&mut of.partition.retention.held_bytes_max, number(text)),
    },
    Setting {
        name: "taffrail.commits",
        text: |of| word(COMMITS, of.partition.commits),
        apply: |of, text| set(&mut of.partition.commits, choice(COMMITS, text)),
    },
    Setting {
        name: "taffrail.flush.interval.ms",
        text: |of| Some(millis(of.partition.flush_interval)),
        apply: |of, text| set(&mut of.partition.flush_interval, duration(text)),
    },
    Setting {
        name: "taffrail.checkpoint.interval.ms",
        text: |of| Some(millis(of.partition.checkpoint_interval)),
        apply: |of, text| set(&mut of.partition.checkpoint_interval, duration(text)),
    },
    Setting {
        name: "taffrail.idle.after.ms",
        text: |of| Some(millis(of.partition.idle_after)),
        apply: |of, text| set(&mut of.partition.idle_after, duration(text)),
    },
    Setting {
        name: "producer.id.expiration.ms",
        text: |of| Some(millis(of.partition.producer_id_expiration)),
        apply: |of, text| set(&mut of.partition.producer_id_expiration, duration(text)),
    },
    Setting {
        name: "taffrail.decompressed.bytes.max",
        text: |of| Some(of.partition.decompressed_bytes_max.to_string()),
        apply: |of, text| set(&mut of.partition.decompressed_bytes_max, number(text)),
    },
];

const CLEANUP: &[(&str, Cleanup)] =
    &[("delete", Cleanup::Delete), ("compact", Cleanup::Compact), ("compact,delete", Cleanup::CompactAndDelete)];

const TIMESTAMP_TYPE: &[(&str, TimestampType)] =
    &[("CreateTime", TimestampType::CreateTime), ("LogAppendTime", TimestampType::LogAppendTime)];

const COMPRESSION: &[(&str, Compression)] = &[
    ("uncompressed", Compression::None),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

const DURABILITY: &[(&str, Durability)] =
    &[("auto", Durability::Auto), ("sync", Durability::Sync), ("os", Durability::Os)];

const COMMITS: &[(&str, Commits)] = &[("when-stored", Commits::WhenStored), ("by-host", Commits::ByHost)];

/// A setting in which two configurations of a topic differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingDifference {
    /// Its name, as in [`TopicConfig::settings`]; the number of copies is `replication.factor`.
    pub setting: &'static str,
    /// What the topic has; `None` leaves it to the log.
    pub existing: Option<String>,
    /// What was asked for; `None` leaves it to the log.
    pub requested: Option<String>,
}

impl TopicConfig {
    /// The settings that differ from the default, by Kafka's names, and by names that begin with `taffrail.` where
    /// Kafka has none. The number of partitions and copies are no settings.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let default = Self::new();
        let differing = SETTINGS.iter().filter(|setting| (setting.text)(self) != (setting.text)(&default));
        differing.filter_map(|setting| Some((setting.name, (setting.text)(self)?))).collect()
    }

    /// Sets one by its name, to the text that Kafka's tools take and [`TopicConfig::settings`] answers.
    ///
    /// ```
    /// use taffrail::TopicConfig;
    /// let config = TopicConfig::new().setting("retention.ms", "60000")?.setting("cleanup.policy", "compact")?;
    /// assert_eq!(config.settings().len(), 2);
    /// assert!(TopicConfig::new().setting("retention.ms", "soon").is_err());
    /// # Ok::<(), taffrail::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] where no setting has this name, or none takes this text. Settings that contradict each
    /// other are found where they are used.
    pub fn setting(mut self, name: &str, value: &str) -> Result<Self> {
        let known = SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.name);
        match self.apply(name, value) {
            Ok(()) => Ok(self),
            Err(reason) => Err(Error::InvalidConfig { setting: known.unwrap_or("of a topic"), reason }),
        }
    }

    /// Sets what `settings` wrote. The error is a reason for a person; nothing was changed then.
    pub(crate) fn apply(&mut self, name: &str, value: &str) -> Parsed<()> {
        let setting = SETTINGS.iter().find(|setting| setting.name == name);
        let setting = setting.ok_or_else(|| format!("no setting is called {name:?}"))?;
        (setting.apply)(self, value).map_err(|reason| format!("setting {name}: {reason}"))
    }

    /// In which settings `requested` differs from this one, the number of partitions aside.
    pub(crate) fn differences(&self, requested: &Self) -> Vec<SettingDifference> {
        let copies = |of: &Self| of.replication_factor.map(|copies| copies.to_string());
        let both = |setting, text: &dyn Fn(&Self) -> Option<String>| {
            let (existing, requested) = (text(self), text(requested));
            (existing != requested).then_some(SettingDifference { setting, existing, requested })
        };
        let settings = SETTINGS.iter().filter_map(|setting| both(setting.name, &setting.text));
        both("replication.factor", &copies).into_iter().chain(settings).collect()
    }
}

fn set<T>(field: &mut T, value: Parsed<T>) -> Parsed<()> {
    *field = value?;
    Ok(())
}

fn word<T: Copy + PartialEq>(words: &[(&'static str, T)], value: T) -> Option<String> {
    words.iter().find(|(_, other)| *other == value).map(|(word, _)| (*word).to_owned())
}

fn choice<T: Copy>(words: &[(&'static str, T)], text: &str) -> Parsed<T> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| format!("{text:?} is none of {:?}", words.iter().map(|(word, _)| *word).collect::<Vec<_>>()))
}

fn number<T: FromStr>(text: &str) -> Parsed<T> {
    text.parse().map_err(|_| format!("{text:?} is no number that belongs here"))
}

/// A number that is not negative; `none` is its word for no bound.
fn unless(text: &str, none: i64) -> Parsed<Option<u64>> {
    let value = number::<i64>(text)?;
    if value == none {
        return Ok(None);
    }
    u64::try_from(value).map(Some).map_err(|_| format!("{value} is negative"))
}

fn bounded(text: &str) -> Parsed<Option<Duration>> {
    unless(text, NEVER).map(|ms| ms.map(Duration::from_millis))
}

fn duration(text: &str) -> Parsed<Duration> {
    bounded(text)?.ok_or_else(|| format!("{text} is no time to wait"))
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

fn distance(bound: Option<Duration>) -> String {
    bound.map_or_else(|| NEVER.to_string(), millis)
}

#[cfg(test)]
pub(crate) mod tests;
