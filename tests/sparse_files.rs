//! A small file whose length says terabytes (a sparse file: nothing else of it is there) once ended the process: with
//! `Reads::Buffered` as much memory was asked for as the length says. Nothing is allocated by a length that cannot be
//! right: such an index is built anew, such a checkpoint is damaged.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use taffrail::{BatchBuilder, ErrorKind, FileStorage, Offset, Partition, PartitionConfig, ReadOptions, Reads, Record};

const LENGTH: u64 = 1 << 43;

fn open(path: &Path, reads: Reads) -> taffrail::Result<Partition> {
    Partition::builder(path).config(PartitionConfig::new()).storage(Arc::new(FileStorage::new().reads(reads))).open()
}

#[test]
fn a_length_that_cannot_be_right_allocates_nothing() {
    let place = tempfile::tempdir().expect("a place");
    let names = [
        ("recovery-point-offset-checkpoint", true),
        ("log-start-offset-checkpoint", true),
        ("leader-epoch-checkpoint", true),
        ("history.taffrail", true),
        ("00000000000000000000.index", true),
        ("00000000000000000000.timeindex", true),
        ("00000000000000000000.txnindex", false),
    ];
    for (number, (name, heals)) in names.into_iter().enumerate() {
        for reads in [Reads::Buffered, Reads::Mapped] {
            for clean in [true, false] {
                let path = place.path().join(format!("wal{reads:?}{clean}-{number}"));
                let partition = open(&path, reads).expect("opens");
                let mut batch = BatchBuilder::new();
                (0..3).for_each(|_| batch.push(&Record::new("v")).expect("small"));
                partition.append(&mut batch).expect("taken").wait().expect("stored");
                partition.close().expect("closes");
                if !clean {
                    fs::remove_file(path.join(".kafka_cleanshutdown")).expect("there");
                }
                let file = fs::File::options().create(true).truncate(false).write(true).open(path.join(name));
                file.expect("opened").set_len(LENGTH).expect("sparse");
                let outcome = open(&path, reads).and_then(|partition| {
                    let records = partition.read(Offset(0), ReadOptions::new())?.records().count();
                    partition.find_timestamp(taffrail::Timestamp(1))?;
                    partition.truncate_from(Offset(0), taffrail::Force::Yes)?;
                    Ok(records)
                });
                match outcome {
                    Ok(records) => assert_eq!(records, 3, "{name}"),
                    Err(error) => {
                        assert!(!heals, "{name}: {error}");
                        assert!(matches!(error.kind(), ErrorKind::Restore | ErrorKind::Reopen), "{name}: {error}");
                    }
                }
            }
        }
    }
}
