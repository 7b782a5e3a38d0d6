//! The raw loops of one thread: what a program does that has no log, only a file, and does it well.
//!
//! * Append: each record is copied into a buffer, the buffer is summed (CRC-32C) and written in one `write`.
//!   The buffer has the size of the batch that ours writes, so the bytes and the blocks are the same.
//! * Scan: the file is mapped, and every byte of it is touched, or it is read with `pread` into one buffer that is
//!   used again, in blocks of the same size as ours.
//! * Check: the file is read in blocks of 1 MiB into one buffer, and each is summed.

use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crc_fast::{CrcAlgorithm, checksum};

use crate::measure::Side;
use crate::work::{Shape, Source, batch_bytes, touch};

/// CRC-32C, by the library that ours uses.
#[inline]
pub(crate) fn crc(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes)
}

/// What a batch is built in: the records, behind each other, and room for as much framing as ours has.
pub(crate) struct Block {
    bytes: Vec<u8>,
    record_bytes: usize,
}

impl Block {
    pub(crate) fn new(record_bytes: usize, batch_records: usize) -> Self {
        Self { bytes: vec![0; batch_bytes(record_bytes, batch_records)], record_bytes }
    }

    /// Copies as many records as fit, and sums the block.
    #[inline]
    pub(crate) fn fill(&mut self, source: &mut Source) -> &[u8] {
        for place in self.bytes.chunks_exact_mut(self.record_bytes) {
            place.copy_from_slice(source.record());
        }
        let sum = crc(&self.bytes[21..]);
        self.bytes[17..21].copy_from_slice(&sum.to_be_bytes()[4..]);
        &self.bytes
    }
}

/// Appends to a fresh file, which is removed outside of the time that counts.
pub(crate) fn append(directory: PathBuf, shape: Shape) -> Side {
    let mut source = Source::new(shape.record_bytes);
    let mut block = Block::new(shape.record_bytes, shape.batch_records);
    Box::new(move || {
        let path = directory.join("raw");
        let mut file = File::create_new(&path).expect("the file is new");
        let started = Instant::now();
        for _ in 0..shape.batches {
            file.write_all(block.fill(&mut source)).expect("the file takes the block");
        }
        let time = started.elapsed();
        std::fs::remove_file(&path).expect("the file is there");
        time
    })
}

/// Touches every byte of the mapped file. The map is made once and warmed up by the first call.
pub(crate) fn scan_mapped(path: &Path) -> Side {
    let file = File::open(path).expect("the file is there");
    // SAFETY: the file lies in a directory of this run alone, and nobody writes to it while it is mapped.
    let map = unsafe { memmap2::Mmap::map(&file) }.expect("the file can be mapped");
    Box::new(move || {
        let started = Instant::now();
        black_box(touch(&map));
        started.elapsed()
    })
}

/// Reads the file in blocks into one buffer and touches every byte there.
pub(crate) fn scan_buffered(path: &Path, block_bytes: usize) -> Side {
    blocks(path, block_bytes, touch)
}

/// Reads the file in blocks of 1 MiB and sums each.
pub(crate) fn check(path: &Path) -> Side {
    blocks(path, 1 << 20, crc)
}

fn blocks(path: &Path, block_bytes: usize, mut visit: impl FnMut(&[u8]) -> u64 + 'static) -> Side {
    let path = path.to_owned();
    let mut buffer = vec![0; block_bytes];
    Box::new(move || {
        let started = Instant::now();
        let file = File::open(&path).expect("the file is there");
        let mut position = 0;
        loop {
            let count = file.read_at(&mut buffer, position).expect("the file is readable");
            if count == 0 {
                return started.elapsed();
            }
            black_box(visit(&buffer[..count]));
            position += count as u64;
        }
    })
}
