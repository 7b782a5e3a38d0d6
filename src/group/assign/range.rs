//! Topic by topic, in ranges, as Kafka's assignor of that name did it at the server up to 3.9: what members have stays.
//! (From 4.0 on it computes each target from nothing, and moves partitions that need not move.)
//!
//! With `n` partitions and `m` members that subscribe, each has `n / m` of them, and `n mod m` members one more. Each keeps
//! of what it had the lowest numbers, as many as that; those who have more keep one more, in their order, while there are
//! such. What is left goes to the others in their order, ascending, in ranges. So topics of as many partitions and the same
//! members have the same numbers with each, as long as they have had the same members and numbers of partitions before.
//!
//! Members are in the order of their instance ids, and behind them those without one in the order of their member ids.

use super::super::partitions::Partitions;
use super::{Supply, Wish};
use crate::types::TopicId;

pub(super) fn assign(wishes: &[Wish], supply: &Supply<'_>) -> Vec<Partitions> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|at| {
        let Wish { member, instance, .. } = &wishes[*at];
        (instance.is_none(), instance.as_ref().unwrap_or(member))
    });
    let mut targets = vec![Partitions::default(); wishes.len()];
    for (id, topic) in supply {
        let members: Vec<_> = order.iter().copied().filter(|at| wishes[*at].topics.contains(id)).collect();
        of_topic(*id, topic.partitions, wishes, &members, &mut targets);
    }
    targets
}

fn of_topic(id: TopicId, partitions: u32, wishes: &[Wish], members: &[usize], targets: &mut [Partitions]) {
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX).max(1);
    let (least, mut extra) = (partitions / count, partitions % count);
    let mut is_taken = vec![false; partitions as usize];
    let mut short = Vec::new();
    for member in members {
        let owned = wishes[*member].owned.of(id).filter(|number| *number < partitions);
        let owned: Vec<_> = owned.filter(|number| !is_taken[*number as usize]).collect();
        let mut kept = u32::try_from(owned.len()).unwrap_or(u32::MAX).min(least);
        if owned.len() > least as usize && extra > 0 {
            extra -= 1;
            kept += 1;
        } else {
            short.push((*member, least - kept));
        }
        for number in owned.into_iter().take(kept as usize) {
            is_taken[number as usize] = true;
            targets[*member].insert(id, number);
        }
    }
    let mut free = (0..partitions).filter(|number| !is_taken[*number as usize]);
    for (member, lacking) in short {
        let more = u32::from(extra > 0);
        extra -= more;
        for number in free.by_ref().take((lacking + more) as usize) {
            targets[member].insert(id, number);
        }
    }
}
