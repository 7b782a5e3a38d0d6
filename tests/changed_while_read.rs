//! The log changes between the moment at which a reader looked up the view and the moment at which it reads the
//! file. What fails then is looked at again; what fails without such a change is answered. No threads: the storage
//! runs the change inside the reader's own read.

#[path = "support/hooked.rs"]
mod hooked;

use std::io;
use std::sync::{Arc, Mutex};

use hooked::{At, Hooked};
use taffrail::{
    BatchBuilder, Commits, Durability, Error, Force, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions,
    Record, Storage, Timestamp, UpTo,
};

/// What happens inside the next read of a `.log`; an error is that read's answer.
type Interruption = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A storage in memory, one read of which can be interrupted.
struct Interrupted {
    storage: Arc<dyn Storage>,
    next: Arc<Mutex<Option<Interruption>>>,
}

impl Interrupted {
    fn new() -> Self {
        let hooked = Hooked::new(MemoryStorage::new(1).shared());
        let next = Arc::new(Mutex::new(None::<Interruption>));
        let waiting = Arc::clone(&next);
        hooked.set(At::Read, move |path| {
            if path.extension().is_none_or(|extension| extension != "log") {
                return Ok(());
            }
            let interruption = waiting.lock().expect("no panic").take();
            interruption.map_or(Ok(()), |interrupt| interrupt())
        });
        Self { storage: hooked.shared(), next }
    }

    fn interrupt(&self, with: impl FnOnce() -> io::Result<()> + Send + 'static) {
        *self.next.lock().expect("no panic") = Some(Box::new(with));
    }

    fn has_interrupted(&self) -> bool {
        self.next.lock().expect("no panic").is_none()
    }
}

fn append(partition: &Partition, values: &[&str]) {
    for value in values {
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new(value).timestamp(Timestamp(partition.end().0.cast_signed()))).expect("small");
        partition.append(&mut batch).expect("appended").wait().expect("stored");
    }
}

/// Ten records, `old` each, a batch each, five in a segment.
fn ten() -> (Interrupted, Partition) {
    let storage = Interrupted::new();
    let config = PartitionConfig::new().durability(Durability::Os).commits(Commits::WhenStored);
    let partition = Partition::builder("data/wal-0").config(config).storage(Arc::clone(&storage.storage)).open();
    let partition = partition.expect("an empty disk opens");
    append(&partition, &["old"; 5]);
    partition.roll().expect("rolled");
    append(&partition, &["old"; 5]);
    (storage, partition)
}

const ALL: ReadOptions = ReadOptions::new().up_to(UpTo::LogEnd);

fn values(partition: &Partition, from: u64) -> taffrail::Result<Vec<String>> {
    let fetched = partition.try_read(Offset(from), ALL)?;
    Ok(fetched.records().map(|record| record.value_str().expect("text").to_owned()).collect())
}

/// The reader holds the view of a longer log, and finds the file cut.
#[test]
fn what_was_cut_off_is_out_of_range() {
    let (storage, partition) = ten();
    let writer = partition.clone();
    storage.interrupt(move || {
        writer.truncate_from(Offset(6), Force::Yes).expect("truncated");
        Ok(())
    });
    let error = values(&partition, 8).expect_err("it was cut off");
    assert!(storage.has_interrupted());
    assert!(matches!(error, Error::OffsetOutOfRange { end: Offset(6), .. }), "{error}");
}

/// Other records stand there by the time it looks again.
#[test]
fn what_took_the_place_of_what_was_cut_off_is_read() {
    let (storage, partition) = ten();
    let writer = partition.clone();
    storage.interrupt(move || {
        writer.truncate_from(Offset(6), Force::Yes).expect("truncated");
        append(&writer, &["new"; 3]);
        Err(io::ErrorKind::NotFound.into())
    });
    assert_eq!(values(&partition, 7).expect("readable"), ["new"; 2]);
    assert!(storage.has_interrupted());
}

/// The segment goes, and its file cannot be reopened.
#[test]
fn what_was_removed_is_out_of_range() {
    let (storage, partition) = ten();
    values(&partition, 0).expect("its indexes are open");
    let writer = partition.clone();
    storage.interrupt(move || {
        writer.trim_before(Offset(5)).expect("trimmed");
        Err(io::ErrorKind::NotFound.into())
    });
    let error = values(&partition, 2).expect_err("it was removed");
    assert!(storage.has_interrupted());
    assert!(matches!(error, Error::OffsetOutOfRange { start: Offset(5), .. }), "{error}");
}

/// The log has another view, in which what is asked for is as it was.
#[test]
fn what_is_still_there_is_read() {
    let (storage, partition) = ten();
    let writer = partition.clone();
    storage.interrupt(move || {
        writer.trim_before(Offset(5)).expect("trimmed");
        Err(io::ErrorKind::NotFound.into())
    });
    assert_eq!(values(&partition, 7).expect("readable"), ["old"; 3]);
    assert!(storage.has_interrupted());
}

/// A search by time looks again too.
#[test]
fn a_search_by_time_looks_again() {
    let (storage, partition) = ten();
    let writer = partition.clone();
    storage.interrupt(move || {
        writer.truncate_from(Offset(6), Force::Yes).expect("truncated");
        Err(io::ErrorKind::NotFound.into())
    });
    assert_eq!(partition.find_timestamp(Timestamp(8)).expect("searchable"), None);
    assert!(storage.has_interrupted());
}

/// Nothing has changed, so the error is the answer: at once, and once.
#[test]
fn a_failure_without_a_change_is_answered() {
    let (storage, partition) = ten();
    storage.interrupt(|| Err(io::ErrorKind::NotFound.into()));
    let error = values(&partition, 7).expect_err("the read failed");
    assert!(matches!(&error, Error::Io { operation: "read", source, .. } if source.kind() == io::ErrorKind::NotFound));
    assert_eq!(values(&partition, 7).expect("readable"), ["old"; 3]);
}

/// An append meanwhile is no reason to look again: it changes nothing below.
#[test]
fn a_failure_beside_an_append_is_answered() {
    let (storage, partition) = ten();
    let writer = partition.clone();
    storage.interrupt(move || {
        append(&writer, &["new"]);
        Err(io::ErrorKind::NotFound.into())
    });
    values(&partition, 7).expect_err("the read failed");
    assert_eq!(values(&partition, 7).expect("readable"), ["old", "old", "old", "new"]);
}
