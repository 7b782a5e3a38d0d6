//! Batches as another copy of the log has them: all that is acknowledged can be read, and what is refused changes
//! nothing.

#[path = "support/wal.rs"]
mod wal;

use taffrail::{BatchHeader, Commits, Error, ErrorKind, LeaderEpoch, MemoryStorage, Offset, ReadOptions, UpTo};
use wal::{append, append_replica, config, everything, offsets, open, replica};

/// Batches of one call whose offsets span more than 2^31 went into one segment, whose index cannot point to them: they
/// were acknowledged, could not be read, and the next open cut them.
#[test]
fn one_call_spans_more_offsets_than_a_segment_can() {
    const SPAN: u64 = i32::MAX as u64;
    for bases in [vec![0, SPAN], vec![0, SPAN + 1], vec![0, 1 << 32], vec![5, 6, 6 + SPAN, 7 + SPAN, 1 << 40]] {
        let storage = MemoryStorage::new(1);
        let partition = open(&storage, config());
        let bytes: Vec<u8> = bases.iter().flat_map(|base| replica(*base, "v", 0)).collect();
        append_replica(&partition, &bytes).expect("stored");
        assert_eq!(offsets(&partition).expect("readable"), bases);
        let partition = open(&storage.kill(), config());
        assert_eq!(partition.recovery().cut, None, "{bases:?}");
        assert!(partition.recovery().damaged.is_empty(), "{bases:?}");
        assert_eq!(offsets(&partition).expect("readable"), bases);
    }
}

/// A batch that was refused had noted, durably, that the log has gaps: from then on batches that were lost were passed
/// over without a word.
#[test]
fn a_refused_batch_leaves_damage_findable() {
    let storage = MemoryStorage::new(1);
    let partition = open(&storage, config());
    append(&partition, 1, "a");
    partition.begin_epoch(LeaderEpoch(5)).expect("later");
    append(&partition, 1, "b");
    let error = append_replica(&partition, &replica(100, "x", 3)).expect_err("an older epoch");
    assert!(matches!(error, Error::InvalidBatch { .. }), "{error}");
    for _ in 0..40 {
        append(&partition, 1, &"v".repeat(100));
    }
    partition.close().expect("closed");
    let first = storage.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "log"));
    let first = first.expect("there are segments");
    let bytes = storage.bytes_of(&first).expect("there");
    let (mut at, mut last) = (0, 0);
    while at < bytes.len() {
        last = at;
        at += usize::try_from(BatchHeader::parse(&bytes[at..]).expect("sound").size()).expect("small");
    }
    storage.set_bytes(&first, &bytes[..last]).expect("its last batch is lost");
    let partition = open(&storage, config());
    assert!(matches!(everything(&partition), Err(Error::Corrupt { .. })));
}

/// What a call refuses it refuses as a whole: an empty log was begun anew elsewhere, and the batches before the one
/// that was wrong were taken.
#[test]
fn a_refused_call_changes_nothing() {
    let too_large = [replica(3, "a", 0), replica(4, &"x".repeat(2_000), 0)].concat();
    let falling = [replica(3, "a", 5), replica(4, "b", 3)].concat();
    for (bytes, at) in [(too_large, None), (falling, Some(replica(3, "a", 5).len() as u64))] {
        let partition = open(&MemoryStorage::new(1), config());
        append_replica(&partition, &replica(9, "gone", 0)).expect("stored");
        partition.trim_before(Offset(10)).expect("trimmed");
        let error = append_replica(&partition, &bytes).expect_err("one is wrong");
        assert_eq!(error.kind(), ErrorKind::Fix, "{error}");
        if let (Some(at), Error::InvalidBatch { position, .. }) = (at, &error) {
            assert_eq!(*position, at);
        }
        assert_eq!((partition.start(), partition.end()), (Offset(10), Offset(10)), "{error}");
        let longer = [&bytes[..], &replica(11, "behind", 9)].concat();
        append_replica(&partition, &longer).expect_err("as before");
        assert_eq!((partition.start(), partition.end()), (Offset(10), Offset(10)), "{error}");
    }
}

/// An epoch that was begun and has no record gives way to the records of an earlier one; where the log's end lay behind
/// a gap it did not, and the copy took no batch any more.
#[test]
fn an_epoch_without_a_record_gives_way_behind_a_gap() {
    let by_host = || config().commits(Commits::ByHost);
    let partition = open(&MemoryStorage::new(1), by_host());
    append(&partition, 4, "v");
    partition.begin_epoch(LeaderEpoch(5)).expect("later");
    append_replica(&partition, &replica(20 + (1 << 32), "x", 6)).expect("stored");
    let end = Offset(20 + (1 << 32));
    assert_eq!(partition.truncate_from(end, taffrail::Force::Yes).expect("truncated"), end);
    append_replica(&partition, &replica(end.0, "y", 3)).expect("no record of a later epoch is there");
    assert_eq!(partition.epoch_end(LeaderEpoch(3)), Some((LeaderEpoch(3), end.plus(1))));
    assert_eq!(partition.epoch_end(LeaderEpoch(0)), Some((LeaderEpoch(0), end)));
    assert_eq!(partition.leader_epoch(), LeaderEpoch(6), "its number was given");
}

/// A read went on behind a gap, beyond the high watermark; records that came to stand there later were never read.
#[test]
fn a_reader_does_not_go_beyond_the_high_watermark() {
    let partition = open(&MemoryStorage::new(1), config().commits(Commits::ByHost));
    append(&partition, 6, &"v".repeat(100));
    append_replica(&partition, &replica(9, &"x".repeat(1_400), 0)).expect("stored in the next segment");
    partition.commit_to(Offset(6)).expect("committed");
    let (mut seen, mut at) = wal::read_from(&partition, Offset(0), UpTo::HighWatermark).expect("readable");
    assert_eq!(at, Offset(6));
    partition.truncate_from(Offset(6), taffrail::Force::No).expect("nothing of it was committed");
    for base in 6..12 {
        append_replica(&partition, &replica(base, "n", 1)).expect("stored");
        partition.commit_to(Offset(base + 1)).expect("committed");
        let (more, next) = wal::read_from(&partition, at, UpTo::HighWatermark).expect("readable");
        seen.extend(more);
        at = next;
    }
    assert_eq!(seen.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
}

/// The same where the records behind the gap are not synced yet, and for one step of a reader that stands in the gap.
#[test]
fn a_reader_stands_at_the_high_watermark() {
    let partition = open(&MemoryStorage::new(1), config());
    append(&partition, 8, &"v".repeat(100));
    drop(partition.append_replica(&replica(14, &"x".repeat(1_400), 0), LeaderEpoch(0)).expect("appended"));
    for from in [0, 8] {
        let fetched = partition.read(Offset(from), ReadOptions::new()).expect("readable");
        assert_eq!((fetched.next_offset(), partition.high_watermark()), (Offset(8), Offset(8)));
    }
    partition.sync().expect("synced");
    let fetched = partition.read(Offset(8), ReadOptions::new()).expect("readable");
    assert_eq!((fetched.is_empty(), fetched.next_offset()), (false, Offset(15)));
}

/// `maintain` had nothing to remove and moved the start of the log all the same: over a gap, past a hold, above the
/// high watermark. So did a trim.
#[test]
fn what_removes_nothing_moves_no_start() {
    let partition = open(&MemoryStorage::new(1), config().commits(Commits::ByHost));
    append_replica(&partition, &replica(5_000_000_000, "x", 0)).expect("stored");
    let hold = partition.hold(Offset(0)).expect("in the log");
    assert!(partition.maintain(wal::late()).expect("due").removed.is_empty());
    assert!(partition.remove_while(|_| true).expect("held").is_empty());
    assert_eq!((partition.start(), partition.high_watermark()), (Offset(0), Offset(0)));
    drop(hold);
    partition.commit_to(Offset(7)).expect("in the log");
    assert_eq!(partition.trim_before(Offset(3)).expect("committed"), Offset(3));
    assert_eq!(partition.high_watermark(), Offset(7));
}
