//! The names that crashes left in a partition's directory, and what becomes of them (FORMATS 14, passes 1 to 4).
//!
//! ```text
//!   found                                    becomes
//!   .deleted, .tmp                           gone
//!   .cleaned, and .swap of its base or       gone, the .swap first: an exchange that had not begun, or was taken back
//!   above
//!   .log.swap otherwise                      the log: an exchange that had begun is finished. The old files in the range
//!                                            of offsets of all .log.swap go, and so do those that have its base
//!   .swap of an index without a .log.swap    the index: its .log is one of the new ones, and has its name
//!   .swap of another index                   the index, once its log is the log
//!   an index without a log                   gone
//! ```
//!
//! Names that are not synced change in any order in a loss of power, so there is a sync between any two of these that must
//! not change places: it can be interrupted anywhere, and whoever finds what it has left comes to the same end. Files of
//! other names are none of ours.

use std::collections::BTreeSet;
use std::ops::Range;

use super::home::{Home, base_in, base_of, is_leftover};
use super::snapshots::Snapshots;
use crate::error::{Error, Result};
use crate::record::batch::{BatchHeader, HEADER_BYTES};
use crate::storage::Entry;
use crate::types::Offset;

/// What lies in the directory.
#[derive(Debug)]
pub(super) struct Resolved {
    /// The segments by base, with the lengths of their files.
    pub(super) bases: Vec<(Offset, u64)>,
    /// Of these, the ones whose files have just taken the place of others.
    pub(super) replaced: Vec<Offset>,
    pub(super) snapshots: Snapshots,
}

/// Resolves what crashes left, and answers what is there.
pub(super) fn resolve_names(home: &Home) -> Result<Resolved> {
    let entries = home.list_once()?;
    home.check_exported(&entries)?;
    let is_of_exchange = |name: &str| {
        let name = name.strip_suffix(".cleaned").or_else(|| name.strip_suffix(".swap"));
        name.and_then(base_in).is_some()
    };
    if entries.iter().any(|entry| is_of_exchange(&entry.name)) {
        // What is seen here may not be what the disk has, where the last process could not sync it.
        home.sync_directory()?;
    }
    let mut changed = remove_leftovers(home, &entries)?;
    let entries = if changed { home.list()? } else { entries };
    let replaced = swap_in(home, &entries)?;
    changed |= replaced.is_some();
    let entries = if replaced.is_some() { home.list()? } else { entries };
    let bases: Vec<_> = entries
        .iter()
        .filter(|entry| !entry.is_directory)
        .filter_map(|entry| Some((base_of(&entry.name, ".log")?, entry.len)))
        .collect();
    for entry in &entries {
        let orphan = [".index", ".timeindex", ".txnindex"].iter().find_map(|suffix| base_of(&entry.name, suffix));
        if orphan.is_some_and(|base| !bases.iter().any(|(other, _)| *other == base)) {
            home.remove(&entry.name)?;
            changed = true;
        }
    }
    if changed {
        home.sync_directory()?;
    }
    Ok(Resolved { bases, replaced: replaced.unwrap_or_default(), snapshots: Snapshots::among(&entries) })
}

/// Deletes `.deleted`, `.tmp`, `.cleaned`, and the `.swap` files of an exchange that had not begun, where the rest of the
/// name is one that Kafka or taffrail gives.
fn remove_leftovers(home: &Home, entries: &[Entry]) -> Result<bool> {
    let files = || entries.iter().filter(|entry| !entry.is_directory).map(|entry| entry.name.as_str());
    let cleaned = files().filter_map(|name| base_in(name.strip_suffix(".cleaned")?)).min();
    let is_unfinished = |name: &&str| {
        let swapped = name.strip_suffix(".swap").and_then(base_in);
        swapped.is_some_and(|base| cleaned.is_some_and(|cleaned| base >= cleaned))
    };
    let mut changed = false;
    for name in files().filter(is_unfinished) {
        home.remove(name)?;
        changed = true;
    }
    if changed {
        // Without a `.cleaned` beside it a `.swap` would be taken for complete.
        home.sync_directory()?;
    }
    for name in files().filter(|name| is_leftover(name)) {
        home.remove(name)?;
        changed = true;
    }
    Ok(changed)
}

/// Finishes an exchange that had begun: the old files in its range go, the new ones get their names. Answers the bases of
/// the new ones; `None` where there was nothing to be done.
fn swap_in(home: &Home, entries: &[Entry]) -> Result<Option<Vec<Offset>>> {
    let files = || entries.iter().filter(|entry| !entry.is_directory).map(|entry| entry.name.as_str());
    let swaps: Vec<(&str, Offset)> =
        files().filter_map(|name| Some((name, base_in(name.strip_suffix(".swap")?)?))).collect();
    if swaps.is_empty() {
        return Ok(None);
    }
    let logs: Vec<Offset> = swaps.iter().filter_map(|(name, _)| base_of(name, ".log.swap")).collect();
    let mut range: Option<Range<Offset>> = None;
    for base in &logs {
        let next = next_offset_of(home, &format!("{:020}.log.swap", base.0), *base)?;
        let so_far = range.unwrap_or(*base..next);
        range = Some(so_far.start.min(*base)..so_far.end.max(next));
    }
    // Indexes follow their logs: who has one that waits, and no log that does, has its log.
    let is_installed = |base: &Offset| !logs.contains(base) && swaps.iter().any(|(_, swap)| swap == base);
    for name in files() {
        let Some(base) = base_in(name).filter(|base| !is_installed(base)) else { continue };
        let is_old = logs.contains(&base) || range.as_ref().is_some_and(|range| range.contains(&base));
        // A snapshot says what it said: it tells of what lies before it.
        let goes = is_old && !name.ends_with(".snapshot");
        if goes {
            home.remove(name)?;
        }
    }
    home.sync_directory()?;
    let mut bases: Vec<Offset> = swaps.iter().map(|(_, base)| *base).collect();
    bases.sort_unstable();
    bases.dedup();
    let of = |is_log: bool| swaps.iter().filter(move |(name, _)| name.ends_with(".log.swap") == is_log);
    // Of one without an index nobody could tell, so there each has its name, durably, before the next.
    let has_index = |base: &Offset| of(false).any(|(_, swap)| swap == base);
    let at_once = logs.iter().all(has_index);
    for base in logs.iter().copied().collect::<BTreeSet<_>>() {
        take_name(home, &format!("{:020}.log.swap", base.0))?;
        if !at_once {
            home.sync_directory()?;
        }
    }
    home.sync_directory()?;
    of(false).try_for_each(|(name, _)| take_name(home, name))?;
    Ok(Some(bases))
}

fn take_name(home: &Home, name: &str) -> Result<()> {
    let (from, to) = (home.path(name), home.path(name.strip_suffix(".swap").unwrap_or(name)));
    home.storage.rename(&from, &to).map_err(|error| Error::io("rename", from, error))
}

/// The offset behind the last batch of a file that is to be swapped in.
fn next_offset_of(home: &Home, name: &str, base: Offset) -> Result<Offset> {
    let path = home.path(name);
    let file = home.storage.open(&path, 0).map_err(|error| Error::io("open", &path, error))?;
    let len = file.len().map_err(|error| Error::io("read", &path, error))?;
    let mut next = base;
    let mut position = 0;
    while position < len {
        let bytes =
            file.read(position..position + HEADER_BYTES as u64).map_err(|error| Error::io("read", &path, error))?;
        let Ok(header) = BatchHeader::parse(&bytes) else { break };
        next = header.next_offset();
        position += header.size();
    }
    Ok(next)
}
