//! A file without its names: what is read back now, what would survive for certain, and what lies between.
//!
//! ```text
//!  content    what reads answer: everything that was written             (assumption 5)
//!  durable    what a completed sync covered                              (assumption 1)
//!  unsynced   the changes since, in order: each may be lost, kept, torn  (assumption 2)
//! ```
//!
//! `durable` plus `unsynced` is `content`, until a sync fails: then each unsynced change meets its fate at
//! once and leaves the list, `content` keeps showing it, and no later sync covers its bytes (assumption 4).
//! The length is no byte: a sync that completes makes it durable, whatever failed before.

use std::ops::Range;

use bytes::Bytes;

use super::content::{Content, to_u64, to_usize};
use super::fates::{Fate, Fates};
use crate::types::Timestamp;

/// A change of a file's bytes or length.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { position: u64, bytes: Bytes },
    Zero(Range<u64>),
    Cut(u64),
}

#[derive(Clone, Debug)]
struct Unsynced {
    serial: u64,
    change: Change,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    content: Content,
    durable: Content,
    unsynced: Vec<Unsynced>,
    /// A sync has failed, so that `content` may be more than `durable` plus `unsynced`.
    doubtful: bool,
    pub(super) modified: Timestamp,
}

impl Inode {
    /// A file whose bytes are all durable.
    pub(super) fn settled(content: Content, modified: Timestamp) -> Self {
        Self { durable: content.clone(), content, modified, ..Self::default() }
    }

    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn durable(&self) -> &Content {
        &self.durable
    }

    /// Does a change, which is unsynced from now on.
    pub(super) fn change(&mut self, serial: u64, change: Change) {
        change.apply(&mut self.content);
        self.unsynced.push(Unsynced { serial, change });
    }

    /// Notes a change that a loss of power interrupts.
    pub(super) fn begin(&mut self, serial: u64, change: Change) {
        self.unsynced.push(Unsynced { serial, change });
    }

    pub(super) fn sync(&mut self) {
        if self.doubtful {
            for unsynced in self.unsynced.drain(..) {
                unsynced.change.apply(&mut self.durable);
            }
            self.durable.set_len(self.content.len());
        } else {
            self.unsynced.clear();
            self.durable = self.content.clone();
        }
    }

    /// A sync fails: what was unsynced is never durable by itself any more, except for what `fates` says.
    pub(super) fn fail_sync(&mut self, fates: &mut Fates) {
        self.doubtful |= !self.unsynced.is_empty();
        for unsynced in std::mem::take(&mut self.unsynced) {
            unsynced.change.survive(&mut self.durable, fates.of(unsynced.serial), fates);
        }
    }

    /// The first and the last unsynced change.
    pub(super) fn unsynced(&self) -> Option<(u64, u64)> {
        Some((self.unsynced.first()?.serial, self.unsynced.last()?.serial))
    }

    /// Whether a loss of power leaves the file as it is.
    pub(super) fn is_settled(&self) -> bool {
        self.unsynced.is_empty() && !self.doubtful
    }

    /// What a loss of power leaves.
    pub(super) fn after_crash(&self, fates: &mut Fates) -> Self {
        let mut left = self.durable.clone();
        for unsynced in &self.unsynced {
            unsynced.change.survive(&mut left, fates.of(unsynced.serial), fates);
        }
        Self::settled(left, self.modified)
    }

    /// Flips a bit wherever the byte is kept.
    pub(super) fn flip(&mut self, position: u64, bit: u8) {
        self.content.flip(position, bit);
        self.durable.flip(position, bit);
        for unsynced in &mut self.unsynced {
            unsynced.change.flip(position, bit);
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Self::Write { position, bytes } => content.write(*position, bytes),
            Self::Zero(range) => content.zero(range.clone()),
            Self::Cut(len) => content.cut(*len),
        }
    }

    /// Does as much of the change as its fate leaves.
    fn survive(&self, content: &mut Content, fate: Fate, fates: &mut Fates) {
        match fate {
            Fate::Lost => {}
            Fate::Kept => self.apply(content),
            Fate::Torn => self.tear(content, fates),
        }
    }

    /// The length comes as far as it comes, whether or not the bytes did; bytes behind it are gone.
    fn tear(&self, content: &mut Content, fates: &mut Fates) {
        let (start, end) = match self {
            Self::Cut(len) => {
                let len = fates.between((*len).min(content.len()), content.len());
                return content.cut(len);
            }
            Self::Write { position, bytes } => (*position, position.saturating_add(to_u64(bytes.len()))),
            Self::Zero(range) => (range.start, range.end),
        };
        let len = fates.between(content.len(), end.max(content.len()));
        for part in fates.parts(end - start) {
            self.part(part).apply(content);
        }
        content.set_len(len);
    }

    /// The change of the bytes `part`, counted from the first that it changes.
    pub(super) fn part(&self, part: Range<u64>) -> Self {
        match self {
            Self::Write { position, bytes } => Self::Write {
                position: position + part.start,
                bytes: bytes.slice(to_usize(part.start)..to_usize(part.end)),
            },
            Self::Zero(range) => Self::Zero(range.start + part.start..range.start + part.end),
            Self::Cut(len) => Self::Cut(*len),
        }
    }

    fn flip(&mut self, position: u64, bit: u8) {
        if let Self::Write { position: start, bytes } = self {
            let Some(at) = position.checked_sub(*start).filter(|at| *at < to_u64(bytes.len())) else { return };
            let mut changed = bytes.to_vec();
            changed[to_usize(at)] ^= 1 << (bit % 8);
            *bytes = Bytes::from(changed);
        }
    }
}
