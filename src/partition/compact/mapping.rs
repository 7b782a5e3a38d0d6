//! The first pass: the last offset of every key in what is dirty.
//!
//! Control batches and the data of aborted transactions are passed over. Where the map has no room for another key the
//! pass ends there, in the middle of a batch if need be: everything below that record is mapped.

use super::map::{Hash, OffsetMap, Put};
use super::plan::Plan;
use super::tally::Tally;
use crate::config::CleanerConfig;
use crate::error::Result;
use crate::random::Random;
use crate::record::batches::Batch;
use crate::types::Offset;

/// How far the counting of the records is, which says how large the map has to be.
#[derive(Debug)]
pub(super) struct Counting {
    index: usize,
    records: u64,
}

impl Counting {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { index: plan.source_of(plan.selection.first_dirty), records: 0 }
    }

    /// Counts one segment. Says how many bytes were looked at; `None` where there is none left.
    pub(super) fn step(&mut self, plan: &Plan) -> Result<Option<u64>> {
        let Some(source) = plan.sources.get(self.index) else { return Ok(None) };
        self.records = self.records.saturating_add(source.count_records(plan.selection.first_dirty)?);
        self.index += 1;
        // Headers alone were read.
        Ok(Some(source.size() / 64))
    }

    pub(super) fn mapping(&self, plan: &Plan, config: &CleanerConfig, random: &mut Random) -> Result<Mapping> {
        let index = plan.source_of(plan.selection.first_dirty);
        let source = plan.sources.get(index);
        let position = source.map_or(Ok(0), |source| source.indexed_position(plan.selection.first_dirty))?;
        Ok(Mapping {
            map: OffsetMap::new(self.records, config.map_bytes_max, random),
            tally: Tally::default(),
            end: plan.selection.first_dirty,
            index,
            position,
            due: Offset::ZERO,
            keys: Vec::new(),
        })
    }
}

/// How far the mapping is.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) map: OffsetMap,
    tally: Tally,
    /// Everything below is mapped.
    pub(super) end: Offset,
    index: usize,
    position: u64,
    due: Offset,
    /// Those of a batch.
    keys: Vec<(Hash, Offset)>,
}

/// What a step of the mapping came to.
pub(super) enum Mapped {
    /// It goes on.
    Some { bytes: u64 },
    /// Everything is mapped.
    All,
    /// The map has no room.
    Full,
}

impl Mapping {
    /// The map, and what was counted beside it; both are empty here from now on.
    pub(super) fn take_map(&mut self) -> (OffsetMap, Tally) {
        (std::mem::take(&mut self.map), std::mem::take(&mut self.tally))
    }

    /// Maps a piece.
    pub(super) fn step(&mut self, plan: &Plan, read_bytes: u64) -> Result<Mapped> {
        let Some((source, next_base)) = plan.sources.get(self.index).zip(plan.ends.get(self.index)) else {
            self.end = plan.selection.limit;
            return Ok(Mapped::All);
        };
        let batches = source.batches_at(self.position, read_bytes, self.due, plan.bounds(Some(*next_base)))?;
        if batches.is_empty() {
            self.end = self.end.max(*next_base);
            self.index += 1;
            self.position = 0;
            self.due = *next_base;
            return Ok(Mapped::Some { bytes: 0 });
        }
        for batch in &batches {
            if !self.take(&batch, plan) {
                return Ok(Mapped::Full);
            }
        }
        self.position += batches.size_bytes() as u64;
        Ok(Mapped::Some { bytes: batches.size_bytes() as u64 })
    }

    /// Takes in a batch. Says whether there was room for it.
    fn take(&mut self, batch: &Batch<'_>, plan: &Plan) -> bool {
        let header = batch.header();
        self.due = header.next_offset();
        if !header.is_control() && header.last_offset() >= self.end && !plan.aborted.covers(header) {
            let mut is_plain = header.base_offset() >= plan.selection.first_dirty;
            self.keys.clear();
            for record in batch.records().filter(|record| record.offset() >= plan.selection.first_dirty) {
                is_plain &= record.key().is_some() && record.value().is_some();
                self.keys.extend(record.key().map(|key| (self.map.hash(key), record.offset())));
            }
            if is_plain {
                self.tally.begin(batch);
            }
            self.map.warm(self.keys.iter().map(|(key, _)| *key));
            for (key, offset) in &self.keys {
                match self.map.put(*key, *offset) {
                    Put::New => {}
                    Put::Again(before) => self.tally.replaced(before),
                    Put::Full => {
                        self.end = self.end.max(*offset);
                        return false;
                    }
                }
            }
        }
        self.end = self.end.max(header.next_offset());
        true
    }
}
