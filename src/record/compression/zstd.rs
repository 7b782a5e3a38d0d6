//! zstd. Written is one frame at level 3, read are frames one behind the other.
//!
//! Frames are decompressed in one step into a buffer that grows and starts again where it was too small, so that no
//! window is allocated by what a frame's header declares. The buffer grows fourfold, so starting again costs a third
//! at the most.

use std::cell::RefCell;

use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, compress_bound, get_error_name, get_frame_content_size, is_error_kind};

use super::{Compression, room};
use crate::record::Rejection;

const LEVEL: i32 = 3;
/// The first guess at how much larger the output is.
const EXPANSION_GUESS: usize = 4;
/// Up to here a declared size is taken for the first guess: a constant, whatever is declared.
const DECLARED_BYTES_MAX: usize = 1 << 20;
const GROWTH: usize = 4;

thread_local! {
    /// A context is some 100 KiB and takes longer to make than a small batch to decompress.
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// A context, made at the first use.
#[derive(Default)]
pub(super) struct Encoder(Option<CCtx<'static>>);

impl Encoder {
    pub(super) fn compress(&mut self, input: &[u8], out: &mut Vec<u8>, start: usize) -> Result<usize, Rejection> {
        let context = match &mut self.0 {
            Some(context) => context,
            none => none.insert(new_context()?),
        };
        let size = context.compress2(room(out, start, compress_bound(input.len())), input).map_err(failed)?;
        Ok(start + size)
    }
}

fn new_context() -> Result<CCtx<'static>, Rejection> {
    let mut context = CCtx::try_create().ok_or_else(|| Compression::Zstd.corrupt("no memory for a context"))?;
    context.set_parameter(CParameter::CompressionLevel(LEVEL)).map_err(failed)?;
    Ok(context)
}

pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>, Rejection> {
    DECODER.with_borrow_mut(|slot| {
        let context = match slot {
            Some(context) => context,
            none => {
                none.insert(DCtx::try_create().ok_or_else(|| Compression::Zstd.corrupt("no memory for a context"))?)
            }
        };
        decompress_with(context, input, limit)
    })
}

fn decompress_with(context: &mut DCtx<'static>, input: &[u8], limit: usize) -> Result<Vec<u8>, Rejection> {
    let declared = get_frame_content_size(input).ok().flatten().and_then(|size| usize::try_from(size).ok());
    let guess = declared.map_or(0, |size| size.min(DECLARED_BYTES_MAX));
    let mut capacity = guess.max(input.len().saturating_mul(EXPANSION_GUESS)).min(limit);
    loop {
        let mut out = Vec::with_capacity(capacity);
        match context.decompress(&mut out, input) {
            Ok(_) if out.len() > limit => return Err(Compression::Zstd.beyond(limit)),
            Ok(_) => return Ok(out),
            Err(code) if !is_error_kind(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) => return Err(failed(code)),
            Err(_) if capacity >= limit => return Err(Compression::Zstd.beyond(limit)),
            Err(_) => capacity = capacity.saturating_mul(GROWTH).clamp(1, limit),
        }
    }
}

fn failed(code: usize) -> Rejection {
    Compression::Zstd.corrupt(get_error_name(code))
}
