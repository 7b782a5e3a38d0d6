//! The writer's half of the transaction index: each entry is in its file before the call returns.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::files::{Files, Kind};
use super::offset_index::OffsetIndex;
use super::rules::Rules;
use super::txn_index::{AbortedTransaction, ENTRY_BYTES, TxnIndex, refused};
use super::writer::Segment;
use crate::error::Result;

impl Segment {
    /// Adds an entry to the transaction index, in its file too.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where it could not be written; nothing is added.
    /// [`Error::InvalidRecord`](crate::Error::InvalidRecord) where its marker does
    /// not lie behind those that are indexed.
    pub fn append_aborted(&mut self, aborted: AbortedTransaction) -> Result<()> {
        let index = self.reader.transactions()?;
        let at = (index.len() * ENTRY_BYTES) as u64;
        if index.last().is_some_and(|last| last.last_offset >= aborted.last_offset) {
            return refused();
        }
        self.write_transaction(at, &aborted).map_err(|e| self.reader.files.error("write", Kind::TxnIndex, e))?;
        self.reader.files.transactions_changed();
        if index.push(aborted) { Ok(()) } else { refused() }
    }

    fn write_transaction(&mut self, at: u64, aborted: &AbortedTransaction) -> io::Result<()> {
        let file = self.reader.files.index_for_writing(Kind::TxnIndex)?;
        if self.transactions_torn {
            file.truncate(at)?;
        }
        self.transactions_torn = true;
        file.write(at, &[IoSlice::new(&aborted.to_bytes())])?;
        self.transactions_torn = false;
        Ok(())
    }

    /// Makes the transaction index consist of what it has of the batches before `position`, and `aborted`. What had to be
    /// written for that is synced: the batches may be, and are not read again then.
    pub(crate) fn replace_transactions(&mut self, position: u64, aborted: &[AbortedTransaction]) -> Result<()> {
        let mut kept = TxnIndex::new(self.base_offset());
        if position > 0 {
            let rules = Rules::bare(self.base_offset());
            let end = self.reader().end_at(position, &OffsetIndex::new(self.base_offset()), &rules)?;
            kept = self.reader.transactions()?.truncated(end);
        }
        let length = (kept.len() * ENTRY_BYTES) as u64;
        let bytes: Vec<u8> =
            aborted.iter().filter(|entry| kept.push(**entry)).flat_map(|entry| entry.to_bytes()).collect();
        let files = Arc::clone(&self.reader.files);
        replace_entries(&files, length, &bytes).map_err(|error| files.error("write", Kind::TxnIndex, error))?;
        self.reader.set_transactions(Some(Arc::new(kept)));
        self.transactions_torn = false;
        Ok(())
    }

    /// Takes the last entry back.
    pub(crate) fn take_back_aborted(&mut self) -> Result<()> {
        let index = self.reader.transactions()?;
        let Some(last) = index.last() else { return Ok(()) };
        self.reader.set_transactions(Some(Arc::new(index.truncated(last.last_offset))));
        self.settle_transactions()
    }

    /// Has the file end where the entries do, after one that could not be written, or that went.
    pub(crate) fn settle_transactions(&mut self) -> Result<()> {
        self.transactions_torn = true;
        let length = (self.reader.transactions()?.len() * ENTRY_BYTES) as u64;
        let files = &self.reader.files;
        let settle = || match files.index(Kind::TxnIndex)? {
            Some(file) if file.len()? > length => file.truncate(length),
            _ => Ok(()),
        };
        settle().map_err(|error| files.error("truncate", Kind::TxnIndex, error))?;
        self.transactions_torn = false;
        Ok(())
    }
}

/// Makes an index consist of its first `length` bytes and these, durably: also where they are there, since the sync of who
/// wrote them may have failed.
fn replace_entries(files: &Files, length: u64, bytes: &[u8]) -> io::Result<()> {
    let file = match files.index(Kind::TxnIndex)? {
        None if bytes.is_empty() => return Ok(()),
        None => files.index_for_writing(Kind::TxnIndex)?,
        Some(file) if bytes.is_empty() && file.len()? == length => return Ok(()),
        Some(file) => file,
    };
    file.truncate(length)?;
    if !bytes.is_empty() {
        file.write(length, &[IoSlice::new(bytes)])?;
    }
    files.transactions_changed();
    files.sync_transactions()?;
    files.sync_directory()
}
