//! What has to hold: at each step, and when nothing changes any more.

use super::*;

/// What has to happen in some seeds, else nothing of it is shown.
pub(super) const EXPECTED: [&str; 26] = [
    "lost on the way",
    "a heartbeat comes twice",
    "a heartbeat comes late",
    "a topic has more partitions",
    "a topic is gone",
    "decisions are lost",
    "the coordinator is made anew",
    "a suspended group is alive",
    "frozen for good",
    "cut off for good",
    "without a poll for good",
    "a member is silent",
    "a member does not give back",
    "a member leaves for now",
    "a member is replaced",
    "a member is fenced",
    "a member is not known",
    "an instance is fenced",
    "a commit is stale",
    "the topics are not known",
    "partitions are asked back",
    "partitions are waited for",
    "uniform, all alike",
    "uniform, not all alike",
    "range",
    "one change, and all alike",
];

impl World {
    /// A member gives up only what its consumer does not have any more.
    pub(super) fn check_given_back(&self, before: &BTreeMap<String, Partitions>) {
        let after = holdings(&self.desk.coordinator);
        for host in &self.hosts {
            // Whoever has left, or was told to begin again, reads nothing.
            let claim = host.member.as_ref().and_then(Member::claim);
            let Some(id) = host.id.as_ref().filter(|id| claim.is_some_and(|claim| claim.member == **id)) else {
                continue;
            };
            let (Some(had), Some(has)) = (before.get(id), after.get(id)) else { continue };
            let gone = had.without(has);
            assert!(!gone.meets(&host.consumer), "{gone:?} was given back for {id}, whose consumer has not polled");
        }
    }

    /// Everything below `end` is committed: the group's epoch has not fallen in it.
    pub(super) fn note_committed(&mut self, end: usize) {
        let fresh = self.desk.log[self.committed..end].to_vec();
        self.committed = end;
        for entry in fresh {
            let Entry::Record(record, _) = entry else { continue };
            match Coordinator::decode(&record.key, record.value.as_deref()).unwrap() {
                Some(Event::Group { epoch: Some(epoch), .. }) => {
                    assert!(epoch > self.greatest, "the group's epoch goes from {:?} to {epoch:?}", self.greatest);
                    self.greatest = epoch;
                }
                Some(Event::Current { current: Some(current), .. }) => match (current.standing, current.phase) {
                    (Standing::Away, _) => self.saw("a member leaves for now"),
                    (_, Phase::Unrevoked) => self.saw("partitions are asked back"),
                    (_, Phase::Unreleased) => self.saw("partitions are waited for"),
                    (_, Phase::Stable) => {}
                },
                // A group that is forgotten begins anew.
                Some(Event::Group { epoch: None, .. }) => self.greatest = Epoch(0),
                _ => {}
            }
        }
    }

    /// Nobody reads what is another's.
    pub(super) fn check_readers(&self) {
        let mut read = BTreeMap::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let readable = host.member.as_ref().and_then(|member| member.readable(self.now()));
            for one in readable.into_iter().flat_map(Partitions::iter) {
                let before = read.insert(one, at);
                assert_eq!(before, None, "{one:?} is read by two, host {at} is one of them");
            }
        }
    }

    /// Everything that is subscribed to is read by somebody who subscribes to it, and as evenly as can be.
    pub(super) fn check_all_is_read(&mut self) {
        let mut catalogue = self.catalogue();
        let members = self.desk_members();
        let mut wishes = BTreeMap::new();
        let (mut wanted, mut read) = (Partitions::default(), Partitions::default());
        for member in &members {
            let topics = catalogue.resolve(&member.details.as_ref().unwrap().subscription);
            wanted = wanted.joined_with(&catalogue.partitions(&topics));
            wishes.insert(member.member.clone(), topics);
        }
        let mut shares = Vec::new();
        for at in self.living() {
            let member = self.hosts[at].member.as_ref().unwrap();
            let readable = member.readable(self.now()).cloned().unwrap_or_default();
            read = read.joined_with(&readable);
            let topics = member.claim().and_then(|claim| wishes.remove(&claim.member));
            shares.push((topics.expect("who lives is a member"), readable));
        }
        assert!(wishes.is_empty(), "members are those that live, and not {wishes:?}");
        assert_eq!(read, wanted, "what is subscribed to is read");
        match self.desk.describe_assignor() {
            Assignor::Uniform => {
                let is_alike = shares.iter().all(|(topics, _)| *topics == shares[0].0);
                check_uniform(&shares, is_alike);
                self.saw(if is_alike { "uniform, all alike" } else { "uniform, not all alike" });
            }
            Assignor::Range => {
                check_range(&shares);
                self.saw("range");
            }
        }
    }

    fn catalogue(&self) -> topics::Catalogue {
        topics::Catalogue::new(Arc::new(Topics(self.topics.clone())))
    }

    /// Who reads what, of those who live.
    fn readers(&self) -> BTreeMap<(TopicId, u32), usize> {
        let each = |at: usize| {
            let readable = self.hosts[at].member.as_ref().and_then(|member| member.readable(self.now()));
            readable.into_iter().flat_map(Partitions::iter).map(move |one| (one, at))
        };
        self.living().flat_map(each).collect()
    }

    pub(super) fn desk_members(&mut self) -> Vec<MemberDescription> {
        match self.desk.run(Command::Describe { group: GROUP.to_owned() }) {
            Ok(Reply::Described(description)) => description.members,
            _ => Vec::new(),
        }
    }

    /// Where nothing changes nothing is written, and nothing moves: not even where the whole process is suspended.
    pub(super) fn check_quiet(&mut self) {
        let (before, readers) = (self.desk.log.len(), self.readers());
        self.wait(2 * HEARTBEATS);
        self.desk.skip(3600 * SECOND);
        assert!(self.readers().is_empty(), "another may read by now");
        self.wait(2 * HEARTBEATS);
        assert_eq!(self.readers(), readers);
        let records = self.desk.log[before..].iter().filter(|entry| match entry {
            Entry::Record(record, _) => record.key[1] > 1,
            Entry::Marker(..) => false,
        });
        // Without members the group itself may be forgotten.
        assert!(self.living().next().is_none() || records.count() == 0, "nothing has changed");
    }

    /// What is meant for each is meant for it again, if it is computed from that.
    pub(super) fn check_fixpoint(&self) {
        let Some(group) = self.desk.coordinator.group(GROUP) else { return };
        let mut draft = decide::Draft::new(GROUP, Some(&group.roster), self.desk.now.wall);
        draft.raise();
        draft.retarget(&mut self.catalogue());
        let moved: Vec<_> =
            draft.into_events().into_iter().filter(|event| matches!(event, Event::Target { .. })).collect();
        assert_eq!(moved, []);
    }

    /// One member more, or one less, moves no more than it must.
    pub(super) fn check_one_change(&mut self) {
        let before = self.readers();
        let members = self.desk_members();
        let mut subscriptions: Vec<_> =
            members.into_iter().map(|member| member.details.unwrap().subscription).collect();
        subscriptions.dedup();
        let first = self.desk.describe_assignor();
        let is_coming = self.one_in(2) || subscriptions.is_empty();
        if is_coming {
            let subscription = subscriptions.first().cloned().unwrap_or_else(|| named(&["orders"]));
            self.start(Details { subscription, ..Details::default() });
        } else if self.one_in(2) {
            self.close_host();
        } else {
            self.kill_host();
        }
        self.wait_for_all();
        self.check_all_is_read();
        if subscriptions.len() > 1 || [first, self.desk.describe_assignor()] != [Assignor::Uniform; 2] {
            return;
        }
        let after = self.readers();
        let stays = |host: &usize| self.hosts[*host].member.is_some();
        let moved: Vec<_> = before.iter().filter(|(one, host)| stays(host) && after[*one] != **host).collect();
        if is_coming {
            let came = self.hosts.len() - 1;
            assert!(moved.iter().all(|(one, _)| after[*one] == came), "{moved:?}");
            assert!(moved.len() <= after.len() / self.living().count(), "{moved:?}");
        } else {
            assert!(moved.is_empty(), "{moved:?}");
        }
        self.saw("one change, and all alike");
    }

    /// A heartbeat says that the consumer has what it has: nothing is given back for it.
    pub(super) fn check_reported(&self, at: usize, beat: &Heartbeat) {
        let host = &self.hosts[at];
        if matches!(beat.intent, Intent::Join | Intent::Stay(_)) && host.id.as_ref() == Some(&beat.member) {
            let kept = host.consumer.without(&beat.report.owned);
            assert!(kept.is_empty(), "{kept:?} was given back by host {at}, whose consumer has not polled");
        }
    }

    pub(super) fn note_outcome(&mut self, outcome: &Result<Reply>) {
        match outcome {
            Err(Error::FencedMember { .. }) => self.saw("a member is fenced"),
            Err(Error::UnknownMember { .. }) => self.saw("a member is not known"),
            Err(Error::FencedInstance { .. }) => self.saw("an instance is fenced"),
            Err(Error::StaleMember { .. }) => self.saw("a commit is stale"),
            Err(Error::CoordinatorLoading { .. }) => self.saw("the topics are not known"),
            _ => {}
        }
    }

    /// Who was removed by a tick, and why.
    pub(super) fn note_removed(&mut self, before: &BTreeMap<String, state::Pulse>) {
        let elapsed = self.desk.coordinator.soft.clock.elapsed();
        for (member, pulse) in before {
            let is_there = self.desk.coordinator.soft.pulse(GROUP, member).is_some();
            match pulse.session_end <= elapsed {
                _ if is_there => {}
                true => self.saw("a member is silent"),
                false => self.saw("a member does not give back"),
            }
        }
    }
}

/// Nobody has two more than another whom a chain of hand-overs leads to.
fn check_uniform(shares: &[(BTreeSet<TopicId>, Partitions)], is_alike: bool) {
    let load = |at: usize| shares[at].1.count();
    for from in 0..shares.len() {
        let mut reached = BTreeSet::from([from]);
        loop {
            let leads = |to: usize| {
                let mut topics = reached.iter().flat_map(|at| shares[*at].1.topics());
                topics.any(|(topic, _)| shares[to].0.contains(&topic))
            };
            let Some(next) = (0..shares.len()).find(|to| !reached.contains(to) && leads(*to)) else { break };
            assert!(load(next) + 2 > load(from), "{shares:?}");
            reached.insert(next);
        }
    }
    let loads: Vec<_> = (0..shares.len()).map(load).collect();
    let spread = loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0);
    assert!(!is_alike || spread <= 1, "{loads:?}");
}

/// Of each topic those who subscribe have as many, or one more.
fn check_range(shares: &[(BTreeSet<TopicId>, Partitions)]) {
    for topic in shares.iter().flat_map(|(topics, _)| topics) {
        let those = shares.iter().filter(|(topics, _)| topics.contains(topic));
        let counts: Vec<_> = those.map(|(_, has)| has.of(*topic).count()).collect();
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{topic}: {counts:?}");
    }
}

impl Desk {
    fn describe_assignor(&mut self) -> Assignor {
        self.coordinator.group(GROUP).map(|group| group.roster.assignor()).unwrap_or_default()
    }
}

/// What each member holds, that to be given back included.
pub(super) fn holdings(coordinator: &Coordinator) -> BTreeMap<String, Partitions> {
    let mut all = BTreeMap::new();
    for (_, group) in coordinator.groups() {
        for (member, seat) in group.roster.seats() {
            if let Some(current) = &seat.current {
                all.insert(member.clone(), current.assigned.joined_with(&current.revoking));
            }
        }
    }
    all
}
