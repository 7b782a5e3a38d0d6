//! Journal records, events and snapshots of the catalogue: no bytes panic, and what is taken reads the same once it was
//! written again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taffrail::testkit::fuzzing::catalogue(bytes));
