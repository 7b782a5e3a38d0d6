//! The README names files that are there. (Its program is compiled and run with the documentation's.)

use std::path::Path;

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
    let readme = std::fs::read_to_string(root.join("README.md")).expect("the README is there");
    let named = paths(&readme);
    assert!(named.len() > 10, "{named:?}");
    for path in named {
        let path = path.split(' ').next().unwrap_or_default();
        // What only a checkout has, and a published package does not.
        let is_checkout = root.join(".ci").exists();
        assert!(root.join(path).exists() || (!is_checkout && !path.starts_with("tests/")), "{path} is not there");
    }
}
