//! Members that come, go, die, pause and are cut off, a network that loses, doubles, delays and reorders, topics that
//! change, and a coordinator that is made anew at any moment: whatever happens, nobody reads what is another's, and when it
//! is over everything is read again in time.

mod changes;
mod checks;
mod hosts;
mod network;

use super::*;
use crate::random::Random;

const NAMES: [&str; 4] = ["orders", "bills", "parcels", "returns"];
const HEARTBEATS: Duration = Duration::from_secs(5);
/// What polls, the network, the log and the steps of the clock take besides, where nothing is slow.
const UNDERWAY: Duration = Duration::from_secs(2);

/// What is on its way.
#[derive(Clone, Debug)]
enum Packet {
    /// From a host, as the membership of which number.
    Beat(usize, Heartbeat),
    /// To a host: the answer to a heartbeat of that member id.
    Answer {
        host: usize,
        member: String,
        number: u64,
        answer: Result<Answer>,
    },
    Commit(Claim, u64),
}

/// A process with a consumer.
struct Host {
    member: Option<Member>,
    /// What its consumer has been told to own.
    consumer: Partitions,
    /// The id under which it owns that.
    id: Option<String>,
    instance: Option<String>,
    next_poll: Moment,
    /// Nothing runs in it until then.
    frozen: Moment,
    /// Nothing reaches it, and it reaches nobody, until then.
    cut_off: Moment,
    /// It stays frozen, cut off, or without a poll, for good.
    is_gone: bool,
    /// The epoch that it was answered last, and under which id.
    epoch: Option<(String, Epoch)>,
    /// Claims of earlier memberships.
    claims: Vec<Claim>,
}

struct World {
    desk: Desk,
    random: Random,
    hosts: Vec<Host>,
    network: Vec<(Moment, u64, Packet)>,
    sent: u64,
    /// Everything below is committed.
    committed: usize,
    /// Where each decision ends.
    boundaries: BTreeSet<usize>,
    /// Answers that wait for what they rest on.
    held: Vec<(usize, Packet)>,
    commits_at: Moment,
    topics: BTreeMap<String, Topic>,
    made: u8,
    settings: GroupConfig,
    max_poll: Duration,
    is_calm: bool,
    /// The group's epoch, as far as it is committed.
    greatest: Epoch,
    /// Whether records with a producer are written.
    has_transactions: bool,
    /// The producers whose transactions are open.
    open: BTreeSet<i64>,
    /// What all subscribe to, if they do.
    common: Option<Subscription>,
    /// The coordinator has been made anew, and has not been told the topics.
    is_untold: bool,
    /// How often what has happened.
    seen: Census,
}

type Census = BTreeMap<&'static str, u64>;

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let session_timeout = Duration::from_secs([10, 20, 45][below(&mut random, 3)]);
        let max_poll = Duration::from_secs([15, 30, 60][below(&mut random, 3)]);
        let settings = GroupConfig::new().session_timeout(session_timeout).heartbeat_interval(HEARTBEATS);
        let mut desk = Desk::new(&[]);
        desk.run(Command::Settings(settings)).unwrap();
        let common = random.one_in(3).then(|| hosts::some_subscription(&mut random));
        Self {
            desk,
            random,
            common,
            is_untold: false,
            seen: Census::new(),
            hosts: Vec::new(),
            network: Vec::new(),
            sent: 0,
            committed: 0,
            boundaries: BTreeSet::from([0]),
            held: Vec::new(),
            commits_at: Moment(0),
            topics: BTreeMap::new(),
            made: 0,
            settings,
            max_poll,
            is_calm: false,
            greatest: Epoch(0),
            has_transactions: seed.is_multiple_of(2),
            open: BTreeSet::new(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        below(&mut self.random, bound)
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.random.one_in(chances)
    }

    fn now(&self) -> Moment {
        self.desk.now.monotonic
    }

    fn millis(&mut self, bound: usize) -> Duration {
        Duration::from_millis(self.below(bound) as u64)
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// As a ledger does: what is decided is applied, and answered when it is committed.
    fn submit(&mut self, command: Command) -> Result<Reply> {
        let before = checks::holdings(&self.desk.coordinator);
        let pulses = match &command {
            Command::Tick => self.desk.coordinator.soft.pulses.get(GROUP).cloned(),
            _ => None,
        };
        let reply = self.desk.run(command);
        self.note_removed(&pulses.unwrap_or_default());
        self.boundaries.insert(self.desk.log.len());
        self.check_given_back(&before);
        self.note_outcome(&reply);
        let roster = self.desk.coordinator.group(GROUP).map(|group| &group.roster);
        if roster.is_some_and(|roster| roster.seats().any(|(member, _)| roster.is_replaced(member))) {
            self.saw("a member is replaced");
        }
        reply
    }

    fn step(&mut self, longest: usize) {
        let mut next = self.now().after(Duration::from_millis(1) + self.millis(longest));
        let members =
            self.hosts.iter().filter(|host| host.frozen <= self.now()).filter_map(|host| host.member.as_ref());
        for due in members.filter_map(Member::deadline).chain(self.desk.coordinator.deadline()) {
            next = next.min(due.max(self.now().after(Duration::from_millis(1))));
        }
        let time = next.since(self.now());
        self.desk.skip(time);
        self.settle_step();
    }

    fn settle_step(&mut self) {
        if self.is_untold && self.one_in(3) {
            self.tell_topics();
        }
        self.deliver();
        self.run_hosts();
        let is_settled = self.committed == self.desk.log.len();
        if is_settled {
            for action in self.desk.coordinator.actions(self.desk.now) {
                let command = match action {
                    Action::Tick => Command::Tick,
                    Action::Expire => Command::Expire,
                };
                assert_eq!(self.submit(command).unwrap(), Reply::Done);
            }
        }
        if self.commits_at <= self.now() {
            self.commit_log();
            let pause = self.millis(if self.is_calm { 5 } else { 100 });
            self.commits_at = self.now().after(pause);
        }
        self.check_readers();
    }

    /// Nothing changes any more.
    fn calm(&mut self) {
        self.is_calm = true;
        self.end_transactions();
        self.network.clear();
        if self.is_untold {
            self.tell_topics();
        }
        let now = self.now();
        for host in self.hosts.iter_mut().filter(|host| !host.is_gone) {
            host.frozen = now;
            host.cut_off = now;
            host.next_poll = now;
        }
        self.wait_for_all();
    }

    /// As long as it may take until everything is read again.
    fn wait_for_all(&mut self) {
        let longest = self.settings.session_timeout.max(self.max_poll);
        self.wait(longest + 2 * HEARTBEATS + UNDERWAY);
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now().after(time);
        while self.now() < end {
            self.step(200);
        }
    }
}

fn below(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap()
}

fn run(seed: u64) -> Census {
    let mut world = World::new(seed);
    for _ in 0..3 {
        world.change_topics();
    }
    for _ in 0..2 {
        world.start_host();
    }
    let changes = 10 + world.below(30);
    for _ in 0..changes {
        let steps = 1 + world.below(40);
        for _ in 0..steps {
            world.step(700);
        }
        world.change();
    }
    world.lose_host();
    world.calm();
    world.check_all_is_read();
    world.check_quiet();
    world.check_fixpoint();
    world.check_one_change();
    assert!(replayed(&world.desk.log).is_like(&world.desk.coordinator));
    world.seen
}

/// `TAFFRAIL_GROUP_SEEDS` says how many seeds are tried, `TAFFRAIL_GROUP_FIRST` which is the first.
#[test]
fn nobody_reads_what_is_anothers_and_all_is_read_in_the_end() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("TAFFRAIL_GROUP_FIRST").unwrap_or(0);
    let seeds = number("TAFFRAIL_GROUP_SEEDS").unwrap_or(300);
    let mut seen = Census::new();
    for seed in first..first + seeds {
        let again =
            format!("TAFFRAIL_GROUP_FIRST={seed} TAFFRAIL_GROUP_SEEDS=1 cargo test --lib group::tests::simulation");
        let Ok(of_seed) = std::panic::catch_unwind(|| run(seed)) else {
            panic!("seed {seed} fails; it is repeated by: {again}");
        };
        for (what, times) in of_seed {
            *seen.entry(what).or_default() += times;
        }
    }
    if seeds >= 100 {
        for what in checks::EXPECTED {
            assert!(seen.contains_key(what), "{what}: that never happens; what does is {seen:?}");
        }
    }
}
