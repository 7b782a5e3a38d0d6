//! What the disk does: operations fail, one by one or for a while; it is full; bits of it flip; and at some operation
//! the process or the power ends.

use std::path::{Path, PathBuf};

use taffrail::{BatchHeader, Fault, HEADER_BYTES};

use super::model::Slot;
use super::world::{DIRECTORY, World};

/// An end that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doom {
    /// The power goes at an operation.
    Power,
    /// The process is killed at this operation.
    Kill(u64),
}

const FAULTS: &[Fault] = &[Fault::NoSpace, Fault::Io, Fault::Io, Fault::SyncFails, Fault::SyncFails, Fault::Denied];

impl World {
    /// One turn of whoever breaks things, or mends them.
    pub(super) fn arm(&mut self) {
        match self.choice.below(8) {
            0 | 1 if self.armed => self.heal(),
            2 if self.plan.flips && !self.groups.is_empty() && self.choice.one_in(2) => self.flip_positions(),
            2 if self.plan.flips => self.flip(),
            3 => {
                self.storage.fill_up();
                self.armed("the disk is full".to_owned());
            }
            4 if self.plan.power_losses => self.doom(Doom::Power),
            5 if self.plan.kills => self.doom(Doom::Kill(0)),
            6 | 7 => self.heal(),
            _ => self.break_operations(),
        }
    }

    fn armed(&mut self, line: String) {
        self.trace.note(line);
        self.trace.count("faults");
        (self.armed, self.excused) = (true, true);
    }

    /// Some of the next operations fail.
    pub(super) fn break_operations(&mut self) {
        let first = self.storage.operations() + self.choice.below(60);
        let fault = match self.choice.below(6) {
            0 => Fault::ShortWrite(self.choice.below(200)),
            _ => self.choice.pick(FAULTS),
        };
        let last = first + self.choice.pick(&[1, 1, 1, 5, 40, 400]);
        self.storage.fail_between(first..last, fault);
        self.armed(format!("operations {first} to {last} fail: {fault:?}"));
    }

    /// The disk is sound again; what it has fenced is recovered.
    fn heal(&mut self) {
        self.trace.note("the disk is sound");
        self.storage.clear_faults();
        (self.armed, self.doom) = (false, None);
        for name in self.names() {
            let count = self.describe(name).map_or(0, |topic| topic.partitions.len());
            for number in (0..).take(count) {
                let is_fenced = self.log().partition(name, number).is_ok_and(|partition| partition.sync().is_err());
                if is_fenced {
                    self.reopen(name, number);
                }
            }
        }
    }

    /// Recovers one partition anew.
    pub(super) fn reopen(&mut self, name: &str, number: u32) {
        self.reopened = true;
        let outcome = self.log().reopen(name, number);
        self.trace.note(format_args!("reopens {name}-{number}: {outcome:?}"));
        match outcome {
            Ok(()) => self.trace.count("reopened partitions"),
            Err(error) => assert!(self.armed, "{name}-{number} cannot be reopened on a sound disk: {error}"),
        }
    }

    fn doom(&mut self, doom: Doom) {
        if self.doom.is_some() {
            return;
        }
        let at = self.storage.operations() + self.choice.below(80);
        match doom {
            Doom::Power => self.storage.crash_at(at),
            Doom::Kill(_) => self.storage.fail_from(at, Fault::Io),
        }
        self.doom = Some(if doom == Doom::Power { doom } else { Doom::Kill(at) });
        self.armed(format!("{:?} at operation {at}", self.doom));
    }

    /// Whether the end has come.
    pub(super) fn is_over(&self) -> bool {
        match self.doom {
            Some(Doom::Kill(at)) => self.storage.operations() > at,
            _ => self.storage.has_lost_power(),
        }
    }

    /// Flips a bit of the records in a sealed segment of a synced topic.
    fn flip(&mut self) {
        let Some((name, slot, partition)) = self.a_partition() else { return };
        if !self.model.survives(slot) || !self.model.topic(name).is_certain() {
            return;
        }
        let directory = PathBuf::from(DIRECTORY).join(format!("{name}-{}", slot.1));
        let is_log = |path: &PathBuf| path.parent() == Some(&directory) && path.extension().is_some_and(|e| e == "log");
        let mut logs: Vec<_> = self.storage.paths().into_iter().filter(is_log).collect();
        logs.sort();
        logs.truncate(logs.len().saturating_sub(2));
        if logs.is_empty() {
            return;
        }
        let path = self.choice.pick(&logs);
        let start = partition.start().0;
        let Some((position, header)) = self.a_batch(&path).filter(|(_, header)| header.base_offset().0 >= start) else {
            return;
        };
        if self.flip_in(&path, position, &header) {
            self.damaged(slot, header.base_offset().0..header.next_offset().0);
        }
    }

    /// Flips a bit of what the coordinators of groups have written.
    fn flip_positions(&mut self) {
        let is_log = |path: &PathBuf| {
            let directory = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
            directory.starts_with("__consumer_offsets-") && path.extension().is_some_and(|e| e == "log")
        };
        // Most of them are empty, or a window of zeros.
        let is_used = |path: &PathBuf| {
            let bytes = self.storage.bytes_of(path).unwrap_or_default();
            bytes.get(8..12).is_some_and(|length| length != [0; 4])
        };
        let mut logs: Vec<_> = self.storage.paths().into_iter().filter(is_log).filter(is_used).collect();
        logs.sort();
        if logs.is_empty() {
            return;
        }
        let path = self.choice.pick(&logs);
        let Some((position, header)) = self.a_batch(&path) else { return };
        let bytes = self.storage.bytes_of(&path).unwrap_or_default();
        if !self.flip_in(&path, position, &header) {
            return;
        }
        self.trace.count("damaged positions");
        for (group, model) in self.groups.iter().zip(&mut self.model.groups) {
            let name = group.name.as_bytes();
            model.is_damaged |= bytes.windows(name.len()).any(|window| window == name);
        }
    }

    /// Flips a bit of a batch's records, if it has any.
    fn flip_in(&mut self, path: &Path, position: u64, header: &BatchHeader) -> bool {
        let body = header.size() - HEADER_BYTES as u64;
        if body == 0 {
            return false;
        }
        let at = position + HEADER_BYTES as u64 + self.choice.below(body);
        let bit = self.choice.below(8) as u8;
        self.storage.flip_bit(path, at, bit).expect("the file is there");
        self.trace.note(format_args!("flips bit {bit} of byte {at} in {}, {header:?}", path.display()));
        true
    }

    fn damaged(&mut self, slot: Slot, offsets: std::ops::Range<u64>) {
        self.model.partition(slot).damaged.push(offsets);
    }

    /// A batch of a segment's file, and where it begins.
    fn a_batch(&mut self, path: &PathBuf) -> Option<(u64, BatchHeader)> {
        let bytes = self.storage.bytes_of(path)?;
        let (mut position, mut found) = (0, Vec::new());
        while let Some(header) = bytes.get(position..).and_then(|rest| BatchHeader::parse(rest).ok()) {
            found.push((position as u64, header));
            position += usize::try_from(header.size()).ok()?;
        }
        (!found.is_empty()).then(|| self.choice.pick(&found))
    }
}
