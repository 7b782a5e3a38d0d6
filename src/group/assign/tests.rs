//! Assignments: balanced, moved no more than must be, and the same when they are computed again.

use std::sync::Arc;

use super::super::topics::Topics;
use super::*;
use crate::random::Random;

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

#[test]
fn uniform_is_balanced_where_all_subscribe_to_the_same() {
    for seed in 0..seeds() {
        let mut random = Random::seeded(seed);
        let counts: Vec<_> = (0..=random.below(5)).map(|_| u32::try_from(random.below(20)).unwrap()).collect();
        let members = usize::try_from(1 + random.below(9)).unwrap();
        let mut case = Case::equal(&counts, members);
        let targets = case.assign(Assignor::Uniform);
        assert!(spread(&targets) <= 1, "seed {seed}: {:?}", loads(&targets));
    }
}

/// The fewest moves that balance takes: what those with most have above it, where nothing is nobody's.
#[test]
fn uniform_moves_no_more_than_it_must() {
    for seed in 0..seeds() {
        let mut random = Random::seeded(seed);
        let partitions = u32::try_from(1 + random.below(40)).unwrap();
        let members = usize::try_from(1 + random.below(9)).unwrap();
        let mut case = Case::equal(&[partitions, partitions / 2], members);
        case.assign(Assignor::Uniform);
        let before = owners(&case.wishes);
        let is_joining = random.one_in(2) || members == 1;
        if is_joining {
            case.wishes.insert(usize::try_from(random.below(members as u64)).unwrap(), wish(99, 0..2));
        } else {
            case.wishes.remove(usize::try_from(random.below(members as u64)).unwrap());
        }
        let targets = case.assign(Assignor::Uniform);
        let newcomer = case.wishes.iter().position(|wish| wish.member == "m00099");
        let due = newcomer.map_or(0, |at| targets[at].count());
        let gone = before.len()
            - before.values().filter(|owner| case.wishes.iter().any(|wish| wish.member == **owner)).count();
        let moves = moved(&before, &owners(&case.wishes));
        assert_eq!(moves, if is_joining { due } else { gone }, "seed {seed}");
        let share = (partitions + partitions / 2) as usize / case.wishes.len();
        assert!(due <= share, "seed {seed}: a newcomer gets the smaller share");
        assert!(spread(&targets) <= 1);
    }
}

/// Every assignment there is: how uneven it is, and how many partitions move that their members might keep. The least.
fn least(case: &Case) -> (usize, usize) {
    let mut pieces = Vec::new();
    for (id, topic) in &case.topics {
        let members: Vec<_> = (0..case.wishes.len()).filter(|at| case.wishes[*at].topics.contains(id)).collect();
        for number in (0..topic.partitions).filter(|_| !members.is_empty()) {
            let had = members.iter().copied().find(|at| case.wishes[*at].owned.contains(*id, number));
            pieces.push((members.clone(), had));
        }
    }
    let mut loads = vec![0; case.wishes.len()];
    let mut best = (usize::MAX, usize::MAX);
    try_all(&pieces, &mut loads, 0, &mut best);
    best
}

fn try_all(pieces: &[(Vec<usize>, Option<usize>)], loads: &mut [usize], moves: usize, best: &mut (usize, usize)) {
    let Some(((members, had), rest)) = pieces.split_first() else {
        *best = (*best).min((uneven(loads), moves));
        return;
    };
    for member in members {
        loads[*member] += 1;
        try_all(rest, loads, moves + usize::from(had.is_some_and(|had| had != *member)), best);
        loads[*member] -= 1;
    }
}

fn uneven(loads: &[usize]) -> usize {
    loads.iter().map(|load| load * load).sum()
}

/// Whatever they subscribe to, and whatever has changed: of all assignments that are as even as can be it is one that moves
/// least.
#[test]
fn uniform_moves_least_of_all_that_are_as_even() {
    for seed in 0..seeds() {
        let mut random = Random::seeded(seed);
        let mut below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
        let counts: Vec<_> = (0..2 + below(2)).map(|_| u32::try_from(1 + below(3)).unwrap()).collect();
        let mut case = Case::equal(&counts, 2 + below(3));
        for wish in &mut case.wishes {
            wish.topics.retain(|_| below(3) > 0);
        }
        case.assign(Assignor::Uniform);
        for change in 0..3 {
            let at = below(case.wishes.len());
            match below(4) {
                0 if case.wishes.len() < 4 => case.wishes.insert(at, wish(90 + change, [0, 1])),
                1 if case.wishes.len() > 1 => drop(case.wishes.remove(at)),
                2 => case.wishes[at].topics = [id(0), id(below(counts.len()))].into(),
                _ => {
                    let topic = case.topics.get_mut(&id(below(counts.len()))).unwrap();
                    topic.partitions = (topic.partitions + 1).min(4);
                }
            }
            let (expected, before) = (least(&case), owners(&case.wishes));
            let mays: Vec<_> = case.wishes.iter().map(|wish| (wish.member.clone(), wish.topics.clone())).collect();
            let targets = case.assign(Assignor::Uniform);
            let after = owners(&case.wishes);
            let keeps = |one: &(TopicId, u32), owner: &String| {
                mays.iter().any(|(member, topics)| member == owner && topics.contains(&one.0))
            };
            let moves = before.iter().filter(|(one, owner)| keeps(one, owner) && after[*one] != **owner).count();
            assert_eq!((uneven(&loads(&targets)), moves), expected, "seed {seed}: {case:?}");
        }
    }
}

/// With different subscriptions: no chain of hand-overs leads from anybody to somebody who has two less.
#[test]
fn uniform_is_as_balanced_as_subscriptions_allow() {
    for seed in 0..seeds() {
        let mut random = Random::seeded(seed);
        let mut case = Case::random(&mut random);
        let targets = case.assign(Assignor::Uniform);
        let (loads, count) = (loads(&targets), targets.len());
        for from in 0..count {
            let mut reached = BTreeSet::from([from]);
            loop {
                let next = (0..count).find(|to| {
                    let can =
                        |at: &usize| targets[*at].topics().any(|(topic, _)| case.wishes[*to].topics.contains(&topic));
                    !reached.contains(to) && reached.iter().any(can)
                });
                let Some(next) = next else { break };
                assert!(loads[next] + 2 > loads[from], "seed {seed}: {loads:?}, from {from} to {next}");
                reached.insert(next);
            }
        }
    }
}

/// A chain of hand-overs is needed: nobody shares a topic with one who has two less.
#[test]
fn uniform_hands_on_along_a_chain() {
    let topics = BTreeMap::from([(id(0), topic(0, 2)), (id(1), topic(1, 1))]);
    let mut wishes = vec![wish(0, [0]), wish(1, [0, 1]), wish(2, [1])];
    wishes[0].owned = [(id(0), 0), (id(0), 1)].into_iter().collect();
    wishes[1].owned = [(id(1), 0)].into_iter().collect();
    let targets = Case { topics, wishes }.assign(Assignor::Uniform);
    assert_eq!(loads(&targets), [1, 1, 1]);
}

#[test]
fn uniform_prefers_a_rack_that_has_a_copy_and_stays_balanced() {
    let rack = |at: usize| format!("r{}", at % 3);
    let mut case = Case::equal(&[12], 6);
    for (at, wish) in case.wishes.iter_mut().enumerate() {
        wish.rack = Some(rack(at));
    }
    let racks = (0..12).map(|number| BTreeSet::from([rack(number / 4)])).collect();
    case.topics.get_mut(&id(0)).unwrap().racks = racks;
    let targets = case.assign(Assignor::Uniform);
    let is_near = |(at, number): (usize, u32)| rack(at) == rack(number as usize / 4);
    let each = targets.iter().enumerate().flat_map(|(at, target)| target.iter().map(move |(_, number)| (at, number)));
    assert_eq!((spread(&targets), each.filter(|one| is_near(*one)).count()), (0, 12));
    // What was another's stays, wherever its copies are.
    let before = owners(&case.wishes);
    case.topics.get_mut(&id(0)).unwrap().racks.reverse();
    case.assign(Assignor::Uniform);
    assert_eq!(owners(&case.wishes), before);
}

/// Range, once more: a list for each topic, cut into runs.
fn plain_range(case: &Case) -> Vec<Partitions> {
    let mut targets = vec![Partitions::default(); case.wishes.len()];
    for (id, topic) in &case.topics {
        let mut members: Vec<_> = (0..case.wishes.len()).filter(|at| case.wishes[*at].topics.contains(id)).collect();
        members.sort_by(|a, b| {
            let (a, b) = (&case.wishes[*a], &case.wishes[*b]);
            match (&a.instance, &b.instance) {
                (Some(a), Some(b)) => a.cmp(b),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => a.member.cmp(&b.member),
            }
        });
        let (all, count) = (topic.partitions as usize, members.len());
        if count == 0 {
            continue;
        }
        // How many each has: those who had more than the least get one more first, then the first of the others.
        let had: Vec<Vec<u32>> =
            members.iter().map(|at| case.wishes[*at].owned.of(*id).filter(|n| (*n as usize) < all).collect()).collect();
        let least = all / count;
        let mut quota = vec![least; count];
        let mut extra = all % count;
        for rich in [true, false] {
            for at in (0..count).filter(|at| (had[*at].len() > least) == rich) {
                if extra > 0 {
                    (quota[at], extra) = (least + 1, extra - 1);
                }
            }
        }
        let keeps = |at: usize| had[at].len().min(if had[at].len() > least { quota[at] } else { least });
        let kept: BTreeSet<u32> = (0..count).flat_map(|at| had[at][..keeps(at)].to_vec()).collect();
        let mut free = (0..topic.partitions).filter(|number| !kept.contains(number));
        for at in 0..count {
            let keep = keeps(at);
            let more: Vec<_> = free.by_ref().take(quota[at] - keep).collect();
            for number in had[at][..keep].iter().chain(&more) {
                targets[members[at]].insert(*id, *number);
            }
        }
    }
    targets
}

#[test]
fn range_is_the_same_as_a_plain_one() {
    for seed in 0..seeds() {
        let mut random = Random::seeded(seed);
        let mut case = Case::random(&mut random);
        for _ in 0..4 {
            let expected = plain_range(&case);
            assert_eq!(case.assign(Assignor::Range), expected, "seed {seed}");
            let other = Case::random(&mut random);
            if random.one_in(2) && case.wishes.len() > 1 {
                case.wishes.remove(0);
            } else {
                let next = case.wishes.len() + 10;
                case.wishes.push(Wish { member: format!("m{next:05}"), ..wish(next, 0..case.topics.len()) });
            }
            for (id, topic) in other.topics {
                let count = case.topics.get(&id).map(|topic| topic.partitions);
                if let Some(count) = count {
                    case.topics.insert(id, Topic { partitions: count.max(topic.partitions), ..topic });
                }
            }
        }
    }
}

/// Of each topic everybody keeps what the shares allow: the least share, and one more while there are such.
#[test]
fn range_moves_no_more_than_it_must() {
    for seed in 0..seeds() {
        let mut random = Random::seeded(seed);
        let mut below = |bound: usize| usize::try_from(random.below(bound as u64)).unwrap();
        let counts: Vec<_> = (0..3).map(|_| u32::try_from(below(12)).unwrap()).collect();
        let mut case = Case::equal(&counts, 1 + below(6));
        case.assign(Assignor::Range);
        if below(2) == 0 || case.wishes.len() == 1 {
            case.wishes.insert(below(case.wishes.len()), wish(99, 0..3));
        } else {
            case.wishes.remove(below(case.wishes.len()));
        }
        let before = case.wishes.clone();
        let targets = case.assign(Assignor::Range);
        for (at, count) in counts.iter().enumerate() {
            let (count, members) = (*count as usize, before.len());
            let (least, more) = (count / members, count % members);
            let had: Vec<_> = before.iter().map(|wish| wish.owned.of(id(at)).count()).collect();
            let rich = had.iter().filter(|had| **had > least).count();
            let keeps = had.iter().map(|had| (*had).min(least)).sum::<usize>() + rich.min(more);
            let pairs = before.iter().zip(&targets);
            let kept = pairs.map(|(wish, target)| wish.owned.shared_with(target).of(id(at)).count()).sum::<usize>();
            assert_eq!(kept, keeps, "seed {seed}: topic {at}");
        }
    }
}

/// Of one topic: whether a member subscribes to it, what it had, and what it gets.
type Share = (bool, &'static [u32], &'static [u32]);

/// What Kafka's own tests expect of its assignor (3.7 to 3.9): numbers of partitions, and each member's share of each topic.
const KAFKAS: [(&[u32], &[&[Share]]); 8] = [
    // First assignments: two members; three with different subscriptions; more members than partitions.
    (&[3, 2], &[&[(true, &[], &[0, 1]), (true, &[], &[0])], &[(true, &[], &[2]), (true, &[], &[1])]]),
    (
        &[3, 3, 2],
        &[
            &[(true, &[], &[0, 1, 2]), (true, &[], &[0, 1]), (false, &[], &[])],
            &[(false, &[], &[]), (false, &[], &[]), (true, &[], &[0])],
            &[(false, &[], &[]), (true, &[], &[2]), (true, &[], &[1])],
        ],
    ),
    (
        &[3, 2],
        &[
            &[(true, &[], &[0]), (true, &[], &[0])],
            &[(true, &[], &[1]), (true, &[], &[1])],
            &[(true, &[], &[2]), (true, &[], &[])],
        ],
    ),
    // A member more than there are partitions.
    (
        &[2, 2],
        &[
            &[(true, &[0], &[0]), (true, &[0], &[0])],
            &[(true, &[1], &[1]), (true, &[1], &[1])],
            &[(true, &[], &[]), (true, &[], &[])],
        ],
    ),
    // A partition more.
    (
        &[4, 4],
        &[&[(true, &[0, 1], &[0, 1]), (true, &[0, 1], &[0, 1])], &[(true, &[2], &[2, 3]), (true, &[2], &[2, 3])]],
    ),
    // A member more, and with a partition more beside it.
    (
        &[3, 3],
        &[
            &[(true, &[0, 1], &[0]), (true, &[0, 1], &[0])],
            &[(true, &[2], &[2]), (true, &[2], &[2])],
            &[(true, &[], &[1]), (true, &[], &[1])],
        ],
    ),
    (
        &[4, 3],
        &[
            &[(true, &[0, 1], &[0, 1]), (true, &[0, 1], &[0, 1])],
            &[(true, &[2], &[2]), (true, &[2], &[2])],
            &[(true, &[], &[3]), (false, &[], &[])],
        ],
    ),
    // Other subscriptions.
    (
        &[3, 3, 2],
        &[
            &[(true, &[0, 1, 2], &[0, 1]), (false, &[0], &[]), (false, &[], &[])],
            &[(true, &[], &[2]), (true, &[1], &[0, 1]), (true, &[], &[0, 1])],
            &[(false, &[], &[]), (true, &[2], &[2]), (false, &[0, 1], &[])],
        ],
    ),
];

#[test]
fn range_is_kafkas() {
    for (at, (counts, members)) in KAFKAS.into_iter().enumerate() {
        let mut case = Case::equal(counts, members.len());
        let mut expected = Vec::new();
        for (wish, shares) in case.wishes.iter_mut().zip(members) {
            let shares = || shares.iter().enumerate().map(|(topic, share)| (id(topic), *share));
            wish.topics = shares().filter(|(_, share)| share.0).map(|(topic, _)| topic).collect();
            let all = |topic: TopicId, numbers: &'static [u32]| numbers.iter().map(move |number| (topic, *number));
            wish.owned = shares().flat_map(|(topic, share)| all(topic, share.1)).collect();
            expected.push(shares().flat_map(|(topic, share)| all(topic, share.2)).collect::<Partitions>());
        }
        assert_eq!(case.assign(Assignor::Range), expected, "case {at}");
    }
}

#[test]
fn range_gives_topics_of_one_size_to_the_same_members() {
    let mut case = Case::equal(&[7, 7], 3);
    case.wishes[2].instance = Some("i".to_owned());
    let targets = case.assign(Assignor::Range);
    let of = |member: usize, topic: usize| targets[member].of(id(topic)).collect::<Vec<_>>();
    assert_eq!([of(2, 0), of(0, 0), of(1, 0)], [vec![0, 1, 2], vec![3, 4], vec![5, 6]], "static members come first");
    assert!((0..3).all(|member| of(member, 0) == of(member, 1)));
    case.wishes.remove(0);
    let targets = case.assign(Assignor::Range);
    assert_eq!(targets[1].of(id(0)).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(targets[0].of(id(0)).collect::<Vec<_>>(), [4, 5, 6], "it keeps what it had");
}

/// 1,000 members over 1,000 partitions: a look at each for each that moves, not more.
#[test]
fn uniform_is_computed_without_many_looks() {
    let looks = |case: &Case| {
        let supply: Supply<'_> = case.topics.iter().map(|(id, topic)| (*id, topic)).collect();
        let mut plan = uniform::Plan::new(&case.wishes, &supply);
        plan.fill();
        plan.balance();
        plan.give_back();
        plan.align();
        (plan.looks, plan.targets())
    };
    let mut case = Case::equal(&[1000], 1000);
    let (first, targets) = looks(&case);
    assert!(first < 10_000, "{first}");
    for (wish, target) in case.wishes.iter_mut().zip(targets) {
        wish.owned = target;
    }
    assert!(looks(&case).0 < 10_000);
    // Everything is one member's, and has to go to the others.
    let all = case.wishes.iter().fold(Partitions::default(), |all, wish| all.joined_with(&wish.owned));
    for wish in &mut case.wishes {
        wish.owned = Partitions::default();
    }
    case.wishes[0].owned = all;
    let (moving, targets) = looks(&case);
    assert!(moving < 6_000_000, "{moving}");
    assert_eq!(spread(&targets), 0);
}
