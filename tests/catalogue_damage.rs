//! Every byte of the catalogue is damaged in turn: the log opens with the same topics, or says where the damage is. It
//! never opens without one of them.

use std::collections::BTreeMap;

use taffrail::{Error, ErrorKind, Log, MemoryStorage, Result, Retention, TopicConfig, TopicId};

const DIRECTORY: &str = "data/__taffrail_metadata-0";

fn open(storage: &MemoryStorage) -> Result<Log> {
    Log::builder("data").storage(storage.shared()).background(false).seed(5).open()
}

fn config(bytes: u64) -> TopicConfig {
    TopicConfig::new().partitions(2).retention(Retention::forever().bytes(bytes))
}

type Topics = BTreeMap<String, (TopicId, TopicConfig, bool)>;

fn look(log: &Log) -> Topics {
    let look = |name: String| {
        let found = log.describe_topic(&name).expect("it is listed");
        (name, (found.id, found.config, found.adopted))
    };
    log.topics().into_iter().map(look).collect()
}

/// A log with a few topics, and what it has; the last thing that happened to it is that a topic was made.
fn made(commands: u64) -> (MemoryStorage, Log) {
    let storage = MemoryStorage::new(1);
    let log = open(&storage).expect("an empty disk opens");
    for name in ["audit", "billing", "claims"] {
        log.create_topic(name, config(1_000)).expect("it is made");
    }
    for number in 0..commands {
        log.set_topic_config("audit", config(2_000 + number)).expect("it is taken");
    }
    log.add_partitions("billing", 3).expect("it grows");
    log.delete_topic("claims").expect("it goes");
    log.create_topic("drafts", config(3_000)).expect("it is made");
    (storage, log)
}

fn journal(storage: &MemoryStorage) -> String {
    let is_log =
        |path: &std::path::PathBuf| path.starts_with(DIRECTORY) && path.extension().is_some_and(|e| e == "log");
    let logs: Vec<_> = storage.paths().into_iter().filter(is_log).collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
    logs[0].display().to_string()
}

/// Damages a byte; what the open answers then.
fn open_damaged(storage: &MemoryStorage, path: &str, position: u64) -> (MemoryStorage, Result<Topics>) {
    let damaged = storage.snapshot();
    // A byte whose bits are all others, or a single one.
    let bits = if position.is_multiple_of(2) {
        0..8
    } else {
        let bit = u8::try_from(position / 2 % 8).expect("small");
        bit..bit + 1
    };
    bits.for_each(|bit| damaged.flip_bit(path, position, bit).expect("it is there"));
    let topics = open(&damaged).map(|log| look(&log));
    (damaged, topics)
}

fn check_error(error: &Error, path: &str, position: u64) {
    assert_eq!(error.kind(), ErrorKind::Restore, "byte {position} of {path}: {error}");
    let directory = DIRECTORY.to_owned();
    assert!(error.to_string().contains(&directory), "byte {position} of {path}: {error}");
    let says_where = match error {
        Error::Corrupt { .. } | Error::CorruptCatalogue { .. } => true,
        Error::CorruptFile { path: named, .. } => named.ends_with("catalogue.taffrail"),
        _ => false,
    };
    assert!(says_where, "byte {position} of {path}: {error}");
}

fn everything_is_there_or_named(storage: &MemoryStorage, path: &str, step: usize, expected: &Topics) -> (u64, u64) {
    let end = storage.bytes_of(path).expect("it is there").len() as u64;
    let (mut opened, mut refused) = (0, 0);
    for position in (0..end).step_by(step) {
        let (damaged, found) = open_damaged(storage, path, position);
        match found {
            Ok(found) => {
                assert_eq!(&found, expected, "byte {position} of {path}");
                opened += 1;
            }
            Err(error) => {
                check_error(&error, path, position);
                refused += 1;
                // It says so again, as long as nobody has mended it.
                let again = open(&damaged).expect_err("nothing has changed");
                check_error(&again, path, position);
            }
        }
    }
    println!("{path}: {end} bytes, {opened} without effect, {refused} refused");
    (opened, refused)
}

#[test]
fn a_closed_catalogue_loses_no_topic_to_damage() {
    let (storage, log) = made(0);
    let expected = look(&log);
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["audit", "billing", "drafts"]);
    log.close().expect("it closes");
    let (opened, refused) = everything_is_there_or_named(&storage, &journal(&storage), 1, &expected);
    assert!(refused > 9 * opened, "{refused} refused, {opened} opened");
}

/// A file that was cut is damage as well: what was acknowledged stood there.
#[test]
fn a_closed_catalogue_that_was_cut_is_refused() {
    let (storage, log) = made(0);
    log.close().expect("it closes");
    let path = journal(&storage);
    let bytes = storage.bytes_of(&path).expect("it is there");
    for len in (0..bytes.len()).step_by(7) {
        let cut = storage.snapshot();
        cut.set_bytes(&path, &bytes[..len]).expect("replaced");
        let error = open(&cut).expect_err("a topic is missing");
        assert_eq!(error.kind(), ErrorKind::Restore, "cut at {len}: {error}");
    }
}

#[test]
fn a_snapshot_loses_no_topic_to_damage() {
    let (storage, log) = made(1_020);
    let expected = look(&log);
    log.close().expect("it closes");
    let path = format!("{DIRECTORY}/catalogue.taffrail");
    let (opened, refused) = everything_is_there_or_named(&storage, &path, 1, &expected);
    assert!(opened == 0 && refused > 100);
    let (opened, refused) = everything_is_there_or_named(&storage, &journal(&storage), 17, &expected);
    assert!(refused > opened);
    let missing = storage.snapshot();
    taffrail::Storage::remove(&missing, std::path::Path::new(&path)).expect("it is there");
    let error = open(&missing).expect_err("the snapshot is missing");
    check_error(&error, &path, 0);
}

/// Behind a kill the last record may have been torn before anybody was told of it, so that damage there looks the same:
/// then its topic, whose directory is there, is taken in without its settings. Everything before it is there or named.
#[test]
fn a_killed_catalogue_loses_nothing_but_a_torn_tail() {
    let (storage, log) = made(0);
    let expected = look(&log);
    std::mem::forget(log);
    let storage = storage.kill();
    let path = journal(&storage);
    let bytes = storage.bytes_of(&path).expect("it is there");
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("something was written") as u64 + 1;
    let mut torn = 0;
    for position in (0..end + 64).chain([bytes.len() as u64 - 1]) {
        match open_damaged(&storage, &path, position).1 {
            Ok(found) if found == expected => {}
            Ok(mut found) => {
                let (id, _, adopted) = found.remove("drafts").expect("its directory is there");
                assert!(adopted && id == expected["drafts"].0, "byte {position}");
                found.insert("drafts".to_owned(), expected["drafts"].clone());
                assert_eq!(found, expected, "byte {position}");
                torn += 1;
            }
            Err(error) => check_error(&error, &path, position),
        }
    }
    assert!(torn > 0 && torn < 400, "{torn} bytes of the last record");
}

/// What was administered then was written at indexes that the snapshot has, and passed over by every later open.
#[test]
fn a_snapshot_whose_journal_is_gone_or_cut_is_an_error() {
    let (storage, log) = made(1_010);
    drop(log);
    let path = journal(&storage);
    let whole = storage.bytes_of(&path).expect("it is there");
    for length in [0, whole.len() / 8, whole.len() / 2] {
        let damaged = storage.kill();
        damaged.set_bytes(&path, &whole[..length]).expect("it is there");
        let refused = open(&damaged).map(|log| look(&log));
        assert!(
            matches!(refused, Err(Error::CorruptCatalogue { .. } | Error::Corrupt { .. })),
            "{length}: {refused:?}"
        );
    }
    let damaged = storage.kill();
    damaged.shared().remove(path.as_ref()).expect("it is there");
    let checkpoints = ["data/recovery-point-offset-checkpoint", "data/log-start-offset-checkpoint"];
    for path in checkpoints {
        damaged.shared().remove(path.as_ref()).expect("it is there");
    }
    let refused = open(&damaged).map(|log| look(&log));
    assert!(matches!(refused, Err(Error::CorruptCatalogue { .. })), "{refused:?}");
}

/// A checkpoint has no checksum: with the catalogue's own end as its start there was nothing in it, and every topic was
/// taken in anew, without its settings.
#[test]
fn a_log_start_that_no_snapshot_explains_is_an_error() {
    let (storage, log) = made(0);
    let expected = look(&log);
    log.close().expect("it closes");
    let path = "data/log-start-offset-checkpoint";
    let text = String::from_utf8(storage.bytes_of(path).expect("it is there").to_vec()).expect("it is text");
    let mut opened = 0;
    for start in 0..40 {
        let damaged = storage.snapshot();
        let wrong = text.replace("__taffrail_metadata 0 0", &format!("__taffrail_metadata 0 {start}"));
        damaged.set_bytes(path, wrong.as_bytes()).expect("it is there");
        if let Ok(log) = open(&damaged) {
            assert_eq!(look(&log), expected, "start {start}");
            opened += 1;
        }
    }
    assert_eq!(opened, 1, "with the right one it opens");
}
