//! What an operator must know, as `tracing` events where the feature is on, else nothing.
//!
//! Never called per record: recovery, truncation, damage, failed syncs, alerts. The message is made only where
//! somebody listens.

use std::fmt::Display;
use std::path::Path;

/// Something was lost, damaged or could not be done.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nobody listens"))]
pub(crate) fn warn<M: Display>(path: &Path, message: impl FnOnce() -> M) {
    #[cfg(feature = "tracing")]
    tracing::warn!(path = %path.display(), "{}", message());
}

/// Something an operator looks for later: a recovery, a truncation.
#[cfg_attr(not(feature = "tracing"), expect(unused_variables, reason = "nobody listens"))]
pub(crate) fn info<M: Display>(path: &Path, message: impl FnOnce() -> M) {
    #[cfg(feature = "tracing")]
    tracing::info!(path = %path.display(), "{}", message());
}
