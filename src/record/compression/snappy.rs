//! Snappy in the framing of the xerial library, which Kafka uses.
//!
//! ```text
//! 82 53 4e 41 50 50 59 00, version i32 (1), compatible version i32 (1),
//! then blocks: compressed length i32, a raw snappy block of at most 32 KiB of input
//! ```
//!
//! All big-endian. Without that magic the whole is one raw snappy block. Google's framing (`sNaPpY`) is refused: its
//! first bytes happen to begin a raw block, which then does not decompress.
//!
//! A raw block begins with its decompressed length. No element of snappy yields more than 64 bytes out of 3, which
//! bounds what a block of a given size can be honest about.

use snap::raw::{self, decompress_len, max_compress_len};

use super::{Compression, put, room};
use crate::record::Rejection;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
const BLOCK_BYTES: usize = 32 << 10;
/// The most that a byte of snappy can become, rounded up.
const EXPANSION_MAX: usize = 22;

/// A hash table, made at the first use.
#[derive(Default)]
pub(super) struct Encoder(Option<Box<raw::Encoder>>);

impl Encoder {
    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Rejection> {
        let encoder = self.0.get_or_insert_with(|| Box::new(raw::Encoder::new()));
        let mut at = put(out, start, &MAGIC);
        at = put(out, at, &VERSIONS);
        for block in input.chunks(BLOCK_BYTES) {
            let space = room(out, at + 4, max_compress_len(block.len()));
            let size = encoder.compress(block, space).map_err(|error| Compression::Snappy.corrupt(error))?;
            put(out, at, &u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes());
            at += 4 + size;
        }
        Ok(at)
    }
}

pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, Rejection> {
    let mut out = Vec::new();
    let Some(mut blocks) = input.strip_prefix(&MAGIC) else {
        append_block(input, limit, &mut out)?;
        return Ok(out);
    };
    blocks = blocks.get(VERSIONS.len()..).ok_or_else(|| cut_off("header"))?;
    while !blocks.is_empty() {
        let (length, rest) = blocks.split_first_chunk::<4>().ok_or_else(|| cut_off("block length"))?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| cut_off("block length"))?;
        let (block, rest) = rest.split_at_checked(length).ok_or_else(|| cut_off("block"))?;
        append_block(block, limit, &mut out)?;
        blocks = rest;
    }
    Ok(out)
}

/// Decompresses one raw block behind what is there.
fn append_block(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Rejection> {
    let declared = decompress_len(block).map_err(|error| Compression::Snappy.corrupt(error))?;
    if declared > block.len().saturating_mul(EXPANSION_MAX) {
        return Err(Compression::Snappy.corrupt(format_args!("{} bytes cannot become {declared}", block.len())));
    }
    if declared > limit - out.len() {
        return Err(Compression::Snappy.beyond(limit));
    }
    let start = out.len();
    out.resize(start + declared, 0);
    let written = raw::Decoder::new().decompress(block, &mut out[start..]);
    let written = written.map_err(|error| Compression::Snappy.corrupt(error))?;
    out.truncate(start + written);
    Ok(())
}

fn cut_off(what: &str) -> Rejection {
    Compression::Snappy.corrupt(format_args!("the {what} is cut off"))
}
