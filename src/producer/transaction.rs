//! Transactions: records of any topics that become visible together, or never.
//!
//! ```text
//!   TransactionalProducer::open ─► begin ─► send, send, .. ─► commit          all of them, for readers of committed records
//!        takes the id                  ▲        │        └──► abort, drop     none of them
//!                                      └────────┴─── one transaction at a time: `begin` borrows the producer
//! ```
//!
//! It is the plain producer ([`Producer`]) with another way into a partition: the first batch of a transaction there
//! tells the coordinator (`transactional.rs`), the others carry its identity. A commit hands over what is open, waits
//! until all is stored, and has the coordinator decide; the markers are written by this thread, as far as nothing has
//! to be waited for, and else in the background.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::builder::ProducerBuilder;
use super::delivery::Delivery;
use super::partitioner::Partitioner;
use super::transactional::{Entry, Transactional, failed, insist};
use super::{Producer, WhenFull};
use crate::error::{Error, Result};
use crate::group::{Confirmation, Progress};
use crate::machine::ProducerIdentity;
use crate::node::Node;
use crate::record::builder::Record;
use crate::record::control::Outcome;
use crate::sync::Mutex;
use crate::trace;
use crate::txn::{Command, Reply};
use crate::types::{Compression, ProducerEpoch, ProducerId};

/// Opens a [`TransactionalProducer`]. [`Log::transactional_producer`](crate::Log::transactional_producer) makes it.
///
/// The settings are those of a [`ProducerBuilder`], but for `acks` and `linger`: a commit waits until all is stored, and
/// a batch lingers until it is full, waited for, or committed, since nobody sees it before.
#[must_use]
pub struct TransactionalProducerBuilder {
    node: Arc<Node>,
    id: String,
    timeout: Duration,
    producer: ProducerBuilder,
}

impl TransactionalProducerBuilder {
    pub(crate) fn new(node: Arc<Node>, id: String) -> Self {
        let producer = ProducerBuilder::new(Arc::clone(&node)).linger(FOREVER);
        Self { node, id, timeout: TIMEOUT, producer }
    }

    /// How long a transaction may take, from its first write to its end, at most 15 minutes. One that takes longer is
    /// aborted, since readers of committed records wait for it. Default: 60 s.
    #[doc(alias = "transaction.timeout.ms")]
    pub const fn transaction_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// As [`ProducerBuilder::batch_bytes`].
    #[doc(alias = "batch.size")]
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.producer = self.producer.batch_bytes(bytes);
        self
    }

    /// As [`ProducerBuilder::memory_bytes`].
    #[doc(alias = "buffer.memory")]
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.producer = self.producer.memory_bytes(bytes);
        self
    }

    /// As [`ProducerBuilder::when_full`].
    #[doc(alias = "max.block.ms")]
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.producer = self.producer.when_full(when_full);
        self
    }

    /// As [`ProducerBuilder::compression`].
    #[doc(alias = "compression.type")]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.producer = self.producer.compression(compression);
        self
    }

    /// As [`ProducerBuilder::partitioner`].
    #[doc(alias = "partitioner.class")]
    pub fn partitioner(mut self, partitioner: impl Partitioner) -> Self {
        self.producer = self.producer.partitioner(partitioner);
        self
    }

    /// As [`ProducerBuilder::seed`].
    pub fn seed(mut self, seed: u64) -> Self {
        self.producer = self.producer.seed(seed);
        self
    }

    /// Takes the transactional id. Whoever had it is fenced, and what it has begun is aborted, before this returns. The
    /// first open in a log makes the topic that transactions are kept in.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`], [`Error::InvalidName`] where the id is empty or longer than 32,767 bytes,
    /// [`Error::ConcurrentTransactions`] where an earlier transaction cannot be ended, because a partition of it takes no
    /// writes; [`Error::CodecDisabled`], [`Error::Closed`], and what the disk says.
    #[doc(alias = "initTransactions")]
    pub fn open(self) -> Result<TransactionalProducer> {
        let Self { node, id, timeout, producer } = self;
        let (_, settings) = producer.checked()?;
        let identity = init(&node, &id, timeout, None)?;
        let transactional = Transactional::new(id, identity);
        let producer = Producer::new(node, settings, None, Some(Arc::clone(&transactional)));
        Ok(TransactionalProducer { producer, transactional, timeout, left: Left::Nothing })
    }
}

impl fmt::Debug for TransactionalProducerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalProducerBuilder")
            .field("id", &self.id)
            .field("timeout", &self.timeout)
            .field("producer", &self.producer)
            .finish_non_exhaustive()
    }
}

/// Sends records in transactions, one transaction at a time.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Log, Record, TopicConfig};
/// # let directory = tempfile::tempdir()?;
/// let log = Log::open(directory.path().join("data"))?;
/// log.ensure_topic("orders", TopicConfig::new())?;
/// log.ensure_topic("invoices", TopicConfig::new())?;
/// let mut producer = log.transactional_producer("billing-1").open()?;
///
/// let transaction = producer.begin()?;
/// transaction.send("orders", Record::new("placed").key("customer-7"))?;
/// transaction.send("invoices", Record::new("12.50").key("customer-7"))?;
/// transaction.commit()?;
///
/// // Dropped instead, it is aborted: readers of committed records never see it.
/// let transaction = producer.begin()?;
/// transaction.send("orders", Record::new("placed twice").key("customer-7"))?;
/// drop(transaction);
///
/// let mut reader = log.reader().topics(["orders"]).open()?;
/// let polled = reader.poll(Duration::from_secs(1))?;
/// let values: Vec<_> = polled.records().map(|record| record.value_str()).collect();
/// assert_eq!(values, [Some("placed")]);
/// # log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "KafkaProducer")]
pub struct TransactionalProducer {
    producer: Producer,
    transactional: Arc<Transactional>,
    timeout: Duration,
    left: Left,
}

/// What the last transaction has left to be done before the next one.
#[derive(Clone, Debug)]
enum Left {
    Nothing,
    /// Its end was asked for, and the answer is not known.
    End(Outcome),
    /// It was aborted, for taking too long, say: the coordinator has another epoch.
    Identity,
    /// Another instance has the id.
    Fenced(Error),
}

impl TransactionalProducer {
    /// The transactional id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.transactional.id
    }

    /// The producer id that the records carry; it changes once in some 32,000 transactions.
    #[must_use]
    pub fn producer_id(&self) -> ProducerId {
        self.transactional.producer().id
    }

    /// The epoch that the records of the next transaction carry, or those of the open one.
    #[must_use]
    pub fn epoch(&self) -> ProducerEpoch {
        self.transactional.producer().epoch
    }

    /// Begins a transaction. That costs nothing before its first record is written.
    ///
    /// # Errors
    /// [`Error::ProducerFenced`] once another instance has taken the id, for good. Where the answer to the last commit or abort
    /// was an error, what finding out about it answers: [`Error::TransactionTimedOut`], [`Error::TransactionAborted`] or
    /// [`Error::InvalidTransactionState`] where it has ended otherwise, and the next call begins a transaction;
    /// [`Error::Closed`].
    #[doc(alias = "beginTransaction")]
    pub fn begin(&mut self) -> Result<Transaction<'_>> {
        self.producer.accumulator.check_open()?;
        self.producer.accumulator.node.check_open()?;
        let identity = match self.left.clone() {
            Left::Nothing => self.transactional.producer(),
            Left::End(outcome) => self.end(outcome)?,
            Left::Identity => self.identify_again()?,
            Left::Fenced(error) => return Err(error),
        };
        self.left = Left::Nothing;
        self.transactional.begin(identity);
        Ok(Transaction { producer: self, is_ended: false, confirmations: Mutex::default() })
    }

    /// Ends the producer. It holds nothing outside of a transaction.
    ///
    /// # Errors
    /// As [`Producer::close`].
    pub fn close(self) -> Result<()> {
        self.producer.close()
    }

    fn node(&self) -> &Arc<Node> {
        &self.producer.accumulator.node
    }

    /// Has the transaction end, and keeps what is left of it.
    fn end(&mut self, outcome: Outcome) -> Result<ProducerIdentity> {
        self.left = Left::End(outcome);
        let ended = match self.ask_for_end(outcome) {
            // The machine has been made anew: what it had stored is what counts.
            Err(error) if may_pass(&error) => self.ask_for_end(outcome),
            other => other,
        };
        self.left = match &ended {
            Ok(_) => Left::Nothing,
            Err(error) if has_ended_otherwise(error) => Left::Identity,
            Err(error @ (Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. })) => {
                Left::Fenced(error.clone())
            }
            Err(_) => Left::End(outcome),
        };
        ended
    }

    fn ask_for_end(&self, outcome: Outcome) -> Result<ProducerIdentity> {
        let (id, producer) = (&self.transactional.id, self.transactional.producer());
        let end = |fresh| Command::End { id: id.clone(), producer, outcome, fresh };
        identity(insist(self.node(), id, || self.node().transact(id, end))?)
    }

    fn identify_again(&mut self) -> Result<ProducerIdentity> {
        let expected = Some(self.transactional.producer());
        let again = init(self.node(), &self.transactional.id, self.timeout, expected);
        if let Err(error @ Error::ProducerFenced { .. }) = &again {
            self.left = Left::Fenced(error.clone());
        }
        again
    }

    /// Tells why a transaction has failed: what a partition calls fenced may have been aborted for taking too long.
    fn explain(&mut self, cause: Error) -> Error {
        let is_fenced = |cause: &Error| match cause {
            Error::TransactionFailed { cause } => is_refusal(cause),
            other => is_refusal(other),
        };
        let told = if is_fenced(&cause) { self.ask_who_it_is().err().unwrap_or(cause) } else { cause };
        match &told {
            Error::TransactionTimedOut { .. } | Error::TransactionAborted => self.left = Left::Identity,
            Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. } => {
                self.left = Left::Fenced(told.clone());
            }
            _ => return failed(&told),
        }
        told
    }

    fn ask_who_it_is(&self) -> Result<Reply> {
        let (id, producer) = (&self.transactional.id, self.transactional.producer());
        self.node().transact(id, |_| Command::Add { id: id.clone(), producer, partitions: Vec::new() })
    }

    /// The coordinator is told of all partitions that have records open, at once.
    fn enter_open(&self) -> Result<()> {
        let identity = self.transactional.producer();
        let entries: Vec<_> = self.producer.routes.lanes().iter().filter_map(|lane| lane.to_enter(identity)).collect();
        if entries.len() < 2 {
            return Ok(());
        }
        self.transactional.add(self.node(), identity, &entries)
    }

    fn commit(&mut self) -> Result<()> {
        if let Some(cause) = self.transactional.failure() {
            return Err(self.explain(cause));
        }
        if let Err(error) = self.enter_open().and_then(|()| self.producer.flush()) {
            self.transactional.failed(&error);
            return Err(self.explain(error));
        }
        if !self.transactional.has_partitions() {
            self.transactional.end();
            return Ok(());
        }
        let identity = self.end(Outcome::Committed)?;
        self.transactional.end();
        self.transactional.identify(identity);
        Ok(())
    }

    fn commit_progress(&self, progress: Progress) -> Result<()> {
        let Progress { group, member, positions, topics, commits_itself, given_up, .. } = progress;
        if commits_itself {
            let reason = "a consumer whose positions are committed in transactions does not commit them by itself too";
            return Err(Error::InvalidConfig { setting: "auto_commit", reason: reason.to_owned() });
        }
        if let Some(partition) = given_up {
            return Err(Error::GivenUp { group, partition });
        }
        if positions.is_empty() {
            return Ok(());
        }
        let (topic, name, partition) = self.node().partition_of_group(&group)?;
        let entry = || Entry { topic, name, partition };
        let identity = self.transactional.enter(self.node(), None, entry)?;
        // Of a topic that was deleted and made again, or of another log, they say nothing here: that is refused.
        self.node().commit_positions(&group, member, (positions, &topics), Some(identity))
    }

    fn abort(&mut self) -> Result<()> {
        let is_known = self.transactional.end();
        // What is open was not written: its deliveries are told so.
        self.producer.accumulator.hand_over_all();
        self.producer.accumulator.forget_failures();
        if let (false, _) | (true, Left::Fenced(_)) = (is_known, &self.left) {
            return Ok(());
        }
        if let Left::End(Outcome::Committed) = self.left {
            return Err(Error::InvalidTransactionState(
                "whether it was committed is not known; the next `begin` finds out",
            ));
        }
        let aborted = match self.end(Outcome::Aborted) {
            Err(error) if has_ended_otherwise(&error) => self.identify_again(),
            other => other,
        };
        let identity = match aborted {
            // Whoever has the id now has aborted it.
            Err(Error::ProducerFenced { .. } | Error::UnknownTransactionalId { .. }) => return Ok(()),
            other => other?,
        };
        self.left = Left::Nothing;
        self.transactional.identify(identity);
        Ok(())
    }
}

impl fmt::Debug for TransactionalProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalProducer")
            .field("transactional", &self.transactional)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}

/// An open transaction. Dropped, it is aborted.
#[must_use = "dropped, a transaction is aborted"]
pub struct Transaction<'p> {
    producer: &'p mut TransactionalProducer,
    is_ended: bool,
    /// Of the consumers that are to learn that it is committed.
    confirmations: Mutex<Vec<Confirmation>>,
}

impl Transaction<'_> {
    /// Sends a record, as [`Producer::send`] does. It is written when its batch is full, when its delivery is waited for,
    /// and at the latest by the commit; readers of committed records see it after that.
    ///
    /// # Errors
    /// As [`Producer::send`]. After any error the transaction can only be aborted.
    pub fn send<'r>(&self, topic: &str, record: impl Borrow<Record<'r>>) -> Result<Delivery> {
        let sent = match self.producer.transactional.failure() {
            Some(failure) => Err(failed(&failure)),
            None => self.producer.producer.send(topic, record),
        };
        if let Err(error) = &sent {
            self.producer.transactional.failed(error);
        }
        sent
    }

    /// Commits how far a consumer has read, in this transaction: its positions count when the transaction is committed, and
    /// never did where it is aborted. So what was made of the records, and that they were read, are one step
    /// ([`Consumer::progress`](crate::Consumer::progress)).
    ///
    /// Until the transaction ends, whoever takes a partition over waits for it: nobody reads on from the position before.
    ///
    /// ```
    /// use std::time::Duration;
    /// use taffrail::{Log, Record, TopicConfig};
    /// # let directory = tempfile::tempdir()?;
    /// # let log = Log::open(directory.path().join("data"))?;
    /// # log.ensure_topic("orders", TopicConfig::new().partitions(4))?;
    /// # log.ensure_topic("invoices", TopicConfig::new().partitions(4))?;
    /// # log.producer().open()?.send("orders", Record::new("placed").key("customer-7"))?.wait()?;
    /// let mut input = log.consumer("billing").subscribe(["orders"]).open()?;
    /// let mut output = log.transactional_producer("billing-1").open()?;
    ///
    /// let orders = input.poll(Duration::from_secs(1))?;
    /// let transaction = output.begin()?;
    /// for order in &orders {
    ///     transaction.send("invoices", Record::new("12.50").key(order.key().unwrap_or_default()))?;
    /// }
    /// transaction.commit_progress(input.progress())?;
    /// transaction.commit()?;
    /// # assert_eq!(orders.records().count(), 1);
    /// # let stored = log.describe_group("billing")?.positions;
    /// # assert_eq!(stored.iter().map(|one| one.committed.offset.0).sum::<u64>(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// After any of them the transaction can only be aborted, and the consumer goes on from what it has committed
    /// before: [`Error::UnknownMember`], [`Error::FencedMember`], [`Error::FencedInstance`] where another has taken its place in the group;
    /// [`Error::StaleMember`] where it was led on while it worked; [`Error::GivenUp`] where it polled again meanwhile, and has
    /// given up a partition of which it had read; [`Error::UnknownTopic`] where one of its topics was
    /// deleted since, or is another log's; [`Error::InvalidConfig`] where it commits by
    /// itself ([`ConsumerBuilder::auto_commit`](crate::ConsumerBuilder::auto_commit)); and what
    /// [`Transaction::send`] answers.
    #[doc(alias = "sendOffsetsToTransaction")]
    pub fn commit_progress(&self, progress: Progress) -> Result<()> {
        let confirmation = progress.confirmation.clone();
        let committed = match self.producer.transactional.failure() {
            Some(failure) => Err(failed(&failure)),
            None => self.producer.commit_progress(progress),
        };
        match &committed {
            Ok(()) => {
                confirmation.take();
                self.confirmations.lock().push(confirmation);
            }
            Err(error) => {
                confirmation.refuse();
                self.producer.transactional.failed(error);
            }
        }
        committed
    }

    /// The identity that the records carry: the producer's id and its epoch, which no other transaction has.
    #[must_use]
    pub fn identity(&self) -> (ProducerId, ProducerEpoch) {
        let ProducerIdentity { id, epoch } = self.producer.transactional.producer();
        (id, epoch)
    }

    /// Makes all records visible to readers of committed records, and returns when that is decided for good: as durably
    /// as the topics of the records and that of the coordinators store: of a topic that is
    /// [`Durability::Os`](crate::Durability::Os) a loss of power can take the records, and not those of the others. Readers
    /// see them as soon as each partition has its marker, which is at once where nothing has to be synced for it.
    ///
    /// # Errors
    /// [`Error::TransactionFailed`] after a failed send, with the cause; [`Error::TransactionTimedOut`] and
    /// [`Error::ProducerFenced`] where it was aborted by the coordinator or by another instance, [`Error::TransactionAborted`]
    /// where the coordinator has aborted it and does not know why any more: nothing is visible. On
    /// what the disk says (also of the coordinator's records) it is not known; the next
    /// [`begin`](TransactionalProducer::begin) ends it the way that it was to end.
    #[doc(alias = "commitTransaction")]
    pub fn commit(mut self) -> Result<()> {
        let committed = self.producer.commit();
        // A failed one is left to the drop.
        self.is_ended = committed.is_ok();
        if self.is_ended {
            self.confirmations.lock().iter().for_each(Confirmation::confirm);
        }
        committed
    }

    /// Takes all of it back: readers of committed records never see any. Deliveries of records that were not written
    /// answer [`Error::TransactionAborted`].
    ///
    /// # Errors
    /// What the disk says of the coordinator's records: the transaction is aborted all the same, by the next
    /// [`begin`](TransactionalProducer::begin), or when its time is up.
    #[doc(alias = "abortTransaction")]
    pub fn abort(mut self) -> Result<()> {
        self.is_ended = true;
        self.producer.abort()
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.is_ended {
            return;
        }
        if let Err(error) = self.producer.abort() {
            let path = std::path::Path::new(&self.producer.transactional.id);
            trace::warn(path, || format!("the transaction is not aborted yet: {error}"));
        }
    }
}

impl fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("producer", &self.producer).finish_non_exhaustive()
    }
}

fn init(node: &Node, id: &str, timeout: Duration, expected: Option<ProducerIdentity>) -> Result<ProducerIdentity> {
    let init = |fresh| Command::Init { id: id.to_owned(), timeout, expected, fresh };
    identity(insist(node, id, || node.transact(id, init))?)
}

fn identity(reply: Reply) -> Result<ProducerIdentity> {
    match reply {
        Reply::Identity(identity) => Ok(identity),
        _ => Err(Error::InvalidTransactionState("the coordinator gave no identity")),
    }
}

/// Whether the coordinator says that the transaction has ended otherwise than was asked for, for good.
const fn has_ended_otherwise(error: &Error) -> bool {
    matches!(error, Error::TransactionTimedOut { .. } | Error::TransactionAborted | Error::InvalidTransactionState(_))
}

/// Whether a partition says that the transaction has ended: the coordinator knows why.
const fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::ProducerFenced { .. } | Error::TransactionAborted)
}

/// Whether the coordinator may answer otherwise when it is asked again.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::Superseded { .. } | Error::Poisoned { .. } | Error::UnexpectedEnd { .. })
}

const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any transaction.
const FOREVER: Duration = Duration::from_secs(366 * 24 * 3600);
