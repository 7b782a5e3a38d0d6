//! Operations on a partition against a plain list of batches: the input says which, one after the other.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use taffrail::{
    BatchBuilder, Clock, Durability, ErrorKind, Fault, Force, Isolation, ManualClock, MemoryStorage, Offset, Partition,
    PartitionConfig, ReadOptions, Record, Result, Retention, Timestamp, UpTo,
};

/// A batch of the model: its base offset, and the values of its records.
type Known = (u64, Vec<Vec<u8>>);

struct Model {
    storage: MemoryStorage,
    clock: Arc<ManualClock>,
    partition: Partition,
    log: Vec<Known>,
    start: u64,
    stored: u64,
    count: u64,
}

fn open(storage: &MemoryStorage, clock: &Arc<ManualClock>) -> Result<Partition> {
    let config = PartitionConfig::new()
        .durability(Durability::Sync)
        .segment_bytes(1_200)
        .index_interval_bytes(150)
        .idle_after(Duration::from_millis(300))
        .retention(Retention::forever().bytes(4_000));
    let clock: Arc<ManualClock> = Arc::clone(clock);
    Partition::builder("wal-0").config(config).storage(storage.shared()).clock(clock).open()
}

fn end_of((base, values): &Known) -> u64 {
    base + values.len() as u64
}

impl Model {
    fn end(&self) -> u64 {
        self.log.last().map_or(self.start, end_of).max(self.start)
    }

    fn append(&mut self, records: u8, bytes: u8) {
        let mut builder = BatchBuilder::new();
        let mut values = Vec::new();
        for _ in 0..=records % 4 {
            self.count += 1;
            let mut value = self.count.to_string().into_bytes();
            value.resize(value.len().max(bytes.into()), b'v');
            builder.push(&Record::new(&value).timestamp(Timestamp(1))).expect("small");
            values.push(value);
        }
        match self.partition.append(&mut builder).map(|appended| appended.offsets.start.0) {
            Ok(base) => {
                assert_eq!(base, self.end());
                self.log.push((base, values));
            }
            Err(error) => {
                // A failure that could not be undone leaves it open whether the batch is there.
                if error.kind() == ErrorKind::Reopen {
                    self.log.push((self.end(), values));
                }
                self.recover();
            }
        }
    }

    /// After a fault the partition is opened anew; what was stored is there.
    fn recover(&mut self) {
        self.storage.clear_faults();
        if self.partition.reopen().is_err() {
            panic!("without a fault it reopens");
        }
        self.settle();
    }

    /// The log is a prefix of what was appended, and has everything that was stored.
    fn settle(&mut self) {
        let end = self.partition.end().0;
        assert!(self.stored <= end && end <= self.end(), "ends at {end}, {} was stored", self.stored);
        self.log.retain(|known| known.0 < end);
        assert_eq!(self.end(), end, "a batch is half there");
        let start = self.partition.start().0;
        assert!(start <= self.start.max(end));
        self.start = start;
        self.log.retain(|known| end_of(known) > start);
        self.stored = end;
    }

    fn restart(&mut self, storage: MemoryStorage) {
        self.storage = storage;
        self.partition = open(&self.storage, &self.clock).expect("it reopens");
        self.settle();
    }

    fn read(&mut self, at: u8, max_bytes: u8) {
        let at = self.start + u64::from(at) % (self.end() - self.start + 1);
        let options = ReadOptions::new()
            .isolation(Isolation::Uncommitted)
            .up_to(UpTo::LogEnd)
            .max_bytes(usize::from(max_bytes) * 8);
        let fetched = match self.partition.try_read(Offset(at), options) {
            Ok(fetched) => fetched,
            Err(_) => return self.recover(),
        };
        let got: Vec<_> = fetched.records().map(|r| (r.offset().0, r.value().expect("set").to_vec())).collect();
        let all = self.log.iter().flat_map(|(base, values)| (*base..).zip(values.iter().cloned()));
        let expected: Vec<_> = all.filter(|(offset, _)| *offset >= at).take(got.len()).collect();
        assert_eq!(got, expected);
        assert_eq!(got.is_empty(), at == self.end());
    }

    fn run(&mut self, operation: u8, a: u8, b: u8) {
        let outcome = match operation % 12 {
            0..=2 => return self.append(a, b),
            3 => return self.read(a, b),
            4 => self.partition.sync(),
            5 => self.partition.roll(),
            6 => {
                let to = self.end().saturating_sub(u64::from(a) % 8).max(self.start);
                let cut = self.log.iter().find(|known| end_of(known) > to).map_or(self.end(), |known| known.0);
                self.partition.truncate_from(Offset(to), Force::Yes).map(|end| {
                    assert_eq!(end.0, cut);
                    self.log.retain(|known| known.0 < cut);
                    self.start = self.start.min(cut);
                    self.stored = self.stored.min(cut);
                })
            }
            7 => {
                let to = (self.start + u64::from(a) % 8).min(self.partition.high_watermark().0);
                self.partition.trim_before(Offset(to)).map(|start| {
                    self.start = start.0;
                    self.log.retain(|known| end_of(known) > start.0);
                })
            }
            8 => {
                self.clock.advance(Duration::from_millis(a.into()));
                self.partition.maintain(self.clock.now()).map(|_| {
                    self.start = self.partition.start().0;
                    self.log.retain(|known| end_of(known) > self.start);
                })
            }
            9 => {
                let storage = self.storage.kill();
                return self.restart(storage);
            }
            10 => {
                let storage = self.storage.crash(a.into());
                return self.restart(storage);
            }
            _ => {
                let fault = [Fault::Io, Fault::NoSpace, Fault::SyncFails, Fault::ShortWrite(b.into())];
                return self.storage.fail_at(self.storage.operations() + u64::from(a % 16), fault[usize::from(b % 4)]);
            }
        };
        match outcome {
            Ok(()) => self.stored = self.stored.max(self.partition.high_watermark().0),
            // Whatever the call had done by then: it took a prefix away, or nothing.
            Err(_) => {
                if operation % 12 == 6 {
                    self.stored = 0;
                }
                self.recover();
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let storage = MemoryStorage::new(1);
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let partition = open(&storage, &clock).expect("an empty disk opens");
    let mut model = Model { storage, clock, partition, log: Vec::new(), start: 0, stored: 0, count: 0 };
    for operation in data.chunks_exact(3).take(300) {
        model.run(operation[0], operation[1], operation[2]);
    }
});
