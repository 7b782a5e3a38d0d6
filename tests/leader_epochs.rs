//! Leader epochs against what Kafka's own classes answer, and against a model that knows one epoch per record.

use proptest::prelude::*;
use taffrail::{Corruption, Epochs, LeaderEpoch, Offset};

fn entries(list: &[(i32, u64)]) -> Vec<(LeaderEpoch, Offset)> {
    list.iter().map(|&(epoch, start)| (LeaderEpoch(epoch), Offset(start))).collect()
}

fn epochs(list: &[(i32, u64)]) -> Epochs {
    Epochs::from_entries(entries(list)).expect("the list rises")
}

/// 2@6, 3@8, 5@20 in a log that ends at 30: what the table begins with.
fn start() -> Epochs {
    epochs(&[(2, 6), (3, 8), (5, 20)])
}

#[test]
fn an_epoch_ends_where_the_next_begins() {
    let answers = [
        (-1, None),
        (0, Some((0, 6))),
        (2, Some((2, 8))),
        (3, Some((3, 20))),
        (4, Some((3, 20))),
        (5, Some((5, 30))),
        (6, None),
    ];
    for (requested, answer) in answers {
        let expected = answer.map(|(epoch, end)| (LeaderEpoch(epoch), Offset(end)));
        assert_eq!(start().end_offset_for(LeaderEpoch(requested), Offset(30)), expected, "epoch {requested}");
    }
    assert_eq!(Epochs::new().end_offset_for(LeaderEpoch(0), Offset(30)), None);
}

#[test]
fn assigning_drops_what_contradicts_it() {
    let mut assigned = start();
    assert!(!assigned.assign(LeaderEpoch(5), Offset(25)));
    assert_eq!(assigned, start());
    assert!(assigned.assign(LeaderEpoch(5), Offset(15)));
    assert_eq!(assigned, epochs(&[(2, 6), (3, 8), (5, 15)]));
    assert!(assigned.assign(LeaderEpoch(4), Offset(30)));
    assert_eq!(assigned, epochs(&[(2, 6), (3, 8), (4, 30)]));
    assert!(assigned.assign(LeaderEpoch(6), Offset(8)));
    assert_eq!(assigned, epochs(&[(2, 6), (6, 8)]));
    assert!(!assigned.assign(LeaderEpoch(-1), Offset(40)));
    assert!(!assigned.assign(LeaderEpoch(6), Offset(8)));
    assert_eq!(assigned, epochs(&[(2, 6), (6, 8)]));
}

#[test]
fn the_tail_is_cut_with_the_log() {
    let mut cut = start();
    assert!(cut.truncate_from_end(Offset(20)));
    assert_eq!(cut, epochs(&[(2, 6), (3, 8)]));
    assert!(!cut.truncate_from_end(Offset(9)));
    assert_eq!(cut, epochs(&[(2, 6), (3, 8)]));
    assert!(cut.truncate_from_end(Offset(0)));
    assert_eq!(cut, Epochs::new());
}

#[test]
fn the_epoch_at_the_new_start_begins_there() {
    let mut cut = start();
    assert!(!cut.truncate_from_start(Offset(3)));
    assert_eq!(cut, start());
    assert!(!cut.truncate_from_start(Offset(6)));
    assert_eq!(cut, start());
    assert!(cut.truncate_from_start(Offset(8)));
    assert_eq!(cut, epochs(&[(3, 8), (5, 20)]));
    assert!(cut.truncate_from_start(Offset(12)));
    assert_eq!(cut, epochs(&[(3, 12), (5, 20)]));
    assert!(cut.truncate_from_start(Offset(50)));
    assert_eq!(cut, epochs(&[(5, 50)]));
}

#[test]
fn a_follower_finds_where_it_diverged() {
    let (leader, mut follower) = (epochs(&[(1, 0), (3, 10)]), epochs(&[(1, 0), (2, 10)]));
    let diverged = leader.end_offset_for(LeaderEpoch(2), Offset(12));
    assert_eq!(diverged, Some((LeaderEpoch(1), Offset(10))));
    let own = follower.end_offset_for(LeaderEpoch(1), Offset(15));
    assert_eq!(own, Some((LeaderEpoch(1), Offset(10))));
    assert!(follower.truncate_from_end(Offset(10)));
    assert_eq!(leader.end_offset_for(LeaderEpoch(1), Offset(12)), Some((LeaderEpoch(1), Offset(10))));
    assert_eq!(follower, epochs(&[(1, 0)]));
}

#[test]
fn entries_that_do_not_rise_are_corrupt() {
    let lists: [&[(i32, u64)]; 5] =
        [&[(2, 6), (2, 8)], &[(3, 6), (2, 8)], &[(2, 6), (3, 6)], &[(2, 6), (3, 5)], &[(-1, 0), (3, 5)]];
    for list in lists {
        assert!(matches!(Epochs::from_entries(entries(list)), Err(Corruption::Form(_))), "{list:?}");
    }
    assert_eq!(Epochs::from_entries(Vec::new()), Ok(Epochs::new()));
    assert_eq!(Epochs::from_entries(entries(&[(0, 0)])).expect("it rises").entries(), entries(&[(0, 0)]));
}

/// Kafka's rules as they are written down, one entry at a time, over a list that is searched from end to end.
#[derive(Clone, Debug, Default)]
struct Model(Vec<(i32, u64)>);

impl Model {
    fn assign(&mut self, epoch: i32, start: u64) {
        match self.0.last() {
            Some(&(latest, since)) if latest == epoch && start >= since => {}
            _ => {
                while self.0.last().is_some_and(|&(other, since)| other >= epoch || since >= start) {
                    self.0.pop();
                }
                self.0.push((epoch, start));
            }
        }
    }

    fn cut_end(&mut self, end: u64) {
        self.0.retain(|&(_, start)| start < end);
    }

    fn cut_start(&mut self, start: u64) {
        let dropped = self.0.iter().copied().rfind(|&(_, since)| since <= start);
        self.0.retain(|&(_, since)| since > start);
        if let Some((epoch, _)) = dropped {
            self.0.insert(0, (epoch, start));
        }
    }

    fn at(&self, offset: u64) -> Option<i32> {
        self.0.iter().rfind(|&&(_, start)| start <= offset).map(|&(epoch, _)| epoch)
    }

    fn end_offset_for(&self, requested: i32, log_end: u64) -> Option<(i32, u64)> {
        let known = self.0.iter().rfind(|&&(epoch, _)| epoch <= requested).map(|&(epoch, _)| epoch);
        match self.0.iter().find(|&&(epoch, _)| epoch > requested) {
            Some(&(_, start)) => Some((known.unwrap_or(requested), start)),
            None if known == Some(requested) => Some((requested, log_end)),
            None => None,
        }
    }
}

proptest! {
    #[test]
    fn epochs_are_the_model(steps in prop::collection::vec((0_u8..6, 0_i32..8, 0_u64..40), 0..40)) {
        let (mut epochs, mut model) = (Epochs::new(), Model::default());
        for (kind, epoch, offset) in steps {
            let before = epochs.clone();
            let changed = match kind {
                0 => { model.cut_end(offset); epochs.truncate_from_end(Offset(offset)) }
                1 => { model.cut_start(offset); epochs.truncate_from_start(Offset(offset)) }
                _ => { model.assign(epoch, offset); epochs.assign(LeaderEpoch(epoch), Offset(offset)) }
            };
            prop_assert_eq!(epochs.entries(), entries(&model.0));
            prop_assert_eq!(changed, epochs != before);
            prop_assert_eq!(Epochs::from_entries(epochs.entries().to_vec()), Ok(epochs.clone()));
            prop_assert_eq!(epochs.latest(), model.0.last().map(|&(epoch, _)| LeaderEpoch(epoch)));
            for at in 0..45 {
                prop_assert_eq!(epochs.at(Offset(at)), model.at(at).map(LeaderEpoch));
            }
            for requested in 0..10 {
                let expected = model.end_offset_for(requested, 50).map(|(epoch, end)| (LeaderEpoch(epoch), Offset(end)));
                prop_assert_eq!(epochs.end_offset_for(LeaderEpoch(requested), Offset(50)), expected);
            }
        }
    }
}
