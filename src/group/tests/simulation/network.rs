//! What is on its way between the hosts and the coordinator.

use super::*;

impl World {
    pub(super) fn hold(&mut self, packet: Packet) {
        self.held.push((self.desk.log.len(), packet));
    }

    pub(super) fn commit_log(&mut self) {
        self.note_committed(self.desk.log.len());
        for (_, packet) in std::mem::take(&mut self.held) {
            self.send(packet);
        }
    }

    pub(super) fn send(&mut self, packet: Packet) {
        let host = match &packet {
            Packet::Beat(host, _) | Packet::Answer { host, .. } => Some(*host),
            Packet::Commit(..) => None,
        };
        let is_cut = host.is_some_and(|host| self.hosts[host].cut_off > self.now());
        if is_cut || !self.is_calm && self.one_in(12) {
            return self.saw("lost on the way");
        }
        let copies = if !self.is_calm && self.one_in(10) { 2 } else { 1 };
        for packet in vec![packet; copies] {
            let longest = if self.is_calm { 50 } else { [20, 200, 3_000, 20_000][self.below(4)] };
            let due = self.now().after(self.millis(longest));
            self.sent += 1;
            self.network.push((due, self.sent, packet));
        }
    }

    pub(super) fn deliver(&mut self) {
        let now = self.now();
        let (mut due, later) = std::mem::take(&mut self.network).into_iter().partition::<Vec<_>, _>(|one| one.0 <= now);
        self.network = later;
        due.sort_by_key(|(at, number, _)| (*at, *number));
        for (_, _, packet) in due {
            match packet {
                Packet::Beat(host, beat) => self.take_beat(host, beat),
                Packet::Answer { host, member, number, answer } => self.take_answer(host, &member, number, answer),
                Packet::Commit(claim, offset) => self.take_commit(claim, offset),
            }
        }
    }

    pub(super) fn take_beat(&mut self, host: usize, beat: Heartbeat) {
        let (member, number) = (beat.member.clone(), beat.report.number);
        let heard = self.desk.coordinator.soft.pulse(&beat.group, &member).map(|pulse| pulse.number);
        match heard {
            Some(heard) if heard == number => self.saw("a heartbeat comes twice"),
            Some(heard) if heard > number => self.saw("a heartbeat comes late"),
            _ => {}
        }
        let answer = match self.submit(Command::Heartbeat(Box::new(beat))) {
            Ok(Reply::Answer(answer)) => Ok(answer),
            Ok(Reply::Left) => return,
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        self.hold(Packet::Answer { host, member, number, answer });
    }

    pub(super) fn take_answer(&mut self, host: usize, member: &str, number: u64, answer: Result<Answer>) {
        let now = self.now();
        let host = &mut self.hosts[host];
        if host.frozen > now {
            return;
        }
        let Some(half) = &mut host.member else { return };
        let before = half.claim();
        half.answered(now, number, answer);
        match half.claim() {
            Some(claim) => {
                let is_new = before.is_none_or(|before| before.member != claim.member);
                assert!(!is_new || claim.member == member, "it is an answer to another member");
                // Under another id, in a group that was forgotten meanwhile, they begin anew.
                let last = host.epoch.take().filter(|(id, _)| *id == claim.member);
                assert!(last.is_none_or(|(_, epoch)| claim.epoch >= epoch), "an epoch has fallen");
                host.epoch = Some((claim.member, claim.epoch));
            }
            None => host.claims.extend(before),
        }
    }

    /// A commit is taken only from a member that is there, in its epoch.
    pub(super) fn take_commit(&mut self, claim: Claim, offset: u64) {
        let known = self.desk.coordinator.group(GROUP).map(|group| group.roster.clone()).unwrap_or_default();
        let current = known.seat(&claim.member).and_then(|seat| seat.current.clone());
        let is_entitled = !known.is_replaced(&claim.member)
            && current.is_some_and(|current| current.standing == Standing::Here(claim.epoch));
        let producer =
            (self.has_transactions && self.one_in(3)).then(|| producer(i64::try_from(self.below(3)).unwrap()));
        let outcome = self.submit(commit_of(Some(claim), "orders", offset, producer));
        assert_eq!(outcome.is_ok(), is_entitled, "{outcome:?}");
        if let Some(producer) = producer.filter(|_| outcome.is_ok()) {
            self.open.insert(producer.id.0);
        }
    }
}
