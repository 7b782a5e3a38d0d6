//! Where records without a key go: to one partition of a topic until about a batch went there, then to another.
//!
//! Kafka's KIP-794: the partition is left once a batch's worth of bytes went to it and its batch is ready (full, or
//! appended already); while its batch is open it takes up to twice as much. The next one is drawn from all with the
//! same chance, so the same one may be drawn again.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::random::Random;
use crate::sync::Mutex;

/// The sticky partition of one topic.
#[derive(Debug)]
pub(super) struct Sticky {
    current: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    /// The bytes that went to the current one since it was drawn.
    produced_bytes: usize,
}

impl Sticky {
    pub(super) fn new(mut random: Random, partitions: u32) -> Self {
        let current = AtomicU32::new(draw(&mut random, partitions));
        Self { current, state: Mutex::new(State { random, produced_bytes: 0 }) }
    }

    /// The partition as it is now.
    #[inline]
    pub(super) fn current(&self) -> u32 {
        self.current.load(Ordering::Relaxed)
    }

    /// Notes that `bytes` more went to `partition`, and says whether another one was drawn because of it.
    pub(super) fn note(
        &self,
        partition: u32,
        bytes: usize,
        is_ready: bool,
        batch_bytes: usize,
        partitions: u32,
    ) -> bool {
        let mut state = self.state.lock();
        if self.current() != partition {
            return false;
        }
        state.produced_bytes += bytes;
        let limit = if is_ready { batch_bytes } else { batch_bytes.saturating_mul(2) };
        if state.produced_bytes < limit {
            return false;
        }
        state.produced_bytes = 0;
        self.current.store(draw(&mut state.random, partitions), Ordering::Relaxed);
        true
    }
}

fn draw(random: &mut Random, partitions: u32) -> u32 {
    // It is less than `partitions`.
    u32::try_from(random.below(partitions.into())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Sticky;
    use crate::random::Random;

    #[test]
    fn it_is_left_after_a_batch_that_is_ready_and_after_two_in_any_case() {
        let sticky = Sticky::new(Random::seeded(7), 8);
        let at = sticky.current();
        assert!(!sticky.note(at, 99, true, 100, 8));
        assert!(!sticky.note(at, 100, false, 100, 8), "the batch is open");
        assert!(!sticky.note((at + 1) % 8, 100, true, 100, 8), "it went elsewhere");
        assert!(sticky.note(at, 0, true, 100, 8));
        let at = sticky.current();
        assert!(!sticky.note(at, 199, false, 100, 8));
        assert!(sticky.note(at, 1, false, 100, 8));
    }

    #[test]
    fn every_partition_has_the_same_chance_and_a_seed_repeats() {
        let sticky = Sticky::new(Random::seeded(7), 4);
        let again = Sticky::new(Random::seeded(7), 4);
        let mut counts = [0; 4];
        for _ in 0..4000 {
            counts[sticky.current() as usize] += 1;
            assert_eq!(sticky.current(), again.current());
            sticky.note(sticky.current(), 1, true, 1, 4);
            again.note(again.current(), 1, true, 1, 4);
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
