//! The writer's half of the transaction index: each entry is in its file before the call returns.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::files::Kind;
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

    /// Makes the transaction index consist of what it has of the batches before `position`, and `aborted`.
    pub(crate) fn replace_transactions(&mut self, position: u64, aborted: &[AbortedTransaction]) -> Result<()> {
        let files = Arc::clone(&self.reader.files);
        let failed = |e| files.error("write", Kind::TxnIndex, e);
        let mut kept = TxnIndex::new(self.base_offset());
        if position > 0 {
            let rules = Rules::bare(self.base_offset());
            let end = self.reader().end_at(position, &OffsetIndex::new(self.base_offset()), &rules)?;
            kept = self.reader.transactions()?.truncated(end);
        }
        let length = (kept.len() * ENTRY_BYTES) as u64;
        let bytes: Vec<u8> =
            aborted.iter().filter(|entry| kept.push(**entry)).flat_map(|entry| entry.to_bytes()).collect();
        if let Some(file) = files.index(Kind::TxnIndex).map_err(failed)? {
            file.truncate(length).map_err(failed)?;
        }
        if !bytes.is_empty() {
            let file = files.index_for_writing(Kind::TxnIndex).map_err(failed)?;
            file.write(length, &[IoSlice::new(&bytes)]).map_err(failed)?;
        }
        files.transactions_changed();
        self.reader.set_transactions(Some(Arc::new(kept)));
        self.transactions_torn = false;
        Ok(())
    }

    pub(super) fn cut_transactions(&mut self, length: u64) -> Result<()> {
        self.transactions_torn = true;
        let cut = self.reader.files.index_for_writing(Kind::TxnIndex).and_then(|file| file.truncate(length));
        cut.map_err(|e| self.reader.files.error("truncate", Kind::TxnIndex, e))?;
        self.transactions_torn = false;
        Ok(())
    }
}
