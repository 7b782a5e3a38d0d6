//! How the examples begin and end: `--help` is answered with the usage; an error is a sentence on the standard error, and
//! a failure; whoever closes the pipe that a program writes to has seen enough, which is no failure.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::{ExitCode, Termination};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Runs a program on what it was told, without its name.
pub(crate) fn run<T: Termination>(
    usage: &str,
    arguments: impl IntoIterator<Item = String>,
    work: impl FnOnce(Vec<String>) -> Outcome<T>,
) -> ExitCode {
    let arguments: Vec<String> = arguments.into_iter().collect();
    let wants_help = arguments.iter().any(|argument| argument == "--help");
    let code = if wants_help { help(usage) } else { work(arguments).map(Termination::report) };
    code.unwrap_or_else(|error| end(&*error))
}

fn help(usage: &str) -> Outcome<ExitCode> {
    writeln!(io::stdout(), "{}", usage.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn end(error: &(dyn Error + Send + Sync + 'static)) -> ExitCode {
    let cause = error.downcast_ref::<io::Error>();
    if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
