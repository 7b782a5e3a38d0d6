//! The codecs of Kafka's batches, each behind the feature of its name.
//!
//! | attribute | codec | written | read |
//! |---|---|---|---|
//! | 1 | gzip | one member, level 6 | members one behind the other |
//! | 2 | snappy | xerial framing, blocks of 32 KiB | xerial framing, or one raw block |
//! | 3 | lz4 | one frame, independent blocks of 64 KiB, no checksums | one such frame, with or without checksums |
//! | 4 | zstd | one frame, level 3 | frames one behind the other |
//!
//! Invariants: decompression holds at most `limit` bytes of output, and grows towards it with the output that is
//! there: no buffer is allocated by a size that the data declare. Compressors, and what is large in them, are
//! made at the first use and kept.

#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;

use crate::error::{Corruption, Error};
use crate::record::Rejection;
use crate::types::Compression;

impl Compression {
    /// Refuses a codec that is compiled out.
    pub(crate) const fn check_enabled(self) -> Result<(), Error> {
        let is_enabled = match self {
            Self::None => true,
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(feature = "zstd"),
        };
        if is_enabled { Ok(()) } else { Err(Error::CodecDisabled { codec: self.name() }) }
    }

    /// What the attributes of a batch say, other bits cleared.
    #[inline]
    pub(super) const fn from_attribute(attribute: i16) -> Option<Self> {
        match attribute {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    #[inline]
    pub(super) const fn attribute(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// What is answered where the codec is compiled out.
    #[allow(dead_code, reason = "not needed where every codec is there")]
    fn disabled(self) -> Rejection {
        Rejection::CodecDisabled { codec: self.name() }
    }

    #[allow(dead_code, reason = "not needed where no codec is there")]
    fn corrupt(self, reason: impl fmt::Display) -> Rejection {
        Rejection::Corrupt(Corruption::Compression { codec: self.name(), reason: reason.to_string() })
    }

    #[allow(dead_code, reason = "not needed where no codec is there")]
    fn beyond(self, limit: usize) -> Rejection {
        Rejection::DecompressionBound { codec: self.name(), limit }
    }
}

/// Compresses, keeping what is costly to make.
#[derive(Default)]
pub(super) struct Compressor {
    #[cfg(feature = "gzip")]
    gzip: gzip::Encoder,
    #[cfg(feature = "snappy")]
    snappy: snappy::Encoder,
    #[cfg(feature = "lz4")]
    lz4: lz4::Encoder,
    #[cfg(feature = "zstd")]
    zstd: zstd::Encoder,
}

impl Compressor {
    /// Compresses `input` to where `out` is `start` bytes long, and returns where it ends. `out` grows as needed and
    /// does not shrink.
    #[cold]
    #[cfg_attr(
        not(any(feature = "gzip", feature = "snappy", feature = "lz4", feature = "zstd")),
        expect(clippy::unused_self, reason = "without a codec there is nothing to keep")
    )]
    pub(super) fn compress(
        &mut self,
        codec: Compression,
        input: &[u8],
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<usize, Rejection> {
        match codec {
            Compression::None => Ok(put(out, start, input)),
            #[cfg(feature = "gzip")]
            Compression::Gzip => self.gzip.compress(input, out, start),
            #[cfg(feature = "snappy")]
            Compression::Snappy => self.snappy.compress(input, out, start),
            #[cfg(feature = "lz4")]
            Compression::Lz4 => self.lz4.compress(input, out, start),
            #[cfg(feature = "zstd")]
            Compression::Zstd => self.zstd.compress(input, out, start),
            #[allow(unreachable_patterns, reason = "where every codec is there")]
            _ => Err(codec.disabled()),
        }
    }
}

/// Decompresses `input` to at most `limit` bytes.
pub(super) fn decompress(codec: Compression, input: &[u8], limit: usize) -> Result<Vec<u8>, Rejection> {
    match codec {
        Compression::None if input.len() > limit => Err(codec.beyond(limit)),
        Compression::None => Ok(input.to_vec()),
        #[cfg(feature = "gzip")]
        Compression::Gzip => gzip::decompress(input, limit),
        #[cfg(feature = "snappy")]
        Compression::Snappy => snappy::decompress(input, limit),
        #[cfg(feature = "lz4")]
        Compression::Lz4 => lz4::decompress(input, limit),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::decompress(input, limit),
        #[allow(unreachable_patterns, reason = "where every codec is there")]
        _ => Err(codec.disabled()),
    }
}

/// Lends `out` from `start` on, at least `size` bytes of it.
#[inline]
fn room(out: &mut Vec<u8>, start: usize, size: usize) -> &mut [u8] {
    if out.len() < start + size {
        out.resize(start + size, 0);
    }
    &mut out[start..]
}

/// Copies `bytes` to `start`; returns where they end.
#[inline]
fn put(out: &mut Vec<u8>, start: usize, bytes: &[u8]) -> usize {
    room(out, start, bytes.len())[..bytes.len()].copy_from_slice(bytes);
    start + bytes.len()
}
