//! How the examples begin and end, as programs: what they print where, and whether they say that they failed.
//!
//! Each runs in a process of its own: this file's own program, told by a variable which example it is to be.

#![expect(clippy::duplicate_mod, reason = "each example has what the examples share")]

#[path = "../examples/capacity.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod capacity_example;
#[path = "../examples/inspect.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod inspect_example;
#[path = "../examples/quickstart.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod quickstart_example;
#[path = "../examples/tail.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod tail_example;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::SystemTime;

use taffrail::{Log, Offset, Record, TopicConfig};
use tempfile::TempDir;

const EXAMPLE: &str = "TAFFRAIL_EXAMPLE";
const ARGUMENTS: &str = "TAFFRAIL_EXAMPLE_ARGUMENTS";
/// What the harness of the tests writes before the example does.
const HARNESS_LINES: usize = 2;

/// The child: runs the example that the variable names, and ends as that does. Without it there is nothing to do.
#[test]
fn an_example() {
    let Ok(name) = std::env::var(EXAMPLE) else { return };
    let arguments = std::env::var(ARGUMENTS).expect("they come together");
    let arguments = arguments.split('\n').filter(|argument| !argument.is_empty()).map(str::to_owned);
    let code = match name.as_str() {
        "capacity" => capacity_example::program::run(&capacity_example::usage(), arguments, capacity_example::work),
        "inspect" => inspect_example::program::run(inspect_example::USAGE, arguments, inspect_example::work),
        "quickstart" => {
            quickstart_example::program::run(quickstart_example::USAGE, arguments, quickstart_example::work)
        }
        "tail" => tail_example::program::run(tail_example::USAGE, arguments, tail_example::work),
        other => panic!("{other:?} is no example"),
    };
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

fn start(name: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("it has a path"));
    command.args(["--exact", "an_example", "--nocapture"]);
    command.env(EXAMPLE, name).env(ARGUMENTS, arguments.join("\n"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// How an example ended, and what it wrote to the standard output and to the standard error.
fn run(name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = start(name, arguments).wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    let out = text(output.stdout).split_inclusive('\n').skip(HARNESS_LINES).collect();
    (output.status.code(), out, text(output.stderr))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is text")
}

/// A log with a topic of many records.
fn log(home: &TempDir) -> Log {
    let log = Log::open(home.path().join("data")).expect("it opens");
    log.create_topic("orders", TopicConfig::new()).expect("it is new");
    let producer = log.producer().open().expect("it opens");
    for number in 0..5000 {
        drop(producer.send("orders", Record::new(&format!("value {number}"))).expect("it is taken"));
    }
    producer.close().expect("all is stored");
    log
}

#[test]
fn help_is_the_usage_and_no_failure() {
    for name in ["capacity", "inspect", "quickstart", "tail"] {
        for arguments in [&["--help"][..], &["--data", "d", "--help"]] {
            let (code, out, error) = run(name, arguments);
            assert_eq!((code, error.as_str()), (Some(0), ""), "{name}");
            assert!(out.starts_with(&format!("usage: {name} ")) && out.ends_with('\n'), "{out:?}");
            assert!((3..20).contains(&out.lines().count()), "{out}");
        }
    }
}

/// Errors were shown as the program's own debugging text.
#[test]
fn an_error_is_a_sentence_and_a_failure() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let log = log(&home);
    log.partition("orders", 0).expect("it is there").trim_before(Offset(2)).expect("nothing is held");
    log.close().expect("closed");
    let data = home.path().join("data");
    let none = home.path().join("none-0");
    for (name, arguments, what) in [
        (
            "tail",
            &["--data", text(&data), "orders:0@1"][..],
            "offset 1 is outside the log of orders-0, which goes from 2",
        ),
        ("tail", &["--data", text(&data)], "a topic is needed"),
        ("inspect", &[text(&none)], "none-0"),
        ("inspect", &["--export"], "--export needs a directory"),
        ("quickstart", &["--day", "1"], "--day is not known"),
        ("quickstart", &[text(&none)], "cannot read"),
        ("capacity", &["--copies", "0"], "--copies is a whole number from 1 to 100"),
    ] {
        let (code, out, error) = run(name, arguments);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{name}: {error}");
        assert!(error.starts_with("error: ") && error.contains(what), "{error}");
        assert!(error.lines().count() == 1 && !error.contains(['{', '}']), "{error}");
    }
}

/// Everything in a directory.
fn tree(directory: &Path) -> Vec<(PathBuf, SystemTime)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("it lists") {
        let path = entry.expect("it lists").path();
        if path.is_dir() {
            found.extend(tree(&path));
        }
        found.push((path.clone(), path.metadata().and_then(|metadata| metadata.modified()).expect("it is there")));
    }
    found.sort();
    found
}

/// A directory with somebody's notes became a log.
#[test]
fn a_directory_that_is_no_log_is_left_as_it_is() {
    let cases = [
        ("notes.txt", false),
        ("backup-2024/notes.log", false),
        ("orders-0/00000000000000000000.log", true),
        ("meta.properties", true),
    ];
    for (number, (file, is_like_a_log)) in cases.into_iter().enumerate() {
        let home = tempfile::tempdir().expect("a temporary directory");
        let directory = home.path().join(format!("place-{number}"));
        let path = directory.join(file);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it is new");
        fs::write(&path, "").expect("it can be written");
        let before = tree(home.path());
        let (code, _, error) = run("tail", &["--data", text(&directory), "orders"]);
        if is_like_a_log {
            assert!(!error.contains("holds no log"), "{file}: {error}");
            continue;
        }
        assert!(code == Some(1) && error.contains("holds no log"), "{file}: {error}");
        let (code, _, error) = run("quickstart", &["--data", text(&directory)]);
        assert!(code == Some(1) && error.contains("holds something else than a log"), "{file}: {error}");
        let (code, ..) = run("tail", &["--data", text(&path), "orders"]);
        assert_eq!((code, tree(home.path())), (Some(1), before), "{file}");
    }
}

#[test]
fn an_empty_directory_becomes_a_log_and_then_is_one() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let flights = home.path().join("flights.jsonl");
    fs::write(&flights, r#"{"tail":"N1","scheduled":"2013-01-01T05:15:00-05:00"}"#).expect("it can be written");
    let directory = home.path().join("log");
    fs::create_dir(&directory).expect("it is new");
    assert_eq!(run("tail", &["--data", text(&directory), "flights"]).0, Some(1), "there is nothing to tail yet");
    for _ in 0..2 {
        let (code, _, error) = run("quickstart", &[text(&flights), "--data", text(&directory)]);
        assert_eq!((code, error.as_str()), (Some(0), ""));
    }
    let (code, out, _) = run("tail", &["--data", text(&directory), "flights"]);
    assert!(code == Some(0) && out.ends_with("\n2 records\n"), "{out}");
}

/// `tail ... | head`: who reads no further has seen enough.
#[test]
fn a_closed_pipe_is_no_failure() {
    let home = tempfile::tempdir().expect("a temporary directory");
    log(&home).close().expect("closed");
    let data = home.path().join("data");
    let partition = data.join("orders-0");
    for (name, arguments) in [
        ("tail", &["--data", text(&data), "orders"][..]),
        ("tail", &[]),
        ("inspect", &[text(&partition), "--json"]),
        ("inspect", &[text(&partition)]),
        ("quickstart", &[]),
        ("capacity", &[]),
        ("capacity", &["--help"]),
    ] {
        let mut child = start(name, arguments);
        let mut out = BufReader::with_capacity(1, child.stdout.take().expect("it is piped"));
        for _ in 0..HARNESS_LINES {
            out.read_line(&mut String::new()).expect("it writes");
        }
        drop(out);
        let mut error = String::new();
        child.stderr.take().expect("it is piped").read_to_string(&mut error).expect("it is text");
        assert_eq!((child.wait().expect("it ends").code(), error.as_str()), (Some(0), ""), "{name} {arguments:?}");
    }
    // It was closed before it ended.
    let log = Log::open(&data).expect("it opens");
    assert!(log.partition("orders", 0).expect("it is there").recovery().clean);
}

/// What is wrong is an answer of `inspect`, and a failure all the same.
#[test]
fn inspect_fails_where_something_is_wrong() {
    let home = tempfile::tempdir().expect("a temporary directory");
    log(&home).close().expect("closed");
    let partition = home.path().join("data/orders-0");
    let (code, out, _) = run("inspect", &[text(&partition)]);
    assert!(code == Some(0) && out.ends_with("nothing is wrong\n"), "{out}");
    fs::write(partition.join("partition.metadata"), "version: 0\ntopic_id: ?").expect("it can be written");
    let (code, out, _) = run("inspect", &[text(&partition)]);
    assert!(code == Some(1) && out.contains("wrong: partition.metadata: "), "{out}");
    let (code, _, error) = run("inspect", &[text(&partition), "--json"]);
    assert!(code == Some(1) && error.starts_with("wrong: partition.metadata: "), "{error}");
}
