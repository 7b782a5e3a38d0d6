//! What a seed is about: which faults it may have, how busy it is, and settings that are as small as they can be.

use std::time::Duration;

use taffrail::{Acks, Cleanup, Compression, Durability, Ratio, Retention, TimestampType, TopicConfig};

use super::choice::Choice;

/// How a run goes.
#[expect(clippy::struct_excessive_bools, reason = "what may happen and what may not")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) steps: u64,
    pub(super) topics: usize,
    pub(super) producers: usize,
    pub(super) readers: usize,
    pub(super) power_losses: bool,
    pub(super) kills: bool,
    /// One step in so many arms a fault; 0: none does.
    pub(super) one_fault_in: u64,
    pub(super) one_restart_in: u64,
    pub(super) flips: bool,
    /// How many transactional ids there are.
    pub(super) transactors: usize,
    /// Topics may be compacted.
    pub(super) compacts: bool,
    /// The coordinators' own topic has small segments, which are compacted.
    pub(super) small_state: bool,
    /// How many groups there are.
    pub(super) groups: usize,
    /// How long members of a group may be silent.
    pub(super) session: Duration,
    /// How many members a group has room for.
    pub(super) members_max: usize,
    /// How long positions are kept that nobody uses.
    pub(super) positions_kept: Duration,
}

impl Plan {
    pub(super) fn new(choice: &mut Choice) -> Self {
        Self {
            steps: choice.between(150, 500),
            topics: choice.between(1, 4) as usize,
            producers: choice.between(1, 4) as usize,
            readers: choice.between(1, 3) as usize,
            power_losses: !choice.one_in(4),
            kills: !choice.one_in(4),
            one_fault_in: choice.pick(&[0, 0, 60, 25, 12]),
            one_restart_in: choice.pick(&[30, 60, 120]),
            flips: choice.one_in(4),
            transactors: choice.pick(&[0, 0, 1, 2, 3]),
            compacts: choice.one_in(2),
            small_state: choice.one_in(3),
            groups: choice.pick(&[0, 0, 1, 2]),
            session: Duration::from_secs(choice.pick(&[8, 20, 45])),
            members_max: choice.pick(&[1_000, 1_000, 1_000, 2]),
            positions_kept: choice.pick(&[WEEK, WEEK, Duration::from_secs(1_200)]),
        }
    }
}

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// No deleted key is kept for longer.
pub(super) const DELETE_RETENTION_MAX: Duration = Duration::from_secs(3_600);

/// Settings of a topic.
pub(super) fn topic_config(choice: &mut Choice, plan: &Plan) -> TopicConfig {
    let partition_count = u32::try_from(choice.between(1, 3)).unwrap_or(1);
    let mut config = TopicConfig::new()
        .partitions(partition_count)
        .durability(choice.pick(&[Durability::Auto, Durability::Sync, Durability::Sync, Durability::Os]))
        .segment_bytes(choice.pick(&[200, 400, 1_000, 4_000, 1 << 20]))
        .index_interval_bytes(choice.pick(&[0, 100, 4_096]))
        .index_bytes_max(choice.pick(&[96, 10 << 20]))
        .batch_bytes_max(choice.pick(&[300, 1_000, 1 << 20]))
        .retention(retention(choice))
        .segment_age(choice.pick(&[None, Some(Duration::from_secs(60))]))
        .flush_interval(Duration::from_millis(choice.pick(&[0, 5, 50])))
        .checkpoint_interval(Duration::from_secs(choice.pick(&[1, 5])));
    if choice.one_in(3) {
        config = config.compression(compression(choice));
    }
    if plan.compacts && choice.one_in(2) {
        config = compacted(config, choice);
    }
    if choice.one_in(5) {
        config = config.timestamp_type(TimestampType::LogAppendTime);
    }
    config
}

fn compacted(config: TopicConfig, choice: &mut Choice) -> TopicConfig {
    let least = Duration::from_millis(choice.pick(&[0, 0, 1_000, 60_000]));
    let most = choice.pick(&[None, Some(Duration::ZERO), Some(Duration::from_secs(60))]);
    let cleanup = choice.pick(&[Cleanup::Compact, Cleanup::CompactAndDelete]);
    let config = if cleanup.deletes() { config } else { config.retention(Retention::forever()) };
    config
        .cleanup(cleanup)
        .min_dirty_ratio(Ratio::new(choice.pick(&[0.0, 0.1, 0.5, 0.9])))
        .min_compaction_lag(least)
        .max_compaction_lag(most.map(|most| most.max(least).max(Duration::from_millis(1))))
        .delete_retention(choice.pick(&[
            Duration::ZERO,
            Duration::from_millis(100),
            Duration::from_secs(5),
            DELETE_RETENTION_MAX,
        ]))
}

fn retention(choice: &mut Choice) -> Retention {
    let (bytes, age) = (choice.between(300, 4_000), Duration::from_secs(choice.pick(&[60, 3_600])));
    match choice.below(4) {
        0 => Retention::forever(),
        1 => Retention::forever().bytes(bytes),
        2 => Retention::forever().age(age),
        _ => Retention::forever().bytes(bytes).age(age),
    }
}

pub(super) fn compression(choice: &mut Choice) -> Compression {
    choice.pick(&[
        Compression::None,
        #[cfg(feature = "gzip")]
        Compression::Gzip,
        #[cfg(feature = "snappy")]
        Compression::Snappy,
        #[cfg(feature = "lz4")]
        Compression::Lz4,
        #[cfg(feature = "zstd")]
        Compression::Zstd,
    ])
}

pub(super) fn acks(choice: &mut Choice) -> Acks {
    choice.pick(&[Acks::None, Acks::Leader, Acks::All, Acks::All])
}
