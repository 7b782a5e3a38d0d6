//! What the compiler does not check: the floors of the house, and the things that have one home.
//!
//! ```text
//!  7 testkit
//!  6 log
//!  5 producer | consumer | lag
//!  4 node
//!  3 partition | group | txn | controller | replication | quorum
//!  2 segment | epochs | machine
//!  1 record | storage | transport
//!  0 config clock random sync metrics mutants  <  error  <  types
//! ```
//!
//! A module imports from lower floors only; modules on one floor do not know each other.

use std::fs;
use std::path::{Path, PathBuf};

/// The floor of each room. On floor 0 the order is finer: `types` and `error` know each other, the rest stands on them.
const FLOORS: &[(&str, u32)] = &[
    ("types", 0),
    ("error", 0),
    ("config", 1),
    ("clock", 1),
    ("random", 1),
    ("sync", 1),
    ("metrics", 1),
    ("trace", 1),
    ("mutants", 1),
    ("record", 10),
    ("storage", 10),
    ("transport", 10),
    ("segment", 20),
    ("epochs", 20),
    ("machine", 20),
    ("partition", 30),
    ("group", 30),
    ("txn", 30),
    ("controller", 30),
    ("replication", 30),
    ("quorum", 30),
    ("node", 40),
    ("producer", 50),
    ("consumer", 50),
    ("lag", 50),
    ("log", 60),
    ("testkit", 70),
];

/// What has one home: the text, and the files it may stand in (a folder ends in a slash).
const HOMES: &[(&str, &[&str])] = &[
    ("std::fs", &["storage/"]),
    ("memmap2", &["storage/map.rs"]),
    ("unsafe", &["storage/map.rs"]),
    ("thread::spawn", &["node/"]),
    ("thread::Builder", &["node/"]),
    ("SystemTime", &["clock.rs"]),
    ("Instant", &["clock.rs"]),
    ("fastrand", &["random.rs"]),
    ("tracing", &["trace.rs"]),
    ("::metrics", &["metrics.rs", "lag/tests/metrics.rs"]),
    ("use metrics", &["metrics.rs"]),
    ("parking_lot", &["sync.rs"]),
    ("std::sync::Mutex", &["sync.rs"]),
    ("std::sync::RwLock", &["sync.rs"]),
    ("HashMap", &["storage/file.rs"]),
    ("HashSet", &[]),
];

struct Source {
    /// Relative to `src`.
    path: String,
    /// The code, without comments and tests.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    found.sort_by(|a: &Source, b: &Source| a.path.cmp(&b.path));
    found
}

fn collect(root: &Path, directory: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).expect("src is readable") {
        let path: PathBuf = entry.expect("src is readable").path();
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            let relative = path.strip_prefix(root).expect("it lies below").to_string_lossy().replace('\\', "/");
            found.push(Source { path: relative, code: strip(&text) });
        }
    }
}

/// Drops comments and everything from the first test module on (tests come last in a file).
fn strip(text: &str) -> String {
    let end = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    let without = |line: &str| match line.find("//") {
        Some(at) if !line[..at].ends_with(':') => line[..at].to_owned(),
        _ => line.to_owned(),
    };
    text[..end].lines().map(without).collect::<Vec<_>>().join("\n")
}

/// The room a file belongs to: its top folder, or its name.
fn room(path: &str) -> &str {
    path.split('/').next().expect("a path is not empty").trim_end_matches(".rs")
}

fn floor(room: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

/// Every room named behind `crate::` in the code, in groups (`crate::{a, b}`) too.
fn imports(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    let mut rooms = Vec::new();
    for (at, mark) in code.match_indices("crate::") {
        let rest = &code[at + mark.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_i32;
            let mut start = true;
            for (i, c) in group.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => start = true,
                    c if start && c.is_ascii_alphabetic() => {
                        rooms.push(word(&group[i..]));
                        start = false;
                    }
                    _ => {}
                }
            }
        } else {
            rooms.push(word(rest));
        }
    }
    rooms
}

#[test]
fn modules_import_from_lower_floors_only() {
    let mut wrong = Vec::new();
    for source in sources() {
        let own = room(&source.path);
        if own == "lib" {
            continue;
        }
        let Some(here) = floor(own) else {
            wrong.push(format!("{}: the room {own} has no floor", source.path));
            continue;
        };
        for other in imports(&source.code) {
            match floor(&other) {
                _ if other == own => {}
                Some(there) if there < here => {}
                Some(0) if here == 0 => {}
                Some(there) => wrong.push(format!("{} (floor {here}) imports {other} (floor {there})", source.path)),
                None => {
                    wrong.push(format!("{} imports crate::{other}: name the module, not the re-export", source.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "upward imports:\n{}", wrong.join("\n"));
}

#[test]
fn things_stay_in_their_home() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (thing, homes) in HOMES {
            let at_home = homes
                .iter()
                .any(|home| if home.ends_with('/') { source.path.starts_with(home) } else { source.path == *home });
            let named = source.code.lines().any(|line| {
                line.match_indices(thing).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    let after = line[at + thing.len()..].chars().next();
                    let joined = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
                    !joined(before) && !joined(after)
                })
            });
            if named && !at_home {
                wrong.push(format!("{} names {thing}, which lives in {homes:?}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "away from home:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_says_what_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for source in sources() {
        let text = fs::read_to_string(root.join("src").join(&source.path)).expect("sources are UTF-8");
        assert!(text.starts_with("//!"), "{} does not begin with module docs", source.path);
    }
}

#[test]
fn the_checks_can_fail() {
    assert_eq!(
        imports("use crate::{types::{A, B}, error::E};\nlet x = crate::log::open();"),
        ["types", "error", "log"]
    );
    assert!(!strip("let a = 1; // memmap2\n#[cfg(test)]\nmod tests { unsafe {} }").contains("memmap2"));
    assert!(floor("segment") < floor("partition"));
}
