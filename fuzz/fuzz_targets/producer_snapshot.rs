//! Snapshots of the producers of a partition: no bytes panic, and what is taken reads the same once it was written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taffrail::testkit::fuzzing::producer_snapshot(bytes));
