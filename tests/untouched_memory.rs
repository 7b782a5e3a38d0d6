//! Room for a batch takes memory only as records fill it.
#![cfg(target_os = "linux")]

use taffrail::{BatchBuilder, Record};

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is told");
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok());
    kib.expect("a number of KiB") << 10
}

#[test]
fn room_for_much_costs_little() {
    let before = resident_bytes();
    let mut builder = BatchBuilder::with_capacity(1 << 30);
    builder.push(&Record::new("a")).expect("it has room");
    assert_eq!(builder.encode().expect("one record").len(), builder.size_bytes());
    let taken = resident_bytes().saturating_sub(before);
    assert!(taken < 16 << 20, "{taken} bytes");
}
