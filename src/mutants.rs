//! Bugs on purpose, to see that the simulator finds them. They are there with `--cfg mutants` only, and of those the one
//! that the environment variable `MUTANT` names; elsewhere asking is a constant `false`.

/// Readers of a synced partition see what is written and not synced.
pub(crate) const VISIBLE_BEFORE_STORED: &str = "visible-before-stored";
/// The names of new segments and of a new partition's files are not synced.
pub(crate) const LOST_DIRECTORY_SYNC: &str = "lost-directory-sync";
/// After a crash the log ends at its recovery point, and the offsets from there on are given again.
pub(crate) const REUSED_OFFSET: &str = "reused-offset";
/// A producer appends the batch after one before that one.
#[cfg(mutants)]
pub(crate) const OVERTAKING_BATCH: &str = "overtaking-batch";
/// The retention does not ask what is held.
pub(crate) const RETENTION_PAST_HOLD: &str = "retention-past-hold";
/// Readers of committed records see what lies behind the beginning of an open transaction.
pub(crate) const STABLE_PAST_OPEN: &str = "stable-past-open";
/// A commit is answered before the coordinator's decision is synced.
pub(crate) const DECISION_NOT_STORED: &str = "decision-not-stored";
/// Compaction takes the marker of a transaction before the transaction's records.
pub(crate) const MARKER_BEFORE_DATA: &str = "marker-before-data";
/// Compaction takes the last record of a key that is deleted, and keeps none of the deletion.
pub(crate) const DELETION_FORGOTTEN: &str = "deletion-forgotten";

/// A partition is given to a member of a group while another has it.
pub(crate) const GIVEN_BEFORE_RELEASED: &str = "given-before-released";
/// The coordinator of a group answers before its records are synced.
pub(crate) const POSITION_NOT_STORED: &str = "position-not-stored";
/// The coordinator of a group is not told that a transaction has ended.
pub(crate) const MARKER_UNHEARD: &str = "marker-unheard";
/// A member of a group commits though another has taken its place.
pub(crate) const REPLACED_COMMITS: &str = "replaced-commits";
/// Positions in a topic that was deleted are not forgotten before there is another of its name.
pub(crate) const POSITIONS_INHERITED: &str = "positions-inherited";

/// Whether this bug is in.
#[cfg(not(mutants))]
#[inline]
pub(crate) const fn is_in(_mutant: &str) -> bool {
    false
}

/// Whether this bug is in.
#[cfg(mutants)]
pub(crate) fn is_in(mutant: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = std::env::var("MUTANT").ok().filter(|name| !name.is_empty())?;
        assert!(ALL.contains(&chosen.as_str()), "there is no mutant {chosen}; there are {ALL:?}");
        Some(chosen)
    });
    chosen.as_deref() == Some(mutant)
}

#[cfg(mutants)]
const ALL: &[&str] = &[
    VISIBLE_BEFORE_STORED,
    LOST_DIRECTORY_SYNC,
    REUSED_OFFSET,
    OVERTAKING_BATCH,
    RETENTION_PAST_HOLD,
    STABLE_PAST_OPEN,
    DECISION_NOT_STORED,
    MARKER_BEFORE_DATA,
    DELETION_FORGOTTEN,
    GIVEN_BEFORE_RELEASED,
    POSITION_NOT_STORED,
    MARKER_UNHEARD,
    REPLACED_COMMITS,
    POSITIONS_INHERITED,
];
