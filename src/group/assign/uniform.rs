//! As many to each as can be, and moved as little as can be.
//!
//! 1. Everybody keeps what it had and may still have.
//! 2. What is nobody's goes to whoever has least of those who subscribe.
//! 3. While somebody has two or more than another and a way leads there, one partition is handed on along each step of the
//!    shortest such way: from a member to one that subscribes to a topic of its. Where no way is left, no assignment has
//!    them closer together, neither the members with most nor those with least.
//! 4. What has changed hands on such ways, and need not have, goes back ([`give_back`]).
//! 5. Of what has changed hands, two are exchanged where that brings more of them to a member in a rack that has a copy.
//!
//! Topics with the same subscribers are one class, and a member is visited once for each way: a group whose members all
//! subscribe to the same needs a look at each member for each partition that moves.

mod give_back;

use std::collections::{BTreeMap, BTreeSet};

use super::super::partitions::Partitions;
use super::{Supply, Wish};
use crate::types::TopicId;

pub(super) fn assign(wishes: &[Wish], supply: &Supply<'_>) -> Vec<Partitions> {
    let mut plan = Plan::new(wishes, supply);
    plan.fill();
    plan.balance();
    plan.give_back();
    plan.align();
    plan.targets()
}

/// A partition to be assigned.
#[derive(Clone, Debug)]
struct Piece {
    topic: TopicId,
    number: u32,
    class: usize,
    /// The racks that have a copy, as numbers of [`Plan::racks`].
    racks: Vec<usize>,
    before: Option<usize>,
    owner: Option<usize>,
}

/// Members and partitions by their indexes.
#[derive(Debug)]
pub(super) struct Plan {
    pieces: Vec<Piece>,
    /// Who subscribes to the topics of each class.
    classes: Vec<Vec<usize>>,
    /// Which pieces of each class each member has.
    held: Vec<BTreeMap<usize, BTreeSet<usize>>>,
    load: Vec<usize>,
    /// The rack of each member.
    racks: Vec<Option<usize>>,
    /// Looks that were taken at a member or a piece, to see that they are not too many.
    pub(super) looks: usize,
}

/// How a member was come to: from whom, with a piece of which class.
type Step = (usize, usize);

impl Plan {
    pub(super) fn new(wishes: &[Wish], supply: &Supply<'_>) -> Self {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for rack in wishes.iter().filter_map(|wish| wish.rack.as_deref()) {
            let next = names.len();
            names.entry(rack).or_insert(next);
        }
        let racks = wishes.iter().map(|wish| names.get(wish.rack.as_deref()?).copied()).collect();
        let mut subscribers: BTreeMap<TopicId, Vec<usize>> = BTreeMap::new();
        for (at, wish) in wishes.iter().enumerate() {
            for topic in wish.topics.iter().filter(|topic| supply.contains_key(topic)) {
                subscribers.entry(*topic).or_default().push(at);
            }
        }
        let mut known: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut pieces = Vec::new();
        let mut first: BTreeMap<TopicId, usize> = BTreeMap::new();
        for (topic, members) in subscribers {
            let next = known.len();
            let class = *known.entry(members).or_insert(next);
            first.insert(topic, pieces.len());
            for number in 0..supply[&topic].partitions {
                let copies = supply[&topic].racks.get(number as usize).into_iter().flatten();
                let racks = copies.filter_map(|rack| names.get(rack.as_str()).copied()).collect();
                pieces.push(Piece { topic, number, class, racks, before: None, owner: None });
            }
        }
        let mut classes = vec![Vec::new(); known.len()];
        for (members, class) in known {
            classes[class] = members;
        }
        let (held, load) = (vec![BTreeMap::new(); wishes.len()], vec![0; wishes.len()]);
        let mut plan = Self { pieces, classes, held, load, racks, looks: 0 };
        for (member, wish) in wishes.iter().enumerate() {
            for (topic, number) in wish.owned.iter().filter(|(topic, _)| wish.topics.contains(topic)) {
                let piece = first.get(&topic).map(|first| first + number as usize);
                plan.keep(member, piece.filter(|_| number < supply[&topic].partitions));
            }
        }
        plan
    }

    fn keep(&mut self, member: usize, piece: Option<usize>) {
        if let Some(piece) = piece.filter(|piece| self.pieces[*piece].owner.is_none()) {
            self.pieces[piece].before = Some(member);
            self.give(piece, member);
        }
    }

    pub(super) fn fill(&mut self) {
        let mut free: Vec<Vec<usize>> = vec![Vec::new(); self.classes.len()];
        for (at, piece) in self.pieces.iter().enumerate().filter(|(_, piece)| piece.owner.is_none()) {
            free[piece.class].push(at);
        }
        for (class, free) in free.into_iter().enumerate().filter(|(_, free)| !free.is_empty()) {
            let mut by_load: BTreeSet<_> =
                self.classes[class].iter().map(|member| (self.load[*member], *member)).collect();
            self.looks += by_load.len() + free.len();
            for piece in free {
                let Some((load, member)) = by_load.pop_first() else { continue };
                self.give(piece, member);
                by_load.insert((load + 1, member));
            }
        }
    }

    pub(super) fn balance(&mut self) {
        // Whoever nobody with less can be come to from, and all who can be come to from there.
        let mut is_closed = vec![false; self.load.len()];
        loop {
            let open = || (0..self.load.len()).filter(|member| !is_closed[*member]);
            let Some(from) = open().max_by_key(|member| (self.load[*member], usize::MAX - member)) else { return };
            let least = open().map(|member| self.load[member]).min().unwrap_or(0);
            self.looks += self.load.len();
            if self.load[from] < least + 2 {
                return;
            }
            match self.way_from(from, &is_closed) {
                Ok(way) => way.into_iter().for_each(|(from, class, to)| self.hand_on(from, class, to)),
                Err(seen) => seen.into_iter().for_each(|member| is_closed[member] = true),
            }
        }
    }

    /// The shortest way to somebody who has two less, in steps to be taken one after the other; else all who were seen.
    fn way_from(&mut self, from: usize, is_closed: &[bool]) -> Result<Vec<(usize, usize, usize)>, Vec<usize>> {
        let mut came: Vec<Option<Step>> = vec![None; self.load.len()];
        let mut is_seen = is_closed.to_vec();
        let mut seen = vec![from];
        is_seen[from] = true;
        let mut classes_seen = BTreeSet::new();
        let mut level = vec![from];
        while !level.is_empty() {
            let mut next = Vec::new();
            for member in level {
                for class in self.held[member].keys().copied().filter(|class| classes_seen.insert(*class)) {
                    self.looks += self.classes[class].len();
                    for other in self.classes[class].iter().copied() {
                        if !std::mem::replace(&mut is_seen[other], true) {
                            came[other] = Some((member, class));
                            next.push(other);
                        }
                    }
                }
            }
            let lighter = next.iter().copied().filter(|other| self.load[*other] + 2 <= self.load[from]);
            if let Some(end) = lighter.min_by_key(|other| (self.load[*other], *other)) {
                return Ok(way_to(end, &came));
            }
            seen.extend(&next);
            level = next;
        }
        Err(seen)
    }

    fn hand_on(&mut self, from: usize, class: usize, to: usize) {
        self.looks += self.held[from].get(&class).map_or(0, BTreeSet::len);
        if let Some(piece) = self.best_to_hand_on(from, class, to) {
            self.give(piece, to);
        }
    }

    /// One that has changed hands already, best one that was the other's, is handed on before others.
    fn best_to_hand_on(&self, from: usize, class: usize, to: usize) -> Option<usize> {
        let rank = |piece: &usize| {
            let Piece { before, racks, .. } = &self.pieces[*piece];
            let is_apart = self.racks[from].is_none_or(|rack| !racks.contains(&rack));
            (*before == Some(to), *before != Some(from), is_apart, *piece)
        };
        let pieces = self.held[from].get(&class).into_iter().flatten().copied();
        pieces.max_by_key(rank)
    }

    pub(super) fn align(&mut self) {
        let has_moved = |piece: &Piece| piece.owner != piece.before;
        let moved: Vec<_> = (0..self.pieces.len()).filter(|piece| has_moved(&self.pieces[*piece])).collect();
        let apart: Vec<_> = moved.iter().copied().filter(|piece| self.is_apart(*piece)).collect();
        for piece in apart {
            if !self.is_apart(piece) {
                continue;
            }
            self.looks += moved.len();
            if let Some(other) = moved.iter().copied().find(|other| self.is_better_exchanged(piece, *other)) {
                let (owner, others) = (self.pieces[piece].owner, self.pieces[other].owner);
                if let (Some(owner), Some(others)) = (owner, others) {
                    self.give(piece, others);
                    self.give(other, owner);
                }
            }
        }
    }

    /// Whether the piece has copies in racks of members, and its owner is in another.
    fn is_apart(&self, piece: usize) -> bool {
        !self.pieces[piece].racks.is_empty() && self.near(piece, self.pieces[piece].owner) == 0
    }

    /// 1 where the member is in a rack that has a copy.
    fn near(&self, piece: usize, member: Option<usize>) -> usize {
        let rack = member.and_then(|member| self.racks[member]);
        usize::from(rack.is_some_and(|rack| self.pieces[piece].racks.contains(&rack)))
    }

    /// Whether the piece comes to a rack that has a copy by an exchange, and not at the cost of the other.
    fn is_better_exchanged(&self, piece: usize, other: usize) -> bool {
        let (owner, others) = (self.pieces[piece].owner, self.pieces[other].owner);
        let gains = self.near(piece, others) + self.near(other, owner);
        let has = self.near(piece, owner) + self.near(other, others);
        gains > has && self.near(piece, others) > 0 && self.may_have(others, piece) && self.may_have(owner, other)
    }

    fn may_have(&self, member: Option<usize>, piece: usize) -> bool {
        let members = &self.classes[self.pieces[piece].class];
        member.is_some_and(|member| members.binary_search(&member).is_ok())
    }

    fn give(&mut self, piece: usize, member: usize) {
        let class = self.pieces[piece].class;
        if let Some(owner) = self.pieces[piece].owner.replace(member) {
            self.load[owner] -= 1;
            if let Some(pieces) = self.held[owner].get_mut(&class) {
                pieces.remove(&piece);
                if pieces.is_empty() {
                    self.held[owner].remove(&class);
                }
            }
        }
        self.load[member] += 1;
        self.held[member].entry(class).or_default().insert(piece);
    }

    pub(super) fn targets(&self) -> Vec<Partitions> {
        let of = |pieces: &BTreeMap<usize, BTreeSet<usize>>| {
            let pieces = pieces.values().flatten().map(|piece| &self.pieces[*piece]);
            pieces.map(|piece| (piece.topic, piece.number)).collect()
        };
        self.held.iter().map(of).collect()
    }
}

/// The steps to `end`, the last one first: each has room for what the one before it brings.
fn way_to(end: usize, came: &[Option<Step>]) -> Vec<(usize, usize, usize)> {
    let mut way = Vec::new();
    let mut to = end;
    while let Some((from, class)) = came[to] {
        way.push((from, class, to));
        to = from;
    }
    way
}
