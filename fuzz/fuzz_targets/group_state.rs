//! Records of the coordinators of groups: no bytes panic, what is taken reads the same once it was written again, and a
//! machine made of them comes to order again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| taffrail::testkit::fuzzing::group_state(bytes));
