//! The records of an export are worth more than the topic's id beside them: a damaged `partition.metadata` once failed
//! an export at its very end. The copy goes without it.

use taffrail::{BatchBuilder, MemoryStorage, Offset, Partition, PartitionConfig, ReadOptions, Record};

#[test]
fn a_damaged_topic_id_does_not_keep_the_records() {
    for content in [&b"x"[..], b"version: 7\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", &[0; 100]] {
        let storage = MemoryStorage::new(1);
        let open = |path| Partition::builder(path).config(PartitionConfig::new()).storage(storage.shared()).open();
        let partition = open("data/wal-0").expect("opens");
        let mut batch = BatchBuilder::new();
        batch.push(&Record::new("v")).expect("small");
        partition.append(&mut batch).expect("taken").wait().expect("stored");
        storage.set_bytes("data/wal-0/partition.metadata", content).expect("there");
        assert_eq!(partition.export("data/copy-0").expect("exported"), Offset(1));
        let copy = open("data/copy-0").expect("opens");
        assert!(copy.recovery().clean);
        assert_eq!(copy.read(Offset(0), ReadOptions::new()).expect("sound").records().count(), 1);
        assert!(storage.bytes_of("data/copy-0/partition.metadata").is_none());
    }
}
