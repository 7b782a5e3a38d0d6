//! Assignments: balanced, moved no more than must be, and the same when they are computed again.

use std::sync::Arc;

use super::super::topics::Topics;
use super::*;
use crate::random::Random;

mod range;
mod uniform;

/// A group that is made up.
#[derive(Clone, Debug)]
struct Case {
    topics: BTreeMap<TopicId, Topic>,
    wishes: Vec<Wish>,
}

fn id(number: usize) -> TopicId {
    TopicId([u8::try_from(number).unwrap() + 1; 16])
}

fn topic(number: usize, partitions: u32) -> Topic {
    Topic { id: id(number), partitions, racks: Vec::new(), is_internal: false }
}

fn wish(member: usize, topics: impl IntoIterator<Item = usize>) -> Wish {
    Wish {
        member: format!("m{member:05}"),
        instance: None,
        rack: None,
        topics: topics.into_iter().map(id).collect(),
        owned: Partitions::default(),
    }
}

impl Case {
    /// Topics with these numbers of partitions, and members that subscribe to all of them.
    fn equal(partitions: &[u32], members: usize) -> Self {
        let topics = partitions.iter().enumerate().map(|(at, count)| (id(at), topic(at, *count))).collect();
        Self { topics, wishes: (0..members).map(|member| wish(member, 0..partitions.len())).collect() }
    }

    fn random(random: &mut Random) -> Self {
        let mut below = |bound: u64| usize::try_from(random.below(bound)).unwrap();
        let counts: Vec<_> = (0..=below(5)).map(|_| u32::try_from(below(9)).unwrap()).collect();
        let mut case = Self::equal(&counts, 1 + below(7));
        if below(3) > 0 {
            for wish in &mut case.wishes {
                wish.topics.retain(|_| below(2) == 0);
            }
        }
        for (at, wish) in case.wishes.iter_mut().enumerate() {
            wish.instance = (below(3) == 0).then(|| format!("i{}", 9 - at));
        }
        case
    }

    fn assign(&mut self, assignor: Assignor) -> Vec<Partitions> {
        let named = self.topics.values().map(|topic| (topic.id.to_string(), topic.clone()));
        let catalogue = Catalogue::new(Arc::new(Topics(named.collect())));
        let targets = assign(assignor, &self.wishes, &catalogue);
        self.check(&targets);
        for (wish, target) in self.wishes.iter_mut().zip(&targets) {
            wish.owned = target.clone();
        }
        assert_eq!(assign(assignor, &self.wishes, &catalogue), targets, "it is the same again");
        targets
    }

    /// Each partition that somebody subscribes to is one's who does.
    fn check(&self, targets: &[Partitions]) {
        let mut seen = BTreeSet::new();
        for (wish, target) in self.wishes.iter().zip(targets) {
            for (topic, number) in target.iter() {
                assert!(wish.topics.contains(&topic) && number < self.topics[&topic].partitions);
                assert!(seen.insert((topic, number)), "{topic}-{number} is two members'");
            }
        }
        let wanted: BTreeSet<_> = self.wishes.iter().flat_map(|wish| &wish.topics).collect();
        let all = wanted.iter().map(|topic| self.topics[topic].partitions as usize).sum::<usize>();
        assert_eq!(seen.len(), all);
    }
}

fn seeds() -> u64 {
    std::env::var("TAFFRAIL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300)
}

fn loads(targets: &[Partitions]) -> Vec<usize> {
    targets.iter().map(Partitions::count).collect()
}

fn spread(targets: &[Partitions]) -> usize {
    let loads = loads(targets);
    loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0)
}

/// How many partitions are another's than before.
fn moved(before: &BTreeMap<(TopicId, u32), String>, after: &BTreeMap<(TopicId, u32), String>) -> usize {
    after.iter().filter(|(one, member)| before.get(one).is_some_and(|owner| owner != *member)).count()
}

fn owners(wishes: &[Wish]) -> BTreeMap<(TopicId, u32), String> {
    let each = |wish: &Wish| wish.owned.iter().map(|one| (one, wish.member.clone())).collect::<Vec<_>>();
    wishes.iter().flat_map(each).collect()
}
