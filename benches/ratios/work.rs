//! What both sides share: the records, and the pass that touches every byte.

/// A source of records of one size: 1 MiB of random bytes, handed out in slices, so that both sides copy out of
/// the same warm memory.
pub(crate) struct Source {
    bytes: Vec<u8>,
    record_bytes: usize,
    next: usize,
}

impl Source {
    /// Records of `record_bytes` each.
    pub(crate) fn new(record_bytes: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let count = (1 << 20) / record_bytes;
        Self { bytes: (0..count * record_bytes).map(|_| random.u8(..)).collect(), record_bytes, next: 0 }
    }

    /// The next record, the first one again behind the last.
    #[inline]
    pub(crate) fn record(&mut self) -> &[u8] {
        if self.next == self.bytes.len() {
            self.next = 0;
        }
        let start = self.next;
        self.next += self.record_bytes;
        &self.bytes[start..self.next]
    }
}

/// A sum over every byte, eight at a time: the compiler turns it into vector instructions.
#[inline]
pub(crate) fn touch(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// How a row appends: the size of its records, how many make a batch, and how many batches a round appends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) record_bytes: usize,
    pub(crate) batch_records: usize,
    pub(crate) batches: usize,
}

/// The bytes of a batch with its framing: 61 of header, and per record a length, attributes, the deltas of time
/// and offset, the lengths of key and value, and a count of headers.
pub(crate) fn batch_bytes(record_bytes: usize, batch_records: usize) -> usize {
    let varint = |value: usize| {
        if value < 64 {
            1
        } else if value < 8192 {
            2
        } else {
            3
        }
    };
    let record = |index: usize| {
        let body = 1 + 1 + varint(index) + 1 + varint(record_bytes) + record_bytes + 1;
        varint(body) + body
    };
    61 + (0..batch_records).map(record).sum::<usize>()
}

impl Shape {
    /// What a round writes as records, in bytes.
    pub(crate) fn payload(&self) -> u64 {
        (self.record_bytes * self.batch_records * self.batches) as u64
    }
}

/// How a synced row appends: records one by one, by `threads` threads that share `files` files, `operations` in all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncShape {
    pub(crate) record_bytes: usize,
    pub(crate) threads: usize,
    pub(crate) files: usize,
    pub(crate) operations: usize,
    /// How many zeros the raw loop keeps in front; `None` where its files are filled from the start.
    pub(crate) window: Option<u64>,
}
