//! stub
use crate::measure::Side;
use crate::work::{Shape, SyncShape};
use std::path::PathBuf;
pub(crate) fn append(d: PathBuf, s: Shape) -> Side {
    crate::raw::append(d, s)
}
pub(crate) fn appends(d: PathBuf, s: SyncShape) -> Side {
    crate::raw_sync::appends(d, s)
}
