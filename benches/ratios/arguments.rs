//! What the command line says. Arguments that cargo adds for harnesses (`--bench`) are passed over.

use std::time::{Duration, Instant};

/// After this long a quick run hurries: on a busy disk each row gets a single round.
const HURRY: Duration = Duration::from_secs(20);

/// How to run.
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Debug)]
pub(crate) struct Arguments {
    /// Fewer and smaller rounds: all rows in under 40 s.
    pub(crate) quick: bool,
    /// The raw loop on both sides.
    pub(crate) noise: bool,
    /// The raw loops of all synced rows write into files that were filled with zeros from the start.
    pub(crate) filled: bool,
    /// Printed as a table in Markdown.
    pub(crate) markdown: bool,
    started: Instant,
    /// The rows to run; empty for all.
    rows: Vec<String>,
}

impl Arguments {
    /// Reads the arguments behind the program's name.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            quick: false,
            noise: false,
            filled: false,
            markdown: false,
            started: Instant::now(),
            rows: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => {}
                "--quick" => parsed.quick = true,
                "--noise" => parsed.noise = true,
                "--markdown" => parsed.markdown = true,
                "--filled" => parsed.filled = true,
                "--row" => parsed.rows.push(arguments.next().ok_or("--row needs the name of a row")?),
                other => {
                    return Err(format!(
                        "{other} is not known: --quick, --noise, --filled, --markdown and --row NAME are"
                    ));
                }
            }
        }
        Ok(parsed)
    }

    /// How many rounds a row gets at least, whatever they take.
    pub(crate) fn rounds_least(&self) -> usize {
        if self.quick && self.started.elapsed() > HURRY { 1 } else { 3 }
    }

    /// Whether the row of this name is to run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|row| row == name)
    }

    /// `full`, or `quick` in quick mode.
    pub(crate) fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}
