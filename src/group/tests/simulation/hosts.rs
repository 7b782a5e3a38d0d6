//! The hosts: their threads, and their consumers that poll and commit.

use super::*;

impl World {
    /// The threads of the hosts.
    pub(super) fn run_hosts(&mut self) {
        let now = self.now();
        for at in 0..self.hosts.len() {
            if self.hosts[at].frozen > now {
                continue;
            }
            while let Some(beat) = self.hosts[at].member.as_mut().and_then(|member| member.heartbeat(now)) {
                self.check_reported(at, &beat);
                self.send(Packet::Beat(at, beat));
            }
            if self.hosts[at].next_poll <= now {
                self.poll(at);
            }
        }
    }

    pub(super) fn poll(&mut self, at: usize) {
        let now = self.now();
        let pause = self.millis(if self.is_calm { 300 } else { 2_000 });
        let host = &mut self.hosts[at];
        host.next_poll = now.after(pause);
        let Some(member) = &mut host.member else { return };
        let upcoming = member.upcoming(now);
        match member.polled(now) {
            Ok(changes) => {
                assert!(upcoming == changes || upcoming.lost.is_within(&changes.lost), "it was told before");
                assert!(changes.lost.is_within(&host.consumer) && changes.revoked.is_within(&host.consumer));
                let kept = host.consumer.without(&changes.lost).without(&changes.revoked);
                assert!(!kept.meets(&changes.assigned), "it has what it is given");
                host.consumer = kept.joined_with(&changes.assigned);
                host.id = member.claim().map(|claim| claim.member);
            }
            Err(error) => {
                assert!(matches!(error, Error::FencedInstance { .. }), "{error:?}");
                // The process ends, and another takes its place.
                host.consumer = Partitions::default();
                host.id = None;
                host.member = None;
            }
        }
        if let Some(readable) = host.member.as_ref().and_then(|member| member.readable(now)) {
            assert_eq!(*readable, host.consumer, "what it may read is what it was told");
        }
        self.send_commits(at);
    }

    pub(super) fn send_commits(&mut self, at: usize) {
        let claim = self.hosts[at].member.as_ref().and_then(Member::claim);
        if let Some(claim) = claim.filter(|_| self.one_in(4)) {
            self.send(Packet::Commit(claim, 7));
        }
        if !self.hosts[at].claims.is_empty() && self.one_in(4) {
            let old = self.below(self.hosts[at].claims.len());
            let claim = self.hosts[at].claims[old].clone();
            self.send(Packet::Commit(claim, 9));
        }
    }

    pub(super) fn some_host(&mut self) -> Option<usize> {
        let alive: Vec<_> = self.living().collect();
        (!alive.is_empty()).then(|| alive[self.below(alive.len())])
    }

    /// Those that have a member, and are not gone for good.
    pub(super) fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.hosts.len()).filter(|at| self.hosts[*at].member.is_some() && !self.hosts[*at].is_gone)
    }

    pub(super) fn start_host(&mut self) {
        if self.living().count() >= 6 {
            return;
        }
        let instance = self.one_in(3).then(|| format!("instance-{}", self.below(3)));
        let subscription = self.wanted_subscription();
        let assignor = [None, Some(Assignor::Uniform), Some(Assignor::Range)][self.below(3)];
        let session_timeout = self.one_in(3).then(|| Duration::from_secs(8));
        self.start(Details { instance, subscription, assignor, session_timeout, ..Details::default() });
    }

    /// A process begins, with one consumer.
    pub(super) fn start(&mut self, details: Details) {
        let instance = details.instance.clone();
        let settings = MemberSettings { group: GROUP.to_owned(), details, max_poll_interval: self.max_poll };
        let random = Random::seeded(self.random.below(u64::MAX));
        self.hosts.push(Host {
            member: Some(Member::new(self.now(), settings, random)),
            consumer: Partitions::default(),
            id: None,
            instance,
            next_poll: self.now(),
            frozen: Moment(0),
            cut_off: Moment(0),
            is_gone: false,
            epoch: None,
            claims: Vec::new(),
        });
    }

    fn wanted_subscription(&mut self) -> Subscription {
        self.common.clone().unwrap_or_else(|| some_subscription(&mut self.random))
    }

    pub(super) fn close_host(&mut self) {
        let Some(at) = self.some_host() else { return };
        let leave = self.hosts[at].member.as_mut().and_then(Member::close);
        self.end_host(at);
        if let Some(leave) = leave {
            self.send(Packet::Beat(at, leave));
        }
    }

    pub(super) fn kill_host(&mut self) {
        if let Some(at) = self.some_host() {
            self.end_host(at);
        }
    }

    fn end_host(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.claims.extend(host.member.as_ref().and_then(Member::claim));
        host.member = None;
        host.id = None;
        host.consumer = Partitions::default();
    }

    /// Somebody is gone for good, and nobody is told.
    pub(super) fn lose_host(&mut self) {
        let (how, never, now) = (self.below(5), Moment(u64::MAX), self.now());
        let Some(at) = self.some_host() else { return };
        let host = &mut self.hosts[at];
        (host.frozen, host.cut_off) = (now, now);
        match how {
            0 => host.frozen = never,
            1 => host.cut_off = never,
            // With an instance id it would leave for now, and its seat would be kept for a session from then on.
            2 if host.instance.is_none() => host.next_poll = never,
            3 => return self.end_host(at),
            _ => return,
        }
        host.is_gone = true;
        self.saw(["frozen for good", "cut off for good", "without a poll for good"][how]);
    }

    pub(super) fn freeze_host(&mut self) {
        let Some(at) = self.some_host() else { return };
        self.hosts[at].frozen = self.now().after(self.millis(90_000));
    }

    pub(super) fn cut_host_off(&mut self) {
        let Some(at) = self.some_host() else { return };
        self.hosts[at].cut_off = self.now().after(self.millis(90_000));
    }

    pub(super) fn stop_polling(&mut self) {
        let Some(at) = self.some_host() else { return };
        self.hosts[at].next_poll = self.now().after(self.millis(90_000));
    }

    pub(super) fn subscribe_host(&mut self) {
        let Some(at) = self.some_host() else { return };
        let (subscription, now) = (self.wanted_subscription(), self.now());
        if let Some(member) = &mut self.hosts[at].member {
            member.subscribe(now, subscription);
        }
    }
}

pub(super) fn some_subscription(random: &mut Random) -> Subscription {
    match below(random, 5) {
        0 => Subscription { topics: BTreeSet::new(), pattern: Some("[op].*".to_owned()) },
        1 => named(&["orders"]),
        2 => named(&["bills", "parcels"]),
        _ => named(&["orders", "bills", "nothing"]),
    }
}
