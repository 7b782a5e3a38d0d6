//! The names of files and directories: as they are now, as they are for certain, and the changes between.
//!
//! A name is a whole path; a directory is listed by its prefix. Each change waits for the directories that it
//! touches to be synced (a rename from one directory to another for both). Until then it may or may not have
//! happened, as far as that is consistent: a change needs every earlier one that touches a name of its own.
//! So a rename is never half done, and a file that was renamed twice is found under one of three names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fates::Fates;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(u64),
    Directory,
}

/// Paths and what they stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree(Arc<BTreeMap<Arc<str>, Node>>);

/// A change of names.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Add { path: Arc<str>, node: Node },
    Remove { path: Arc<str> },
    Rename { from: Arc<str>, to: Arc<str>, node: Node },
}

#[derive(Clone, Debug)]
struct Unsynced {
    serial: u64,
    change: NameChange,
    /// The directories that must still be synced.
    waits_for: BTreeSet<Arc<str>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    now: Tree,
    durable: Tree,
    unsynced: Vec<Unsynced>,
}

impl Names {
    /// Names that are all durable.
    pub(super) fn settled(tree: Tree) -> Self {
        Self { durable: tree.clone(), now: tree, unsynced: Vec::new() }
    }

    pub(super) fn now(&self) -> &Tree {
        &self.now
    }

    pub(super) fn durable(&self) -> &Tree {
        &self.durable
    }

    /// Does a change, which is unsynced from now on.
    pub(super) fn change(&mut self, serial: u64, change: NameChange) {
        self.now.apply(&change);
        let waits_for = change.paths().map(|path| Arc::from(parent(path))).collect();
        self.unsynced.push(Unsynced { serial, change, waits_for });
    }

    /// Puts a name where it survives.
    pub(super) fn settle(&mut self, path: &Arc<str>, node: Node) {
        let change = NameChange::Add { path: Arc::clone(path), node };
        self.now.apply(&change);
        self.durable.apply(&change);
    }

    /// Makes durable what waits for `directory` alone, and whatever that needs.
    pub(super) fn sync(&mut self, directory: &str) {
        let mut needed: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut done = Vec::new();
        for (at, unsynced) in self.unsynced.iter_mut().enumerate().rev() {
            unsynced.waits_for.remove(directory);
            if unsynced.waits_for.is_empty() || unsynced.change.touches(&needed) {
                needed.extend(unsynced.change.paths().cloned());
                done.push(at);
            }
        }
        for at in done.iter().rev() {
            self.durable.apply(&self.unsynced[*at].change);
        }
        for at in done {
            self.unsynced.remove(at);
        }
    }

    /// The first and the last unsynced change.
    pub(super) fn unsynced(&self) -> Option<(u64, u64)> {
        Some((self.unsynced.first()?.serial, self.unsynced.last()?.serial))
    }

    /// What a loss of power leaves.
    pub(super) fn after_crash(&self, fates: &mut Fates) -> Tree {
        let mut left = self.durable.clone();
        let mut lost: Vec<&NameChange> = Vec::new();
        for unsynced in &self.unsynced {
            let happened = fates.happens(unsynced.serial);
            if happened && !lost.iter().any(|earlier: &&NameChange| earlier.touches(unsynced.change.paths())) {
                left.apply(&unsynced.change);
            } else {
                lost.push(&unsynced.change);
            }
        }
        left.prune();
        left
    }

    /// Every file that a name stands for, or may stand for after a loss of power.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        let pending = self.unsynced.iter().filter_map(|unsynced| unsynced.change.node());
        let nodes = self.now.0.values().chain(self.durable.0.values()).copied().chain(pending);
        nodes.filter_map(Node::file).collect()
    }
}

impl Node {
    pub(super) fn file(self) -> Option<u64> {
        match self {
            Self::File(inode) => Some(inode),
            Self::Directory => None,
        }
    }
}

impl NameChange {
    fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        let (path, other) = match self {
            Self::Add { path, .. } | Self::Remove { path } => (path, None),
            Self::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(path).chain(other)
    }

    /// Whether it is about one of these names, or about a name in a directory of such a name: a directory that is made
    /// where another was does not have what was in that one.
    fn touches<'a>(&self, names: impl IntoIterator<Item = &'a Arc<str>>) -> bool {
        let is_in = |path: &str, name: &str| {
            path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        names.into_iter().any(|name| self.paths().any(|path| is_in(path, name)))
    }

    fn node(&self) -> Option<Node> {
        match self {
            Self::Add { node, .. } | Self::Rename { node, .. } => Some(*node),
            Self::Remove { .. } => None,
        }
    }
}

impl Tree {
    pub(super) fn get(&self, path: &str) -> Option<Node> {
        if is_root(path) { Some(Node::Directory) } else { self.0.get(path).copied() }
    }

    /// What a path stands for, if every directory above it is there too.
    pub(super) fn reach(&self, path: &str) -> Option<Node> {
        let above = is_root(path) || self.reach(parent(path)) == Some(Node::Directory);
        self.get(path).filter(|_| above)
    }

    /// The names in a directory, sorted.
    pub(super) fn list(&self, directory: &str) -> Vec<(&str, Node)> {
        let prefix = if is_root(directory) { directory.to_owned() } else { format!("{directory}/") };
        let below = self.0.range::<str, _>((std::ops::Bound::Included(prefix.as_str()), std::ops::Bound::Unbounded));
        below
            .map_while(|(path, node)| Some((path.strip_prefix(prefix.as_str())?, *node)))
            .filter(|(name, _)| !name.contains('/'))
            .collect()
    }

    /// Every file's path and number, sorted.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().filter_map(|(path, node)| Some((&**path, node.file()?)))
    }

    fn apply(&mut self, change: &NameChange) {
        let entries = Arc::make_mut(&mut self.0);
        match change {
            NameChange::Add { path, node } => {
                entries.insert(Arc::clone(path), *node);
            }
            NameChange::Remove { path } => {
                entries.remove(path);
            }
            NameChange::Rename { from, to, node } => {
                entries.remove(from);
                entries.insert(Arc::clone(to), *node);
            }
        }
    }

    /// Drops what lies in directories that are not there.
    fn prune(&mut self) {
        let orphans: Vec<_> = self.0.keys().filter(|path| self.reach(path).is_none()).cloned().collect();
        if !orphans.is_empty() {
            let entries = Arc::make_mut(&mut self.0);
            for path in &orphans {
                entries.remove(path);
            }
        }
    }
}

fn is_root(path: &str) -> bool {
    matches!(path, "" | "/")
}

/// The directory that a path lies in: `""` for a relative path of one name, `"/"` for an absolute one.
pub(super) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => "",
    }
}
