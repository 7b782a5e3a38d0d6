//! Settings that contradict each other or the build are refused.

use super::House;
use crate::error::Error;
use crate::producer::ProducerBuilder;

#[test]
fn settings_that_cannot_be_are_refused() {
    let house = House::unsynced(1);
    let refused = |builder: ProducerBuilder, name| {
        let outcome = builder.open();
        assert!(matches!(outcome, Err(Error::InvalidConfig { setting, .. }) if setting == name), "{name}");
    };
    refused(house.builder().batch_bytes(0), "batch_bytes");
    refused(house.builder().batch_bytes(1 << 31).memory_bytes(1 << 40), "batch_bytes");
    refused(house.builder().batch_bytes(1001).memory_bytes(1000), "memory_bytes");
    refused(house.builder().memory_bytes(0), "memory_bytes");
    house.builder().batch_bytes(1000).memory_bytes(1000).open().expect("one batch is enough");
}

#[cfg(not(feature = "zstd"))]
#[test]
fn a_codec_that_is_compiled_out_is_refused_at_once() {
    let house = House::unsynced(1);
    let outcome = house.builder().compression(crate::types::Compression::Zstd).open();
    assert!(matches!(outcome, Err(Error::CodecDisabled { codec: "zstd" })));
}

#[test]
fn a_seed_repeats_the_choices() {
    let chosen = |seed| {
        let house = House::unsynced(16);
        let producer = house.builder().seed(seed).batch_bytes(100).open().expect("it opens");
        let value = "v".repeat(60);
        for _ in 0..50 {
            producer.send("orders", crate::record::builder::Record::new(&value)).expect("it is sent");
        }
        producer.flush().expect("it is stored");
        house.counts()
    };
    assert_eq!(chosen(1), chosen(1));
    assert_ne!(chosen(1), chosen(2));
}
