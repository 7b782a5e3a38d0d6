//! A sync ends, however often the log is cut meanwhile: what was appended when it was called is synced then, or taken
//! back. It once began anew at each truncation, up to what had been appended by then, and beside a replica that is cut
//! again and again it never came to an end; nor did an export, which syncs first, nor whoever waited for records that no
//! truncation touched.

#[path = "support/hooked.rs"]
mod hooked;

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use hooked::{At, Hooked};
use taffrail::{BatchBuilder, Durability, Error, Force, MemoryStorage, Offset, Partition, PartitionConfig, Record};

thread_local! {
    /// How many truncations come in between the syncs of this thread.
    static CUTS: Cell<u32> = const { Cell::new(0) };
}

fn append(partition: &Partition) {
    let mut batch = BatchBuilder::new();
    batch.push(&Record::new("v")).expect("small");
    drop(partition.append(&mut batch).expect("taken"));
}

/// A partition that another thread appends two records to and takes one back from, during each sync of this thread
/// while there are cuts left.
fn restless(durability: Durability) -> (Partition, MemoryStorage) {
    let slot: Arc<Mutex<Option<Partition>>> = Arc::default();
    let files = MemoryStorage::new(1);
    let inside = Arc::clone(&slot);
    let storage = Hooked::new(files.shared());
    storage.set(At::Sync, move |_| {
        let left = CUTS.take();
        let partition = inside.lock().expect("nobody panics").clone();
        if let Some(partition) = partition.filter(|_| left > 0) {
            let cut = move || {
                append(&partition);
                append(&partition);
                let end = partition.end();
                partition.truncate_from(Offset(end.0 - 1), Force::Yes).expect("cut");
            };
            std::thread::spawn(cut).join().expect("no panic");
            CUTS.set(left - 1);
        }
        Ok(())
    });
    let config = PartitionConfig::new().durability(durability);
    let partition = Partition::builder("data/wal-0").config(config).storage(storage.shared()).open().expect("opens");
    *slot.lock().expect("nobody panics") = Some(partition.clone());
    (partition, files)
}

#[test]
fn a_sync_beside_truncations_ends() {
    const CUTS_MAX: u32 = 100;
    for durability in [Durability::Os, Durability::Sync] {
        type Call = fn(&Partition);
        let calls: [(&str, Call); 3] = [
            ("sync", |partition| partition.sync().expect("synced")),
            ("export", |partition| match partition.export("data/copy-0") {
                Ok(end) => assert!(end >= Offset(2)),
                Err(error) => assert!(matches!(error, Error::Superseded { .. }), "{error}"),
            }),
            ("sync_to", |partition| partition.sync_to(Offset(2)).expect("synced")),
        ];
        for (name, call) in calls {
            let (partition, files) = restless(durability);
            (0..3).for_each(|_| append(&partition));
            CUTS.set(CUTS_MAX);
            call(&partition);
            let cuts = CUTS_MAX - CUTS.take();
            assert!((1..10).contains(&cuts), "{durability:?}: {name} took as long as {cuts} truncations");
            assert!(partition.synced_end() >= Offset(2), "{durability:?}: {name}: {}", partition.synced_end());
            // What it says is synced survives.
            let synced = partition.synced_end();
            for seed in 0..20 {
                let storage = files.snapshot().crash(seed);
                let after = Partition::builder("data/wal-0").storage(storage.shared()).open().expect("opens");
                assert!(after.end() >= synced, "{durability:?}: {name}: {} of {synced}", after.end());
            }
        }
    }
}
