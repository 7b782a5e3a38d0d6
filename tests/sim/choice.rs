//! The one source of chance of a run.

/// A seeded generator.
#[derive(Debug)]
pub(super) struct Choice(fastrand::Rng);

impl Choice {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7461_6666))
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(0..bound.max(1))
    }

    /// An index of something that has `len` parts.
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.0.usize(0..len.max(1))
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.u64(low..=high.max(low))
    }

    pub(super) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }

    /// One of these, as often as its weight says.
    pub(super) fn weighted<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut at = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in of {
            match at.checked_sub(*weight) {
                Some(left) => at = left,
                None => return *one,
            }
        }
        of[0].1
    }

    pub(super) fn seed(&mut self) -> u64 {
        self.0.u64(..)
    }
}
