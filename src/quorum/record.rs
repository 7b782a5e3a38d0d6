//! The records of the metadata partition: what an engine wants kept, in a format that is no engine's.
//!
//! Each is the value of a record without a key; the records of one [`Persist`] are one batch. Big-endian:
//!
//! ```text
//!  byte  0  4  CRC-32 (IEEE) of everything behind it
//!        4  1  version: 0
//!        5  1  kind
//!
//!  kind 0, an entry              kind 1, the hard state          kind 2, a snapshot marker
//!        6  8  index                   6  4  epoch                     6  8  index   of the last entry
//!       14  4  epoch                  10  1  1 if it voted, else 0    14  4  epoch   in the snapshot
//!       18  .. payload                11  4  for whom, else 0
//! ```
//!
//! The first five bytes never change, so that a release can tell a newer version, which it refuses, from damage. The
//! CRC is beside that of the batch because the batch's is renewed when records are rewritten.
//!
//! Invariants: indexes and epochs are Kafka's non-negative `i64` and `i32`; what is taken is written again as the
//! same bytes.

use bytes::Bytes;

use super::{Entry, EntryId, HardState, Persist};
use crate::machine::fields::Fields;
use crate::types::{LeaderEpoch, NodeId, Offset};

const VERSION: u8 = 0;
const ENTRY: u8 = 0;
const HARD_STATE: u8 = 1;
const SNAPSHOT: u8 = 2;
const CHECKED_FROM: usize = 4;
/// What an entry takes beside its payload.
const ENTRY_BYTES: usize = 18;

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Entry(Entry),
    HardState(HardState),
    /// A durable snapshot has everything up to this entry.
    Snapshot(EntryId),
}

impl Record {
    /// The records of a [`Persist`], in the order in which they are appended.
    pub(crate) fn of(persist: &Persist) -> impl Iterator<Item = Self> {
        let entries = persist.entries.iter().cloned().map(Self::Entry);
        persist.hard_state.map(Self::HardState).into_iter().chain(entries)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; CHECKED_FROM];
        bytes.push(VERSION);
        match self {
            Self::Entry(entry) => put_entry(entry, &mut bytes),
            Self::HardState(state) => put_hard_state(*state, &mut bytes),
            Self::Snapshot(at) => {
                bytes.push(SNAPSHOT);
                put_id(*at, &mut bytes);
            }
        }
        seal(&mut bytes);
        bytes
    }

    /// Reads a record; the error is a reason for a person.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::of(bytes);
        let stored = fields.u32("the checksum")?;
        let computed = crc32fast::hash(fields.rest());
        if stored != computed {
            return Err(format!("its CRC-32 is {computed:08x}, it says {stored:08x}"));
        }
        match fields.u8("the version")? {
            VERSION => Self::decode_checked(fields),
            other => Err(format!("it is of version {other}, this release reads {VERSION}")),
        }
    }

    fn decode_checked(mut fields: Fields<'_>) -> Result<Self, String> {
        match fields.u8("the kind")? {
            ENTRY => {
                let EntryId { index, epoch } = take_id(&mut fields)?;
                Ok(Self::Entry(Entry { index, epoch, payload: Bytes::copy_from_slice(fields.rest()) }))
            }
            HARD_STATE => {
                let state = take_hard_state(&mut fields)?;
                fields.end().map(|()| Self::HardState(state))
            }
            SNAPSHOT => {
                let at = take_id(&mut fields)?;
                fields.end().map(|()| Self::Snapshot(at))
            }
            other => Err(format!("a record of kind {other} is not known")),
        }
    }
}

/// Sets the checksum of a record.
pub(crate) fn seal(bytes: &mut [u8]) {
    if let Some((checksum, checked)) = bytes.split_first_chunk_mut::<CHECKED_FROM>() {
        *checksum = crc32fast::hash(checked).to_be_bytes();
    }
}

fn put_entry(entry: &Entry, into: &mut Vec<u8>) {
    into.reserve(ENTRY_BYTES + entry.payload.len());
    into.push(ENTRY);
    put_id(entry.id(), into);
    into.extend_from_slice(&entry.payload);
}

fn put_hard_state(state: HardState, into: &mut Vec<u8>) {
    into.push(HARD_STATE);
    into.extend_from_slice(&state.epoch.0.to_be_bytes());
    into.push(u8::from(state.vote.is_some()));
    into.extend_from_slice(&state.vote.map_or(0, |node| node.0).to_be_bytes());
}

fn put_id(id: EntryId, into: &mut Vec<u8>) {
    into.extend_from_slice(&id.index.to_i64().to_be_bytes());
    into.extend_from_slice(&id.epoch.0.to_be_bytes());
}

fn take_id(fields: &mut Fields<'_>) -> Result<EntryId, String> {
    let index = fields.i64("the index")?;
    let index = Offset::from_i64(index).ok_or_else(|| format!("the index {index} is negative"))?;
    Ok(EntryId { index, epoch: take_epoch(fields)? })
}

fn take_epoch(fields: &mut Fields<'_>) -> Result<LeaderEpoch, String> {
    let epoch = fields.i32("the epoch")?;
    LeaderEpoch::from_i32(epoch).ok_or_else(|| format!("the epoch {epoch} is negative"))
}

fn take_hard_state(fields: &mut Fields<'_>) -> Result<HardState, String> {
    let epoch = take_epoch(fields)?;
    let voted = fields.flag("whether it voted")?;
    match (voted, fields.u32("the vote")?) {
        (true, node) => Ok(HardState { epoch, vote: Some(NodeId(node)) }),
        (false, 0) => Ok(HardState { epoch, vote: None }),
        (false, node) => Err(format!("it did not vote, and yet for node {node}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> [Record; 4] {
        let at = EntryId { index: Offset(0x0102), epoch: LeaderEpoch(3) };
        [
            Record::Entry(Entry { index: at.index, epoch: at.epoch, payload: Bytes::from_static(b"ab") }),
            Record::HardState(HardState { epoch: LeaderEpoch(3), vote: Some(NodeId(7)) }),
            Record::HardState(HardState::default()),
            Record::Snapshot(at),
        ]
    }

    #[test]
    fn the_layout_is_the_one_drawn() {
        let expected: [&[u8]; 4] = [
            &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, b'a', b'b'],
            &[0, 1, 0, 0, 0, 3, 1, 0, 0, 0, 7],
            &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0, 2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3],
        ];
        for (record, behind) in samples().iter().zip(expected) {
            let bytes = record.encode();
            assert_eq!(bytes[4..], *behind);
            assert_eq!(bytes[..4], crc32fast::hash(behind).to_be_bytes());
            assert_eq!(Record::decode(&bytes).as_ref(), Ok(record));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        for bytes in samples().map(|record| record.encode()) {
            for length in 0..bytes.len() {
                assert!(Record::decode(&bytes[..length]).is_err(), "{length} bytes of {bytes:?}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(Record::decode(&flipped).is_err(), "bit {bit} of {bytes:?}");
            }
        }
    }

    #[test]
    fn what_a_right_checksum_covers_is_checked_too() {
        let refused: [(&[u8], &str); 8] = [
            (&[1, 0], "it is of version 1, this release reads 0"),
            (&[0, 9], "a record of kind 9 is not known"),
            (&[0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "the index -9223372036854775808 is negative"),
            (&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], "the epoch -1 is negative"),
            (&[0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "1 bytes are left over"),
            (&[0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0], "whether it voted is 2, neither 0 nor 1"),
            (&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5], "it did not vote, and yet for node 5"),
            (&[0, 1, 0, 0], "the epoch needs 4 bytes, 2 are left"),
        ];
        for (behind, reason) in refused {
            let mut bytes = vec![0; CHECKED_FROM];
            bytes.extend_from_slice(behind);
            seal(&mut bytes);
            assert_eq!(Record::decode(&bytes), Err(reason.to_owned()));
        }
    }
}
