//! One error type. Each variant says where it happened, [`Error::kind`] says what to do.
//!
//! Invariants: an error is an answer, so nothing was changed by the call that returned it unless the
//! variant says otherwise; bytes that failed a check are described by a [`Corruption`] and never served.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicId, TopicPartition};

/// What every fallible call returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call or its configuration is at fault: change it. Repeating it as it is fails again.
    Fix,
    /// Nothing is wrong with the call: repeat it, once what it ran into (a full disk, a moved end) has passed.
    Retry,
    /// The partition refuses writes because it no longer knows what the disk holds: `reopen` it.
    Reopen,
    /// Bytes are lost or damaged: seek past them, or restore them from a copy.
    Restore,
}

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// The bytes end before the batch does.
    #[error("the batch needs {needed} bytes, {present} are there")]
    Truncated {
        /// Bytes that the batch would take.
        needed: u64,
        /// Bytes that are there.
        present: u64,
    },
    /// The length field of a batch is smaller than a batch can be.
    #[error("the length field says {0}, less than any batch has")]
    Length(i32),
    /// The magic byte is none that Kafka ever wrote.
    #[error("the magic byte is {0}, batches have 2")]
    Magic(i8),
    /// The CRC-32C over the batch does not match the one stored in it.
    #[error("the CRC-32C is {computed:08x}, the batch says {stored:08x}")]
    Checksum {
        /// The checksum that the batch carries.
        stored: u32,
        /// The checksum of the bytes that are there.
        computed: u32,
    },
    /// A header field holds a value that no writer produces.
    #[error("the header field {field} holds {value}")]
    Header {
        /// Kafka's name of the field.
        field: &'static str,
        /// What it holds.
        value: i64,
    },
    /// A record inside the batch does not fit its framing.
    #[error("record {index} of the batch is malformed: {reason}")]
    Record {
        /// Which record, from 0.
        index: u32,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The compressed records do not decompress.
    #[error("the {codec} data does not decompress: {reason}")]
    Compression {
        /// The codec's name.
        codec: &'static str,
        /// What the codec says.
        reason: String,
    },
    /// The batch stands where offsets before or behind it leave no room for it.
    #[error("the batch says it begins at offset {found}, here {expected} is due")]
    Order {
        /// The offset that the batch carries.
        found: i64,
        /// What its neighbours allow.
        expected: Offset,
    },
    /// The batch carries another leader epoch than the epoch checkpoint has for its offset.
    #[error("the batch carries leader epoch {found}, the epoch checkpoint says {expected:?}")]
    Epoch {
        /// The epoch in the batch.
        found: i32,
        /// The epoch that the checkpoint has for the batch's offset.
        expected: Option<LeaderEpoch>,
    },
    /// A small file (checkpoint, index, snapshot) is not of its form.
    #[error("{0}")]
    Form(String),
}

/// Everything that can go wrong.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        operation: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// Bytes in a file are damaged. Reading goes on at `next`, where there is something behind them.
    #[error("{} is damaged at byte {position} (offsets {} to {}): {reason}", path.display(), offsets.start, offsets.end)]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The byte position in it.
        position: u64,
        /// The offsets that cannot be read; seek to the end of this range to go on.
        offsets: Range<Offset>,
        /// What is wrong with the bytes.
        reason: Corruption,
    },
    /// A batch that was handed in is damaged.
    #[error("the batch at byte {position} of what was handed in is damaged: {reason}")]
    InvalidBatch {
        /// The byte position in what was handed in.
        position: u64,
        /// What is wrong with it.
        reason: Corruption,
    },
    /// A small file (checkpoint, index, marker) is damaged.
    #[error("{} is damaged: {reason}", path.display())]
    CorruptFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Corruption,
    },
    /// A file says it is of a version that this release does not know.
    #[error("{} has format version {found}, this release reads {known}", path.display())]
    UnsupportedVersion {
        /// The file.
        path: PathBuf,
        /// The version it says.
        found: i64,
        /// The version that is known.
        known: i64,
    },
    /// A message of Kafka's magic 0 or 1. Its checksum is right, but taffrail does not read the format.
    #[error("{} holds a message of the legacy magic {magic} at byte {position}: rewrite the log with a newer broker first", path.display())]
    LegacyFormat {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        position: u64,
        /// 0 or 1.
        magic: i8,
    },
    /// A batch needs a codec that is compiled out.
    #[error("a batch is compressed with {codec}: enable the feature `{codec}` of the crate")]
    CodecDisabled {
        /// The codec, and the name of the feature.
        codec: &'static str,
    },
    /// A compressed batch would grow beyond the bound: it is not decompressed, or, where it was to be appended, not
    /// appended.
    #[error(
        "a batch compressed with {codec} decompresses to more than {limit} bytes: raise `decompressed_bytes_max` if that is right"
    )]
    DecompressionBound {
        /// The codec.
        codec: &'static str,
        /// The bound, in bytes.
        limit: usize,
    },
    /// The offset lies outside the log.
    #[error("offset {requested} is outside the log of {partition}, which goes from {start} to {end}")]
    OffsetOutOfRange {
        /// Whose log.
        partition: TopicPartition,
        /// The offset asked for.
        requested: Offset,
        /// The first offset of the log.
        start: Offset,
        /// The end of the log: the offset that the next record gets.
        end: Offset,
    },
    /// The end is not where an `append_at` expected it, or a replica's batches do not begin at or behind it.
    #[error("the log ends at offset {end}, {expected} was expected")]
    UnexpectedEnd {
        /// Where the caller expected the end.
        expected: Offset,
        /// Where it is.
        end: Offset,
    },
    /// The log was truncated or reopened while a sync was waited for, or an export was made: whether the records are
    /// stored, or still there, is not known.
    #[error("the log was truncated or reopened while it was synced or copied up to offset {offset}")]
    Superseded {
        /// Up to where.
        offset: Offset,
    },
    /// A truncation below the high watermark, which was not forced.
    #[error("truncation to offset {requested} would take back records below the high watermark {high_watermark}")]
    BelowHighWatermark {
        /// Where the log was to be cut.
        requested: Offset,
        /// The high watermark.
        high_watermark: Offset,
    },
    /// Something still needs the records that were to go.
    #[error("records from offset {held} on are held, offset {requested} was to be passed")]
    Held {
        /// The first held offset.
        held: Offset,
        /// Up to where records were to go.
        requested: Offset,
    },
    /// A batch is larger than the partition takes (Kafka: `max.message.bytes`, `segment.bytes`).
    #[error("a batch of {size} bytes is too large: at most {limit}")]
    BatchTooLarge {
        /// Its size with the header, in bytes.
        size: u64,
        /// The most it may have.
        limit: u64,
    },
    /// A record does not fit the format: a key, value or header above 2^31 − 1 bytes, or too many of them. Or the batch
    /// that holds it alone does not fit the memory of the producer that was to send it
    /// ([`ProducerBuilder::memory_bytes`](crate::ProducerBuilder::memory_bytes)).
    #[error("a record is too large: {size} bytes, and the format, or the memory of its producer, has room for {limit}")]
    RecordTooLarge {
        /// Its size, or that of its batch in the producer, in bytes.
        size: u64,
        /// The most it may have.
        limit: u64,
    },
    /// A record without a key, where the log keeps the latest record per key.
    #[error("record {index} of the batch has no key, and the log is compacted by key")]
    NullKey {
        /// Which record of the batch, from 0.
        index: u32,
    },
    /// A timestamp below zero or outside the bounds of the partition.
    #[error("timestamp {timestamp} is not taken: {reason}")]
    InvalidTimestamp {
        /// The timestamp.
        timestamp: Timestamp,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// A batch that this call does not take (empty, a control batch, two batches where one is due).
    #[error("the batch is not taken: {0}")]
    InvalidRecord(&'static str),
    /// A setting contradicts another or is outside its bounds.
    #[error("setting {setting}: {reason}")]
    InvalidConfig {
        /// The setting's name.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that Kafka's rules do not allow.
    #[error("the name {} is not valid: {reason}", Short(name))]
    InvalidName {
        /// The name.
        name: String,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// No topic has this name.
    #[error("there is no topic {}", Short(name))]
    UnknownTopic {
        /// The name asked for.
        name: String,
    },
    /// The topic has no such partition.
    #[error("topic {topic:?} has {partitions} partitions, there is no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition asked for, from 0.
        partition: u32,
        /// How many the topic has.
        partitions: u32,
    },
    /// The transactional id is nobody's any more, or is that of another producer id: it was not used for a week, say. Open
    /// the producer again.
    #[error("transactional id {id:?} is not that of this producer: open it again")]
    #[doc(alias = "INVALID_PRODUCER_ID_MAPPING")]
    UnknownTransactionalId {
        /// The transactional id.
        id: String,
    },
    /// An earlier transaction of the id is not wholly ended yet: each of its partitions is to have a marker. Where that
    /// lasts, one of them takes no writes since a failure: [`Partition::failure`](crate::Partition::failure) says so, and
    /// [`Log::reopen`](crate::Log::reopen) mends it.
    #[error("an earlier transaction is being ended: try again, or reopen the partition of it that takes no writes")]
    #[doc(alias = "CONCURRENT_TRANSACTIONS")]
    ConcurrentTransactions,
    /// The transaction took longer than it may, and was aborted (Kafka: `transaction.timeout.ms`).
    #[error("a transaction of {id:?} was aborted: it took longer than {timeout:?}")]
    TransactionTimedOut {
        /// The transactional id.
        id: String,
        /// How long a transaction of it may take.
        timeout: Duration,
    },
    /// A send of this transaction has failed, so that it cannot be committed; it can be aborted, and done again.
    #[error("the transaction cannot be committed, since a send failed ({cause}): abort it, and begin again")]
    TransactionFailed {
        /// What failed first.
        cause: Arc<Error>,
    },
    /// The transaction was aborted, or has ended, before the record was written: it was not, and will not be.
    #[error("the transaction has ended without the record")]
    TransactionAborted,
    /// Nobody in the group has this member id: the member was silent for too long, or did not give back in time, and was
    /// removed.
    #[error("group {} has no member {}", Short(group), who(member))]
    #[doc(alias = "UNKNOWN_MEMBER_ID")]
    UnknownMember {
        /// The group.
        group: String,
        /// The member id; empty where there was none, in a group that has members.
        member: String,
    },
    /// The member is in another epoch than it says, so that it does not know what it owns: it has to join again.
    #[error("member {member} of group {group:?} says that it is in epoch {epoch}: it has to join again")]
    #[doc(alias = "FENCED_MEMBER_EPOCH")]
    FencedMember {
        /// The group.
        group: String,
        /// The member.
        member: String,
        /// The epoch that it says.
        epoch: u32,
    },
    /// The member has been led on to another epoch meanwhile: commit again with that one.
    #[error("member {member} of group {group:?} commits with epoch {epoch}, it is in another")]
    #[doc(alias = "STALE_MEMBER_EPOCH")]
    StaleMember {
        /// The group.
        group: String,
        /// The member.
        member: String,
        /// The epoch that it says.
        epoch: u32,
    },
    /// The consumer has given up a partition, records of which it had handed out and nobody has committed: another consumer
    /// reads them, too. Abort the transaction that has their results, and go on with
    /// [`Consumer::seek_to_committed`](crate::Consumer::seek_to_committed).
    #[error(
        "what was read of {partition} was not committed when the consumer of group {group:?} gave it up: abort the transaction"
    )]
    GivenUp {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
    },
    /// Another member has joined with the same instance id.
    #[error("another member of group {group:?} has joined with the instance id {instance:?}")]
    #[doc(alias = "FENCED_INSTANCE_ID")]
    FencedInstance {
        /// The group.
        group: String,
        /// The instance id.
        instance: String,
    },
    /// No group has this name.
    #[error("there is no group {}", Short(group))]
    #[doc(alias = "GROUP_ID_NOT_FOUND")]
    UnknownGroup {
        /// The group.
        group: String,
    },
    /// The group has members, and this is for groups without: close their consumers first. One with an instance id stays a
    /// member for a session after its close, or after its log was opened again.
    #[error("group {group:?} has members")]
    #[doc(alias = "NON_EMPTY_GROUP")]
    GroupNotEmpty {
        /// The group.
        group: String,
    },
    /// The group has as many members as it may (Kafka: `group.consumer.max.size`).
    #[error("group {group:?} has {limit} members, and takes no more")]
    #[doc(alias = "GROUP_MAX_SIZE_REACHED")]
    GroupFull {
        /// The group.
        group: String,
        /// So many it may have.
        limit: usize,
    },
    /// A member of the group subscribes to the topic, so that its positions are in use.
    #[error("topic {topic:?} is subscribed to in group {group:?}")]
    #[doc(alias = "GROUP_SUBSCRIBED_TO_TOPIC")]
    TopicSubscribed {
        /// The group.
        group: String,
        /// The topic.
        topic: String,
    },
    /// The group has no position in the partition.
    #[error("group {group:?} has no position in {partition}")]
    NoPosition {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
    },
    /// A transaction is open that changes the group's position in the partition.
    #[error("the position of group {group:?} in {partition} is that of an open transaction: try again")]
    #[doc(alias = "UNSTABLE_OFFSET_COMMIT")]
    UnstableOffset {
        /// The group.
        group: String,
        /// The partition.
        partition: TopicPartition,
    },
    /// What a consumer notes with a position is too long (Kafka: `offset.metadata.max.bytes`).
    #[error("the metadata for {partition} has {size} bytes: at most {limit}")]
    #[doc(alias = "OFFSET_METADATA_TOO_LARGE")]
    OffsetMetadataTooLarge {
        /// The partition.
        partition: TopicPartition,
        /// Its size, in bytes.
        size: usize,
        /// The most it may have.
        limit: usize,
    },
    /// A pattern for topics is no regular expression that is taken.
    #[error("{} is not a pattern: {reason}", Short(pattern))]
    #[doc(alias = "INVALID_REGULAR_EXPRESSION")]
    InvalidPattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The coordinator of the group has just been made, and does not know the topics yet.
    #[error("the coordinator of group {group:?} is being made: try again")]
    #[doc(alias = "COORDINATOR_LOAD_IN_PROGRESS")]
    CoordinatorLoading {
        /// The group.
        group: String,
    },
    /// A record that a coordinator keeps its state in cannot be read. Nothing was changed.
    #[error("the state of a coordinator in {} is damaged at offset {offset}: {reason}", path.display())]
    CorruptState {
        /// The partition that holds it.
        path: PathBuf,
        /// The record's offset.
        offset: Offset,
        /// What is wrong with it.
        reason: String,
    },
    /// The topic or partition is there, but is none of those that are read here.
    #[error("topic {topic:?}{} is not assigned here", partition.map(|number| format!(", partition {number},")).unwrap_or_default())]
    NotAssigned {
        /// The topic.
        topic: String,
        /// The partition asked for, from 0; `None` where any of the topic's was.
        partition: Option<u32>,
    },
    /// A topic of this name is there already.
    #[error("topic {name:?} exists")]
    TopicExists {
        /// The topic.
        name: String,
    },
    /// The name differs from another topic's only in dots and underscores, which metrics cannot tell apart.
    #[error("topic name {name:?} collides with topic {existing:?}: dot and underscore count as one")]
    TopicNameCollides {
        /// The name that was to be given.
        name: String,
        /// The topic that is there.
        existing: String,
    },
    /// Two topics would have one id: a directory was copied with its `partition.metadata`, or belongs to a topic that
    /// was deleted and not removed yet.
    #[error("topic {name:?} has the id {id} of topic {existing:?}: remove `partition.metadata` from what was copied")]
    TopicIdTaken {
        /// The topic that is not taken.
        name: String,
        /// The id.
        id: TopicId,
        /// The topic that has it.
        existing: String,
    },
    /// The topic has another number of partitions than was asked for, or more: their number only grows.
    #[error(
        "topic {topic:?} has {partitions} partitions, {requested} were asked for: `add_partitions` gives it more, and it never has fewer"
    )]
    PartitionCount {
        /// The topic.
        topic: String,
        /// How many it has.
        partitions: u32,
        /// How many were asked for.
        requested: u32,
    },
    /// The producer holds as many unsent bytes as it may (Kafka: `buffer.memory`).
    #[error("the producer's memory of {limit} bytes is full")]
    MemoryFull {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The log behind a position was cut: what was read there is gone, others may stand in its place.
    #[error(
        "the log of {partition} was cut at offset {end}: records of leader epoch {epoch} from there up to offset {position} are gone"
    )]
    Truncated {
        /// Whose log.
        partition: TopicPartition,
        /// The epoch of the record before the position.
        epoch: LeaderEpoch,
        /// The position.
        position: Offset,
        /// Where that epoch ends now: go on from here.
        end: Offset,
    },
    /// The directory belongs to another cluster, or to another node of it.
    #[error("{} belongs to {found}, not to {expected}", path.display())]
    WrongCluster {
        /// The directory.
        path: PathBuf,
        /// To whom it belongs.
        found: String,
        /// To whom it was opened as belonging.
        expected: String,
    },
    /// A new partition's directory has a name that something else has.
    #[error("{} is in the way of a partition's directory: move it out of the log's directory", path.display())]
    InTheWay {
        /// What has the name.
        path: PathBuf,
    },
    /// The directory of a partition was opened as a log.
    #[error("{} is the directory of a partition: open the log around it, or the partition by itself", path.display())]
    NotALog {
        /// The directory.
        path: PathBuf,
    },
    /// A directory inside of the log's is none of a partition. It was not touched.
    #[error("{} is no partition's directory (TOPIC-NUMBER): move it out of the log's directory", path.display())]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// An export into the directory did not come to its end. What is there is no log: records are missing in it.
    #[error("{} holds an export that was not finished: remove the directory and export again", path.display())]
    UnfinishedExport {
        /// The directory.
        path: PathBuf,
    },
    /// A record of the catalogue cannot be read. Nothing was changed.
    #[error("the catalogue in {} is damaged at offset {offset}: {reason}", path.display())]
    CorruptCatalogue {
        /// The partition that holds the catalogue.
        path: PathBuf,
        /// The record's offset.
        offset: Offset,
        /// What is wrong with it.
        reason: String,
    },
    /// The policy of the partition does not allow the call.
    #[error("not allowed by the partition's policy: {0}")]
    Policy(&'static str),
    /// Another handle has the directory open.
    #[error("{} is in use{}", path.display(), owner.map(|id| format!(" by process {id}")).unwrap_or_default())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, where the lock file says so.
        owner: Option<u32>,
    },
    /// The handle was opened by another process, of which this one is a fork.
    #[error(
        "this handle belongs to the process that opened it, not to its fork: open it again after the parent closed it"
    )]
    Forked,
    /// The handle was closed.
    #[error("it is closed")]
    Closed,
    /// An earlier write or sync failed, so that nothing is known of what the disk holds.
    #[error("{} takes no writes since an earlier failure ({cause}): reopen it", path.display())]
    Poisoned {
        /// The partition's directory.
        path: PathBuf,
        /// What failed.
        cause: Arc<Error>,
    },
    /// Time ran out.
    #[error("timed out")]
    TimedOut,
    /// Another instance of the producer has taken over: its epoch is the later one. Nothing was written.
    #[error("epoch {} of producer {} is fenced by epoch {}", epoch.0, producer_id.0, current.0)]
    ProducerFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The epoch of the batch, or of the marker.
        epoch: ProducerEpoch,
        /// The epoch that the partition knows.
        current: ProducerEpoch,
    },
    /// A batch of an idempotent producer does not follow the one before. Nothing was written.
    #[error(
        "a batch of producer {} begins at sequence {}, {} is due: batches between are missing, or it was stored long ago",
        producer_id.0, found.0, expected.0
    )]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The sequence that is due.
        expected: Sequence,
        /// The first sequence of the batch.
        found: Sequence,
    },
    /// A call that the state of the transaction does not allow. Nothing was written.
    #[error("the state of the transaction does not allow it: {0}")]
    InvalidTransactionState(&'static str),
    /// A later transaction coordinator has spoken for the producer already. Nothing was written.
    #[error("coordinator epoch {epoch} is fenced by coordinator epoch {current}, for producer {}", producer_id.0)]
    CoordinatorFenced {
        /// Whose transaction it was.
        producer_id: ProducerId,
        /// The epoch of the coordinator that is fenced.
        epoch: i32,
        /// The epoch of the later one.
        current: i32,
    },
    /// Every producer id was given out, up to 2^63 - 1.
    #[error("every producer id was given out")]
    ProducerIdsExhausted,
}

impl Error {
    /// Wraps what the operating system said; `operation` is a verb: "read", "sync".
    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { operation, path: path.into(), source: Arc::new(source) }
    }

    /// What to do about it.
    ///
    /// ```
    /// use taffrail::{Error, ErrorKind, Offset};
    /// let moved = Error::UnexpectedEnd { expected: Offset(3), end: Offset(5) };
    /// assert_eq!(moved.kind(), ErrorKind::Retry);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => kind_of(source),
            Self::Corrupt { .. }
            | Self::CorruptFile { .. }
            | Self::CorruptCatalogue { .. }
            | Self::CorruptState { .. } => ErrorKind::Restore,
            Self::UnexpectedEnd { .. }
            | Self::Superseded { .. }
            | Self::Held { .. }
            | Self::Locked { .. }
            | Self::MemoryFull { .. }
            | Self::ConcurrentTransactions
            | Self::StaleMember { .. }
            | Self::UnstableOffset { .. }
            | Self::CoordinatorLoading { .. }
            | Self::TimedOut => ErrorKind::Retry,
            Self::Poisoned { .. } => ErrorKind::Reopen,
            _ => ErrorKind::Fix,
        }
    }
}

/// What the path leads to, or what may be done there, does not change by itself; everything else may pass.
fn kind_of(error: &io::Error) -> ErrorKind {
    /// Symbolic links that lead to each other: `io::ErrorKind` has no stable name for it.
    const ELOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::CrossesDevices => ErrorKind::Fix,
        _ if error.raw_os_error() == Some(ELOOP) => ErrorKind::Fix,
        _ => ErrorKind::Retry,
    }
}

/// A name that somebody asked for, which may be longer than any name is.
struct Short<'a>(&'a str);

impl Short<'_> {
    /// The longest name of a topic (Kafka: `Topic.MAX_NAME_LENGTH`).
    const CHARACTERS: usize = 249;
}

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(Self::CHARACTERS) {
            Some((at, _)) => write!(f, "{:?}... ({} bytes)", &self.0[..at], self.0.len()),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// A member as it is told.
fn who(member: &str) -> &str {
    if member.is_empty() { "of this consumer's: it has not joined yet, or was out of the group" } else { member }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_as_far_as_a_name_goes() {
        let told = |name: &str| Error::UnknownTopic { name: name.to_owned() }.to_string();
        assert_eq!(told("a\"b"), r#"there is no topic "a\"b""#);
        let longest = "\u{e4}".repeat(249);
        assert_eq!(told(&longest), format!("there is no topic {longest:?}"));
        assert_eq!(told(&format!("{longest}xy")), format!("there is no topic {longest:?}... (500 bytes)"));
    }

    #[test]
    fn nobody_has_no_name() {
        let told = |member: &str| Error::UnknownMember { group: "g".to_owned(), member: member.to_owned() }.to_string();
        assert_eq!(told("a-1"), r#"group "g" has no member a-1"#);
        assert!(told("").ends_with("was out of the group"));
    }
}
