//! The bytes of a file in pages that are shared until they are written: cloning costs one pointer.
//!
//! Invariants: a page that is missing is zeros; behind the length every byte of a page is zero, so that
//! growing never brings back what was cut.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: u64,
    pages: Arc<Vec<Option<Arc<Page>>>>,
}

impl Content {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// A copy of the bytes of `range` that are there.
    pub(super) fn read(&self, range: Range<u64>) -> Bytes {
        let mut bytes = vec![0; to_usize(range.end.min(self.len).saturating_sub(range.start))];
        for piece in pieces(range.start, bytes.len()) {
            if let Some(Some(page)) = self.pages.get(piece.page) {
                bytes[piece.bytes].copy_from_slice(&page[piece.within]);
            }
        }
        Bytes::from(bytes)
    }

    /// Writes at `position`, growing the file as far as it must; a gap is zeros.
    pub(super) fn write(&mut self, position: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.len = self.len.max(position.saturating_add(to_u64(bytes.len())));
        let pages = Arc::make_mut(&mut self.pages);
        for piece in pieces(position, bytes.len()) {
            if pages.len() <= piece.page {
                pages.resize(piece.page + 1, None);
            }
            let page = pages[piece.page].get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[piece.within].copy_from_slice(&bytes[piece.bytes]);
        }
    }

    /// Makes `range` zeros, growing the file as far as it must.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        let backed = to_u64(self.pages.len() * PAGE_BYTES);
        let present = to_usize(range.end.min(backed).saturating_sub(range.start));
        if present > 0 {
            let pages = Arc::make_mut(&mut self.pages);
            for piece in pieces(range.start, present) {
                match &mut pages[piece.page] {
                    whole if piece.within.len() == PAGE_BYTES => *whole = None,
                    Some(page) => Arc::make_mut(page)[piece.within].fill(0),
                    None => {}
                }
            }
        }
        if !range.is_empty() {
            self.len = self.len.max(range.end);
        }
    }

    /// Cuts to `len`; what is shorter stays.
    pub(super) fn cut(&mut self, len: u64) {
        if len < self.len {
            self.zero(len..self.len);
            self.len = len;
            let kept = to_usize(len.div_ceil(to_u64(PAGE_BYTES)));
            if kept < self.pages.len() {
                Arc::make_mut(&mut self.pages).truncate(kept);
            }
        }
    }

    /// Cuts, or grows with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        self.cut(len);
        self.zero(self.len..len);
    }

    /// Flips bit `bit` of the byte at `position`; nothing where the file has no such byte.
    pub(super) fn flip(&mut self, position: u64, bit: u8) {
        let byte = self.read(position..position.saturating_add(1));
        if let [byte] = byte[..] {
            self.write(position, &[byte ^ (1 << (bit % 8))]);
        }
    }
}

/// A part of a page, and the part of the caller's bytes that lies there.
struct Piece {
    page: usize,
    within: Range<usize>,
    bytes: Range<usize>,
}

/// Divides `len` bytes from `start` on by pages.
fn pieces(start: u64, len: usize) -> impl Iterator<Item = Piece> {
    let start = to_usize(start);
    let mut done = 0;
    std::iter::from_fn(move || {
        let (page, at) = ((start + done) / PAGE_BYTES, (start + done) % PAGE_BYTES);
        let taken = (PAGE_BYTES - at).min(len - done);
        let piece = Piece { page, within: at..at + taken, bytes: done..done + taken };
        done += taken;
        (taken > 0).then_some(piece)
    })
}

pub(super) fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

pub(super) fn to_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Content;

    proptest! {
        /// Pages behave as one vector of bytes, and a clone keeps what it was cloned from.
        #[test]
        fn pages_are_a_vector(steps in prop::collection::vec((0_u8..4, 0_usize..20_000, 0_usize..9_000, any::<u8>()), 0..24)) {
            let (mut content, mut model) = (Content::default(), Vec::<u8>::new());
            let mut snapshots = Vec::new();
            for (kind, at, count, byte) in steps {
                snapshots.push((content.clone(), model.clone()));
                let end = at + count;
                match kind {
                    0 => {
                        content.write(at as u64, &vec![byte; count]);
                        if count > 0 && model.len() < end { model.resize(end, 0); }
                        if count > 0 { model[at..end].fill(byte); }
                    }
                    1 => {
                        content.zero(at as u64..end as u64);
                        if count > 0 && model.len() < end { model.resize(end, 0); }
                        if count > 0 { model[at..end].fill(0); }
                    }
                    2 => { content.cut(at as u64); model.truncate(at); }
                    _ => { content.set_len(at as u64); model.resize(at, 0); }
                }
                prop_assert_eq!(content.len(), model.len() as u64);
            }
            snapshots.push((content, model));
            for (content, model) in snapshots {
                prop_assert_eq!(&content.read(0..u64::MAX)[..], &model[..]);
                prop_assert_eq!(&content.read(5_000..9_000)[..], model.get(5_000..9_000.min(model.len())).unwrap_or(&[]));
            }
        }
    }
}
