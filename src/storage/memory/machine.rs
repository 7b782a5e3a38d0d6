//! The machine under a [`MemoryStorage`](super::MemoryStorage): names, files, handles, locks, and its end.
//!
//! Everything is behind one lock. A machine ends by losing its power or with its process; from then on every
//! operation answers an error, and what the next machine finds is computed from what this one left. That
//! changes nothing here, so one end can be asked for many outcomes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::content::Content;
use super::fates::Fates;
use super::faults::{Attempt, Faults, Verdict};
use super::inode::Inode;
use super::names::{Names, Node, Tree, parent};
use crate::random::Random;
use crate::storage::BootId;
use crate::types::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Killed,
    PowerLost,
}

/// An open file: which one, and under which name it is renamed.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    pub(super) inode: u64,
    pub(super) path: Arc<str>,
}

/// Who holds a lock file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    Exclusive,
    Shared(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Machine {
    seed: u64,
    boots: u64,
    life: Life,
    pub(super) random: Random,
    serial: u64,
    pub(super) names: Names,
    inodes: BTreeMap<u64, Arc<Inode>>,
    next_inode: u64,
    /// With more files than this those without a name and a handle are looked for.
    crowded: usize,
    pub(super) handles: BTreeMap<u64, Handle>,
    next_handle: u64,
    pub(super) locks: BTreeMap<u64, Held>,
    pub(super) faults: Faults,
    pub(super) time: Timestamp,
}

impl Machine {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            boots: 0,
            life: Life::Running,
            random: Random::seeded(seed),
            serial: 0,
            names: Names::default(),
            inodes: BTreeMap::new(),
            next_inode: 0,
            crowded: 64,
            handles: BTreeMap::new(),
            next_handle: 0,
            locks: BTreeMap::new(),
            faults: Faults::default(),
            time: Timestamp(0),
        }
    }

    pub(super) fn boot(&self) -> BootId {
        BootId(format!("memory-{}-{}", self.seed, self.boots))
    }

    pub(super) fn has_lost_power(&self) -> bool {
        self.life == Life::PowerLost
    }

    /// Ends the process; the answer is what the next process on this machine finds.
    pub(super) fn kill(&mut self) -> Self {
        if self.life == Life::Running {
            self.life = Life::Killed;
        }
        self.next_process()
    }

    /// What a next process would find on this machine.
    pub(super) fn next_process(&self) -> Self {
        let life = if self.life == Life::PowerLost { Life::PowerLost } else { Life::Running };
        let mut next = Self { life, handles: BTreeMap::new(), locks: BTreeMap::new(), ..self.clone() };
        next.faults = Faults::default();
        next.collect();
        next
    }

    /// Takes the power away; the answer is what the machine finds when it starts again.
    pub(super) fn crash(&mut self, seed: u64) -> Self {
        self.life = Life::PowerLost;
        let mut random = Random::seeded(seed ^ self.seed.rotate_left(32) ^ self.boots.rotate_left(16));
        let next = Random::seeded(random.below(u64::MAX));
        let mut fates = Fates::new(random, self.unsynced());
        let tree = self.names.after_crash(&mut fates);
        let inodes = self.after_crash(&tree, &mut fates);
        Self {
            life: Life::Running,
            boots: self.boots + 1,
            random: next,
            names: Names::settled(tree),
            inodes,
            next_inode: self.next_inode,
            time: self.time,
            ..Self::new(self.seed)
        }
    }

    fn after_crash(&self, tree: &Tree, fates: &mut Fates) -> BTreeMap<u64, Arc<Inode>> {
        let mut left = BTreeMap::new();
        for (_, number) in tree.files() {
            let Some(inode) = self.inodes.get(&number) else { continue };
            let survivor = if inode.is_settled() { Arc::clone(inode) } else { Arc::new(inode.after_crash(fates)) };
            left.insert(number, survivor);
        }
        left
    }

    /// From the first to behind the last unsynced change.
    fn unsynced(&self) -> std::ops::Range<u64> {
        let spans = self.inodes.values().filter_map(|inode| inode.unsynced()).chain(self.names.unsynced());
        let (first, last) = spans.fold((u64::MAX, 0), |(first, last), (a, b)| (first.min(a), last.max(b)));
        first.min(last)..last.saturating_add(1)
    }

    /// Drops the files that have neither a name, nor may get one back, nor are open.
    fn collect(&mut self) {
        let mut used = self.names.files();
        used.extend(self.handles.values().map(|handle| handle.inode));
        self.inodes.retain(|number, _| used.contains(number));
        self.crowded = self.inodes.len() * 2 + 64;
    }

    /// Numbers an operation and says what is to be done with it; an error where the machine has ended.
    pub(super) fn judge(&mut self, attempt: &Attempt<'_>) -> io::Result<Verdict> {
        match self.life {
            Life::Running => {}
            Life::Killed => return Err(io::Error::other("the process was killed")),
            Life::PowerLost => return Err(power_lost()),
        }
        let verdict = self.faults.judge(attempt);
        if matches!(verdict, Verdict::PowerGoes) {
            self.life = Life::PowerLost;
        }
        Ok(verdict)
    }

    /// Numbers an operation that either happens or fails as a whole.
    pub(super) fn begin(&mut self, attempt: &Attempt<'_>) -> io::Result<()> {
        match self.judge(attempt)? {
            Verdict::Go => Ok(()),
            Verdict::Fail(failure) => Err(failure.error()),
            Verdict::PowerGoes => Err(power_lost()),
        }
    }

    /// How the unsynced changes of a sync that fails end.
    pub(super) fn fates(&mut self) -> Fates {
        let random = Random::seeded(self.random.below(u64::MAX));
        Fates::new(random, self.unsynced())
    }

    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(super) fn inode(&self, number: u64) -> Option<&Inode> {
        self.inodes.get(&number).map(|inode| &**inode)
    }

    pub(super) fn inode_mut(&mut self, number: u64) -> &mut Inode {
        Arc::make_mut(self.inodes.entry(number).or_default())
    }

    /// A file without a name, whose bytes are durable.
    pub(super) fn add_inode(&mut self, content: Content) -> u64 {
        if self.inodes.len() > self.crowded {
            self.collect();
        }
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, Arc::new(Inode::settled(content, self.time)));
        number
    }

    pub(super) fn add_handle(&mut self, inode: u64, path: &str) -> u64 {
        let number = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(number, Handle { inode, path: Arc::from(path) });
        number
    }

    /// The file at `path`, as it is now.
    pub(super) fn file(&self, path: &str) -> io::Result<u64> {
        match self.names.now().get(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Directory) => Err(failure(io::ErrorKind::IsADirectory, "is a directory", path)),
            None => Err(failure(io::ErrorKind::NotFound, "is not there", path)),
        }
    }

    pub(super) fn directory(&self, path: &str) -> io::Result<()> {
        match self.names.now().get(path) {
            Some(Node::Directory) => Ok(()),
            Some(Node::File(_)) => Err(failure(io::ErrorKind::NotADirectory, "is no directory", path)),
            None => Err(failure(io::ErrorKind::NotFound, "is not there", path)),
        }
    }

    /// Puts a file with these bytes where they survive, with the directories above it.
    pub(super) fn settle(&mut self, path: &Arc<str>, bytes: &[u8]) -> io::Result<()> {
        let mut above = Vec::new();
        let mut directory = parent(path);
        while self.names.now().get(directory).is_none() {
            above.push(directory);
            directory = parent(directory);
        }
        self.directory(directory)?;
        for directory in above.into_iter().rev() {
            self.names.settle(&Arc::from(directory), Node::Directory);
        }
        let content = Content::from_bytes(bytes);
        if self.names.now().get(path).is_some() {
            let (inode, time) = (self.file(path)?, self.time);
            *self.inode_mut(inode) = Inode::settled(content, time);
        } else {
            let inode = self.add_inode(content);
            self.names.settle(path, Node::File(inode));
        }
        Ok(())
    }
}

pub(super) fn power_lost() -> io::Error {
    io::Error::other("the machine has lost power")
}

pub(super) fn failure(kind: io::ErrorKind, what: &str, path: &str) -> io::Error {
    io::Error::new(kind, format!("{path} {what}"))
}

#[cfg(test)]
mod tests {
    use super::Machine;
    use bytes::Bytes;

    /// Replacing a checkpoint for ever leaves nothing behind, and what is open or may come back is kept.
    #[test]
    fn files_without_a_name_are_forgotten() {
        let mut machine = Machine::new(1);
        let held = machine.create("/held").expect("the name is free");
        machine.write(held, 0, Bytes::from_static(b"held")).expect("nothing fails here");
        machine.remove("/held").expect("it is there");
        machine.sync_directory("/").expect("nothing fails here");
        for _ in 0..5_000 {
            let handle = machine.create("/it.tmp").expect("the name is free");
            machine.rename_open(handle, "/it").expect("nothing fails here");
            machine.handles.remove(&handle);
            machine.sync_directory("/").expect("nothing fails here");
        }
        assert!(machine.inodes.len() < 200, "{} files", machine.inodes.len());
        assert_eq!(machine.len(held).expect("it is open"), 4);
    }

    /// A file that was created and removed, and neither synced, is kept: the removal may not have happened.
    #[test]
    fn files_that_may_come_back_are_kept() {
        let mut machine = Machine::new(1);
        let handle = machine.create("/it").expect("the name is free");
        machine.write(handle, 0, Bytes::from_static(b"it")).expect("nothing fails here");
        machine.sync(handle).expect("nothing fails here");
        machine.handles.remove(&handle);
        machine.remove("/it").expect("it is there");
        machine.collect();
        let back = |left: &Machine| left.file("/it").is_ok_and(|inode| left.inode(inode).is_some());
        assert!((0..50).any(|seed| back(&machine.crash(seed))));
    }
}
