//! Readers: each record once, in order, from where a host that keeps its positions left off.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use taffrail::{
    Clock, Error, Isolation, Offset, Polled, Position, Reader, StartAt, Timestamp, TopicId, TopicPartition,
};

use super::choice::Choice;
use super::model::Slot;
use super::world::World;

/// One reader, over every opening of the log.
pub(super) struct ReaderActor {
    reader: Option<Reader>,
    max_bytes: usize,
    isolation: Isolation,
    /// Where it has to go on, by topic and number; none where it begins at whatever is first then.
    next: BTreeMap<(String, u32), u64>,
    /// What the host keeps.
    kept: BTreeMap<Slot, Kept>,
}

/// A position that a host has kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    position: Position,
    /// What was read before it cannot be lost with the power.
    power: bool,
    /// Something was lost since that it may be behind.
    doubtful: bool,
}

impl ReaderActor {
    pub(super) fn new(choice: &mut Choice) -> Self {
        let max_bytes = choice.pick(&[1, 300, 2_000, 256 << 10]);
        let isolation = choice.pick(&[Isolation::Committed, Isolation::Uncommitted]);
        Self { reader: None, max_bytes, isolation, next: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// The log has ended; the host has its positions.
    pub(super) fn end(&mut self) {
        self.reader = None;
        self.next.clear();
    }

    pub(super) fn lost_power(&mut self) {
        self.kept.values_mut().for_each(|kept| kept.doubtful |= !kept.power);
    }
}

/// What a reader reads, where it is before a poll.
struct Before {
    name: String,
    slot: Slot,
    position: Position,
    start: u64,
    end: u64,
    high_watermark: u64,
}

impl World {
    pub(super) fn read(&mut self) {
        let index = self.choice.index(self.readers.len());
        if self.readers[index].reader.is_none() && !self.open_reader(index) {
            return;
        }
        match self.choice.below(24) {
            0 => self.seek(index),
            1 => self.pause(index),
            2 if self.choice.one_in(3) => {
                self.trace.note(format_args!("reader {index} ends"));
                self.readers[index].end();
            }
            _ => {
                for _ in 0..self.choice.between(1, 3) {
                    self.poll_reader(index);
                }
            }
        }
    }

    /// Opens a reader of what there is, and goes on where the host left off.
    fn open_reader(&mut self, index: usize) -> bool {
        let names: Vec<_> = self.names().iter().filter(|name| self.is_open(name)).copied().collect();
        if names.is_empty() {
            return false;
        }
        let builder = self.log().reader().topics(names.iter().copied()).max_bytes(self.readers[index].max_bytes);
        let reader = builder
            .isolation(self.readers[index].isolation)
            .open()
            .unwrap_or_else(|error| panic!("a reader does not open: {error}"));
        self.trace.note(format_args!("reader {index} reads {names:?}"));
        self.readers[index].end();
        self.readers[index].reader = Some(reader);
        for one in self.assigned(index) {
            let Some(slot) = self.slot(&one) else { continue };
            let Some(kept) = self.readers[index].kept.get(&slot).copied() else { continue };
            self.seek_to(index, &one, kept.position);
        }
        true
    }

    fn is_open(&self, name: &str) -> bool {
        self.ask(name).is_some_and(|topic| topic.partitions.len() == topic.config.partitions as usize)
    }

    fn reader(&mut self, index: usize) -> &mut Reader {
        self.readers[index].reader.as_mut().expect("it was opened")
    }

    fn assigned(&mut self, index: usize) -> Vec<TopicPartition> {
        self.reader(index).assignment()
    }

    /// The partition as it is open now.
    fn slot(&mut self, one: &TopicPartition) -> Option<Slot> {
        let topic = self.describe(&one.topic)?;
        (topic.partitions.len() > one.partition as usize).then_some((topic.id, one.partition))
    }

    fn seek_to(&mut self, index: usize, one: &TopicPartition, position: Position) {
        let outcome = self.reader(index).seek(&one.topic, one.partition, position);
        self.trace.note(format_args!("reader {index} goes to {position:?} of {one}: {outcome:?}"));
        if outcome.is_ok() {
            self.readers[index].next.insert((one.topic.clone(), one.partition), position.offset.0);
        }
    }

    fn seek(&mut self, index: usize) {
        let assigned = self.assigned(index);
        let one = self.choice.pick(&assigned);
        let Some(slot) = self.slot(&one) else { return };
        let Some(partition) = self.partition(&one.topic, slot.0, slot.1) else { return };
        let (start, high_watermark) = (partition.start().0, partition.high_watermark().0);
        match self.choice.below(4) {
            0 => self.seek_by(index, &one, StartAt::Earliest),
            1 => self.seek_by(index, &one, StartAt::Latest),
            2 => {
                let known: Vec<_> = self.model.partition(slot).known.values().map(|known| known.timestamp).collect();
                let timestamp = if known.is_empty() { Timestamp(0) } else { self.choice.pick(&known) };
                self.seek_by(index, &one, StartAt::Time(timestamp));
            }
            _ => {
                let offset = Offset(self.choice.between(start, high_watermark));
                self.seek_to(index, &one, offset.into());
            }
        }
    }

    fn seek_by(&mut self, index: usize, one: &TopicPartition, to: StartAt) {
        let which = (one.topic.as_str(), one.partition);
        let reader = self.reader(index);
        let outcome = match to {
            StartAt::Latest => reader.seek_to_end(which),
            StartAt::Time(timestamp) => reader.seek_to_time(which, timestamp),
            _ => reader.seek_to_beginning(which),
        };
        self.trace.note(format_args!("reader {index} goes to {to:?} of {one}: {outcome:?}"));
        match outcome {
            Ok(()) => {}
            Err(Error::UnknownTopic { .. }) if self.model.topic(&one.topic).has_gone() => {
                self.readers[index].end();
                return;
            }
            Err(error) => return self.check_read_error(&error),
        }
        let key = (one.topic.clone(), one.partition);
        if to == StartAt::Earliest {
            self.readers[index].next.remove(&key);
            return;
        }
        let Ok(position) = self.reader(index).position(&one.topic, one.partition) else { return };
        self.readers[index].next.insert(key, position.offset.0);
        if let (StartAt::Time(timestamp), Some(slot)) = (to, self.slot(one)) {
            let shown = self.partition(&one.topic, slot.0, slot.1).map_or(0, |partition| partition.last_stable().0);
            self.check_time(slot, timestamp, position.offset.0, shown);
        }
    }

    /// A search by time finds the first record that is not earlier.
    fn check_time(&mut self, slot: Slot, timestamp: Timestamp, found: u64, shown: u64) {
        let compacts = self.model.compacts(slot.0);
        let partition = self.model.partition(slot);
        let early = partition.known.range(..found).find(|(_, known)| known.timestamp >= timestamp);
        let is_damaged = !partition.damaged.is_empty() || compacts;
        assert!(early.is_none() || is_damaged, "{timestamp} is at {early:?}, and offset {found} was found");
        let late = partition.known.get(&found).filter(|known| found < shown && known.timestamp < timestamp);
        assert!(late.is_none(), "{timestamp} was sought, and {late:?} was found");
    }

    fn pause(&mut self, index: usize) {
        let assigned = self.assigned(index);
        let one = self.choice.pick(&assigned);
        let resumes = self.choice.one_in(2);
        let which = (one.topic.as_str(), one.partition);
        let reader = self.readers[index].reader.as_mut().expect("it was opened");
        let outcome = if resumes { reader.resume(which) } else { reader.pause(which) };
        self.trace
            .note(format_args!("reader {index} {} {one}: {outcome:?}", if resumes { "resumes" } else { "pauses" }));
    }

    /// One poll; says whether anything came.
    pub(super) fn poll_reader(&mut self, index: usize) -> bool {
        if self.readers[index].reader.is_none() && !self.open_reader(index) {
            return false;
        }
        let before = self.before(index);
        match self.reader(index).try_poll() {
            Ok(polled) if polled.is_empty() => {
                self.trace.note(format_args!("reader {index} finds nothing"));
                self.moved(index, &before, None);
                false
            }
            Ok(polled) => {
                self.moved(index, &before, Some((polled.topic(), polled.partition())));
                self.polled(index, &before, &polled);
                true
            }
            Err(error) => {
                self.trace.note(format_args!("reader {index} is told: {error}"));
                // One whose topic is gone is where it was, and another may have the name.
                if !matches!(error, Error::UnknownTopic { .. }) {
                    self.moved(index, &before, None);
                }
                self.not_polled(index, &before, &error)
            }
        }
    }

    fn before(&mut self, index: usize) -> Vec<Before> {
        let mut all = Vec::new();
        for one in self.assigned(index) {
            let Ok(position) = self.reader(index).position(&one.topic, one.partition) else { continue };
            let Some(slot) = self.slot(&one) else { continue };
            let Some(partition) = self.partition(&one.topic, slot.0, slot.1) else { continue };
            let (start, end) = (partition.start().0, partition.end().0);
            let high_watermark = partition.high_watermark().0;
            let due = self.readers[index].next.get(&(one.topic.clone(), one.partition)).copied();
            let stands = due.is_none_or(|due| due == position.offset.0);
            assert!(stands, "reader {index} is at {position:?} of {one}, and has read up to {due:?}");
            all.push(Before { name: one.topic, slot, position, start, end, high_watermark });
        }
        all
    }

    fn polled(&mut self, index: usize, before: &[Before], polled: &Polled) {
        let (name, number) = (polled.topic(), polled.partition());
        let found = before.iter().find(|before| before.name == name && before.slot.1 == number);
        let (slot, from) = match found {
            Some(before) => (before.slot, before.position.offset.0),
            None => self.joined(name, number),
        };
        let (power, stamps) = (self.model.survives(slot), self.model.stamps(slot.0));
        let next = polled.next_offset().0;
        let mut shown = Vec::new();
        for record in polled {
            let offset = record.offset().0;
            let follows = (from..next).contains(&offset) && shown.last().is_none_or(|last| *last < offset);
            assert!(follows, "reader {index} of {name}-{number} goes back, or on elsewhere: {offset}");
            self.model.read(slot, &record, power, stamps);
            shown.push(offset);
            self.trace.count("records read");
        }
        self.check_passed(index, name, slot, from..next, &shown);
        assert!(next <= polled.high_watermark().0, "reader {index} of {name}-{number} reads above the high watermark");
        self.trace.note(format_args!("reader {index} reads {name}-{number} from {from} to {next}"));
        self.readers[index].next.insert((name.to_owned(), number), next);
        if self.choice.one_in(2) {
            let position = self.reader(index).position(name, number).expect("it is read");
            self.readers[index].kept.insert(slot, Kept { position, power, doubtful: false });
        }
    }

    fn check_passed(&mut self, index: usize, name: &str, slot: Slot, range: Range<u64>, shown: &[u64]) {
        let (who, isolation) = (format!("reader {index}"), self.readers[index].isolation);
        self.check_shown_to(&who, isolation, (name, slot), range, shown);
    }

    /// What somebody was shown of what they have passed is what they are to see.
    pub(super) fn check_shown_to(
        &mut self,
        who: &str,
        isolation: Isolation,
        (name, slot): (&str, Slot),
        range: Range<u64>,
        shown: &[u64],
    ) {
        let Some(partition) = self.partition(name, slot.0, slot.1) else { return };
        let is_committed = isolation == Isolation::Committed;
        let stable = partition.last_stable().0;
        assert!(!is_committed || range.end <= stable, "{who} has passed {stable} of {name}-{}: {range:?}", slot.1);
        let range = range.start.max(partition.start().0)..range.end;
        let Some(there) = self.passed(slot, &partition, range) else { return };
        if is_committed {
            self.model.check_shown(slot, shown, there.into_iter(), self.clock.monotonic());
        } else {
            let there: Vec<_> = there.into_iter().map(|(offset, _)| offset).collect();
            assert_eq!(shown, there, "{who} has not seen everything of {name}-{}", slot.1);
        }
    }

    /// A reader that was shown nothing may have passed what it is not to see.
    fn moved(&mut self, index: usize, before: &[Before], but: Option<(&str, u32)>) {
        for one in before.iter().filter(|one| but != Some((&one.name, one.slot.1))) {
            let Ok(position) = self.reader(index).position(&one.name, one.slot.1) else { continue };
            if self.ask(&one.name).is_none_or(|topic| topic.id != one.slot.0) {
                continue;
            }
            let (from, next) = (one.position.offset.0, position.offset.0);
            assert!(from <= next, "reader {index} of {}-{} goes back", one.name, one.slot.1);
            if from < next {
                self.check_passed(index, &one.name, one.slot, from..next, &[]);
                self.readers[index].next.insert((one.name.clone(), one.slot.1), next);
            }
        }
    }

    /// A partition that is read since this poll, and where it begins.
    fn joined(&mut self, name: &str, number: u32) -> (Slot, u64) {
        let one = TopicPartition { topic: name.to_owned(), partition: number };
        let slot = self.slot(&one).unwrap_or_else(|| panic!("{one} is read, which is not open"));
        let partition = self.log().partition(name, number).expect("it is open");
        (slot, partition.start().0)
    }

    /// An error, and what a host does about it; says whether there may be more.
    fn not_polled(&mut self, index: usize, before: &[Before], error: &Error) -> bool {
        match error {
            Error::OffsetOutOfRange { partition, requested, start, end } => {
                let found = self.failed_at(index, before, partition);
                let told = found.map(|found| (found.position.offset, found.start, found.end));
                assert_eq!(told, Some((*requested, start.0, end.0)), "reader {index}: {error}");
                self.out_of_range(index, found, error);
            }
            Error::Truncated { partition, position, end, .. } => {
                let found = self.failed_at(index, before, partition);
                let lost = found.filter(|found| found.position.offset == *position && self.is_doubtful(index, found));
                let lost = lost.unwrap_or_else(|| panic!("reader {index}: {error}, and nothing was lost"));
                self.readers[index].kept.remove(&lost.slot);
                self.seek_to(index, partition, (*end).into());
            }
            Error::UnknownTopic { name } => {
                let known = &self.model.topics[name];
                let may_be_gone = !known.is_certain() || known.has_gone();
                assert!(may_be_gone, "reader {index}: {error}, and it was there all the time");
                self.readers[index].end();
            }
            Error::Corrupt { path, offsets, .. } => self.corrupt(index, before, path, offsets.start.0..offsets.end.0),
            error => {
                self.check_read_error(error);
                return false;
            }
        }
        true
    }

    /// The partition that the error names.
    fn failed_at<'b>(&mut self, index: usize, before: &'b [Before], named: &TopicPartition) -> Option<&'b Before> {
        assert_eq!(self.reader(index).failed(), Some(named), "reader {index} names two partitions");
        before.iter().find(|before| before.name == named.topic && before.slot.1 == named.partition)
    }

    fn out_of_range(&mut self, index: usize, found: Option<&Before>, error: &Error) {
        let found = found.unwrap_or_else(|| panic!("reader {index} is nowhere where that is so: {error}"));
        let one = TopicPartition { topic: found.name.clone(), partition: found.slot.1 };
        let at = found.position.offset.0;
        if at < found.start {
            self.trace.count("out of range");
        } else {
            let lost = at > found.end && self.is_doubtful(index, found);
            assert!(lost, "reader {index} of {one}: {error}, and nothing was lost");
        }
        self.readers[index].kept.remove(&found.slot);
        self.seek_by(index, &one, StartAt::Earliest);
    }

    fn is_doubtful(&self, index: usize, found: &Before) -> bool {
        self.readers[index].kept.get(&found.slot).is_some_and(|kept| kept.doubtful)
    }

    fn corrupt(&mut self, index: usize, before: &[Before], path: &Path, offsets: Range<u64>) {
        let directory = path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        let one = TopicPartition::from_directory_name(directory).expect("a partition's directory");
        let found = before.iter().find(|before| before.name == one.topic && before.slot.1 == one.partition);
        let slot = found.map_or_else(|| panic!("{one} is not read"), |found| found.slot);
        self.model.is_corrupt(slot, &offsets);
        self.trace.count("damaged batches met");
        self.seek_to(index, &one, Offset(offsets.end).into());
    }

    fn check_read_error(&self, error: &Error) {
        if !matches!(error, Error::Corrupt { .. }) {
            self.excuse(error, "it cannot be read");
        }
    }

    /// Reads until nothing comes, and sees that this is the end of everything.
    pub(super) fn drain(&mut self, index: usize) {
        if self.readers[index].reader.is_none() && !self.open_reader(index) {
            return;
        }
        self.reader(index).resume(taffrail::Which::All).expect("it is open");
        let most = 1_000 + 2 * self.model.sent.len();
        let polls = (0..most).take_while(|_| self.poll_reader(index)).count();
        assert!(polls < most, "reader {index} never comes to an end");
        for before in self.before(index) {
            let at = before.position.offset.0;
            let (name, number) = (&before.name, before.slot.1);
            assert_eq!(
                at, before.high_watermark,
                "reader {index} finds nothing, and is not at the end of {name}-{number}"
            );
        }
    }

    /// What the readers knew ends with the log; their hosts keep what they keep.
    pub(super) fn end_readers(&mut self, lost_power: bool) {
        for reader in &mut self.readers {
            reader.end();
            if lost_power {
                reader.lost_power();
            }
        }
    }

    /// Forgets what hosts keep of topics that are gone.
    pub(super) fn forget_kept(&mut self, live: &std::collections::BTreeSet<TopicId>) {
        for reader in &mut self.readers {
            reader.kept.retain(|(topic, _), _| live.contains(topic));
        }
    }
}
