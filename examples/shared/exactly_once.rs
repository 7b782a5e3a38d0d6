//! Reading, adding up and writing the results, each flight once: what the program does, and what checks it.
//!
//! ```text
//!   flights ──▶ count ──▶ delays     by carrier: {"flights":3,"minutes":41}, what a few flights add up to
//!                    └──▶ progress   how far the group has read, as `Consumer::progress` says it    both in one transaction
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use taffrail::{Consumer, Isolation, Log, Polled, Record, Retention, TopicConfig, TransactionalProducer};

use crate::flights;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const INPUT: &str = "flights";
const RESULTS: &str = "delays";
const GROUP: &str = "count-delays";
const PARTITIONS: u32 = 4;
/// So many bytes of flights are a transaction, so that there are many of them.
const POLL_BYTES: usize = 2 << 10;
/// Every so many transactions one is given up, and done again.
const GIVEN_UP: usize = 7;

/// Flights and minutes of delay by carrier.
pub(crate) type Totals = BTreeMap<String, Total>;

/// What flights add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) flights: u64,
    pub(crate) minutes: i64,
}

/// What was done, once all of it has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) flights: u64,
    pub(crate) carriers: usize,
    /// How many times the child was killed while it was counting.
    pub(crate) kills: u64,
    /// Results that were committed, and all that were written.
    pub(crate) committed: usize,
    pub(crate) written: usize,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} flights of {} carriers counted once, over {} kills ({} results committed, {} written)",
            self.flights, self.carriers, self.kills, self.committed, self.written
        )
    }
}

/// Publishes the file, has children count and be killed, and checks what they have counted.
pub(crate) fn run(path: &Path, directory: &Path, rounds: u64, child: &dyn Fn(&Path) -> Command) -> Outcome<Proof> {
    let expected = publish(path, directory)?;
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos() | 1;
    let mut kills = 0;
    for _ in 0..rounds {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        kills += u64::from(run_and_kill(child(directory), Duration::from_micros(u64::from(random % 250_000)))?);
    }
    let status = child(directory).status()?;
    if !status.success() {
        return Err(format!("the last child ended with {status}").into());
    }
    let log = Log::open(directory)?;
    let (totals, committed) = read_results(&log, Isolation::Committed)?;
    let (_, written) = read_results(&log, Isolation::Uncommitted)?;
    log.close()?;
    if totals != expected {
        return Err(format!("counted {totals:?}, which should have been {expected:?}").into());
    }
    let flights = totals.values().map(|total| total.flights).sum();
    Ok(Proof { flights, carriers: totals.len(), kills, committed, written })
}

/// Says whether it was killed before it had ended.
fn run_and_kill(mut command: Command, after: Duration) -> Outcome<bool> {
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let begun = Instant::now();
    while begun.elapsed() < after {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(false) } else { Err(format!("the child ended with {status}").into()) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill()?;
    Ok(!child.wait()?.success())
}

/// Publishes the flights, and adds them up as they are.
fn publish(path: &Path, directory: &Path) -> Outcome<Totals> {
    let flights = flights::read(path)?;
    let log = Log::open(directory)?;
    let kept = TopicConfig::new().retention(Retention::forever());
    log.create_topic(INPUT, kept.clone().partitions(PARTITIONS))?;
    log.create_topic(RESULTS, kept.partitions(2))?;
    // A batch is read whole.
    let producer = log.producer().batch_bytes(POLL_BYTES).open()?;
    let mut totals = Totals::new();
    for flight in &flights {
        let record = Record::new(&flight.line).timestamp(flight.scheduled);
        producer.send(INPUT, flight.tail.as_ref().map_or(record.clone(), |tail| record.key(tail)))?;
        add_up(&flight.line, &mut totals)?;
    }
    producer.close()?;
    log.close()?;
    Ok(totals)
}

/// What the child does, from where the last one was killed to the end of the flights.
pub(crate) fn count(directory: &Path) -> Outcome<()> {
    let log = Log::open(directory)?;
    // Whoever had the id before is fenced, and what it had begun is aborted: the positions are those of what counts.
    let mut producer = log.transactional_producer("count-delays-1").open()?;
    let mut consumer = log.consumer(GROUP).subscribe([INPUT]).max_bytes(POLL_BYTES).open()?;
    for number in 0.. {
        // Nobody publishes any more: where nothing comes, all is read.
        let polled = consumer.poll(Duration::ZERO)?;
        if polled.is_empty() {
            break;
        }
        if number % GIVEN_UP == 0 {
            give_up(&mut producer, &mut consumer)?;
        }
        count_once(&mut producer, &mut consumer, &polled)?;
    }
    consumer.close()?;
    log.close()?;
    Ok(())
}

/// The results of a few flights, and that they are done, or neither.
fn count_once(producer: &mut TransactionalProducer, consumer: &mut Consumer, polled: &Polled) -> Outcome<()> {
    let mut totals = Totals::new();
    for record in polled {
        add_up(record.value_str().ok_or("a flight is text")?, &mut totals)?;
    }
    let transaction = producer.begin()?;
    for (carrier, Total { flights, minutes }) in &totals {
        let value = format!("{{\"flights\":{flights},\"minutes\":{minutes}}}");
        transaction.send(RESULTS, Record::new(&value).key(carrier))?;
    }
    transaction.commit_progress(consumer.progress())?;
    transaction.commit()?;
    Ok(())
}

/// Nothing of this counts.
fn give_up(producer: &mut TransactionalProducer, consumer: &mut Consumer) -> Outcome<()> {
    let transaction = producer.begin()?;
    let value = "{\"flights\":1000000,\"minutes\":1000000}";
    transaction.send(RESULTS, Record::new(value).key("given up"))?.wait()?;
    transaction.commit_progress(consumer.progress())?;
    transaction.abort()?;
    Ok(())
}

/// Adds up the results; answers how many there are, too.
fn read_results(log: &Log, isolation: Isolation) -> Outcome<(Totals, usize)> {
    let mut reader = log.reader().topics([RESULTS]).isolation(isolation).open()?;
    let (mut totals, mut count) = (Totals::new(), 0);
    loop {
        let polled = reader.try_poll()?;
        if polled.is_empty() {
            return Ok((totals, count));
        }
        for record in &polled {
            let carrier = record.key().and_then(|key| std::str::from_utf8(key).ok()).ok_or("a result has a key")?;
            let result: serde_json::Value = serde_json::from_str(record.value_str().ok_or("a result is text")?)?;
            let total = totals.entry(carrier.to_owned()).or_default();
            total.flights += result["flights"].as_u64().ok_or("a result has flights")?;
            total.minutes += result["minutes"].as_i64().ok_or("a result has minutes")?;
            count += 1;
        }
    }
}

fn add_up(line: &str, totals: &mut Totals) -> Outcome<()> {
    let flight: serde_json::Value = serde_json::from_str(line)?;
    let carrier = flight["carrier"].as_str().ok_or("a flight has a carrier")?;
    let total = totals.entry(carrier.to_owned()).or_default();
    total.flights += 1;
    // A flight that was cancelled has none.
    total.minutes += flight["dep_delay"].as_i64().unwrap_or(0);
    Ok(())
}
