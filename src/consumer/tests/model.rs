//! A reader against a plain list of what was written: random appends, transactions, removals, growth, seeks and polls.
//!
//! The model knows of each partition what stands at each offset and where the reader must be. Of each poll it checks
//! that exactly those records came out that are to be shown between the position before and the one after; and where
//! nothing came, that nothing was there.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Rig, append_at, append_transactional, end_transaction, is_out_of_range};
use crate::consumer::{Reader, Which};
use crate::error::Error;
use crate::partition::Partition;
use crate::record::control::Outcome;
use crate::types::{Isolation, Offset, Timestamp};

#[derive(Clone, Debug)]
enum Step {
    Append { partition: u8, records: u8 },
    Begin { partition: u8, records: u8 },
    End { partition: u8, commits: bool },
    Trim { partition: u8, to: u16 },
    Grow,
    Seek { partition: u8, to: u16 },
    SeekToBeginning { partition: Option<u8> },
    SeekToEnd { partition: Option<u8> },
    SeekToTime { partition: u8, to: u16 },
    Pause { partition: u8 },
    Resume { partition: Option<u8> },
    Poll { times: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let number = any::<u8>();
    prop_oneof![
        8 => (number, 1..6_u8).prop_map(|(partition, records)| Step::Append { partition, records }),
        3 => (number, 1..4_u8).prop_map(|(partition, records)| Step::Begin { partition, records }),
        3 => (number, any::<bool>()).prop_map(|(partition, commits)| Step::End { partition, commits }),
        2 => (number, any::<u16>()).prop_map(|(partition, to)| Step::Trim { partition, to }),
        1 => Just(Step::Grow),
        2 => (number, any::<u16>()).prop_map(|(partition, to)| Step::Seek { partition, to }),
        1 => proptest::option::of(number).prop_map(|partition| Step::SeekToBeginning { partition }),
        1 => proptest::option::of(number).prop_map(|partition| Step::SeekToEnd { partition }),
        1 => (number, any::<u16>()).prop_map(|(partition, to)| Step::SeekToTime { partition, to }),
        1 => number.prop_map(|partition| Step::Pause { partition }),
        2 => proptest::option::of(number).prop_map(|partition| Step::Resume { partition }),
        9 => (1..5_u8).prop_map(|times| Step::Poll { times }),
    ]
}

/// What stands at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Record {
        timestamp: u16,
    },
    /// Of the transaction that this producer has open.
    Undecided {
        producer: i64,
        timestamp: u16,
    },
    /// Of an aborted transaction.
    Aborted {
        timestamp: u16,
    },
    Marker,
}

/// The timestamp of every marker.
const MARKED_AT: u16 = 1;

/// Where the reader must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Earliest,
    At(u64),
}

/// What is known of one partition.
#[derive(Debug)]
struct Known {
    topic: &'static str,
    number: u32,
    partition: Partition,
    entries: Vec<Entry>,
    start: u64,
    place: Place,
    paused: bool,
    /// Producers whose transactions are open, with the first offset of each.
    open: BTreeMap<i64, u64>,
}

impl Known {
    fn end(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Up to where a reader of this isolation gets.
    fn bound(&self, isolation: Isolation) -> u64 {
        match isolation {
            Isolation::Committed => self.open.values().min().map_or(self.end(), |first| (*first).max(self.start)),
            Isolation::Uncommitted => self.end(),
        }
    }

    fn position(&self) -> u64 {
        match self.place {
            Place::Earliest => self.start,
            Place::At(offset) => offset,
        }
    }

    fn is_out_of_range(&self) -> bool {
        self.position() < self.start || self.position() > self.end()
    }

    fn is_shown(&self, offset: u64, isolation: Isolation) -> bool {
        match self.entries.get(usize::try_from(offset).expect("small")) {
            None | Some(Entry::Marker) => false,
            Some(Entry::Record { .. }) => true,
            Some(Entry::Aborted { .. } | Entry::Undecided { .. }) => isolation == Isolation::Uncommitted,
        }
    }

    /// What is to be shown from one offset up to another.
    fn shown(&self, from: u64, to: u64, isolation: Isolation) -> Vec<u64> {
        let to = to.min(self.bound(isolation));
        (from.max(self.start)..to).filter(|offset| self.is_shown(*offset, isolation)).collect()
    }

    /// Where the search by time ends: it finds aborted records and markers too, but goes no further than decided.
    fn found(&self, wanted: u16) -> u64 {
        let bound = self.bound(Isolation::Committed);
        let reaches = |offset: &u64| match self.entries[usize::try_from(*offset).expect("small")] {
            Entry::Record { timestamp } | Entry::Aborted { timestamp } | Entry::Undecided { timestamp, .. } => {
                timestamp >= wanted
            }
            Entry::Marker => MARKED_AT >= wanted,
        };
        (self.start..bound).find(reaches).unwrap_or(bound)
    }

    fn decide(&mut self, ended: i64, commits: bool) {
        for entry in &mut self.entries {
            if let Entry::Undecided { producer, timestamp } = *entry {
                let decided = if commits { Entry::Record { timestamp } } else { Entry::Aborted { timestamp } };
                *entry = if producer == ended { decided } else { *entry };
            }
        }
        self.entries.push(Entry::Marker);
        self.open.remove(&ended);
    }
}

struct Model {
    rig: Rig,
    reader: Reader,
    isolation: Isolation,
    known: Vec<Known>,
    /// Rises with every batch: the timestamps in a log rise, so a time divides it.
    time: u16,
    producer: i64,
}

impl Model {
    fn new(isolation: Isolation, max_bytes: usize) -> Self {
        let rig = Rig::new();
        rig.topic("a", 1, 2);
        rig.topic("b", 2, 1);
        let builder = rig.reader().topics(["a"]).partitions([("b", 0)]);
        let reader = builder.isolation(isolation).max_bytes(max_bytes).open().expect("opened");
        let mut model = Self { rig, reader, isolation, known: Vec::new(), time: 0, producer: 0 };
        for (topic, number) in [("a", 0), ("a", 1), ("b", 0)] {
            model.add(topic, number);
        }
        model
    }

    fn add(&mut self, topic: &'static str, number: u32) {
        let partition = self.rig.partition(topic, number);
        let (entries, open, place) = (Vec::new(), BTreeMap::new(), Place::Earliest);
        self.known.push(Known { topic, number, partition, entries, start: 0, place, paused: false, open });
    }

    fn pick(&self, partition: u8) -> usize {
        usize::from(partition) % self.known.len()
    }

    fn which(&self, partition: Option<u8>) -> (Which<'static>, Vec<usize>) {
        match partition.map(|partition| self.pick(partition)) {
            Some(index) => (Which::Partition(self.known[index].topic, self.known[index].number), vec![index]),
            None => (Which::All, (0..self.known.len()).collect()),
        }
    }

    fn timestamp(&mut self) -> (u16, Timestamp) {
        self.time += 1;
        (self.time, Timestamp(self.time.into()))
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Append { partition, records } => self.append(partition, records),
            Step::Begin { partition, records } => self.begin(partition, records),
            Step::End { partition, commits } => self.end(partition, commits),
            Step::Trim { partition, to } => self.trim(partition, to),
            Step::Grow => {
                let partitions = self.known.iter().filter(|known| known.topic == "a").count();
                if partitions < 4 {
                    self.rig.topic("a", 1, partitions + 1);
                    self.add("a", u32::try_from(partitions).expect("small"));
                }
            }
            Step::Seek { .. } | Step::SeekToBeginning { .. } | Step::SeekToEnd { .. } | Step::SeekToTime { .. } => {
                self.seek(step);
            }
            Step::Pause { partition } => self.pause(Some(partition), true),
            Step::Resume { partition } => self.pause(partition, false),
            Step::Poll { times } => {
                for _ in 0..times {
                    self.poll();
                }
            }
        }
    }

    fn append(&mut self, partition: u8, records: u8) {
        let (index, (time, timestamp)) = (self.pick(partition), self.timestamp());
        append_at(&self.known[index].partition, records.into(), timestamp);
        self.known[index].entries.extend((0..records).map(|_| Entry::Record { timestamp: time }));
    }

    fn begin(&mut self, partition: u8, records: u8) {
        let (index, (time, timestamp)) = (self.pick(partition), self.timestamp());
        self.producer += 1;
        let (producer, known) = (self.producer, &mut self.known[index]);
        append_transactional(&known.partition, producer, records.into(), timestamp);
        known.open.insert(producer, known.end());
        known.entries.extend((0..records).map(|_| Entry::Undecided { producer, timestamp: time }));
    }

    fn end(&mut self, partition: u8, commits: bool) {
        let index = self.pick(partition);
        let known = &mut self.known[index];
        if let Some(producer) = known.open.keys().next().copied() {
            let outcome = if commits { Outcome::Committed } else { Outcome::Aborted };
            end_transaction(&known.partition, producer, outcome);
            known.decide(producer, commits);
        }
    }

    fn trim(&mut self, partition: u8, to: u16) {
        let index = self.pick(partition);
        let known = &mut self.known[index];
        let to = known.start + u64::from(to) % (known.end() - known.start + 1);
        known.start = known.partition.trim_before(Offset(to)).expect("trimmed").0;
        // A read may have fixed where the earliest was; of a partition that is new the reader may not know yet.
        match self.reader.position(known.topic, known.number) {
            Ok(at) if at.offset.0 < known.start => known.place = Place::At(at.offset.0),
            Ok(_) => {}
            Err(error) => assert!(matches!(error, Error::NotAssigned { .. }) && known.place == Place::Earliest),
        }
    }

    fn seek(&mut self, step: &Step) {
        let (selected, isolation) = match *step {
            Step::Seek { partition, to } => {
                let index = self.pick(partition);
                let known = &mut self.known[index];
                let to = u64::from(to) % (known.end() + 3);
                self.reader.seek(known.topic, known.number, Offset(to)).expect("assigned");
                known.place = Place::At(to);
                return;
            }
            Step::SeekToTime { partition, to } => {
                let (which, selected) = self.which(Some(partition));
                let to = to % (self.time + 2);
                self.reader.seek_to_time(which, Timestamp(to.into())).expect("assigned");
                for index in selected {
                    self.known[index].place = Place::At(self.known[index].found(to));
                }
                return;
            }
            Step::SeekToEnd { partition } => {
                let (which, selected) = self.which(partition);
                self.reader.seek_to_end(which).expect("assigned");
                (selected, Some(self.isolation))
            }
            Step::SeekToBeginning { partition } => {
                let (which, selected) = self.which(partition);
                self.reader.seek_to_beginning(which).expect("assigned");
                (selected, None)
            }
            _ => unreachable!("not a seek"),
        };
        for index in selected {
            let known = &mut self.known[index];
            known.place = isolation.map_or(Place::Earliest, |isolation| Place::At(known.bound(isolation)));
        }
    }

    fn pause(&mut self, partition: Option<u8>, paused: bool) {
        let (which, selected) = self.which(partition);
        let done = if paused { self.reader.pause(which) } else { self.reader.resume(which) };
        done.expect("assigned");
        for index in selected {
            self.known[index].paused = paused;
        }
    }

    /// One poll. Says whether something came: records, or an error.
    fn poll(&mut self) -> bool {
        let answer = self.reader.try_poll();
        let something = match &answer {
            Ok(polled) if polled.is_empty() => {
                self.check_nothing_is_there();
                false
            }
            Ok(polled) => {
                let offsets: Vec<_> = polled.records().map(|record| record.offset().0).collect();
                let known = self
                    .known
                    .iter_mut()
                    .find(|known| known.topic == polled.topic() && known.number == polled.partition());
                let known = known.expect("it is assigned");
                let next = polled.next_offset().0;
                assert!(!known.paused && !known.is_out_of_range());
                assert_eq!(offsets, known.shown(known.position(), next, self.isolation), "{known:?}");
                assert_eq!(polled.high_watermark().0, known.end());
                known.place = Place::At(next);
                true
            }
            Err(Error::OffsetOutOfRange { partition, requested, start, end }) => {
                let says_so = |known: &&Known| {
                    let (position, error) = (known.position(), answer.as_ref().expect_err("it is one"));
                    known.is_out_of_range() && is_out_of_range(error, position, known.start, known.end())
                };
                let is_it = |known: &&Known| known.topic == partition.topic && known.number == partition.partition;
                assert_eq!(self.reader.failed(), Some(partition));
                let known = self.known.iter().filter(|known| !known.paused).filter(is_it).find(says_so);
                assert!(known.is_some(), "{requested} is outside of {start} to {end}, says nobody else");
                true
            }
            Err(other) => panic!("{other}"),
        };
        self.follow_positions();
        something
    }

    fn check_nothing_is_there(&self) {
        for known in self.known.iter().filter(|known| !known.paused) {
            assert!(!known.is_out_of_range(), "{known:?}");
            assert_eq!(known.shown(known.position(), known.end(), self.isolation), [0; 0], "{known:?}");
        }
    }

    /// A position moves past what is not shown, and past nothing else.
    fn follow_positions(&mut self) {
        for known in &mut self.known {
            let at = self.reader.position(known.topic, known.number).expect("assigned").offset.0;
            let before = known.position();
            assert!(at >= before, "{at}: {known:?}");
            assert_eq!(known.shown(before, at, self.isolation), [0; 0], "{at}: {known:?}");
            if at > before {
                known.place = Place::At(at);
            }
        }
    }

    /// In the end everything comes out, or says why not.
    fn finish(&mut self) {
        self.pause(None, false);
        for _ in 0..10_000 {
            if !self.poll() {
                return;
            }
            for index in 0..self.known.len() {
                if self.known[index].is_out_of_range() {
                    let known = &mut self.known[index];
                    self.reader.seek_to_beginning((known.topic, known.number)).expect("assigned");
                    known.place = Place::Earliest;
                }
            }
        }
        panic!("it does not end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_comes_out_is_what_is_to_be_shown(
        steps in proptest::collection::vec(step(), 1..80),
        committed in any::<bool>(),
        max_bytes in prop_oneof![Just(1_usize), Just(400), Just(1 << 20)],
    ) {
        let isolation = if committed { Isolation::Committed } else { Isolation::Uncommitted };
        let mut model = Model::new(isolation, max_bytes);
        for step in &steps {
            model.apply(step);
        }
        model.finish();
    }
}
