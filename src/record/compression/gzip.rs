//! gzip (RFC 1952): a 10-byte header, a deflate stream, CRC-32 and length, little-endian.
//!
//! Written is one member at level 6 with the header of Java's writer: no name, no time, operating system 255.
//! Read are members one behind the other.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;
use flate2::{Compress, Compression as Level, FlushCompress, Status};

use super::{Compression, put, room};
use crate::record::Rejection;

const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// A deflate state, made at the first use.
#[derive(Default)]
pub(super) struct Encoder(Option<Compress>);

impl Encoder {
    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Rejection> {
        let deflate = self.0.get_or_insert_with(|| Compress::new(Level::new(6), false));
        deflate.reset();
        let at = put(out, start, &HEADER);
        let at = run(deflate, input, out, at)?;
        let at = put(out, at, &crc32fast::hash(input).to_le_bytes());
        let [a, b, c, d, ..] = (input.len() as u64).to_le_bytes();
        Ok(put(out, at, &[a, b, c, d]))
    }
}

/// Deflates all of `input`; returns where the stream ends.
fn run(deflate: &mut Compress, input: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Rejection> {
    let (mut read, mut written) = (0, 0);
    loop {
        let space = room(out, start + written, input.len() / 2 + 64);
        let before = (deflate.total_in(), deflate.total_out());
        let status = deflate.compress(&input[read..], space, FlushCompress::Finish);
        let status = status.map_err(|error| Compression::Gzip.corrupt(error))?;
        read += count(deflate.total_in() - before.0);
        written += count(deflate.total_out() - before.1);
        if status == Status::StreamEnd {
            return Ok(start + written);
        }
    }
}

fn count(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, Rejection> {
    let mut out = Vec::new();
    let mut bounded = MultiGzDecoder::new(input).take((limit as u64).saturating_add(1));
    bounded.read_to_end(&mut out).map_err(|error| Compression::Gzip.corrupt(error))?;
    if out.len() > limit { Err(Compression::Gzip.beyond(limit)) } else { Ok(out) }
}
