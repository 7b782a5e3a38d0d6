//! Uniform: as even as can be, and moved as little.

use super::super::uniform;
use super::*;

#[test]
fn is_balanced_where_all_subscribe_to_the_same() {
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
fn moves_no_more_than_it_must() {
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
fn moves_least_of_all_that_are_as_even() {
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
fn is_as_balanced_as_subscriptions_allow() {
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
fn hands_on_along_a_chain() {
    let topics = BTreeMap::from([(id(0), topic(0, 2)), (id(1), topic(1, 1))]);
    let mut wishes = vec![wish(0, [0]), wish(1, [0, 1]), wish(2, [1])];
    wishes[0].owned = [(id(0), 0), (id(0), 1)].into_iter().collect();
    wishes[1].owned = [(id(1), 0)].into_iter().collect();
    let targets = Case { topics, wishes }.assign(Assignor::Uniform);
    assert_eq!(loads(&targets), [1, 1, 1]);
}

#[test]
fn prefers_a_rack_that_has_a_copy_and_stays_balanced() {
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

/// 1,000 members over 1,000 partitions: a look at each for each that moves, not more.
#[test]
fn is_computed_without_many_looks() {
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
