//! The README's first program runs, and again on the directory that it has left; the README names files that are there.
//! (All of its programs are compiled with the documentation's, and the second one is run with them.)

use std::path::Path;

/// The first program, which stands in the README and here.
mod first_program {
    include!("support/first_program.rs");

    pub(super) fn run() -> taffrail::Result<()> {
        main()
    }
}

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    std::fs::read_to_string(path).expect("the README is there")
}

#[test]
fn the_first_program_is_the_one_that_is_tested() {
    let readme = readme();
    let first = readme.split("```rust").nth(1).and_then(|rest| rest.split_once('\n')).expect("it has a program");
    let program = first.1.split("```").next().expect("it ends");
    assert_eq!(program, include_str!("support/first_program.rs"));
}

#[test]
fn the_first_program_runs_twice_on_its_directory() {
    let home = tempfile::tempdir().expect("a temporary directory");
    // It opens `./data`. No other test of this program looks at where it runs.
    std::env::set_current_dir(home.path()).expect("it is there");
    for runs in 1..=2 {
        first_program::run().expect("it runs");
        let log = taffrail::Log::open(home.path().join("data")).expect("it was closed");
        let orders = log.describe_topic("orders").expect("it is there");
        let records: u64 = orders.partitions.iter().map(|partition| partition.end.0).sum();
        assert_eq!((orders.partitions.len(), records), (4, runs));
        // The group has read what there is, and the next run goes on behind it.
        let group = log.describe_group("billing").expect("it is known");
        let read: u64 = group.positions.iter().map(|position| position.committed.offset.0).sum();
        assert_eq!((read, group.members.len()), (runs, 0));
    }
}

/// What stands between backquotes and is a path of ours.
fn paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|quoted| ["tests/", "benches/", "fuzz/", ".ci/"].iter().any(|root| quoted.starts_with(root)))
        .collect()
}

#[test]
fn every_file_that_the_readme_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = readme();
    let named = paths(&readme);
    assert!(named.len() > 10, "{named:?}");
    for path in named {
        let path = path.split(' ').next().unwrap_or_default();
        // What only a checkout has, and a published package does not.
        let is_checkout = root.join(".ci").exists();
        assert!(root.join(path).exists() || (!is_checkout && !path.starts_with("tests/")), "{path} is not there");
    }
}

/// Every example has its line.
#[test]
fn every_example_is_in_the_readme() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let readme = readme();
    for entry in std::fs::read_dir(examples).expect("it is there") {
        let path = entry.expect("it lists").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
            assert!(
                readme.contains(&format!("--example {name}`")) || readme.contains(&format!("--example {name} ")),
                "{name}"
            );
        }
    }
}
