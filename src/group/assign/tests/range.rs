//! Range: as Kafka's, and moved as little as its shares allow.

use super::*;

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
fn is_the_same_as_a_plain_one() {
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
fn moves_no_more_than_it_must() {
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
fn is_kafkas() {
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
fn gives_topics_of_one_size_to_the_same_members() {
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
