//! LZ4 frames, as far as Kafka reads them.
//!
//! ```text
//! 04 22 4d 18                 magic
//! FLG                         version 01, independent 1, block checksums, content size, content checksum, 0, dictionary 0
//! BD                          the largest block: 4 64 KiB, 5 256 KiB, 6 1 MiB, 7 4 MiB, in bits 4 to 6
//! [content size u64]
//! HC                          the second byte of XXH32 over FLG to here
//! blocks: size u32, its highest bit for "stored"; data; [XXH32 of the data]
//! 0 u32                       the end mark
//! [content checksum u32]
//! ```
//!
//! All little-endian. Blocks have to be independent. Kafka's reader ignores what follows the end mark, so that a
//! second frame makes a batch come out short; here it is an error. Like Kafka's, this reader skips content size and
//! content checksum (the batch has its own) and verifies the header's and the blocks' checksums.
//!
//! Written is FLG 60, BD 40: independent blocks of 64 KiB, no checksums.

use lz4_flex::block::get_maximum_output_size;
use lz4_flex::block::{CompressTable, DecompressError, compress_into_with_table, decompress_into};

use super::{Compression, put, room};
use crate::record::Rejection;

const FRAME_START: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const BLOCK_BYTES: usize = 64 << 10;
const STORED: u32 = 1 << 31;
/// The most that a byte of a block can become.
const EXPANSION_MAX: usize = 255;

const FLAG_VERSION: u8 = 0b1100_0000;
const FLAG_VERSION_1: u8 = 0b0100_0000;
const FLAG_INDEPENDENT: u8 = 0b0010_0000;
const FLAG_BLOCK_CHECKSUMS: u8 = 0b0001_0000;
const FLAG_CONTENT_SIZE: u8 = 0b0000_1000;
const FLAG_CONTENT_CHECKSUM: u8 = 0b0000_0100;
/// One bit is reserved, the other announces a dictionary.
const FLAGS_REFUSED: u8 = 0b0000_0011;

/// A hash table, made at the first use.
#[derive(Default)]
pub(super) struct Encoder(Option<Box<CompressTable>>);

impl Encoder {
    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Rejection> {
        let table = self.0.get_or_insert_with(Box::default);
        let mut at = put(out, start, &FRAME_START);
        for block in input.chunks(BLOCK_BYTES) {
            let space = room(out, at + 4, get_maximum_output_size(block.len()));
            let size =
                compress_into_with_table(block, space, table).map_err(|error| Compression::Lz4.corrupt(error))?;
            at = if size < block.len() {
                put(out, at, &block_size(size).to_le_bytes()) + size
            } else {
                let at = put(out, at, &(block_size(block.len()) | STORED).to_le_bytes());
                put(out, at, block)
            };
        }
        Ok(put(out, at, &[0; 4]))
    }
}

/// A block has at most 64 KiB.
fn block_size(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(STORED - 1)
}

pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, Rejection> {
    let mut rest = input;
    let frame = Frame::take(&mut rest)?;
    let mut out = Vec::new();
    while let Some(block) = frame.take_block(&mut rest)? {
        frame.append_block(&block, limit, &mut out)?;
    }
    if frame.has_content_checksum {
        take::<4>(&mut rest)?;
    }
    if rest.is_empty() { Ok(out) } else { Err(corrupt("bytes are left behind the frame")) }
}

/// What the head of a frame says.
struct Frame {
    block_bytes_max: usize,
    has_block_checksums: bool,
    has_content_checksum: bool,
}

struct Block<'a> {
    bytes: &'a [u8],
    is_stored: bool,
}

impl Frame {
    fn take(rest: &mut &[u8]) -> Result<Self, Rejection> {
        if take::<4>(rest)? != MAGIC {
            return Err(corrupt("it is no LZ4 frame"));
        }
        let descriptor = *rest;
        let [flags, sizes] = take::<2>(rest)?;
        if flags & FLAG_VERSION != FLAG_VERSION_1 || flags & FLAGS_REFUSED != 0 {
            return Err(corrupt("the frame is of an unknown version, or needs a dictionary"));
        }
        if flags & FLAG_INDEPENDENT == 0 {
            return Err(corrupt("its blocks depend on each other, which Kafka does not read"));
        }
        let block_bytes_max = match sizes {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(corrupt("the frame's block size is none of LZ4's")),
        };
        let mut descriptor_bytes = 2;
        if flags & FLAG_CONTENT_SIZE != 0 {
            take::<8>(rest)?;
            descriptor_bytes += 8;
        }
        let [checksum] = take::<1>(rest)?;
        if xxh32(&descriptor[..descriptor_bytes]).to_le_bytes()[1] != checksum {
            return Err(corrupt("the checksum of the frame's header is wrong"));
        }
        let has_block_checksums = flags & FLAG_BLOCK_CHECKSUMS != 0;
        Ok(Self { block_bytes_max, has_block_checksums, has_content_checksum: flags & FLAG_CONTENT_CHECKSUM != 0 })
    }

    /// The next block; none at the end mark.
    fn take_block<'a>(&self, rest: &mut &'a [u8]) -> Result<Option<Block<'a>>, Rejection> {
        let word = u32::from_le_bytes(take::<4>(rest)?);
        if word == 0 {
            return Ok(None);
        }
        let size = usize::try_from(word & !STORED).unwrap_or(usize::MAX);
        if size > self.block_bytes_max {
            return Err(corrupt("a block is larger than the frame allows"));
        }
        let (bytes, after) = rest.split_at_checked(size).ok_or_else(|| corrupt("a block is cut off"))?;
        *rest = after;
        if self.has_block_checksums && u32::from_le_bytes(take::<4>(rest)?) != xxh32(bytes) {
            return Err(corrupt("the checksum of a block is wrong"));
        }
        Ok(Some(Block { bytes, is_stored: word & STORED != 0 }))
    }

    /// Decompresses a block behind what is there.
    fn append_block(&self, block: &Block<'_>, limit: usize, out: &mut Vec<u8>) -> Result<(), Rejection> {
        let start = out.len();
        let left = limit - start;
        if block.is_stored {
            if block.bytes.len() > left {
                return Err(Compression::Lz4.beyond(limit));
            }
            out.extend_from_slice(block.bytes);
            return Ok(());
        }
        let size_max = self.block_bytes_max.min(block.bytes.len().saturating_mul(EXPANSION_MAX));
        out.resize(start + size_max.min(left), 0);
        let written = decompress_into(block.bytes, &mut out[start..]).map_err(|error| match error {
            DecompressError::OutputTooSmall { .. } if left < size_max => Compression::Lz4.beyond(limit),
            error => Compression::Lz4.corrupt(error),
        })?;
        out.truncate(start + written);
        Ok(())
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Rejection> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or_else(|| corrupt("the frame is cut off"))?;
    *rest = after;
    Ok(*bytes)
}

fn corrupt(reason: &'static str) -> Rejection {
    Compression::Lz4.corrupt(reason)
}

const PRIMES: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];

/// XXH32 with seed 0, the checksum of LZ4 frames.
fn xxh32(bytes: &[u8]) -> u32 {
    let (stripes, mut rest) = bytes.as_chunks::<16>();
    let mut hash = if stripes.is_empty() { PRIMES[4] } else { xxh32_stripes(stripes) };
    hash = hash.wrapping_add(bytes.len().to_le_bytes().first_chunk::<4>().map_or(0, |low| u32::from_le_bytes(*low)));
    while let Some((word, after)) = rest.split_first_chunk::<4>() {
        let mixed = hash.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIMES[2]));
        hash = mixed.rotate_left(17).wrapping_mul(PRIMES[3]);
        rest = after;
    }
    for byte in rest {
        hash = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIMES[4])).rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 16)
}

fn xxh32_stripes(stripes: &[[u8; 16]]) -> u32 {
    let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0_u32.wrapping_sub(PRIMES[0])];
    for stripe in stripes {
        let (words, _) = stripe.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            let mixed = lane.wrapping_add(u32::from_le_bytes(*word).wrapping_mul(PRIMES[1]));
            *lane = mixed.rotate_left(13).wrapping_mul(PRIMES[0]);
        }
    }
    let [a, b, c, d] = lanes;
    a.rotate_left(1).wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxh32_is_the_known_one() {
        assert_eq!(xxh32(b""), 0x02cc_5d05);
        assert_eq!(xxh32(b"a"), 0x550d_7456);
        assert_eq!(xxh32(b"abc"), 0x32d1_53ff);
        assert_eq!(xxh32(b"Nobody inspects the spammish repetition"), 0xe229_3b2f);
    }
}
