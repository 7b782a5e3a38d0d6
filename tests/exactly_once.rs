//! The example that counts every flight once, killed as often as `TAFFRAIL_LOG_KILLS` says (3).

mod support;

#[path = "../examples/exactly_once.rs"]
#[expect(dead_code, reason = "the program's main is not called")]
mod example;

pub(crate) use example::flights;

use std::path::Path;
use std::process::Command;

use example::exactly_once;

const CHILD: &str = "TAFFRAIL_EXACTLY_ONCE_CHILD";
const TEST: &str = "every_flight_is_counted_once_however_often_its_counter_is_killed";
const FLIGHTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/flights.jsonl");

#[test]
fn every_flight_is_counted_once_however_often_its_counter_is_killed() {
    if let Ok(directory) = std::env::var(CHILD) {
        exactly_once::count(Path::new(&directory)).expect("it counts until it is killed");
        return;
    }
    let home = tempfile::tempdir().expect("a temporary directory");
    let child = |directory: &Path| {
        let mut child = Command::new(std::env::current_exe().expect("a test knows its own file"));
        child.args([TEST, "--exact", "--nocapture"]).env(CHILD, directory);
        child
    };
    let rounds = support::env_count("TAFFRAIL_LOG_KILLS", 3);
    let proof = exactly_once::run(Path::new(FLIGHTS), &home.path().join("log"), rounds, &child);
    let proof = proof.expect("every flight is counted once");
    assert_eq!((proof.flights, proof.carriers), (6099, 15), "{proof}");
    assert!(proof.written > proof.committed, "some were given up: {proof}");
}
