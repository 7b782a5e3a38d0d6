//! Which operation fails, and how: operations are numbered, and rules speak of numbers, kinds and paths.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// What goes wrong with an operation of a [`MemoryStorage`](super::MemoryStorage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The disk is full ([`io::ErrorKind::StorageFull`]). Some first part of a write was written.
    NoSpace,
    /// The disk answers an error. Any part of a write may have been written.
    Io,
    /// This many bytes of a write (or of the zeros of an extension) were written, then it failed
    /// ([`io::ErrorKind::WriteZero`]).
    ShortWrite(u64),
    /// A sync fails: what was not synced may or may not be on the disk, and no later sync of the file puts
    /// those bytes there unless they are written again.
    SyncFails,
    /// Permission is denied ([`io::ErrorKind::PermissionDenied`]).
    Denied,
}

/// What an operation was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// [`Storage::open`](crate::storage::Storage::open).
    Open,
    /// [`Storage::create`](crate::storage::Storage::create).
    Create,
    /// [`Storage::create_directory`](crate::storage::Storage::create_directory).
    CreateDirectory,
    /// [`Storage::remove`](crate::storage::Storage::remove).
    Remove,
    /// [`Storage::remove_directory`](crate::storage::Storage::remove_directory).
    RemoveDirectory,
    /// [`Storage::rename`](crate::storage::Storage::rename), [`StorageFile::rename`](crate::storage::StorageFile::rename).
    Rename,
    /// [`Storage::link`](crate::storage::Storage::link).
    Link,
    /// [`Storage::list`](crate::storage::Storage::list).
    List,
    /// [`Storage::modified`](crate::storage::Storage::modified).
    Modified,
    /// [`Storage::set_modified`](crate::storage::Storage::set_modified).
    SetModified,
    /// [`Storage::sync_directory`](crate::storage::Storage::sync_directory).
    SyncDirectory,
    /// [`Storage::lock`](crate::storage::Storage::lock).
    Lock,
    /// [`StorageFile::write`](crate::storage::StorageFile::write).
    Write,
    /// [`StorageFile::extend`](crate::storage::StorageFile::extend).
    Extend,
    /// [`StorageFile::read`](crate::storage::StorageFile::read).
    Read,
    /// [`StorageFile::truncate`](crate::storage::StorageFile::truncate).
    Truncate,
    /// [`StorageFile::sync`](crate::storage::StorageFile::sync).
    Sync,
    /// [`StorageFile::len`](crate::storage::StorageFile::len).
    Length,
}

impl OperationKind {
    /// Whether it changes what is on the disk, now or for certain: all but opening, reading, listing and asking.
    #[must_use]
    pub const fn changes(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List | Self::Modified | Self::Length)
    }

    const fn syncs(self) -> bool {
        matches!(self, Self::Sync | Self::SyncDirectory)
    }

    const fn takes_space(self) -> bool {
        matches!(self, Self::Create | Self::CreateDirectory | Self::Link | Self::Write | Self::Extend)
    }

    const fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::CreateDirectory => "create directory",
            Self::Remove => "remove",
            Self::RemoveDirectory => "remove directory",
            Self::Rename => "rename",
            Self::Link => "link",
            Self::List => "list",
            Self::Modified => "ask the time of",
            Self::SyncDirectory => "sync directory",
            Self::Lock => "lock",
            Self::Write => "write",
            Self::Extend => "extend",
            Self::Read => "read",
            Self::Truncate => "truncate",
            Self::Sync => "sync",
            Self::SetModified => "set the modification time of",
            Self::Length => "ask the length of",
        }
    }
}

/// One operation, as rules see it and as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// Its number: the first operation of a storage has number 0.
    pub number: u64,
    /// What it was asked to do.
    pub kind: OperationKind,
    /// To which file or directory, under the name it has then.
    pub path: PathBuf,
    /// The new name of a rename or link.
    pub to: Option<PathBuf>,
    /// The bytes it is about: what a write, an extension or a read covers; a truncation begins where it cuts.
    pub bytes: Range<u64>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation {}: {} {}", self.number, self.kind.verb(), self.path.display())?;
        if let Some(to) = &self.to {
            write!(f, " as {}", to.display())?;
        }
        if self.bytes.is_empty() { Ok(()) } else { write!(f, ", bytes {} to {}", self.bytes.start, self.bytes.end) }
    }
}

/// An operation that is about to be done; borrowed, since most are never told of.
#[derive(Clone, Debug)]
pub(super) struct Attempt<'a> {
    pub(super) kind: OperationKind,
    pub(super) path: &'a str,
    pub(super) to: Option<&'a str>,
    pub(super) bytes: Range<u64>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(kind: OperationKind, path: &'a str) -> Self {
        Self { kind, path, to: None, bytes: 0..0 }
    }

    pub(super) fn to(self, to: &'a str) -> Self {
        Self { to: Some(to), ..self }
    }

    pub(super) fn bytes(self, bytes: Range<u64>) -> Self {
        Self { bytes, ..self }
    }

    fn numbered(&self, number: u64) -> Operation {
        Operation {
            number,
            kind: self.kind,
            path: PathBuf::from(self.path),
            to: self.to.map(PathBuf::from),
            bytes: self.bytes.clone(),
        }
    }
}

/// What is to be done with an operation.
#[derive(Debug)]
pub(super) enum Verdict {
    Go,
    Fail(Failure),
    /// This operation is the one at which the power goes.
    PowerGoes,
}

/// A fault and the operation it befell.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    operation: Operation,
}

impl Failure {
    /// What the caller is told.
    pub(super) fn error(&self) -> io::Error {
        let (kind, what) = match self.fault {
            Fault::NoSpace => (io::ErrorKind::StorageFull, "no space is left"),
            Fault::Io => (io::ErrorKind::Other, "the disk answers an error"),
            Fault::ShortWrite(_) => (io::ErrorKind::WriteZero, "not everything was written"),
            Fault::SyncFails => (io::ErrorKind::Other, "the sync failed"),
            Fault::Denied => (io::ErrorKind::PermissionDenied, "permission is denied"),
        };
        io::Error::new(kind, format!("{what} ({})", self.operation))
    }
}

type When = Arc<dyn Fn(&Operation) -> Option<Fault> + Send + Sync>;

#[derive(Clone)]
pub(super) enum Rule {
    /// Every operation in the range that the fault is meant for.
    During(Range<u64>, Fault),
    At(u64, Fault),
    When(When),
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::During(numbers, fault) => write!(f, "{fault:?} during {numbers:?}"),
            Self::At(number, fault) => write!(f, "{fault:?} at {number}"),
            Self::When(_) => f.write_str("a rule of the test"),
        }
    }
}

/// The counter and the rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) operations: u64,
    pub(super) rules: Vec<Rule>,
    pub(super) power_goes_at: Option<u64>,
    pub(super) full: bool,
    pub(super) history: Option<Vec<Operation>>,
}

impl Faults {
    /// Numbers the operation and says what is to be done with it.
    pub(super) fn judge(&mut self, attempt: &Attempt<'_>) -> Verdict {
        let number = self.operations;
        self.operations += 1;
        if let Some(history) = &mut self.history {
            history.push(attempt.numbered(number));
        }
        if self.power_goes_at.is_some_and(|at| at <= number) {
            return Verdict::PowerGoes;
        }
        if self.rules.is_empty() {
            return Verdict::Go;
        }
        let operation = attempt.numbered(number);
        match self.rules.iter().find_map(|rule| rule.fault(&operation)) {
            Some(fault) => Verdict::Fail(Failure { fault, operation }),
            None => Verdict::Go,
        }
    }

    /// The failure of an operation, just numbered, that finds no space.
    pub(super) fn no_space(&self, attempt: &Attempt<'_>) -> Failure {
        Failure { fault: Fault::NoSpace, operation: attempt.numbered(self.operations.saturating_sub(1)) }
    }
}

impl Rule {
    fn fault(&self, operation: &Operation) -> Option<Fault> {
        let fault = match self {
            Self::During(numbers, fault) if numbers.contains(&operation.number) => {
                Some(*fault).filter(|fault| fault.is_meant_for(operation.kind))
            }
            Self::At(number, fault) if *number == operation.number => Some(*fault),
            Self::When(when) => when(operation),
            _ => None,
        };
        fault.filter(|fault| fault.can_befall(operation.kind))
    }
}

impl Fault {
    /// Whether such an operation can fail like this at all.
    const fn can_befall(self, kind: OperationKind) -> bool {
        match self {
            Self::NoSpace | Self::Io | Self::Denied => true,
            Self::ShortWrite(_) => matches!(kind, OperationKind::Write | OperationKind::Extend),
            Self::SyncFails => kind.syncs(),
        }
    }

    /// Whether a rule for a range of operations means this one.
    const fn is_meant_for(self, kind: OperationKind) -> bool {
        match self {
            Self::Io => true,
            Self::NoSpace => kind.takes_space(),
            Self::Denied => kind.changes(),
            Self::ShortWrite(_) | Self::SyncFails => self.can_befall(kind),
        }
    }
}
