//! What a loss of power leaves of a `MemoryStorage`: the numbered assumptions about the disk, over many seeds.
//!
//! Each test shows both halves: what must survive survives in every seed, and each thing that may happen does
//! happen in some seed. A storage that is kinder than the assumptions would hide the bugs that it is there to find.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use support::seeds;
use taffrail::{Fault, MemoryStorage, Storage, StorageFile};

fn create(storage: &MemoryStorage, path: &str) -> Arc<dyn StorageFile> {
    storage.create(Path::new(path), 0).expect("the name is free")
}

fn write(file: &Arc<dyn StorageFile>, position: u64, bytes: &[u8]) {
    file.write(position, &[IoSlice::new(bytes)]).expect("nothing fails here");
}

fn sync_root(storage: &MemoryStorage) {
    storage.sync_directory(Path::new("/")).expect("nothing fails here");
}

/// A file `/log` whose name is durable.
fn log(storage: &MemoryStorage) -> Arc<dyn StorageFile> {
    let file = create(storage, "/log");
    sync_root(storage);
    file
}

/// Everything on the disk.
fn dump(storage: &MemoryStorage) -> BTreeMap<String, Vec<u8>> {
    let bytes = |path: &Path| storage.bytes_of(path).expect("it is listed").to_vec();
    storage.paths().iter().map(|path| (path.display().to_string(), bytes(path))).collect()
}

/// What crashes of this state with many seeds would leave.
fn outcomes<T: Ord>(storage: &MemoryStorage, look: impl Fn(&MemoryStorage) -> T) -> BTreeSet<T> {
    let storage = storage.snapshot();
    (0..400).map(|seed| look(&storage.crash(seed))).collect()
}

#[test]
fn what_was_synced_survives_and_the_rest_is_lost_kept_or_torn() {
    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    write(&file, 0, &[1; 3_000]);
    file.sync().expect("nothing fails here");
    write(&file, 3_000, &[2; 3_000]);
    let mut seen = BTreeSet::new();
    for seed in seeds() {
        let left = storage.crash(seed).bytes_of("/log").expect("its name was synced");
        assert!(left.len() >= 3_000 && left.len() <= 6_000, "seed {seed}");
        assert!(left[..3_000].iter().all(|byte| *byte == 1), "seed {seed}: synced bytes are gone");
        let tail = &left[3_000..];
        assert!(tail.iter().all(|byte| matches!(byte, 0 | 2)), "seed {seed}: bytes that nobody wrote");
        let written = tail.iter().map(|byte| usize::from(*byte / 2)).sum::<usize>();
        let front = tail.iter().take_while(|byte| **byte == 2).count();
        seen.insert(match tail.len() {
            0 => "lost",
            _ if written == 3_000 => "kept",
            3_000 if written == 0 => "the length without the bytes",
            3_000 if front == 0 => "without its front",
            3_000 if front < written => "a hole in the middle",
            3_000 => "the front, and zeros to the end",
            _ if front == tail.len() => "cut short",
            _ => "cut short, with holes",
        });
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
}

#[test]
fn each_unsynced_write_has_its_own_fate() {
    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    write(&file, 0, b"----");
    file.sync().expect("nothing fails here");
    for at in 0..4 {
        write(&file, at, b"w");
    }
    let left = outcomes(&storage, |left| left.bytes_of("/log").expect("its name was synced").to_vec());
    assert_eq!(left.len(), 16, "every subset of four writes");
}

#[test]
fn an_overwrite_is_old_or_new_byte_by_byte() {
    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    write(&file, 0, b"aaaa");
    file.sync().expect("nothing fails here");
    write(&file, 0, b"bbbb");
    write(&file, 0, b"cccc");
    let left = outcomes(&storage, |left| left.bytes_of("/log").expect("its name was synced").to_vec());
    assert!(left.iter().all(|bytes| bytes.len() == 4 && bytes.iter().all(|byte| b"abc".contains(byte))));
    assert!(left.contains(&b"aaaa"[..]) && left.contains(&b"bbbb"[..]) && left.contains(&b"cccc"[..]));
    assert!(left.iter().any(|bytes| bytes.contains(&b'a') && bytes.contains(&b'b') && bytes.contains(&b'c')));
}

#[test]
fn lengths_change_wholly_partly_or_not() {
    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    write(&file, 0, &[7; 100]);
    file.sync().expect("nothing fails here");
    file.truncate(40).expect("nothing fails here");
    let cut = outcomes(&storage, |left| left.bytes_of("/log").expect("its name was synced").to_vec());
    assert!(cut.iter().all(|bytes| bytes.len() >= 40 && bytes.iter().all(|byte| *byte == 7)));
    assert!(cut.contains(&vec![7; 40]) && cut.contains(&vec![7; 100]) && cut.len() > 2);

    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    file.extend(9_000).expect("nothing fails here");
    let grown = outcomes(&storage, |left| left.bytes_of("/log").expect("its name was synced").to_vec());
    assert!(grown.iter().all(|bytes| bytes.iter().all(|byte| *byte == 0)));
    assert!(grown.contains(&Vec::new()) && grown.contains(&vec![0; 9_000]) && grown.len() > 2);
}

#[test]
fn a_cut_that_was_synced_does_not_come_back() {
    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    write(&file, 0, &[7; 100]);
    file.sync().expect("nothing fails here");
    file.truncate(40).expect("nothing fails here");
    file.extend(80).expect("nothing fails here");
    file.sync().expect("nothing fails here");
    for seed in seeds() {
        let left = storage.crash(seed).bytes_of("/log").expect("its name was synced");
        assert_eq!((&left[..40], &left[40..]), (&[7; 40][..], &[0; 40][..]), "seed {seed}");
    }
}

#[test]
fn a_name_that_was_not_synced_may_be_gone_although_the_bytes_were() {
    let storage = MemoryStorage::new(1);
    for path in ["/a", "/b"] {
        let file = create(&storage, path);
        write(&file, 0, path.as_bytes());
        file.sync().expect("nothing fails here");
    }
    assert_eq!(storage.durable_bytes_of("/a"), None);
    let left = outcomes(&storage, dump);
    let names = left.iter().map(|files| files.keys().map(String::as_str).collect::<Vec<_>>()).collect::<BTreeSet<_>>();
    assert_eq!(names, BTreeSet::from([vec![], vec!["/a"], vec!["/b"], vec!["/a", "/b"]]));
    assert!(left.iter().flatten().all(|(path, bytes)| path.as_bytes() == bytes), "synced bytes stay with the name");

    sync_root(&storage.snapshot());
    assert_eq!(outcomes(&storage, dump), left, "what happens to a copy is not felt here");
    sync_root(&storage);
    assert_eq!(outcomes(&storage, dump).len(), 1);
}

#[test]
fn a_rename_is_old_or_new() {
    let storage = MemoryStorage::new(1);
    storage.set_bytes("/it", b"old").expect("the name is free");
    let file = create(&storage, "/it.tmp");
    write(&file, 0, b"new");
    file.sync().expect("nothing fails here");
    sync_root(&storage);
    file.rename(Path::new("/it")).expect("nothing fails here");
    let files = |list: &[(&str, &str)]| -> BTreeMap<String, Vec<u8>> {
        list.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.as_bytes().to_vec())).collect()
    };
    let either = BTreeSet::from([files(&[("/it", "old"), ("/it.tmp", "new")]), files(&[("/it", "new")])]);
    assert_eq!(outcomes(&storage, dump), either);
    sync_root(&storage);
    assert_eq!(outcomes(&storage, dump), BTreeSet::from([files(&[("/it", "new")])]));
}

#[test]
fn a_rename_needs_the_creation_and_what_uses_the_old_name_needs_the_rename() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "/a");
    write(&file, 0, b"1");
    file.sync().expect("nothing fails here");
    file.rename(Path::new("/b")).expect("nothing fails here");
    let other = create(&storage, "/a");
    write(&other, 0, b"2");
    other.sync().expect("nothing fails here");
    let left = outcomes(&storage, |left| {
        let files = dump(left).into_iter();
        files.map(|(path, bytes)| path + &String::from_utf8_lossy(&bytes)).collect::<Vec<_>>().concat()
    });
    assert_eq!(left, ["", "/a1", "/b1", "/a2/b1"].map(str::to_owned).into());
}

#[test]
fn a_rename_between_directories_is_atomic_and_needs_both_synced() {
    let storage = MemoryStorage::new(1);
    storage.set_bytes("/one/it", b"it").expect("the name is free");
    storage.set_bytes("/two/other", b"").expect("the name is free");
    storage.rename(Path::new("/one/it"), Path::new("/two/it")).expect("nobody has it open");
    let where_it_is = |left: &MemoryStorage| -> Vec<bool> {
        ["/one/it", "/two/it"].iter().map(|path| left.bytes_of(path).is_some()).collect()
    };
    let either = BTreeSet::from([vec![true, false], vec![false, true]]);
    assert_eq!(outcomes(&storage, where_it_is), either);
    storage.sync_directory(Path::new("/one")).expect("nothing fails here");
    assert_eq!(outcomes(&storage, where_it_is), either);
    storage.set_bytes("/one/x", b"").expect("the name is free");
    drop(create(&storage, "/one/it"));
    storage.sync_directory(Path::new("/one")).expect("nothing fails here");
    assert_eq!(outcomes(&storage, where_it_is), BTreeSet::from([vec![true, true]]), "the new file needs the rename");
}

#[test]
fn links_and_removals_happen_or_not() {
    let storage = MemoryStorage::new(1);
    storage.set_bytes("/a/it", b"it").expect("the name is free");
    storage.create_directory(Path::new("/b")).expect("nothing fails here");
    sync_root(&storage);
    storage.link(Path::new("/a/it"), Path::new("/b/it")).expect("the name is free");
    storage.remove(Path::new("/a/it")).expect("it is there");
    let left = outcomes(&storage, |left| (left.bytes_of("/a/it"), left.bytes_of("/b/it")));
    let it = || Some(bytes::Bytes::from_static(b"it"));
    assert_eq!(left, BTreeSet::from([(None, None), (it(), None), (None, it()), (it(), it())]));
}

#[test]
fn a_directory_that_is_lost_takes_its_files_along() {
    let storage = MemoryStorage::new(1);
    storage.create_directory(Path::new("/d")).expect("nothing fails here");
    let file = create(&storage, "/d/it");
    file.sync().expect("nothing fails here");
    storage.sync_directory(Path::new("/d")).expect("nothing fails here");
    assert_eq!(storage.durable_bytes_of("/d/it"), None);
    let left = outcomes(&storage, |left| (left.list(Path::new("/d")).is_ok(), left.paths().len()));
    assert_eq!(left, BTreeSet::from([(false, 0), (true, 1)]));
}

#[test]
fn no_later_sync_covers_what_a_failed_one_lost() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in seeds() {
        let storage = MemoryStorage::new(seed);
        let file = log(&storage);
        write(&file, 0, b"synced");
        file.sync().expect("nothing fails here");
        write(&file, 6, b"doubtful");
        storage.fail_at(storage.operations(), Fault::SyncFails);
        assert!(file.sync().is_err());
        assert_eq!(file.read(0..99).expect("it is there"), "synceddoubtful", "it stays readable");
        write(&file, 14, b"later");
        file.sync().expect("only one sync fails");
        let left = storage.crash(seed).bytes_of("/log").expect("its name was synced");
        assert_eq!((&left[..6], &left[14..]), (&b"synced"[..], &b"later"[..]), "seed {seed}");
        match &left[6..14] {
            b"doubtful" => kept += 1,
            [0, 0, 0, 0, 0, 0, 0, 0] => lost += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 0 && kept > 0 && torn > 0, "lost {lost}, kept {kept}, torn {torn}");
}

#[test]
fn what_is_written_again_after_a_failed_sync_is_safe() {
    for seed in seeds() {
        let storage = MemoryStorage::new(seed);
        let file = log(&storage);
        write(&file, 0, b"doubtful");
        storage.fail_at(storage.operations(), Fault::SyncFails);
        assert!(file.sync().is_err());
        let storage = storage.kill();
        let file = storage.open(Path::new("/log"), 0).expect("it is there");
        write(&file, 0, b"doubtful");
        file.sync().expect("nothing fails here");
        assert_eq!(storage.durable_bytes_of("/log").expect("its name was synced"), "doubtful");
        assert_eq!(storage.crash(0).bytes_of("/log").expect("its name was synced"), "doubtful", "seed {seed}");
    }
}

#[test]
fn lengths_are_durable_with_the_next_sync_whatever_failed_before() {
    for seed in seeds() {
        let storage = MemoryStorage::new(seed);
        let file = log(&storage);
        write(&file, 0, &[1; 100]);
        file.sync().expect("nothing fails here");
        file.truncate(40).expect("nothing fails here");
        storage.fail_at(storage.operations(), Fault::SyncFails);
        assert!(file.sync().is_err());
        file.sync().expect("only one sync fails");
        assert_eq!(storage.durable_bytes_of("/log").expect("its name was synced"), vec![1; 40], "seed {seed}");
        file.extend(60).expect("nothing fails here");
        storage.fail_at(storage.operations(), Fault::SyncFails);
        assert!(file.sync().is_err());
        file.sync().expect("only one sync fails");
        assert_eq!(storage.durable_bytes_of("/log").expect("its name was synced").len(), 60, "seed {seed}");
    }
}

#[test]
fn a_killed_process_loses_nothing_but_its_handles() {
    let storage = MemoryStorage::new(1);
    let file = create(&storage, "/log");
    write(&file, 0, b"written");
    let next = storage.kill();
    assert_eq!(next.boot(), storage.boot());
    assert!(file.len().is_err() && storage.list(Path::new("/")).is_err());
    assert_eq!(next.bytes_of("/log").expect("it is there"), "written");
    assert_eq!(next.durable_bytes_of("/log"), None);
    let lost = (0..400).any(|seed| next.crash(seed).bytes_of("/log").is_none());
    assert!(lost, "what was not synced is not safe because the process ended");
}

#[test]
fn a_crash_is_another_boot_and_ends_every_handle() {
    let storage = MemoryStorage::new(1);
    let file = log(&storage);
    let next = storage.crash(3);
    assert_ne!(next.boot(), storage.boot());
    assert_ne!(next.crash(3).boot(), next.boot());
    assert!(storage.has_lost_power() && storage.open(Path::new("/log"), 0).is_err());
    let said = [file.write(0, &[]).err(), file.sync().err(), file.read(0..1).err(), file.len().err()];
    for error in said {
        assert_eq!(error.expect("the machine is off").to_string(), "the machine has lost power");
    }
}

#[test]
fn the_machine_goes_on_after_a_crash() {
    let mut storage = MemoryStorage::new(1);
    for round in 0..20_u8 {
        let file = create(&storage, &format!("/{round}"));
        write(&file, 0, &[round; 50]);
        file.sync().expect("nothing fails here");
        sync_root(&storage);
        storage = storage.crash(u64::from(round));
        let left = dump(&storage);
        assert_eq!(left.len(), usize::from(round) + 1);
        assert!(left.iter().all(|(path, bytes)| *bytes == vec![path[1..].parse::<u8>().expect("a number"); 50]));
    }
}

/// Writes a checkpoint aside and renames it over the old one, as often as there are versions.
fn replace_checkpoints(storage: &MemoryStorage, versions: u8) -> std::io::Result<()> {
    for version in 1..=versions {
        let file = storage.create(Path::new("/it.tmp"), 0)?;
        file.write(0, &[IoSlice::new(&[version; 600])])?;
        file.sync()?;
        file.rename(Path::new("/it"))?;
        storage.sync_directory(Path::new("/"))?;
    }
    Ok(())
}

#[test]
fn the_power_can_go_at_every_operation() {
    let whole = MemoryStorage::new(0);
    whole.record_history();
    replace_checkpoints(&whole, 3).expect("nothing fails here");
    assert_eq!(whole.operations(), 15);
    for number in 0..15 {
        let mut torn_or_lost = BTreeSet::new();
        for seed in 0..40 {
            let storage = MemoryStorage::new(0);
            storage.crash_at(number);
            assert!(replace_checkpoints(&storage, 3).is_err());
            assert_eq!(storage.operations(), number + 1);
            let left = storage.crash(seed);
            let done = u8::try_from(number / 5).expect("it is small");
            let current = left.bytes_of("/it");
            let version = current.as_ref().map_or(0, |bytes| bytes[0]);
            assert!(version == done || (number % 5 == 4 && version == done + 1), "operation {number}, seed {seed}");
            assert!(current.is_none_or(|bytes| bytes == vec![version; 600]), "operation {number}, seed {seed}");
            torn_or_lost.insert(left.bytes_of("/it.tmp"));
        }
        if number % 5 == 1 {
            assert!(torn_or_lost.len() > 4, "the write at which the power goes may be there in part");
        }
    }
}

#[test]
fn the_same_seeds_give_the_same_bytes() {
    let run = |seed: u64| {
        let storage = MemoryStorage::new(seed);
        let file = log(&storage);
        storage.fail_at(3, Fault::Io);
        let _ = file.write(0, &[IoSlice::new(&[1; 5_000])]);
        let _ = file.write(0, &[IoSlice::new(&[2; 5_000])]);
        storage.fail_at(4, Fault::SyncFails);
        let _ = file.sync();
        write(&file, 0, &[3; 2_000]);
        drop(create(&storage, "/other"));
        storage
    };
    let (one, two) = (run(5), run(5));
    let mut differ = BTreeSet::new();
    for seed in 0..50 {
        let left = dump(&one.crash(seed));
        assert_eq!(left, dump(&two.crash(seed)), "seed {seed}");
        assert_eq!(left, dump(&one.crash(seed)), "seed {seed}: a crash changes nothing");
        differ.insert(left);
    }
    assert!(differ.len() > 10);
    assert!((6..20).any(|seed| dump(&run(seed)) != dump(&one)), "the storage's seed decides what failures leave");
}

proptest! {
    /// Over any writes, cuts, extensions and syncs of one file: each byte after a crash is the durable one, one that
    /// was written there since, or a zero where the file grew; the length is one that it can have.
    #[test]
    fn nothing_appears_that_was_not_written(
        steps in prop::collection::vec((0_u8..5, 0_u64..9_000, 1_usize..5_000), 1..24),
        seed in any::<u64>(),
    ) {
        let storage = MemoryStorage::new(seed);
        let file = log(&storage);
        let mut durable = Vec::new();
        let (mut shortest, mut longest) = (0, 0);
        let mut unsynced: Vec<(usize, usize, u8)> = Vec::new();
        for (number, (kind, at, count)) in steps.into_iter().enumerate() {
            let (len, byte) = (file.len().expect("it is there"), u8::try_from(number + 1).expect("few steps"));
            match kind {
                0 | 1 => {
                    let at = at.min(len);
                    write(&file, at, &vec![byte; count]);
                    unsynced.push((usize::try_from(at).expect("it is small"), count, byte));
                }
                2 => {
                    file.truncate(at).expect("nothing fails here");
                    shortest = shortest.min(at);
                }
                3 => {
                    file.extend(at).expect("nothing fails here");
                    let count = usize::try_from(at.saturating_sub(len)).expect("it is small");
                    unsynced.push((usize::try_from(len).expect("it is small"), count, 0));
                }
                _ => {
                    file.sync().expect("nothing fails here");
                    durable = file.read(0..u64::MAX).expect("it is there").to_vec();
                    (shortest, longest) = (len, len);
                    unsynced.clear();
                }
            }
            longest = longest.max(file.len().expect("it is there"));
        }
        let left = storage.crash(seed).bytes_of("/log").expect("its name was synced");
        prop_assert!((shortest..=longest).contains(&(left.len() as u64)), "{} of {shortest} to {longest}", left.len());
        for (at, byte) in left.iter().enumerate() {
            let written = unsynced.iter().any(|(from, count, b)| b == byte && (*from..from + count).contains(&at));
            let grown = *byte == 0 && (at as u64) >= shortest;
            prop_assert!(written || grown || durable.get(at) == Some(byte), "byte {at} is {byte}");
        }
    }
}
