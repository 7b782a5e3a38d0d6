//! What the operations of a storage and its files do to the machine.
//!
//! Each is numbered first, so that every call counts, whether or not it then finds what it needs; and each
//! changes something only after nothing can fail any more, but for a write that fails half done.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::content::{Content, to_u64};
use super::fates::parts;
use super::faults::{Attempt, Fault, OperationKind, Verdict};
use super::inode::{Change, Inode};
use super::machine::{Handle, Held, Machine, failure, power_lost};
use super::names::{NameChange, Node, parent};
use crate::storage::{Entry, LockMode};
use crate::types::Timestamp;

/// Names.
impl Machine {
    pub(super) fn open(&mut self, path: &str) -> io::Result<u64> {
        self.begin(&Attempt::new(OperationKind::Open, path))?;
        let inode = self.file(path)?;
        Ok(self.add_handle(inode, path))
    }

    pub(super) fn create(&mut self, path: &str) -> io::Result<u64> {
        self.begin_new(&Attempt::new(OperationKind::Create, path))?;
        self.vacant(path)?;
        let inode = self.create_file(path);
        Ok(self.add_handle(inode, path))
    }

    pub(super) fn create_directory(&mut self, path: &str) -> io::Result<()> {
        let attempt = Attempt::new(OperationKind::CreateDirectory, path);
        if self.names.now().get(path) == Some(Node::Directory) {
            return self.begin(&attempt);
        }
        self.begin_new(&attempt)?;
        self.vacant(path)?;
        self.rearrange(NameChange::Add { path: Arc::from(path), node: Node::Directory });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.begin(&Attempt::new(OperationKind::Remove, path))?;
        self.file(path)?;
        self.rearrange(NameChange::Remove { path: Arc::from(path) });
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, path: &str) -> io::Result<()> {
        self.begin(&Attempt::new(OperationKind::RemoveDirectory, path))?;
        self.directory(path)?;
        if !self.names.now().list(path).is_empty() {
            return Err(failure(io::ErrorKind::DirectoryNotEmpty, "is not empty", path));
        }
        self.rearrange(NameChange::Remove { path: Arc::from(path) });
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.begin(&Attempt::new(OperationKind::Rename, from).to(to))?;
        let inode = self.file(from)?;
        if self.handles.values().any(|handle| handle.inode == inode) {
            let what = "is open: open files are renamed through their handle";
            return Err(failure(io::ErrorKind::ResourceBusy, what, from));
        }
        self.replace(inode, from, to)
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.begin_new(&Attempt::new(OperationKind::Link, from).to(to))?;
        let node = Node::File(self.file(from)?);
        self.vacant(to)?;
        self.rearrange(NameChange::Add { path: Arc::from(to), node });
        Ok(())
    }

    pub(super) fn list(&mut self, directory: &str) -> io::Result<Vec<Entry>> {
        self.begin(&Attempt::new(OperationKind::List, directory))?;
        self.directory(directory)?;
        let entry = |(name, node): (&str, Node)| Entry {
            name: name.to_owned(),
            len: node.file().and_then(|inode| self.inode(inode)).map_or(0, |inode| inode.content().len()),
            is_directory: node == Node::Directory,
        };
        Ok(self.names.now().list(directory).into_iter().map(entry).collect())
    }

    pub(super) fn modified(&mut self, path: &str) -> io::Result<Timestamp> {
        self.begin(&Attempt::new(OperationKind::Modified, path))?;
        let inode = self.file(path)?;
        Ok(self.inode(inode).map(|inode| inode.modified).unwrap_or_default())
    }

    pub(super) fn set_modified(&mut self, path: &str, time: Timestamp) -> io::Result<()> {
        self.begin(&Attempt::new(OperationKind::SetModified, path))?;
        let inode = self.file(path)?;
        self.inode_mut(inode).modified = time;
        Ok(())
    }

    pub(super) fn sync_directory(&mut self, path: &str) -> io::Result<()> {
        self.begin(&Attempt::new(OperationKind::SyncDirectory, path))?;
        self.directory(path)?;
        self.names.sync(path);
        Ok(())
    }

    /// The lock file's number.
    pub(super) fn lock(&mut self, path: &str, mode: LockMode) -> io::Result<u64> {
        self.begin(&Attempt::new(OperationKind::Lock, path))?;
        let inode = match self.file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create_lock_file(path)?,
            found => found?,
        };
        let held = match (mode, self.locks.get(&inode)) {
            (LockMode::Exclusive, None) => Held::Exclusive,
            (LockMode::Shared, None) => Held::Shared(1),
            (LockMode::Shared, Some(Held::Shared(holders))) => Held::Shared(holders + 1),
            _ => return Err(failure(io::ErrorKind::WouldBlock, "is held elsewhere", path)),
        };
        if matches!(held, Held::Exclusive) {
            let (owner, time) = (Content::from_bytes(std::process::id().to_string().as_bytes()), self.time);
            *self.inode_mut(inode) = Inode::settled(owner, time);
        }
        self.locks.insert(inode, held);
        Ok(inode)
    }

    pub(super) fn unlock(&mut self, inode: u64) {
        match self.locks.get_mut(&inode) {
            Some(Held::Shared(holders)) if *holders > 1 => *holders -= 1,
            _ => drop(self.locks.remove(&inode)),
        }
    }

    fn create_lock_file(&mut self, path: &str) -> io::Result<u64> {
        self.vacant(path)?;
        if self.faults.full {
            return Err(self.faults.no_space(&Attempt::new(OperationKind::Lock, path)).error());
        }
        Ok(self.create_file(path))
    }

    /// Numbers an operation that makes a new name, for which a full disk has no space.
    fn begin_new(&mut self, attempt: &Attempt<'_>) -> io::Result<()> {
        self.begin(attempt)?;
        if self.faults.full { Err(self.faults.no_space(attempt).error()) } else { Ok(()) }
    }

    /// Whether a name can be made there.
    fn vacant(&self, path: &str) -> io::Result<()> {
        self.directory(parent(path))?;
        match self.names.now().get(path) {
            None => Ok(()),
            Some(_) => Err(failure(io::ErrorKind::AlreadyExists, "is there already", path)),
        }
    }

    fn create_file(&mut self, path: &str) -> u64 {
        let inode = self.add_inode(Content::default());
        self.rearrange(NameChange::Add { path: Arc::from(path), node: Node::File(inode) });
        inode
    }

    /// Renames the file `inode`, and the handles that know it by that name.
    fn replace(&mut self, inode: u64, from: &str, to: &str) -> io::Result<()> {
        self.directory(parent(to))?;
        if self.names.now().get(to) == Some(Node::Directory) {
            return Err(failure(io::ErrorKind::IsADirectory, "is a directory", to));
        }
        if from != to {
            let to: Arc<str> = Arc::from(to);
            self.rearrange(NameChange::Rename { from: Arc::from(from), to: Arc::clone(&to), node: Node::File(inode) });
            for handle in self.handles.values_mut().filter(|handle| handle.inode == inode && &*handle.path == from) {
                handle.path = Arc::clone(&to);
            }
        }
        Ok(())
    }

    fn rearrange(&mut self, change: NameChange) {
        let serial = self.next_serial();
        self.names.change(serial, change);
    }
}

/// Open files.
impl Machine {
    pub(super) fn write(&mut self, handle: u64, position: u64, bytes: Bytes) -> io::Result<()> {
        let Handle { inode, path } = self.handle(handle)?;
        let end = position.saturating_add(to_u64(bytes.len()));
        let attempt = Attempt::new(OperationKind::Write, &path).bytes(position..end);
        let verdict = self.judge(&attempt)?;
        if position > self.len_of(inode) {
            return Err(failure(io::ErrorKind::InvalidInput, "ends before the position of the write", &path));
        }
        self.write_as(verdict, inode, Change::Write { position, bytes }, &attempt)
    }

    pub(super) fn extend(&mut self, handle: u64, len: u64) -> io::Result<()> {
        let Handle { inode, path } = self.handle(handle)?;
        let zeros = self.len_of(inode)..len.max(self.len_of(inode));
        let attempt = Attempt::new(OperationKind::Extend, &path).bytes(zeros.clone());
        let verdict = self.judge(&attempt)?;
        self.write_as(verdict, inode, Change::Zero(zeros), &attempt)
    }

    /// Does what the verdict leaves of a write or an extension; `attempt` has the bytes it is about.
    fn write_as(&mut self, verdict: Verdict, inode: u64, change: Change, attempt: &Attempt<'_>) -> io::Result<()> {
        let bytes = attempt.bytes.clone();
        let failure = match verdict {
            _ if bytes.is_empty() && matches!(verdict, Verdict::Go) => return Ok(()),
            Verdict::Go if self.faults.full && bytes.end > self.len_of(inode) => self.faults.no_space(attempt),
            Verdict::Go => {
                self.alter(inode, change);
                return Ok(());
            }
            Verdict::PowerGoes => {
                let serial = self.next_serial();
                self.inode_mut(inode).begin(serial, change);
                return Err(power_lost());
            }
            Verdict::Fail(failure) => failure,
        };
        for part in self.written_of(failure.fault, bytes.end - bytes.start) {
            self.alter(inode, change.part(part));
        }
        Err(failure.error())
    }

    /// Which parts of `len` bytes a write that fails has written.
    fn written_of(&mut self, fault: Fault, len: u64) -> Vec<Range<u64>> {
        match fault {
            Fault::NoSpace => std::iter::once(0..self.random.below(len + 1)).collect(),
            Fault::Io => parts(&mut self.random, len),
            Fault::ShortWrite(written) => std::iter::once(0..written.min(len)).collect(),
            Fault::SyncFails | Fault::Denied => Vec::new(),
        }
    }

    pub(super) fn read(&mut self, handle: u64, range: Range<u64>) -> io::Result<Content> {
        let Handle { inode, path } = self.handle(handle)?;
        self.begin(&Attempt::new(OperationKind::Read, &path).bytes(range))?;
        Ok(self.inode(inode).map(|inode| inode.content().clone()).unwrap_or_default())
    }

    pub(super) fn truncate(&mut self, handle: u64, len: u64) -> io::Result<()> {
        let Handle { inode, path } = self.handle(handle)?;
        let now = self.len_of(inode);
        self.begin(&Attempt::new(OperationKind::Truncate, &path).bytes(len.min(now)..now))?;
        if len < now {
            let has_another_name = self.names.now().files().any(|(name, file)| file == inode && name != &*path);
            if has_another_name {
                self.cut_in_a_copy(inode, &path, len);
            } else {
                self.alter(inode, Change::Cut(len));
            }
        }
        Ok(())
    }

    pub(super) fn unshare(&mut self, handle: u64) -> io::Result<()> {
        let Handle { inode, path } = self.handle(handle)?;
        let now = self.len_of(inode);
        if self.names.now().files().any(|(name, file)| file == inode && name != &*path) {
            self.begin(&Attempt::new(OperationKind::Truncate, &path).bytes(now..now))?;
            self.cut_in_a_copy(inode, &path, now);
        }
        Ok(())
    }

    /// Goes on with a copy of the front, which is durable under the name at once; the other names keep the file.
    fn cut_in_a_copy(&mut self, inode: u64, path: &Arc<str>, len: u64) {
        let mut content = self.inode(inode).map(|inode| inode.content().clone()).unwrap_or_default();
        content.cut(len);
        let copy = self.add_inode(content);
        self.rearrange(NameChange::Add { path: Arc::clone(path), node: Node::File(copy) });
        self.names.sync(parent(path));
        for handle in self.handles.values_mut().filter(|handle| handle.inode == inode && handle.path == *path) {
            handle.inode = copy;
        }
    }

    pub(super) fn rename_open(&mut self, handle: u64, to: &str) -> io::Result<()> {
        let Handle { inode, path: from } = self.handle(handle)?;
        self.begin(&Attempt::new(OperationKind::Rename, &from).to(to))?;
        if parent(&from) != parent(to) {
            return Err(failure(io::ErrorKind::InvalidInput, "is in another directory", to));
        }
        if self.names.now().get(&from) != Some(Node::File(inode)) {
            return Err(failure(io::ErrorKind::NotFound, "is not this file any more", &from));
        }
        self.replace(inode, &from, to)
    }

    pub(super) fn sync(&mut self, handle: u64) -> io::Result<()> {
        let Handle { inode, path } = self.handle(handle)?;
        match self.judge(&Attempt::new(OperationKind::Sync, &path))? {
            Verdict::Go => {
                self.inode_mut(inode).sync();
                Ok(())
            }
            Verdict::Fail(failure) => {
                let mut fates = self.fates();
                self.inode_mut(inode).fail_sync(&mut fates);
                Err(failure.error())
            }
            Verdict::PowerGoes => Err(power_lost()),
        }
    }

    pub(super) fn len(&mut self, handle: u64) -> io::Result<u64> {
        let Handle { inode, path } = self.handle(handle)?;
        self.begin(&Attempt::new(OperationKind::Length, &path))?;
        Ok(self.len_of(inode))
    }

    fn handle(&self, handle: u64) -> io::Result<Handle> {
        self.handles.get(&handle).cloned().ok_or_else(|| io::Error::other("the handle is of another machine"))
    }

    fn len_of(&self, inode: u64) -> u64 {
        self.inode(inode).map_or(0, |inode| inode.content().len())
    }

    fn alter(&mut self, inode: u64, change: Change) {
        let (serial, time) = (self.next_serial(), self.time);
        let inode = self.inode_mut(inode);
        inode.change(serial, change);
        inode.modified = time;
    }
}
