//! What `tail` is told, and how it follows a topic: a line per record, until the end or without one.
//!
//! ```text
//! DIR TOPIC [--partition N] [--offset N | --since MILLIS | --latest] [--follow]
//! ```
//!
//! A line has partition, offset, timestamp (milliseconds since 1970), key and value, divided by tabs; what is not
//! there is a dash. An offset means that one in every partition that is shown; one that the retention has overtaken is
//! an error that says where the log begins.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use taffrail::{Offset, Polled, Reader, RecordView, StartAt, Timestamp};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How long a poll waits where nothing comes, when it follows.
const WAIT: Duration = Duration::from_secs(1);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The log's directory.
    pub(crate) directory: PathBuf,
    /// The topic.
    pub(crate) topic: String,
    /// One partition of it, or all.
    pub(crate) partition: Option<u32>,
    /// Where to begin, unless an offset says.
    pub(crate) start: StartAt,
    /// The offset to begin at, in each partition.
    pub(crate) offset: Option<Offset>,
    /// Whether it goes on behind the end.
    pub(crate) follow: bool,
}

impl Arguments {
    /// Reads the command line, without the program's name.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Outcome<Self> {
        let (mut places, mut partition, mut follow) = (Vec::new(), None, false);
        let mut begins = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--follow" => follow = true,
                "--latest" => begins.push((StartAt::Latest, None)),
                "--since" => begins.push((StartAt::Time(Timestamp(number(&word, words.next())?)), None)),
                "--offset" => begins.push((StartAt::Earliest, Some(Offset(number(&word, words.next())?)))),
                "--partition" => partition = Some(number(&word, words.next())?),
                flag if flag.starts_with("--") => return Err(format!("{flag} is not known").into()),
                _ => places.push(word),
            }
        }
        let [directory, topic] = <[String; 2]>::try_from(places).map_err(|_| "a directory and a topic are needed")?;
        let (start, offset) = match begins[..] {
            [] => (StartAt::Earliest, None),
            [begin] => begin,
            _ => return Err("--offset, --since and --latest exclude each other".into()),
        };
        Ok(Self { directory: directory.into(), topic, partition, start, offset, follow })
    }
}

fn number<T: std::str::FromStr>(flag: &str, word: Option<String>) -> Outcome<T> {
    let word = word.ok_or_else(|| format!("{flag} needs a number"))?;
    word.parse().map_err(|_| format!("{flag} needs a number, {word:?} is none").into())
}

/// Prints what the reader gives, from the offset asked for on; says how many records that were. The reader was opened
/// on the topic or partition, at the start that was asked for. When it follows, it ends with an error only.
pub(crate) fn run(arguments: &Arguments, reader: &mut Reader, out: &mut impl Write) -> Outcome<u64> {
    if let Some(offset) = arguments.offset {
        for assigned in reader.assignment() {
            reader.seek(&assigned.topic, assigned.partition, offset)?;
        }
    }
    let mut printed = 0;
    loop {
        let polled = if arguments.follow { reader.poll(WAIT)? } else { reader.try_poll()? };
        if polled.is_empty() && !arguments.follow {
            return Ok(printed);
        }
        printed += print(&polled, out)?;
        out.flush()?;
    }
}

fn print(polled: &Polled, out: &mut impl Write) -> Outcome<u64> {
    let mut printed = 0;
    for record in polled {
        writeln!(out, "{}\t{}", polled.partition(), line(&record))?;
        printed += 1;
    }
    Ok(printed)
}

fn line(record: &RecordView<'_>) -> String {
    let text = |bytes: Option<&[u8]>| bytes.map_or("-".into(), String::from_utf8_lossy);
    let timestamp = record.timestamp().map_or_else(|| "-".to_owned(), |timestamp| timestamp.to_string());
    format!("{}\t{timestamp}\t{}\t{}", record.offset(), text(record.key()), text(record.value()))
}
