//! What relative paths are relative to: the working directory at the time a storage was made.
//!
//! A program may change its working directory while its files are in use. Asked each time, the system would then look for
//! them elsewhere, and one log would lie in two places. So no path reaches the system before it went through here; what a
//! host is shown stays as it gave it.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

/// A directory, or none where the system does not say which one it is, or where its name does not lead there. Relative
/// paths stay as they are then.
#[derive(Clone, Debug)]
pub(super) struct Base(Option<Arc<Path>>);

impl Base {
    /// The working directory as it is now.
    pub(super) fn now() -> Self {
        let directory = env::current_dir().ok().filter(|directory| fs::metadata(directory).is_ok());
        Self(directory.map(Arc::from))
    }

    /// The path that the system is asked for. The empty one is nowhere, and stays that.
    pub(super) fn resolve<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        match &self.0 {
            Some(base) if path.is_relative() && !path.as_os_str().is_empty() => Cow::Owned(base.join(path)),
            _ => Cow::Borrowed(path),
        }
    }
}
