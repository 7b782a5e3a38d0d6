//! What has been handed on and need not have been.
//!
//! Where members subscribe to different topics, ways of hand-overs may cross: of two that lead to the same loads, the one
//! that was taken moves more. What can be saved is a round trip of negative cost in this graph:
//!
//! ```text
//!  member ── −1 ──► member     a partition goes back to whom it was before
//!  member ── 0 or 1 ──► class ── 0 ──► member     one that has moved, or one that has not, goes to a subscriber
//!  member ── 0 ──► its load ── 0 ──► member with one more     the first has one more from now on, the second one less
//! ```
//!
//! Where there is none, no assignment that is as even has fewer partitions elsewhere than before.

use super::Plan;

/// A step, and which partition goes that way if that is settled.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: usize,
    to: usize,
    cost: i64,
    piece: Option<usize>,
}

impl Plan {
    pub(in super::super) fn give_back(&mut self) {
        // Where all subscribe to the same, who has more than its share has handed on what was to be handed on.
        if self.classes.len() < 2 {
            return;
        }
        while let Some(round) = self.saving_round() {
            let members = self.load.len();
            let mut handed = Vec::new();
            for (at, edge) in round.iter().enumerate() {
                let next = round[(at + 1) % round.len()];
                if let Some(piece) = edge.piece {
                    handed.push((piece, edge.to));
                } else if (members..members + self.classes.len()).contains(&edge.to) {
                    let piece = self.best_to_hand_on(edge.from, edge.to - members, next.to);
                    handed.extend(piece.map(|piece| (piece, next.to)));
                }
            }
            for (piece, to) in handed {
                self.give(piece, to);
            }
        }
    }

    /// The steps of a round trip of negative cost, one behind the other. (Bellman and Ford, from everywhere at once.)
    fn saving_round(&mut self) -> Option<Vec<Edge>> {
        let edges = self.edges();
        let places = edges.iter().map(|edge| edge.from.max(edge.to) + 1).max()?;
        if edges.iter().all(|edge| edge.cost >= 0) {
            return None;
        }
        let (mut cost, mut came) = (vec![0; places], vec![None; places]);
        loop {
            self.looks += edges.len();
            let mut is_done = true;
            for edge in &edges {
                if cost[edge.from] + edge.cost < cost[edge.to] {
                    cost[edge.to] = cost[edge.from] + edge.cost;
                    came[edge.to] = Some(*edge);
                    is_done = false;
                }
            }
            if is_done {
                return None;
            }
            if let Some(round) = round_in(&came) {
                return Some(round);
            }
        }
    }

    fn edges(&self) -> Vec<Edge> {
        let (members, levels) = (self.load.len(), self.load.len() + self.classes.len());
        let edge = |from, to, cost, piece| Edge { from, to, cost, piece };
        let mut edges = Vec::new();
        for (at, piece) in self.pieces.iter().enumerate() {
            if let (Some(owner), Some(before)) = (piece.owner, piece.before) {
                edges.extend((owner != before).then(|| edge(owner, before, -1, Some(at))));
            }
        }
        for (member, held) in self.held.iter().enumerate() {
            for (class, pieces) in held {
                let has_moved = pieces.iter().any(|piece| self.pieces[*piece].before != Some(member));
                edges.push(edge(member, members + class, i64::from(!has_moved), None));
            }
        }
        for (class, subscribers) in self.classes.iter().enumerate() {
            edges.extend(subscribers.iter().map(|member| edge(members + class, *member, 0, None)));
        }
        for (member, load) in self.load.iter().enumerate() {
            edges.push(edge(member, levels + load, 0, None));
            edges.extend(load.checked_sub(1).map(|less| edge(levels + less, member, 0, None)));
        }
        edges
    }
}

/// A round trip among the steps by which each place was come to.
fn round_in(came: &[Option<Edge>]) -> Option<Vec<Edge>> {
    // From where each place was visited first.
    let mut visit = vec![usize::MAX; came.len()];
    for start in 0..came.len() {
        let mut at = start;
        while visit[at] == usize::MAX {
            visit[at] = start;
            let Some(edge) = came[at] else { break };
            at = edge.from;
            if visit[at] == start {
                let mut round = Vec::new();
                let end = at;
                while let Some(edge) = came[at] {
                    round.push(edge);
                    at = edge.from;
                    if at == end {
                        round.reverse();
                        return Some(round);
                    }
                }
            }
        }
    }
    None
}
