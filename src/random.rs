//! The seeded source of every random choice, so that a seed repeats a run.

/// A small generator (not for secrets): the same seed yields the same choices, on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// A generator whose choices follow from `seed`.
    #[must_use]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number in `0..bound`; 0 where `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.u64(0..bound) }
    }

    /// The bytes of a random UUID (version 4), never zero.
    pub(crate) fn uuid(&mut self) -> [u8; 16] {
        let mut bytes = self.0.u128(..).to_be_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
    }

    /// A generator whose choices nobody can foresee.
    pub(crate) fn from_system() -> Self {
        Self(fastrand::Rng::new())
    }

    /// `true` once in `chances` on average; never where `chances` is 0.
    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        chances != 0 && self.below(chances) == 0
    }
}
