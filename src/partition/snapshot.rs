//! Producer snapshots as they are found, read for the transactions that they say are open (FORMATS 11).
//!
//! ```text
//!  0  version i16 = 1 │ 2  crc u32 over the rest │ 6  count i32 │ 10  count × 46 bytes:
//!  +0 producer id i64 │ +8 epoch i16 │ +10 last sequence i32 │ +14 last offset i64 │ +22 offset delta i32
//!  +26 timestamp i64 │ +34 coordinator epoch i32 │ +38 first offset of the open transaction i64, −1 for none
//! ```
//!
//! A snapshot named after an offset covers everything below it. One that is damaged counts as absent.

use std::path::Path;

use super::transactions::Transactions;
use crate::error::{Corruption, Result};
use crate::record::batch;
use crate::storage::{Storage, checkpoint};
use crate::trace;
use crate::types::{Offset, ProducerId};

const HEADER_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;
/// A million producers.
const SNAPSHOT_BYTES_MAX: u64 = 46 << 20;

/// The transactions that are open below the snapshot's offset; `None` where it is missing or damaged.
pub(super) fn read(storage: &dyn Storage, path: &Path) -> Result<Option<Transactions>> {
    let Some(bytes) = checkpoint::read_all(storage, path, SNAPSHOT_BYTES_MAX)? else { return Ok(None) };
    match parse(&bytes) {
        Ok(transactions) => Ok(Some(transactions)),
        Err(reason) => {
            trace::warn(path, || format!("a damaged producer snapshot is ignored: {reason}"));
            Ok(None)
        }
    }
}

fn parse(bytes: &[u8]) -> std::result::Result<Transactions, Corruption> {
    let form = |what: &str| Corruption::Form(format!("a producer snapshot {what}"));
    let fixed = bytes.get(..HEADER_BYTES).ok_or_else(|| form("is shorter than its header"))?;
    let version = i16::from_be_bytes([fixed[0], fixed[1]]);
    if version != 1 {
        return Err(Corruption::Form(format!("a producer snapshot has version 1, this one says {version}")));
    }
    let stored = u32::from_be_bytes([fixed[2], fixed[3], fixed[4], fixed[5]]);
    let computed = batch::crc32c(&bytes[6..]);
    if stored != computed {
        return Err(Corruption::Checksum { stored, computed });
    }
    let count = i32::from_be_bytes([fixed[6], fixed[7], fixed[8], fixed[9]]);
    let (entries, rest) = bytes[HEADER_BYTES..].as_chunks::<ENTRY_BYTES>();
    if usize::try_from(count) != Ok(entries.len()) || !rest.is_empty() {
        return Err(form("does not hold as many producers as it says"));
    }
    let mut transactions = Transactions::default();
    for entry in entries {
        let producer = ProducerId(int64(entry, 0));
        if let Some(first) = Offset::from_i64(int64(entry, 38)) {
            transactions.open_at(producer, first);
        }
    }
    Ok(transactions)
}

fn int64(entry: &[u8; ENTRY_BYTES], at: usize) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&entry[at..at + 8]);
    i64::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Vec<u8> {
        let hex = concat!(
            "0001b3adce790000000200000000000003e800050000000700000000000003f0000000030000018bcfe568330000000900000000000003e9",
            "00000000000003e90000ffffffffffffffffffffffff000000000000018bcfe5683cffffffffffffffffffffffff"
        );
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect()
    }

    #[test]
    fn kafkas_bytes_are_read() {
        let mut expected = Transactions::default();
        expected.open_at(ProducerId(1000), Offset(1001));
        assert_eq!(parse(&golden()).expect("it is sound"), expected);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for at in 0..golden().len() {
            let mut bytes = golden();
            bytes[at] ^= 1;
            assert!(parse(&bytes).is_err(), "byte {at}");
        }
    }
}
