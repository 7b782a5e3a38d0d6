//! Which keys move when a topic grows, on real keys: the aircraft of a month of flights.

#[path = "../examples/shared/flights.rs"]
mod flights;

use std::collections::BTreeSet;
use std::path::Path;

use taffrail::{Choice, Murmur2, Partitioner};

fn partition(key: &str, partitions: u32) -> u32 {
    let choice = Choice { topic: "flights", key: Some(key.as_bytes()), value: None, partitions, sticky: 0 };
    Murmur2.partition(&choice)
}

#[test]
fn growing_moves_the_aircraft_that_it_is_documented_to_move() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/flights.jsonl");
    let flights = flights::read(&path).expect("the flights are there");
    let aircraft: BTreeSet<String> = flights.into_iter().filter_map(|flight| flight.tail).collect();
    assert_eq!(aircraft.len(), 2048);
    let moved = |to| aircraft.iter().filter(|tail| partition(tail, 8) != partition(tail, to)).count();
    assert_eq!([moved(8), moved(10), moved(16)], [0, 1668, 1006]);
}
