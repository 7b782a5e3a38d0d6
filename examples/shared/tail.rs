//! What `tail` is told, and how it follows topics: a line per record, until the end or without one.
//!
//! ```text
//! --data DIR WHAT... [--since MILLIS | --latest] [--follow]
//! WHAT: TOPIC, TOPIC:PARTITION or TOPIC:PARTITION@OFFSET
//! ```
//!
//! A line has topic, partition, offset, timestamp (milliseconds since 1970), key and value, divided by tabs; what is
//! not there is a dash. An offset that the retention has overtaken is an error that says where the partition begins.

use std::borrow::Cow;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use taffrail::{Log, Offset, Polled, Reader, RecordView, StartAt, Timestamp};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long a poll waits where nothing comes, when it follows.
const WAIT: Duration = Duration::from_secs(1);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// The log's directory.
    pub(crate) directory: PathBuf,
    /// What is read, one at least.
    pub(crate) sources: Vec<Source>,
    /// Where to begin, unless an offset says.
    pub(crate) start: StartAt,
    /// Whether it goes on behind the end.
    pub(crate) follow: bool,
}

/// A topic, or one partition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) topic: String,
    pub(crate) partition: Option<u32>,
    /// Where to begin; only with a partition.
    pub(crate) offset: Option<Offset>,
}

impl Arguments {
    /// Reads the command line, without the program's name.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Outcome<Self> {
        let (mut directory, mut sources, mut starts, mut follow) = (None, Vec::new(), Vec::new(), false);
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--data" => directory = Some(words.next().ok_or("--data needs a directory")?.into()),
                "--follow" => follow = true,
                "--latest" => starts.push(StartAt::Latest),
                "--since" => starts.push(StartAt::Time(Timestamp(number("--since", words.next().as_deref())?))),
                flag if flag.starts_with("--") => return Err(format!("{flag} is not known").into()),
                what => sources.push(Source::parse(what)?),
            }
        }
        let directory = directory.ok_or("--data DIR is needed: the log's directory")?;
        if sources.is_empty() {
            return Err("a topic is needed: TOPIC, TOPIC:PARTITION or TOPIC:PARTITION@OFFSET".into());
        }
        let start = match starts[..] {
            [] => StartAt::Earliest,
            [start] => start,
            _ => return Err("--since and --latest exclude each other".into()),
        };
        Ok(Self { directory, sources, start, follow })
    }

    /// Opens a reader on what was asked for, where reading is to begin.
    pub(crate) fn open(&self, log: &Log) -> Outcome<Reader> {
        let topics = self.sources.iter().filter(|source| source.partition.is_none()).map(|source| &source.topic);
        let partitions = self.sources.iter().filter_map(|source| Some((&source.topic, source.partition?)));
        let mut reader = log.reader().topics(topics).partitions(partitions).start_at(self.start).open()?;
        for source in &self.sources {
            if let (Some(partition), Some(offset)) = (source.partition, source.offset) {
                reader.seek(&source.topic, partition, offset)?;
            }
        }
        Ok(reader)
    }
}

impl Source {
    fn parse(word: &str) -> Outcome<Self> {
        let (place, offset) = match word.split_once('@') {
            Some((place, offset)) => (place, Some(Offset(number("the offset", Some(offset))?))),
            None => (word, None),
        };
        let (topic, partition) = match place.split_once(':') {
            Some((topic, partition)) => (topic, Some(number("the partition", Some(partition))?)),
            None => (place, None),
        };
        if offset.is_some() && partition.is_none() {
            return Err(format!("an offset is one partition's: {topic}:PARTITION@OFFSET").into());
        }
        Ok(Self { topic: topic.to_owned(), partition, offset })
    }
}

fn number<T: std::str::FromStr>(what: &str, word: Option<&str>) -> Outcome<T> {
    let word = word.ok_or_else(|| format!("{what} needs a number"))?;
    word.parse().map_err(|_| format!("{what} has to be a number, {word:?} is none that fits").into())
}

/// Writes a line for each record up to the end, and says how many there were; it never ends where it is to follow.
pub(crate) fn run(reader: &mut Reader, follow: bool, out: &mut impl Write) -> Outcome<usize> {
    let mut count = 0;
    loop {
        let polled = if follow { reader.poll(WAIT)? } else { reader.try_poll()? };
        if polled.is_empty() && !follow {
            return Ok(count);
        }
        count += write(&polled, out)?;
    }
}

/// Writes a line for each record; says how many there were.
pub(crate) fn write(polled: &Polled, out: &mut impl Write) -> Outcome<usize> {
    let mut count = 0;
    for record in polled {
        writeln!(out, "{}\t{}\t{}", polled.topic(), polled.partition(), line(&record))?;
        count += 1;
    }
    out.flush()?;
    Ok(count)
}

fn line(record: &RecordView<'_>) -> String {
    let timestamp = record.timestamp().map_or_else(|| "-".to_owned(), |timestamp| timestamp.to_string());
    format!("{}\t{timestamp}\t{}\t{}", record.offset(), text(record.key()), text(record.value()))
}

fn text(bytes: Option<&[u8]>) -> Cow<'_, str> {
    bytes.map_or("-".into(), String::from_utf8_lossy)
}
