//! Topics are created, deleted, grown and configured at random, while the power goes at every operation of the disk and
//! while the disk fails: what was acknowledged is there, what failed is there as a whole or not at all.
//!
//! `TAFFRAIL_CRASH_STRIDE=1` takes the power away at each operation, by default it is every third.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::{env_count, seeds};
use taffrail::{
    BatchBuilder, Error, ErrorKind, Fault, Log, ManualClock, MemoryStorage, Offset, OperationKind, Partition,
    ReadOptions, Record, Result, Retention, Storage, Timestamp, TopicConfig, TopicId, UpTo,
};

const NAMES: [&str; 4] = ["audit", "billing", "claims", "drafts"];

/// What a topic has to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Topic {
    /// Not known where its creation was not answered.
    id: Option<TopicId>,
    partitions: u32,
    bytes: u64,
    /// Of partition 0.
    start: u64,
    values: Vec<String>,
}

type Model = BTreeMap<String, Topic>;

#[derive(Clone, Debug)]
enum Command {
    Create { name: String, partitions: u32, bytes: u64 },
    Delete { name: String },
    Add { name: String, more: u32 },
    Configure { name: String, bytes: u64 },
    Append { name: String, values: Vec<String> },
    Trim { name: String, to: u64 },
}

/// A small generator, so that a seed says everything.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Commands that have to succeed.
struct Script {
    random: Random,
    /// Makes every value and setting one of its kind.
    count: u64,
}

impl Script {
    fn seeded(seed: u64) -> Self {
        Self { random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), count: 0 }
    }

    fn next(&mut self, model: &Model) -> Command {
        self.count += 1;
        let name = NAMES[usize::try_from(self.random.below(NAMES.len() as u64)).expect("small")].to_owned();
        let Some(topic) = model.get(&name) else {
            let partitions = 1 + u32::try_from(self.random.below(3)).expect("small");
            return Command::Create { name, partitions, bytes: 1_000_000 + self.count };
        };
        match self.random.below(6) {
            0 | 1 => Command::Delete { name },
            2 if topic.partitions < 6 => Command::Add { name, more: 1 },
            3 => Command::Configure { name, bytes: 1_000_000 + self.count },
            4 if !topic.values.is_empty() => {
                let to = topic.start + 1 + self.random.below(topic.values.len() as u64);
                Command::Trim { name, to }
            }
            _ => {
                let values = 0..=self.random.below(3);
                Command::Append { name, values: values.map(|value| format!("{}-{value}", self.count)).collect() }
            }
        }
    }
}

fn config(partitions: u32, bytes: u64) -> TopicConfig {
    TopicConfig::new().partitions(partitions).retention(Retention::forever().bytes(bytes))
}

fn append(partition: &Partition, values: &[String]) -> Result<()> {
    let mut batch = BatchBuilder::new();
    for value in values {
        batch.push(&Record::new(value))?;
    }
    partition.append(&mut batch)?.wait()
}

/// What the command makes of the model; a topic that it creates has the given id.
fn after(model: &Model, command: &Command, id: Option<TopicId>) -> Model {
    let mut model = model.clone();
    let mut change = |name: &String, change: &dyn Fn(&mut Topic)| change(model.get_mut(name).expect("it is there"));
    match command {
        Command::Create { name, partitions, bytes } => {
            let topic = Topic { id, partitions: *partitions, bytes: *bytes, start: 0, values: Vec::new() };
            model.insert(name.clone(), topic);
        }
        Command::Delete { name } => drop(model.remove(name)),
        Command::Add { name, more } => change(name, &|topic| topic.partitions += more),
        Command::Configure { name, bytes } => change(name, &|topic| topic.bytes = *bytes),
        Command::Append { name, values } => change(name, &|topic| topic.values.extend(values.iter().cloned())),
        Command::Trim { name, to } => change(name, &|topic| {
            topic.values.drain(..usize::try_from(to - topic.start).expect("small"));
            topic.start = *to;
        }),
    }
    model
}

/// Runs a command; answers the id of the topic that it made.
fn run(log: &Log, model: &Model, command: &Command) -> Result<Option<TopicId>> {
    match command {
        Command::Create { name, partitions, bytes } => log.create_topic(name, config(*partitions, *bytes)).map(Some),
        Command::Delete { name } => log.delete_topic(name).map(|()| None),
        Command::Add { name, more } => {
            let before = model[name].partitions;
            let added = log.add_partitions(name, before + more)?;
            assert_eq!((added.before, added.after), (before, before + more));
            Ok(None)
        }
        Command::Configure { name, bytes } => {
            log.set_topic_config(name, config(model[name].partitions, *bytes)).map(|()| None)
        }
        Command::Append { name, values } => append(&log.partition(name, 0)?, values).map(|()| None),
        Command::Trim { name, to } => log.partition(name, 0)?.trim_before(Offset(*to)).map(|_| None),
    }
}

fn open(storage: &MemoryStorage) -> Result<Log> {
    /// Another one each time, or topics would get ids that others had.
    static SEED: AtomicU64 = AtomicU64::new(0);
    let seed = SEED.fetch_add(1, Ordering::Relaxed);
    Log::builder("data").storage(storage.shared()).background(false).seed(seed).open()
}

/// What a log has.
fn look(log: &Log) -> Model {
    let look = |name: String| {
        let found = log.describe_topic(&name).expect("it is listed");
        let partition = log.partition(&name, 0).expect("every topic has one");
        let mut values = Vec::new();
        let mut at = partition.start();
        while at < partition.end() {
            let fetched = partition.try_read(at, ReadOptions::new().up_to(UpTo::LogEnd)).expect("it reads");
            values.extend(fetched.records().map(|record| record.value_str().expect("text").to_owned()));
            at = fetched.next_offset();
        }
        assert_eq!(found.config.partitions as usize, found.partitions.len(), "{name} is not whole");
        let topic = Topic {
            id: Some(found.id),
            partitions: found.config.partitions,
            bytes: found.config.partition.retention.bytes.expect("each topic has its own"),
            start: partition.start().0,
            values,
        };
        (name, topic)
    };
    log.topics().into_iter().map(look).collect()
}

/// Equal, where everything is known.
fn is_like(found: &Model, expected: &Model) -> bool {
    let topic = |(found, expected): (&Topic, &Topic)| {
        let id = expected.id.or(found.id);
        *found == Topic { id, ..expected.clone() }
    };
    found.keys().eq(expected.keys()) && found.values().zip(expected.values()).all(topic)
}

/// The log has one of the models, and the directories of its partitions are there and no other; answers what it has.
fn check(log: &Log, storage: &MemoryStorage, models: &[Model], what: &dyn Fn() -> String) -> Model {
    let found = look(log);
    let fits = models.iter().any(|model| is_like(&found, model));
    assert!(fits, "{}: there is\n{found:#?}\nand one of these was due\n{models:#?}", what());
    let names = found.iter().flat_map(|(name, topic)| (0..topic.partitions).map(move |n| format!("{name}-{n}")));
    let due: BTreeSet<String> = names.chain(["__taffrail_metadata-0".to_owned()]).collect();
    let entries = storage.list(Path::new("data")).expect("it is there").into_iter();
    let there: BTreeSet<String> = entries.filter(|entry| entry.is_directory).map(|entry| entry.name).collect();
    assert_eq!(there, due, "{}: directories", what());
    found
}

/// Runs commands on a log until one fails; answers what may be there then.
fn run_all(log: &Log, model: &Model, commands: &[Command]) -> Vec<Model> {
    let mut model = model.clone();
    for command in commands {
        match run(log, &model, command) {
            Ok(id) => model = after(&model, command, id),
            Err(_) => return vec![after(&model, command, None), model],
        }
    }
    vec![model]
}

/// Takes the power away at each of the operations that some commands, in one open of the log, take; what is found then
/// goes on. Answers the disk and the model behind the commands when nothing happens.
fn crash_everywhere(
    base: &MemoryStorage,
    model: &Model,
    script: &mut Script,
    commands: usize,
    seed: u64,
) -> (MemoryStorage, Model) {
    let whole = base.snapshot();
    let log = open(&whole).expect("it opens");
    let mut expected = check(&log, &whole, std::slice::from_ref(model), &|| format!("seed {seed}"));
    let mut planned = Vec::new();
    for _ in 0..commands {
        let command = script.next(&expected);
        let id = run(&log, &expected, &command).expect("nothing fails");
        expected = after(&expected, &command, id);
        planned.push(command);
    }
    let (operations, stride) = (whole.operations(), env_count("TAFFRAIL_CRASH_STRIDE", 3));
    for at in (seed % stride..operations).step_by(usize::try_from(stride).expect("small")) {
        let crashed = base.snapshot();
        crashed.crash_at(at);
        let models = match open(&crashed) {
            Ok(log) => run_all(&log, model, &planned),
            Err(_) => vec![model.clone()],
        };
        let left = crashed.crash(seed ^ at);
        let what = || format!("seed {seed}, crash at {at} of {operations}, behind {planned:?}");
        let log = open(&left).unwrap_or_else(|error| panic!("{}: {error}", what()));
        let mut found = check(&log, &left, &models, &what);
        for _ in 0..2 {
            let command = script.next(&found);
            let id = run(&log, &found, &command).unwrap_or_else(|error| panic!("{}: {command:?}: {error}", what()));
            found = after(&found, &command, id);
        }
        drop(log);
        let log = open(&left).unwrap_or_else(|error| panic!("{}: {error}", what()));
        check(&log, &left, &[found], &what);
    }
    std::mem::forget(log);
    (whole.kill(), expected)
}

/// A seed is expensive here.
fn seeds_of(share: u64) -> std::ops::Range<u64> {
    let all = seeds();
    if all.end - all.start == 1 { all } else { 0..all.end.div_ceil(share) }
}

#[test]
fn commands_survive_the_loss_of_power() {
    for seed in seeds_of(100) {
        let mut script = Script::seeded(seed);
        let (mut storage, mut model) = (MemoryStorage::new(seed), Model::new());
        for _ in 0..3 {
            (storage, model) = crash_everywhere(&storage, &model, &mut script, 5, seed);
        }
    }
}

/// A topic was deleted whose log start stood at 4, and one of its name made: the checkpoints in the directory still spoke
/// of the old one, so that after a loss of power the new one's first records counted as removed.
#[test]
fn a_new_topic_has_no_checkpoints_of_an_old_one() {
    let storage = MemoryStorage::new(1);
    let log = open(&storage).expect("it opens");
    log.create_topic("audit", config(1, 1_000_001)).expect("it is made");
    let old = log.partition("audit", 0).expect("it is there");
    append(&old, &["1", "2", "3", "4", "5"].map(str::to_owned)).expect("stored");
    old.trim_before(Offset(4)).expect("trimmed");
    log.delete_topic("audit").expect("it goes");
    let id = log.create_topic("audit", config(1, 1_000_002)).expect("it is made");
    append(&log.partition("audit", 0).expect("it is there"), &["new".to_owned()]).expect("stored");
    let left = storage.crash(1);
    let log = open(&left).expect("it opens");
    let topic = Topic { id: Some(id), partitions: 1, bytes: 1_000_002, start: 0, values: vec!["new".to_owned()] };
    check(&log, &left, &[Model::from([("audit".to_owned(), topic)])], &|| "afterwards".to_owned());
}

fn snapshot_of(storage: &MemoryStorage) -> Option<usize> {
    storage.bytes_of("data/__taffrail_metadata-0/catalogue.taffrail").map(|bytes| bytes.len())
}

/// Thousands of commands: snapshots are taken and the journal is cut, and the power goes around each of them.
#[test]
fn snapshots_and_cuts_of_the_journal_survive_the_loss_of_power() {
    let mut script = Script::seeded(99);
    let (mut storage, mut model) = (MemoryStorage::new(99), Model::new());
    let (mut commands, mut snapshots) = (0, 0);
    while commands < 2_500 || snapshots < 3 {
        let log = open(&storage).expect("it opens");
        let mut before = storage.snapshot();
        let mut known = model.clone();
        let metadata = storage.bytes_of("data/__taffrail_metadata-0/catalogue.taffrail");
        for number in 0.. {
            if number % 8 == 0 {
                before = storage.snapshot();
                known = model.clone();
            }
            let command = script.next(&model);
            let id = run(&log, &model, &command).expect("nothing fails");
            model = after(&model, &command, id);
            commands += 1;
            if storage.bytes_of("data/__taffrail_metadata-0/catalogue.taffrail") != metadata {
                break;
            }
        }
        snapshots += 1;
        // The snapshot came within the last eight commands: again, with a crash at each of their operations.
        let (_, _) = crash_everywhere(&before, &known, &mut script, 9, snapshots);
        let segments = |path: &&std::path::PathBuf| {
            path.starts_with("data/__taffrail_metadata-0") && path.extension().is_some_and(|e| e == "log")
        };
        let paths = storage.paths();
        assert!(paths.iter().filter(segments).count() <= 2, "the journal is cut: {paths:?}");
        std::mem::forget(log);
        storage = storage.kill();
        let log = open(&storage).expect("it opens");
        model = check(&log, &storage, &[model], &|| format!("behind snapshot {snapshots}"));
        log.close().expect("it closes");
    }
    assert!(snapshot_of(&storage).is_some());
    println!("{commands} commands that changed something, {snapshots} snapshots");
}

fn fault_of(random: &mut Random) -> Fault {
    match random.below(4) {
        0 => Fault::NoSpace,
        1 => Fault::Io,
        2 => Fault::SyncFails,
        _ => Fault::ShortWrite(random.below(60)),
    }
}

/// What may be there after commands that failed: each of them may have happened or not. A topic whose command failed is
/// taken as it is found, as long as it is whole and one of what was asked for.
#[test]
fn after_faults_everything_works_without_another_open() {
    for seed in seeds() {
        let mut script = Script::seeded(seed);
        let mut random = Random(seed);
        let storage = MemoryStorage::new(seed);
        let clock = Arc::new(ManualClock::at(Timestamp(1_000)));
        let builder = Log::builder("data").storage(storage.shared()).clock(Arc::clone(&clock) as Arc<_>);
        let log = builder.background(false).seed(seed).open().expect("it opens");
        let mut model = Model::new();
        for round in 0..6 {
            let what = || format!("seed {seed}, round {round}");
            for _ in 0..4 {
                let command = script.next(&model);
                let id = run(&log, &model, &command).unwrap_or_else(|e| panic!("{}: {command:?}: {e}", what()));
                model = after(&model, &command, id);
            }
            let models = fail_some(&log, &storage, &model, &mut script, &mut random);
            storage.clear_faults();
            // An admin call makes the catalogue work again, and what falls due later makes its partitions.
            let probe = log.ensure_topic("probe", config(1, 1));
            probe.unwrap_or_else(|error| panic!("{}: {error}", what()));
            log.delete_topic("probe").unwrap_or_else(|error| panic!("{}: {error}", what()));
            clock.advance(Duration::from_secs(10));
            log.tick();
            model = check(&log, &storage, &models, &what);
        }
        std::mem::forget(log);
        let left = if seed % 2 == 0 { storage.kill() } else { storage.crash(seed) };
        check(&open(&left).expect("it opens"), &left, &[model], &|| format!("seed {seed}, opened again"));
    }
}

/// Runs admin commands while the disk fails now and then; answers what may be there.
fn fail_some(
    log: &Log,
    storage: &MemoryStorage,
    model: &Model,
    script: &mut Script,
    random: &mut Random,
) -> Vec<Model> {
    let mut models = vec![model.clone()];
    for _ in 0..2 {
        let start = storage.operations() + random.below(40);
        storage.fail_between(start..start + 1 + random.below(4), fault_of(random));
        // One that is decided by all that may be there.
        let command = script.next(&models[0]);
        if matches!(command, Command::Append { .. } | Command::Trim { .. }) {
            continue;
        }
        match run(log, &models[0], &command) {
            Ok(id) => models = models.iter().map(|model| after(model, &command, id)).collect(),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::Restore, "{error}");
                let happened = after(&models[0], &command, None);
                models.push(happened);
                return models;
            }
        }
    }
    models
}

/// A command that failed is answered by what failed, and one that is refused is no failure.
#[test]
fn a_failed_command_says_what_failed() {
    let storage = MemoryStorage::new(1);
    let log = open(&storage).expect("it opens");
    storage.fail_from(storage.operations(), Fault::SyncFails);
    let error = log.create_topic("audit", config(1, 1)).expect_err("nothing can be synced");
    assert!(matches!(error, Error::Poisoned { .. } | Error::Io { .. }), "{error}");
    assert!(matches!(error.kind(), ErrorKind::Reopen | ErrorKind::Retry));
    let error = log.create_topic("audit", config(1, 1)).expect_err("nor reopened");
    assert!(matches!(error, Error::Poisoned { .. } | Error::Io { .. }), "{error}");
    storage.clear_faults();
    log.ensure_topic("audit", config(1, 1)).expect("an admin call recovers by itself");
    log.partition("audit", 0).expect("it is open");
    storage.fill_up();
    let error = log.create_topic("billing", config(1, 1)).expect_err("the disk is full");
    assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    storage.free();
    log.ensure_topic("billing", config(1, 1)).expect("there is room again");
}

/// The second command found the catalogue stopped, could not begin it anew, and was never answered.
#[test]
fn every_command_is_answered_while_the_journal_takes_nothing() {
    let storage = MemoryStorage::new(1);
    let log = open(&storage).expect("it opens");
    let is_journal = |path: &Path| path.starts_with("data/__taffrail_metadata-0");
    storage.fail_when(move |operation| {
        let writes = matches!(operation.kind, OperationKind::Write | OperationKind::Extend);
        (writes && is_journal(&operation.path)).then_some(Fault::Io)
    });
    for _ in 0..3 {
        let error = log.create_topic("audit", config(1, 1)).expect_err("nothing can be written");
        assert!(matches!(error.kind(), ErrorKind::Retry | ErrorKind::Reopen), "{error}");
    }
    storage.clear_faults();
    log.create_topic("audit", config(1, 1)).expect("an admin call recovers by itself");
}
