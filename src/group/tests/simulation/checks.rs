//! What has to hold: at each step, and when nothing changes any more.

use super::*;

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

    /// Everything that is subscribed to is read by somebody who subscribes to it.
    pub(super) fn check_all_is_read(&mut self) {
        let mut wanted = Partitions::default();
        let mut counts = Vec::new();
        let mut subscriptions = BTreeSet::new();
        let mut assignors = BTreeSet::new();
        let mut read = Partitions::default();
        for member in self.desk_members() {
            subscriptions.insert(format!("{:?}", member.details.as_ref().unwrap().subscription));
            assignors.insert(member.details.as_ref().unwrap().assignor);
        }
        for host in self.hosts.iter().filter(|host| host.member.is_some()) {
            let readable = host.member.as_ref().and_then(|member| member.readable(self.now()));
            let readable = readable.cloned().unwrap_or_default();
            counts.push(readable.count());
            read = read.joined_with(&readable);
        }
        let mut catalogue = topics::Catalogue::new(Arc::new(Topics(self.topics.clone())));
        let members = self.desk_members();
        for member in &members {
            let topics = catalogue.resolve(&member.details.as_ref().unwrap().subscription);
            wanted = wanted.joined_with(&catalogue.partitions(&topics));
        }
        let alive = self.hosts.iter().filter(|host| host.member.is_some()).count();
        assert_eq!(members.len(), alive, "members are those that live: {members:?}");
        assert_eq!(read, wanted, "what is subscribed to is read");
        if subscriptions.len() == 1 && self.desk.describe_assignor() == Assignor::Uniform {
            let (most, least) = (counts.iter().max(), counts.iter().min());
            assert!(most.unwrap() - least.unwrap() <= 1, "{counts:?}");
        }
    }

    pub(super) fn desk_members(&mut self) -> Vec<MemberDescription> {
        match self.desk.run(Command::Describe { group: GROUP.to_owned() }) {
            Ok(Reply::Described(description)) => description.members,
            _ => Vec::new(),
        }
    }

    /// Where nothing changes nothing is written.
    pub(super) fn check_quiet(&mut self) {
        let before = self.desk.log.len();
        let end = self.now().after(2 * HEARTBEATS);
        while self.now() < end {
            let host = self.some_host();
            assert!(host.is_none_or(|at| self.hosts[at].instance.is_none() || self.hosts[at].member.is_some()));
            self.is_calm = true;
            self.step(500);
        }
        let records = self.desk.log[before..].iter().filter(|entry| match entry {
            Entry::Record(record, _) => record.key[1] > 1,
            Entry::Marker(..) => false,
        });
        assert_eq!(records.count(), 0, "nothing has changed");
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
