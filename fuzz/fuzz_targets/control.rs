//! Control records: no bytes panic, and a marker is written again as one that says the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taffrail::testkit::fuzzing::control(bytes));
