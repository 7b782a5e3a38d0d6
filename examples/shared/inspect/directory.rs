//! Which files a partition's directory holds, and what the small ones say.
//!
//! ```text
//!  <base>.log .index .timeindex .txnindex    segments        leader-epoch-checkpoint   which epoch began where
//!  <offset>.snapshot                         producers       partition.metadata        the topic's id
//!                                                                     history.taffrail          what records do not tell
//!  recovery-point-, replication-, log-start-, cleaner-offset-checkpoint, .kafka_cleanshutdown: here, where the
//!  partition is used alone, else one directory above
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use taffrail::{Epochs, LeaderEpoch, Offset, Result, TopicId, TopicPartition};

use super::io;

/// A segment, by its `.log`.
#[derive(Clone, Debug)]
pub(crate) struct SegmentFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) base: Offset,
    /// The length of the file, which is not that of the log in it.
    pub(crate) len: u64,
}

/// A producer's entry in a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
    pub(crate) last_sequence: i32,
    pub(crate) last_offset: i64,
    pub(crate) open_since: Option<Offset>,
}

/// A `.snapshot` that is sound.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) producers: Vec<Producer>,
}

/// An offset that a checkpoint has for the partition, and whether the file lies in the partition's own directory.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    pub(crate) meaning: &'static str,
    pub(crate) offset: Offset,
    pub(crate) is_inner: bool,
}

/// Everything but the segments' insides.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) path: PathBuf,
    pub(crate) name: TopicPartition,
    /// By their base.
    pub(crate) segments: Vec<SegmentFile>,
    pub(crate) snapshots: Vec<Snapshot>,
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) epochs: Epochs,
    pub(crate) topic_id: Option<TopicId>,
    pub(crate) is_clean: bool,
    /// Names that mean nothing here.
    pub(crate) others: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

const CHECKPOINTS: [(&str, &str); 4] = [
    ("recovery-point-offset-checkpoint", "recovery point"),
    ("replication-offset-checkpoint", "high watermark"),
    ("log-start-offset-checkpoint", "log start"),
    ("cleaner-offset-checkpoint", "cleaned up to"),
];
const EPOCHS: &str = "leader-epoch-checkpoint";
const METADATA: &str = "partition.metadata";
const MARKER: &str = ".kafka_cleanshutdown";
const UNFINISHED: &str = "export-unfinished.taffrail";
const HISTORY: &str = "history.taffrail";
const KNOWN: [&str; 2] = [MARKER, ".lock"];

impl Contents {
    /// Reads the directory. A small file that is damaged is listed as wrong and counts as missing.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let path = fs::canonicalize(directory).map_err(|error| io("open", directory, error))?;
        let own_name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = TopicPartition::from_directory_name(&own_name)?;
        let mut contents = Self {
            path,
            name,
            segments: Vec::new(),
            snapshots: Vec::new(),
            checkpoints: Vec::new(),
            epochs: Epochs::new(),
            topic_id: None,
            is_clean: false,
            others: Vec::new(),
            wrong: Vec::new(),
        };
        for name in names(&contents.path)? {
            contents.take(&name)?;
        }
        contents.read_checkpoints()?;
        contents.is_clean = contents.is_clean();
        Ok(contents)
    }

    fn take(&mut self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match name.split_once('.').and_then(|(number, kind)| Some((offset_of(number)?, kind))) {
            Some((base, "log")) => {
                let len = fs::metadata(&path).map_err(|error| io("measure", &path, error))?.len();
                self.segments.push(SegmentFile { name: name.to_owned(), path, base, len });
            }
            Some((_, "snapshot")) => match snapshot(&read(&path)?) {
                Ok(producers) => self.snapshots.push(Snapshot { name: name.to_owned(), producers }),
                Err(reason) => self.wrong.push(format!("{name}: {reason}")),
            },
            Some((_, "index" | "timeindex" | "txnindex")) => self.note_orphan(name),
            _ if name == EPOCHS => self.take_epochs(&path)?,
            _ if name == METADATA => match topic_id(&read(&path)?) {
                Ok(id) => self.topic_id = Some(id),
                Err(reason) => self.wrong.push(format!("{name}: {reason}")),
            },
            _ if name == HISTORY => self.wrong.extend(flaw_of(&read(&path)?).map(|flaw| format!("{name}: {flaw}"))),
            _ if name == UNFINISHED => {
                self.wrong.push(format!("{name}: an export into this directory was not finished"));
            }
            _ if KNOWN.contains(&name) || CHECKPOINTS.iter().any(|(file, _)| *file == name) => {}
            _ => self.others.push(name.to_owned()),
        }
        Ok(())
    }

    /// An index whose `.log` is missing.
    fn note_orphan(&mut self, name: &str) {
        let log = Path::new(name).with_extension("log");
        if !self.path.join(log).exists() {
            self.wrong.push(format!("{name}: its .log is missing"));
        }
    }

    fn take_epochs(&mut self, path: &Path) -> Result<()> {
        let parse = |fields: &[&str]| match fields {
            [epoch, start] => Some((LeaderEpoch(epoch.parse().ok()?), Offset(start.parse().ok()?))),
            _ => None,
        };
        let entries = checkpoint(&read(path)?, parse).and_then(|e| Epochs::from_entries(e).map_err(|e| e.to_string()));
        match entries {
            Ok(epochs) => self.epochs = epochs,
            Err(reason) => self.wrong.push(format!("{EPOCHS}: {reason}")),
        }
        Ok(())
    }

    /// Of each checkpoint the file in the directory itself counts, else the one above it.
    fn read_checkpoints(&mut self) -> Result<()> {
        for (file, meaning) in CHECKPOINTS {
            let inner = self.path.join(file);
            let (path, is_inner) = if inner.exists() { (inner, true) } else { (self.above(file), false) };
            if !path.exists() {
                continue;
            }
            let parse = |fields: &[&str]| match fields {
                [topic, partition, offset] => Some((format!("{topic}-{partition}"), Offset(offset.parse().ok()?))),
                _ => None,
            };
            match checkpoint(&read(&path)?, parse) {
                Ok(entries) => {
                    let own = entries.into_iter().find(|(name, _)| *name == self.name.to_string());
                    self.checkpoints.extend(own.map(|(_, offset)| Checkpoint { meaning, offset, is_inner }));
                }
                Err(reason) => self.wrong.push(format!("{file}: {reason}")),
            }
        }
        Ok(())
    }

    /// Where an inner lock file lies, only the inner marker counts.
    fn is_clean(&self) -> bool {
        let alone = self.path.join(".lock").exists();
        self.path.join(MARKER).exists() || (!alone && self.above(MARKER).exists())
    }

    fn above(&self, file: &str) -> PathBuf {
        self.path.parent().unwrap_or(&self.path).join(file)
    }

    /// Where the log begins, if a checkpoint says so.
    pub(crate) fn log_start(&self) -> Option<Offset> {
        self.checkpoints.iter().find(|checkpoint| checkpoint.meaning == "log start").map(|checkpoint| checkpoint.offset)
    }
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Result<Vec<String>> {
    let wrap = |error| io("list", directory, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrap)? {
        names.push(entry.map_err(wrap)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The bytes of a small file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| io("read", path, error))
}

/// The 20 digits before the first dot of a segment's file.
fn offset_of(digits: &str) -> Option<Offset> {
    let well_formed = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| well_formed).and_then(Offset::from_i64)
}

/// The topic's id: a line with the version, from 0 on, and one with the id, whatever follows. Anything else is refused
/// when the partition is opened.
fn topic_id(bytes: &[u8]) -> std::result::Result<TopicId, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let mut field = |name: &str| {
        let value = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = value.filter(|value| value.starts_with(|first: char| first.is_ascii_whitespace()));
        value.map(str::trim).ok_or_else(|| format!("a line `{name}: ...` is due"))
    };
    let version = field("version")?;
    if !version.parse::<i32>().is_ok_and(|version| version >= 0) {
        return Err(format!("the version is {version:?}"));
    }
    let id = field("topic_id")?;
    let sound = id.parse().ok().filter(|id| *id != TopicId([0; 16]));
    sound.ok_or_else(|| format!("{id:?} is no topic's id: 16 bytes in base64url, not all zero"))
}

/// What is wrong with a file of taffrail's own: "TAFF", the CRC-32 of what is behind that, a version, the content.
fn flaw_of(bytes: &[u8]) -> Option<String> {
    let Some((header, rest)) = bytes.split_first_chunk::<8>() else {
        return Some("it is shorter than a header".into());
    };
    let [m0, m1, m2, m3, c0, c1, c2, c3] = *header;
    let (stored, computed) = (u32::from_be_bytes([c0, c1, c2, c3]), crc32fast::hash(rest));
    match rest {
        _ if [m0, m1, m2, m3] != *b"TAFF" => Some("it does not begin with TAFF".to_owned()),
        _ if stored != computed => Some(format!("the CRC-32 is {computed:08x}, the file says {stored:08x}")),
        [0, 1, ..] => None,
        _ => Some("the version is not 1".to_owned()),
    }
}

/// A text of version 0: a count, then a line per entry.
fn checkpoint<T>(bytes: &[u8], parse: impl Fn(&[&str]) -> Option<T>) -> std::result::Result<Vec<T>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let (Some(version), Some(count)) = (lines.next(), lines.next()) else { return Ok(Vec::new()) };
    if version != "0" {
        return Err(format!("the version is {version:?}, not 0"));
    }
    let entry =
        |line: &str| parse(&line.split_whitespace().collect::<Vec<_>>()).ok_or_else(|| format!("{line:?} is no entry"));
    let entries = lines.map(entry).collect::<std::result::Result<Vec<T>, _>>()?;
    let says = count.parse() == Ok(entries.len());
    if says { Ok(entries) } else { Err(format!("it says {count} entries and has {}", entries.len())) }
}

/// A producer snapshot: version, CRC-32C, count, then 46 bytes per producer.
fn snapshot(bytes: &[u8]) -> std::result::Result<Vec<Producer>, String> {
    let fixed = bytes.first_chunk::<10>().ok_or("it is shorter than a header")?;
    let [v0, v1, c0, c1, c2, c3, n0, n1, n2, n3] = *fixed;
    let version = i16::from_be_bytes([v0, v1]);
    if version != 1 {
        return Err(format!("the version is {version}, not 1"));
    }
    let (stored, computed) = (u32::from_be_bytes([c0, c1, c2, c3]), crc_fast::crc32_iscsi(&bytes[6..]));
    if stored != computed {
        return Err(format!("the CRC-32C is {computed:08x}, the file says {stored:08x}"));
    }
    let (entries, rest) = bytes[10..].as_chunks::<46>();
    if !rest.is_empty() || usize::try_from(i32::from_be_bytes([n0, n1, n2, n3])) != Ok(entries.len()) {
        return Err("it does not hold as many producers as it says".to_owned());
    }
    Ok(entries.iter().map(producer).collect())
}

fn producer(entry: &[u8; 46]) -> Producer {
    fn field<const N: usize>(entry: &[u8; 46], at: usize) -> [u8; N] {
        std::array::from_fn(|byte| entry[at + byte])
    }
    Producer {
        id: i64::from_be_bytes(field(entry, 0)),
        epoch: i16::from_be_bytes(field(entry, 8)),
        last_sequence: i32::from_be_bytes(field(entry, 10)),
        last_offset: i64::from_be_bytes(field(entry, 14)),
        open_since: Offset::from_i64(i64::from_be_bytes(field(entry, 38))),
    }
}
