//! Eight consumers on threads of their own read 64 partitions while records are published, and members come, go, and are
//! lost: they neither poll nor leave any more. Every record is processed once at least, no partition by two owners that
//! are alive, and what an owner reads of a key comes in order and without a gap.
//!
//! Nothing goes by time but what the group does: a member that is not polled for 500 ms is out. One that has overslept so
//! long, on a busy machine, may be: that is no failure, and is not counted as alive. `TAFFRAIL_GROUP_RECORDS` says how many
//! records there are, `TAFFRAIL_GROUP_CHANGES` how often a member comes or goes meanwhile.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use support::env_count;
use taffrail::{
    Consumer, Durability, Error, GroupConfig, Log, Polled, Rebalance, RebalanceListener, Record, Result, TopicConfig,
    TopicPartition,
};

const TOPIC: &str = "orders";
const GROUP: &str = "workers";
const PARTITIONS: u32 = 64;
const WORKERS: usize = 8;
const KEYS: u64 = 200;
/// How long a member may be silent.
const PATIENCE: Duration = Duration::from_millis(500);
/// So many records are published and not processed at most.
const WINDOW: u64 = 5_000;

/// Far longer than it takes a group to give a partition to another.
const STUCK: Duration = Duration::from_secs(30);

/// What the threads share.
struct Work {
    /// How often each record was processed, by its number.
    processed: Vec<AtomicUsize>,
    distinct: AtomicU64,
    published: AtomicU64,
    owners: Mutex<BTreeMap<u32, usize>>,
    members: Mutex<BTreeMap<usize, Arc<Member>>>,
    began: Instant,
    is_over: AtomicBool,
    taken_over: AtomicU64,
}

/// A member, as the others see it.
struct Member {
    /// When its last poll began, in nanoseconds since the test did; the group counts from then on at the earliest.
    polled: AtomicU64,
    end: Mutex<Option<End>>,
}

/// How a member ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Drop,
    /// It is neither polled nor dropped any more.
    Lose,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with it")
}

impl Work {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).expect("no test takes 500 years")
    }

    /// Waits until so many records were processed; where nothing is for far too long, it says how the group is.
    fn wait_until(&self, log: &Log, is_enough: impl Fn(u64) -> bool) {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            let distinct = self.distinct.load(Ordering::SeqCst);
            if is_enough(distinct) {
                return;
            }
            if distinct != last {
                (last, since) = (distinct, Instant::now());
            }
            if since.elapsed() > STUCK {
                let left = self.processed.iter().filter(|one| one.load(Ordering::SeqCst) == 0).count();
                eprintln!("{left} records are left, and nobody reads them: {:#?}", log.describe_group(GROUP));
                eprintln!("{:#?} {:?}", log.describe_topic(TOPIC).map(|topic| topic.partitions), lock(&self.owners));
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether a member may have been removed: it has not polled for so long.
    fn may_be_out(&self, member: usize) -> bool {
        let members = lock(&self.members);
        let Some(member) = members.get(&member) else { return true };
        Duration::from_nanos(self.now() - member.polled.load(Ordering::SeqCst)) >= PATIENCE
    }
}

/// Notes who owns what.
struct Owner {
    work: Arc<Work>,
    me: usize,
    /// What of each key was read last, since the partition is this one's; by partition.
    read: Arc<Mutex<BTreeMap<u32, BTreeMap<u64, u64>>>>,
}

impl RebalanceListener for Owner {
    fn assigned(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        for TopicPartition { partition, .. } in partitions {
            let before = lock(&self.work.owners).insert(*partition, self.me);
            if let Some(before) = before.filter(|before| *before != self.me) {
                assert!(self.work.may_be_out(before), "{partition} is {before}'s still, and is given to {}", self.me);
                self.work.taken_over.fetch_add(1, Ordering::Relaxed);
            }
            lock(&self.read).insert(*partition, BTreeMap::new());
        }
        Ok(())
    }

    fn revoked(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        let mut owners = lock(&self.work.owners);
        for TopicPartition { partition, .. } in partitions {
            if owners.get(partition) == Some(&self.me) {
                owners.remove(partition);
            }
            lock(&self.read).remove(partition);
        }
        Ok(())
    }
}

/// One thread: polls, processes, commits, until it is told how to end.
fn labour(log: &Log, work: &Arc<Work>, me: usize, member: &Member) -> Result<()> {
    let read = Arc::new(Mutex::new(BTreeMap::new()));
    let owner = Owner { work: Arc::clone(work), me, read: Arc::clone(&read) };
    let builder = log.consumer(GROUP).subscribe([TOPIC]).max_poll_interval(PATIENCE).session_timeout(PATIENCE);
    let mut consumer = builder.max_bytes(2_000).on_rebalance(owner).open()?;
    loop {
        member.polled.store(work.now(), Ordering::SeqCst);
        let polled = consumer.poll(Duration::from_millis(20))?;
        process(work, me, member, &polled, &read);
        commit(&mut consumer, me)?;
        let end = if work.is_over.load(Ordering::SeqCst) { Some(End::Close) } else { *lock(&member.end) };
        match end {
            None => {}
            Some(End::Close) => return leave(work, me, || consumer.close()),
            Some(End::Drop) => {
                return leave(work, me, || {
                    drop(consumer);
                    Ok(())
                });
            }
            Some(End::Lose) => {
                std::mem::forget(consumer);
                return Ok(());
            }
        }
    }
}

/// It owns nothing any more from when it says so, which is before anybody else can.
fn leave(work: &Work, me: usize, go: impl FnOnce() -> Result<()>) -> Result<()> {
    lock(&work.owners).retain(|_, owner| *owner != me);
    go()
}

fn process(work: &Work, me: usize, member: &Member, polled: &Polled, read: &Mutex<BTreeMap<u32, BTreeMap<u64, u64>>>) {
    let overslept = || Duration::from_nanos(work.now() - member.polled.load(Ordering::SeqCst)) >= PATIENCE;
    for record in polled {
        let owner = lock(&work.owners).get(&polled.partition()).copied();
        assert!(owner == Some(me) || overslept(), "{me} processes {} of {owner:?}", polled.partition());
        let text = record.value_str().expect("it was sent as text");
        let mut numbers = text.split(':').map(|number| number.parse::<u64>().expect("they are numbers"));
        let [key, in_key, number] = std::array::from_fn(|_| numbers.next().expect("there are three"));
        let mut read = lock(read);
        let last = read.entry(polled.partition()).or_default().insert(key, in_key);
        assert!(last.is_none_or(|last| in_key == last + 1), "{me} reads {in_key} of key {key} behind {last:?}");
        let number = usize::try_from(number).expect("they fit");
        if work.processed[number].fetch_add(1, Ordering::SeqCst) == 0 {
            work.distinct.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn commit(consumer: &mut Consumer, me: usize) -> Result<()> {
    let committed = match me % 2 {
        0 => consumer.commit(),
        _ => {
            consumer.commit_async(|_| {});
            Ok(())
        }
    };
    match committed {
        // It was out: the next poll says so.
        Err(Error::UnknownMember { .. } | Error::FencedMember { .. } | Error::StaleMember { .. }) => Ok(()),
        other => other,
    }
}

/// Whoever works, by number.
struct Crew {
    log: Log,
    work: Arc<Work>,
    threads: Vec<(Arc<Member>, JoinHandle<()>)>,
    hired: usize,
}

impl Crew {
    fn hire(&mut self) {
        let me = self.hired;
        self.hired += 1;
        let member = Arc::new(Member { polled: AtomicU64::new(self.work.now()), end: Mutex::new(None) });
        lock(&self.work.members).insert(me, Arc::clone(&member));
        let (log, work, mine) = (self.log.clone(), Arc::clone(&self.work), Arc::clone(&member));
        let thread = std::thread::spawn(move || {
            // What one of them finds ends the test.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| labour(&log, &work, me, &mine)));
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    eprintln!("{me}: {error}");
                    std::process::abort();
                }
                Err(_) => std::process::abort(),
            }
        });
        self.threads.push((member, thread));
    }

    /// The oldest ends.
    fn dismiss(&mut self, end: End) {
        let (member, thread) = self.threads.remove(0);
        *lock(&member.end) = Some(end);
        thread.join().expect("it ends by itself");
    }
}

#[test]
fn work_goes_on_while_workers_come_and_go() {
    let records = env_count("TAFFRAIL_GROUP_RECORDS", 60_000);
    let changes = env_count("TAFFRAIL_GROUP_CHANGES", 12);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let groups = GroupConfig::new().session_timeout(PATIENCE).heartbeat_interval(Duration::from_millis(50));
    let log = Log::builder(directory.path().join("data")).groups(groups).open().expect("it opens");
    let config = TopicConfig::new().partitions(PARTITIONS).durability(Durability::Os);
    log.create_topic(TOPIC, config).expect("it is new");
    let work = Arc::new(Work {
        processed: (0..records).map(|_| AtomicUsize::new(0)).collect(),
        distinct: AtomicU64::new(0),
        published: AtomicU64::new(0),
        owners: Mutex::new(BTreeMap::new()),
        members: Mutex::new(BTreeMap::new()),
        began: Instant::now(),
        is_over: AtomicBool::new(false),
        taken_over: AtomicU64::new(0),
    });
    let mut crew = Crew { log: log.clone(), work: Arc::clone(&work), threads: Vec::new(), hired: 0 };
    (0..WORKERS).for_each(|_| crew.hire());
    let producer = log.producer().open().expect("it opens");
    let mut ends = [End::Lose, End::Drop, End::Close].into_iter().cycle();
    let (mut by_key, mut next_change) = (BTreeMap::<u64, u64>::new(), 0);
    for number in 0..records {
        let key = number * number % KEYS;
        let in_key = by_key.entry(key).or_default();
        *in_key += 1;
        let record = format!("{key}:{in_key}:{number}");
        producer.send(TOPIC, Record::new(&record).key(&format!("key-{key}"))).expect("it is taken");
        work.published.store(number + 1, Ordering::SeqCst);
        if number >= next_change {
            next_change += records / changes + 1;
            if number > 0 {
                crew.dismiss(ends.next().expect("there is always another"));
                crew.hire();
            }
        }
        work.wait_until(&log, |distinct| number < distinct + WINDOW);
    }
    producer.flush().expect("everything is sent");
    work.wait_until(&log, |distinct| distinct == records);
    work.is_over.store(true, Ordering::SeqCst);
    for (_, thread) in crew.threads {
        thread.join().expect("it ends by itself");
    }
    let total: usize = work.processed.iter().map(|one| one.load(Ordering::SeqCst)).sum();
    let taken_over = work.taken_over.load(Ordering::Relaxed);
    println!(
        "{records} records, {} members, {taken_over} partitions taken over of those that were out, {} records twice, {:.1} s",
        crew.hired,
        total as u64 - records,
        work.began.elapsed().as_secs_f64()
    );
    assert!(taken_over > 0, "nobody was lost");
    log.close().expect("it closes");
}
