//! What becomes of unsynced changes when the power goes: kept, torn or lost, by a seeded choice.
//!
//! A crash has a mood, so that the corners are seen as often as the middle: everything lost, everything
//! kept, everything kept up to some point in time (a disk that keeps the order), or each by itself.

use std::ops::Range;

use crate::random::Random;

/// What becomes of one unsynced change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Torn,
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum Mood {
    Lost,
    Kept,
    /// Kept before this change, which is torn; lost after it.
    InOrder(u64),
    Each,
}

/// Decides for one crash (or one failed sync).
#[derive(Debug)]
pub(super) struct Fates {
    random: Random,
    mood: Mood,
}

impl Fates {
    /// `serials` are those of the changes that will be asked for, in time order.
    pub(super) fn new(mut random: Random, serials: Range<u64>) -> Self {
        let mood = match random.below(8) {
            0 => Mood::Lost,
            1 => Mood::Kept,
            2 => Mood::InOrder(serials.start + random.below(serials.end.saturating_sub(serials.start))),
            _ => Mood::Each,
        };
        Self { random, mood }
    }

    /// What becomes of change number `serial`.
    pub(super) fn of(&mut self, serial: u64) -> Fate {
        match self.mood {
            Mood::Lost => Fate::Lost,
            Mood::Kept => Fate::Kept,
            Mood::InOrder(cut) if serial < cut => Fate::Kept,
            Mood::InOrder(cut) if serial > cut => Fate::Lost,
            Mood::InOrder(_) => Fate::Torn,
            Mood::Each => [Fate::Kept, Fate::Torn, Fate::Lost][usize::from(self.below_u8(3))],
        }
    }

    /// Whether change number `serial`, which cannot be torn, happened.
    pub(super) fn happens(&mut self, serial: u64) -> bool {
        match self.of(serial) {
            Fate::Kept => true,
            Fate::Torn => self.random.one_in(2),
            Fate::Lost => false,
        }
    }

    /// A number from `low` to `high`, both included; the ends more often than what lies between.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        match self.random.below(4) {
            0 => low,
            1 => high,
            _ => low + self.random.below((high - low).saturating_add(1)),
        }
    }

    /// Which parts of `len` bytes are kept of a torn write: ascending, none, some or all of them.
    pub(super) fn parts(&mut self, len: u64) -> Vec<Range<u64>> {
        parts(&mut self.random, len)
    }

    fn below_u8(&mut self, bound: u8) -> u8 {
        u8::try_from(self.random.below(u64::from(bound))).unwrap_or(0)
    }
}

/// Which parts of `len` bytes are written of a write that fails: ascending.
pub(super) fn parts(random: &mut Random, len: u64) -> Vec<Range<u64>> {
    let (a, b) = (random.below(len + 1), random.below(len + 1));
    let (low, high) = (a.min(b), a.max(b));
    let kept = match random.below(6) {
        0 => [0..a, 0..0],
        1 => [a..len, 0..0],
        2 => [low..high, 0..0],
        3 => [0..low, high..len],
        4 => return Vec::new(),
        _ => return sectors(random, len),
    };
    kept.into_iter().filter(|part| !part.is_empty()).collect()
}

/// Sectors of 512 bytes (at most 64 of them: larger ones), each kept or not.
fn sectors(random: &mut Random, len: u64) -> Vec<Range<u64>> {
    let sector = len.div_ceil(64).max(512);
    let count = len.div_ceil(sector);
    (0..count).filter(|_| random.one_in(2)).map(|n| n * sector..((n + 1) * sector).min(len)).collect()
}
