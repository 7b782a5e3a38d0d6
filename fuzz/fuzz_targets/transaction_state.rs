//! Records of the coordinators of transactions: no bytes panic, what is taken reads the same once it was written again, and
//! a machine made of them answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taffrail::testkit::fuzzing::transaction_state(bytes));
