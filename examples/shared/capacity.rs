//! How much a log needs: disk, nodes, partitions, and the time to catch up. Whole numbers all the way; what is bought
//! (nodes, partitions) is rounded up, everything else down.
//!
//! Units are decimal: 1 KB is 1,000 bytes, 1 MB a million.

use std::fmt;

/// What is published, kept and read. The default is the first of [`documented`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    pub(crate) events_per_second: u64,
    pub(crate) event_bytes: u64,
    pub(crate) retention_days: u64,
    pub(crate) copies: u64,
    /// What one node writes, all copies counted.
    pub(crate) node_mb_per_second: u64,
    pub(crate) consumers: u64,
    /// What one consumer does; without either bound it is as fast as the events come.
    pub(crate) consumer_events_per_second: Option<u64>,
    pub(crate) consumer_mb_per_second: Option<u64>,
    pub(crate) outage_hours: u64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            events_per_second: 1_000_000,
            event_bytes: 1000,
            retention_days: 7,
            copies: 3,
            node_mb_per_second: 150,
            consumers: 200,
            consumer_events_per_second: Some(30_000),
            consumer_mb_per_second: None,
            outage_hours: 24,
        }
    }
}

/// Every flag, the most it may be, and what it means.
pub(crate) const FLAGS: [(&str, u64, &str); 9] = [
    ("--events-per-second", 1_000_000_000_000, "events that are published a second"),
    ("--event-bytes", 2_147_483_647, "bytes of an event"),
    ("--retention-days", 36_500, "days that events are kept"),
    ("--copies", 100, "copies of each partition, its leader's included"),
    ("--node-mb-per-second", 1_000_000_000, "MB that one node writes a second"),
    ("--consumers", 1_000_000_000, "consumers of one group"),
    ("--consumer-events-per-second", 1_000_000_000_000, "events that one of them processes a second"),
    ("--consumer-mb-per-second", 1_000_000_000, "MB that one of them processes a second"),
    ("--outage-hours", 1_000_000, "hours that they are behind"),
];

impl Workload {
    /// Reads flags, each with its value behind it. Where only one of the consumers' bounds is given, it is the only one.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut workload = Self::default();
        let (mut events, mut megabytes) = (None, None);
        let mut arguments = arguments.into_iter();
        while let Some(flag) = arguments.next() {
            let (_, most, _) =
                FLAGS.iter().find(|(name, ..)| *name == flag).ok_or_else(|| format!("{flag} is not known"))?;
            let text = arguments.next().ok_or_else(|| format!("{flag} needs a number"))?;
            let number = text.replace('_', "").parse().ok().filter(|number| (1..=*most).contains(number));
            let number: u64 =
                number.ok_or_else(|| format!("{flag} is a whole number from 1 to {most}, not {text:?}"))?;
            match flag.as_str() {
                "--events-per-second" => workload.events_per_second = number,
                "--event-bytes" => workload.event_bytes = number,
                "--retention-days" => workload.retention_days = number,
                "--copies" => workload.copies = number,
                "--node-mb-per-second" => workload.node_mb_per_second = number,
                "--consumers" => workload.consumers = number,
                "--consumer-events-per-second" => events = Some(number),
                "--consumer-mb-per-second" => megabytes = Some(number),
                _ => workload.outage_hours = number,
            }
        }
        if events.is_some() || megabytes.is_some() {
            (workload.consumer_events_per_second, workload.consumer_mb_per_second) = (events, megabytes);
        }
        Ok(workload)
    }

    /// What it needs.
    pub(crate) fn plan(&self) -> Plan {
        let (events, size) = (u128::from(self.events_per_second), u128::from(self.event_bytes));
        let copies = u128::from(self.copies);
        let bytes = events * size;
        let kept_bytes = bytes * DAY * u128::from(self.retention_days);
        let nodes = (bytes * copies).div_ceil(u128::from(self.node_mb_per_second) * MEGA);
        let partitions = self.partitions();
        let read_bytes = self.read_bytes();
        let drain_bytes = read_bytes.saturating_sub(bytes);
        let (outage_hours, kept_hours) = (u128::from(self.outage_hours), u128::from(self.retention_days) * 24);
        let backlog_bytes = bytes * outage_hours.min(kept_hours) * HOUR;
        let lost_hours = outage_hours.saturating_sub(kept_hours);
        Plan {
            events_a_day: events * DAY,
            bytes_a_day: bytes * DAY,
            copied_bytes_a_day: bytes * copies * DAY,
            kept_bytes,
            disk_bytes: kept_bytes * copies,
            nodes,
            disk_bytes_per_node: kept_bytes * copies / nodes,
            partitions,
            partition_events: events / partitions,
            partition_bytes: bytes / partitions,
            partition_event_seconds: partitions / events,
            segment_seconds: SEGMENT_BYTES * partitions / bytes,
            kept_bytes_per_partition: kept_bytes / partitions,
            backlog_events: backlog_bytes / size,
            backlog_bytes,
            lost_hours,
            lost_events: events * lost_hours * HOUR,
            lost_bytes: bytes * lost_hours * HOUR,
            drain_events: drain_bytes / size,
            catch_up_seconds: (drain_bytes > 0).then(|| backlog_bytes.div_ceil(drain_bytes)),
            read_bytes,
        }
    }

    /// So many that every consumer has one, be it more than a topic can have, and that no partition brings more than a consumer can take.
    fn partitions(&self) -> u128 {
        let (events, size) = (u128::from(self.events_per_second), u128::from(self.event_bytes));
        let by_events = self.consumer_events_per_second.map_or(1, |each| events.div_ceil(each.into()));
        let by_bytes = self.consumer_mb_per_second.map_or(1, |each| (events * size).div_ceil(u128::from(each) * MEGA));
        by_events.max(by_bytes).max(self.consumers.into())
    }

    /// What all consumers process a second. In bytes: of events that are large one consumer may do less than one.
    fn read_bytes(&self) -> u128 {
        let size = u128::from(self.event_bytes);
        let by_events = self.consumer_events_per_second.map(|each| u128::from(each) * size);
        let by_bytes = self.consumer_mb_per_second.map(|each| u128::from(each) * MEGA);
        let each = [by_events, by_bytes].into_iter().flatten().min();
        each.map_or(u128::from(self.events_per_second) * size, |each| each * u128::from(self.consumers))
    }
}

const MEGA: u128 = 1_000_000;
const HOUR: u128 = 3600;
const DAY: u128 = 24 * HOUR;
/// A segment of a billion bytes; the default of a topic, 1 GiB, takes 7 % longer to fill.
const SEGMENT_BYTES: u128 = 1_000_000_000;
/// The most that a topic has.
const PARTITIONS_MAX: u128 = 100_000;

/// What a workload needs. Rates are per second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) events_a_day: u128,
    pub(crate) bytes_a_day: u128,
    pub(crate) copied_bytes_a_day: u128,
    /// In one copy.
    pub(crate) kept_bytes: u128,
    pub(crate) disk_bytes: u128,
    pub(crate) nodes: u128,
    pub(crate) disk_bytes_per_node: u128,
    pub(crate) partitions: u128,
    pub(crate) partition_events: u128,
    pub(crate) partition_bytes: u128,
    /// From one event of a partition to its next, where that is a second at least.
    pub(crate) partition_event_seconds: u128,
    pub(crate) segment_seconds: u128,
    pub(crate) kept_bytes_per_partition: u128,
    /// What is there to be caught up with: what came in the outage and is kept still.
    pub(crate) backlog_events: u128,
    pub(crate) backlog_bytes: u128,
    /// For how long what came in the outage is gone when it ends.
    pub(crate) lost_hours: u128,
    pub(crate) lost_events: u128,
    pub(crate) lost_bytes: u128,
    pub(crate) drain_events: u128,
    /// `None`: never.
    pub(crate) catch_up_seconds: Option<u128>,
    pub(crate) read_bytes: u128,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, text: String| writeln!(f, "  {name:<22}{text}");
        let (day, copied) = (bytes_a_day(self.bytes_a_day), bytes_a_day(self.copied_bytes_a_day));
        line("a day", format!("{} events, {day}, {copied} with copies", count(self.events_a_day)))?;
        line("disk", format!("{}, {} with copies", bytes(self.kept_bytes), bytes(self.disk_bytes)))?;
        line("nodes", format!("{}, by what they write; {} each", count(self.nodes), bytes(self.disk_bytes_per_node)))?;
        line("partitions", format!("{} of {}", count(self.partitions), self.rate()))?;
        if self.partitions > PARTITIONS_MAX {
            let most = count(PARTITIONS_MAX);
            line("", format!("a topic has at most {most}: divide it, or take fewer consumers that do more each"))?;
        }
        line("a partition", format!("{} in one copy", share(self.kept_bytes_per_partition)))?;
        let filled = if self.segment_seconds > 0 { count(self.segment_seconds) } else { "less than 1".to_owned() };
        line("a segment of 1 GB", format!("fills in {filled} s"))?;
        let backlog = format!("{} events, {}", count(self.backlog_events), bytes(self.backlog_bytes));
        line("behind", backlog)?;
        if self.lost_hours > 0 {
            let (lost, hours) = (count(self.lost_events), count(self.lost_hours));
            let why = format!("the outage is {hours} h longer than events are kept");
            line("LOST", format!("{lost} events, {}: {why}", bytes(self.lost_bytes)))?;
        }
        line("catching up", self.catching_up())?;
        line("read meanwhile", format!("{} a second by each group", bytes(self.read_bytes)))
    }
}

impl Plan {
    pub(crate) fn catching_up(&self) -> String {
        let Some(seconds) = self.catch_up_seconds else {
            return "never: the consumers do no more than what comes".to_owned();
        };
        let more = match self.drain_events {
            0 => "less than an event".to_owned(),
            1 => "1 event".to_owned(),
            more => format!("{} events", count(more)),
        };
        format!("{more} a second more than come: {}", duration(seconds))
    }

    /// What comes to a partition.
    fn rate(&self) -> String {
        let bytes = share(self.partition_bytes);
        match (self.partition_events, self.partition_event_seconds) {
            (0, 0..2) => format!("less than 1 event and {bytes} a second"),
            (0, seconds) => format!("an event in {} s, {bytes} a second", count(seconds)),
            (1, _) => format!("1 event and {bytes} a second"),
            (events, _) => format!("{} events and {bytes} a second", count(events)),
        }
    }
}

/// In seconds, and in minutes or hours where there is one.
fn duration(seconds: u128) -> String {
    let text = format!("{} s", count(seconds));
    match seconds {
        0..60 => text,
        60..HOUR => format!("{text} = {} min", tenths(seconds * 10 / 60)),
        _ => format!("{text} = {} h", tenths(seconds * 10 / HOUR)),
    }
}

/// A part of something, rounded down.
fn share(number: u128) -> String {
    if number > 0 { bytes(number) } else { "less than 1 B".to_owned() }
}

/// With commas; from a billion on in billions.
pub(crate) fn count(number: u128) -> String {
    const BILLION: u128 = 1_000_000_000;
    if number >= BILLION {
        return format!("{} billion", tenths(number * 10 / BILLION));
    }
    commas(number)
}

/// Three digits, and the unit.
pub(crate) fn bytes(number: u128) -> String {
    let Some((unit, name)) = unit(number) else { return format!("{number} B") };
    let digits = match number / unit {
        0..10 => hundredths((number * 100 + unit / 2) / unit),
        10..100 => tenths((number * 10 + unit / 2) / unit),
        _ => commas((number + unit / 2) / unit),
    };
    format!("{digits} {name}")
}

/// One digit behind the point, and the unit.
fn bytes_a_day(number: u128) -> String {
    let Some((unit, name)) = unit(number) else { return format!("{number} B") };
    format!("{} {name}", tenths((number * 10 + unit / 2) / unit))
}

/// The greatest unit that the number has one of.
fn unit(number: u128) -> Option<(u128, &'static str)> {
    const UNITS: [(u128, &str); 5] =
        [(1_000_000_000_000_000, "PB"), (1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (MEGA, "MB"), (1000, "KB")];
    UNITS.into_iter().find(|(unit, _)| number >= *unit)
}

fn commas(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Without a fraction that is zero.
fn tenths(number: u128) -> String {
    if number.is_multiple_of(10) { commas(number / 10) } else { format!("{}.{}", commas(number / 10), number % 10) }
}

fn hundredths(number: u128) -> String {
    if number.is_multiple_of(10) { tenths(number / 10) } else { format!("{}.{:02}", number / 100, number % 100) }
}

/// One figure that is written down somewhere, and how it comes out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) documented: &'static str,
}

/// The cases that are worked out in writing: a million events a second; the same on faster nodes; half of it over
/// consumers that are bounded by their bandwidth, which is also the case that never catches up.
pub(crate) fn documented() -> Vec<Figure> {
    let first = Workload::default();
    let fast = Workload { node_mb_per_second: 500, ..first.clone() }.plan();
    let month = Workload { retention_days: 30, ..first.clone() }.plan();
    let narrow = Workload {
        events_per_second: 500_000,
        consumers: 10,
        consumer_events_per_second: None,
        consumer_mb_per_second: Some(50),
        ..first.clone()
    };
    let (plan, narrow) = (first.plan(), narrow.plan());
    let partition = |plan: &Plan| format!("{}/s, {}/s", count(plan.partition_events), bytes(plan.partition_bytes));
    let figure = |what, found, documented| Figure { what, found, documented };
    vec![
        figure("events a day", count(plan.events_a_day), "86.4 billion"),
        figure("bytes a day", bytes_a_day(plan.bytes_a_day), "86.4 TB"),
        figure("bytes a day, with copies", bytes_a_day(plan.copied_bytes_a_day), "259.2 TB"),
        figure("kept", bytes(plan.kept_bytes), "605 TB"),
        figure("disk", bytes(plan.disk_bytes), "1.81 PB"),
        figure("disk for 30 days", bytes(month.disk_bytes), "7.78 PB"),
        figure("nodes", count(plan.nodes), "20"),
        figure("partitions", count(plan.partitions), "200"),
        figure("a partition", partition(&plan), "5,000/s, 5 MB/s"),
        figure("a day behind", plan.catching_up(), "5,000,000 events a second more than come: 17,280 s = 4.8 h"),
        figure("read meanwhile", bytes(plan.read_bytes), "6 GB"),
        figure("nodes of 500 MB/s", count(fast.nodes), "6"),
        figure("disk of each", bytes(fast.disk_bytes_per_node), "302 TB"),
        figure("partitions for 50 MB/s each", count(narrow.partitions), "10"),
        figure("seconds to fill a segment", count(narrow.segment_seconds), "20"),
        figure("size of each", bytes(narrow.kept_bytes_per_partition), "30.2 TB"),
        figure("consumers that only match", narrow.catching_up(), "never: the consumers do no more than what comes"),
    ]
}
