//! Producer snapshots, `<offset>.snapshot`: what a partition knows of its producers, of everything below the offset
//! (FORMATS 11). Kafka's form.
//!
//! ```text
//!  0  version i16 = 1 │ 2  crc u32 over the rest │ 6  count i32 │ 10  count × 46 bytes:
//!  +0 producer id i64 │ +8 epoch i16 │ +10 last sequence i32 │ +14 last offset i64 │ +22 offset delta i32
//!  +26 timestamp i64 │ +34 coordinator epoch i32 │ +38 first offset of the open transaction i64, −1 for none
//! ```
//!
//! Of the batches that a producer has sent only the last one is in it: −1, −1 and 0 where there is none. Which of two
//! producers comes first says nothing; they are written by id. A snapshot is a hint: one that is damaged, or says what
//! cannot be, counts as absent.

use super::producers::{Producer, Producers, Sent, Window};
use crate::error::Corruption;
use crate::record::batch;
use crate::types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

const VERSION: i16 = 1;
const HEADER_BYTES: usize = 10;
/// What the checksum covers begins here.
const CHECKED_FROM: usize = 6;
const ENTRY_BYTES: usize = 46;

type Parsed<T> = std::result::Result<T, Corruption>;

/// The bytes of a snapshot.
pub(super) fn render(producers: &Producers) -> Vec<u8> {
    let entries = producers.iter();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entries.len() * ENTRY_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&i32::try_from(entries.len()).unwrap_or(i32::MAX).to_be_bytes());
    for (id, producer) in entries {
        render_entry(&mut bytes, id, producer);
    }
    let checksum = batch::crc32c(&bytes[CHECKED_FROM..]).to_be_bytes();
    bytes[2..CHECKED_FROM].copy_from_slice(&checksum);
    bytes
}

fn render_entry(bytes: &mut Vec<u8>, id: ProducerId, producer: &Producer) {
    let last = producer.window.last();
    let last_sequence = last.and_then(|sent| sent.last_sequence).map_or(-1, |sequence| sequence.0);
    let last_offset = last.map_or(-1, |sent| sent.last_offset.to_i64());
    let delta = last.map_or(0, |sent| sent.offset_delta);
    bytes.extend_from_slice(&id.0.to_be_bytes());
    bytes.extend_from_slice(&producer.epoch.0.to_be_bytes());
    bytes.extend_from_slice(&last_sequence.to_be_bytes());
    bytes.extend_from_slice(&last_offset.to_be_bytes());
    bytes.extend_from_slice(&delta.to_be_bytes());
    bytes.extend_from_slice(&Timestamp::to_i64(producer.updated).to_be_bytes());
    bytes.extend_from_slice(&producer.coordinator_epoch.unwrap_or(-1).to_be_bytes());
    bytes.extend_from_slice(&producer.transaction.map_or(-1, Offset::to_i64).to_be_bytes());
}

/// What the bytes of the snapshot of everything below `end` say.
pub(super) fn parse(bytes: &[u8], end: Offset) -> Parsed<Producers> {
    let fixed = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(|| form("is shorter than its header"))?;
    let [v0, v1, c0, c1, c2, c3, n0, n1, n2, n3] = *fixed;
    let version = i16::from_be_bytes([v0, v1]);
    if version != VERSION {
        return Err(Corruption::Form(format!("a producer snapshot has version 1, this one says {version}")));
    }
    let stored = u32::from_be_bytes([c0, c1, c2, c3]);
    let computed = batch::crc32c(bytes.get(CHECKED_FROM..).unwrap_or_default());
    if stored != computed {
        return Err(Corruption::Checksum { stored, computed });
    }
    let (entries, rest) = bytes.get(HEADER_BYTES..).unwrap_or_default().as_chunks::<ENTRY_BYTES>();
    if usize::try_from(i32::from_be_bytes([n0, n1, n2, n3])) != Ok(entries.len()) || !rest.is_empty() {
        return Err(form("does not hold as many producers as it says"));
    }
    let mut producers = Producers::default();
    for entry in entries {
        let (id, producer) = parse_entry(entry, end)?;
        if !producers.restore(id, producer) {
            return Err(form("tells of one producer twice"));
        }
    }
    Ok(producers)
}

fn parse_entry(entry: &[u8; ENTRY_BYTES], end: Offset) -> Parsed<(ProducerId, Producer)> {
    let id = i64::from_be_bytes(field(entry, 0));
    let epoch = i16::from_be_bytes(field(entry, 8));
    let sequence = i32::from_be_bytes(field(entry, 10));
    let delta = i32::from_be_bytes(field(entry, 22));
    let coordinator = i32::from_be_bytes(field(entry, 34));
    let last_offset = offset_below(i64::from_be_bytes(field(entry, 14)), end)?;
    let transaction = offset_below(i64::from_be_bytes(field(entry, 38)), end)?;
    let delta = u32::try_from(delta).ok().filter(|delta| last_offset.is_none_or(|last| u64::from(*delta) <= last.0));
    let Some(delta) = delta.filter(|_| id >= 0 && epoch >= 0 && sequence >= -1 && coordinator >= -1) else {
        return Err(form("says what no producer has"));
    };
    let updated = Timestamp::from_i64(i64::from_be_bytes(field(entry, 26)));
    let last_sequence = Some(Sequence(sequence)).filter(|_| sequence >= 0);
    let sent = |last_offset| Sent { last_sequence, last_offset, offset_delta: delta, timestamp: updated };
    let producer = Producer {
        epoch: ProducerEpoch(epoch),
        coordinator_epoch: Some(coordinator).filter(|epoch| *epoch >= 0),
        updated,
        heard: Timestamp::default(),
        transaction,
        window: Window::of(last_offset.map(sent)),
    };
    Ok((ProducerId(id), producer))
}

/// An offset of the log below the snapshot's; −1 is none.
fn offset_below(value: i64, end: Offset) -> Parsed<Option<Offset>> {
    match Offset::from_i64(value) {
        Some(offset) if offset < end => Ok(Some(offset)),
        None if value == -1 => Ok(None),
        _ => Err(form("tells of offsets that it does not cover")),
    }
}

fn field<const N: usize>(entry: &[u8; ENTRY_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| entry.get(at + byte).copied().unwrap_or_default())
}

fn form(what: &str) -> Corruption {
    Corruption::Form(format!("a producer snapshot {what}"))
}

/// Parses the bytes, as they are and behind a right checksum, for the fuzz target. What is taken must be written as
/// something that reads the same.
#[cfg(feature = "testkit")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    let checksum = batch::crc32c(bytes.get(CHECKED_FROM..).unwrap_or_default()).to_be_bytes();
    if let Some(field) = sealed.get_mut(2..CHECKED_FROM) {
        field.copy_from_slice(&checksum);
    }
    for (bytes, end) in [(bytes, Offset::MAX), (&sealed, Offset::MAX), (&sealed, Offset(1 << 10))] {
        if let Ok(producers) = parse(bytes, end) {
            assert_eq!(parse(&render(&producers), end), Ok(producers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Offset = Offset(1020);

    fn unhex(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex")).collect()
    }

    fn golden() -> Vec<u8> {
        unhex(concat!(
            "0001b3adce790000000200000000000003e800050000000700000000000003f0000000030000018bcfe568330000000900000000000003e9",
            "00000000000003e90000ffffffffffffffffffffffff000000000000018bcfe5683cffffffffffffffffffffffff"
        ))
    }

    fn expected() -> Producers {
        let time = |after: i64| Some(Timestamp(1_700_000_000_000 + after));
        let sent =
            Sent { last_sequence: Some(Sequence(7)), last_offset: Offset(1008), offset_delta: 3, timestamp: time(51) };
        let one = Producer {
            epoch: ProducerEpoch(5),
            coordinator_epoch: Some(9),
            updated: time(51),
            heard: Timestamp(0),
            transaction: Some(Offset(1001)),
            window: Window::of(Some(sent)),
        };
        let other = Producer {
            epoch: ProducerEpoch(0),
            coordinator_epoch: None,
            updated: time(60),
            heard: Timestamp(0),
            transaction: None,
            window: Window::default(),
        };
        let mut producers = Producers::default();
        producers.restore(ProducerId(1000), one);
        producers.restore(ProducerId(1001), other);
        producers
    }

    #[test]
    fn the_bytes_are_kafkas() {
        assert_eq!(parse(&golden(), END).expect("it is sound"), expected());
        assert_eq!(render(&expected()), golden());
        assert_eq!(render(&Producers::default()), unhex("000148674bc700000000"));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for at in 0..golden().len() * 8 {
            let mut bytes = golden();
            bytes[at / 8] ^= 1 << (at % 8);
            assert!(parse(&bytes, END).is_err(), "bit {at}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_behind_a_right_checksum() {
        let with = |at: usize, bytes: &[u8]| {
            let mut file = golden();
            file[HEADER_BYTES + at..][..bytes.len()].copy_from_slice(bytes);
            let checksum = batch::crc32c(&file[CHECKED_FROM..]).to_be_bytes();
            file[2..CHECKED_FROM].copy_from_slice(&checksum);
            parse(&file, END)
        };
        assert!(with(0, &1000_i64.to_be_bytes()).is_ok());
        assert!(with(0, &1001_i64.to_be_bytes()).is_err(), "one producer twice");
        assert!(with(0, &(-1_i64).to_be_bytes()).is_err(), "no producer's id");
        assert!(with(8, &(-1_i16).to_be_bytes()).is_err(), "no epoch");
        assert!(with(10, &(-2_i32).to_be_bytes()).is_err(), "no sequence");
        assert!(with(14, &1019_i64.to_be_bytes()).is_ok());
        assert!(with(14, &1020_i64.to_be_bytes()).is_err(), "not below the snapshot's offset");
        assert!(with(22, &1009_i32.to_be_bytes()).is_err(), "before offset 0");
        assert!(with(38, &1020_i64.to_be_bytes()).is_err(), "not below the snapshot's offset");
        assert!(parse(&golden(), Offset(1008)).is_err(), "the name says what it covers");
    }
}
