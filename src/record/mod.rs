//! Kafka's record batches: parsing, checking, decoding, building.
//!
//! ```text
//!   bytes ──► BatchHeader::parse ──► Batches::push ──► Batch ──► Records ──► RecordView ──► Headers
//!                (61 bytes)           CRC, framing,    lends     cannot fail
//!                                     decompression
//!
//!   Record ──► BatchBuilder::push ──► encode ──► bytes
//!               (the one copy)         codec, header, CRC
//! ```
//!
//! Everything that can be wrong with bytes is found once, in [`Batches::push`](batches::Batches::push) and the
//! header's parser; what they let through is read without an error path. Nothing is allocated by a number
//! that the bytes declare, and nothing panics on them.

pub(crate) mod batch;
pub(crate) mod batches;
pub(crate) mod builder;
pub(crate) mod compression;
pub(crate) mod control;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod legacy;
pub(crate) mod rewrite;
pub(crate) mod varint;

use crate::error::{Corruption, Error};

/// Why a batch was not taken. Whoever knows where it stood makes an [`Error`] of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Its bytes are damaged.
    Corrupt(Corruption),
    /// It needs a codec that is compiled out.
    CodecDisabled {
        /// The codec, and the name of the feature.
        codec: &'static str,
    },
    /// It would grow beyond the bound.
    DecompressionBound {
        /// The codec.
        codec: &'static str,
        /// The bound, in bytes.
        limit: usize,
    },
}

impl Rejection {
    /// The error for a caller; `locate` says where the damage is.
    pub(crate) fn into_error(self, locate: impl FnOnce(Corruption) -> Error) -> Error {
        match self {
            Self::Corrupt(reason) => locate(reason),
            Self::CodecDisabled { codec } => Error::CodecDisabled { codec },
            Self::DecompressionBound { codec, limit } => Error::DecompressionBound { codec, limit },
        }
    }
}

impl From<Corruption> for Rejection {
    fn from(reason: Corruption) -> Self {
        Self::Corrupt(reason)
    }
}
