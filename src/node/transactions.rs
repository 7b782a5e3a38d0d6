//! The coordinators of transactions: which one has an id, and what they want done.
//!
//! ```text
//!   transact(id, command) ─► the desk of its partition ─► step ─► tasks, done by this thread ─► the reply
//!                                 │
//!                                 └── actions: markers (markers.rs), time-outs, ids that expire
//!                                     · by whoever has ended a transaction, as far as nothing has to be waited for
//!                                     · by whoever needs its end ([`Node::settle`]): it waits for the syncs
//!                                     · by the timed thread or a tick, and at open
//! ```
//!
//! Order of locks: a desk's is taken before a partition's, and after none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::coordinator::{Asker, Input};
use super::desk::{AsDesk, Desk, Desks, serve, serve_once};
use super::markers::Marking;
use super::slot::Slot;
use super::{Node, Topic};
use crate::clock::{Moment, Now};
use crate::error::Result;
use crate::machine::ProducerIdentity;
use crate::partition::OpenTransaction;
use crate::record::control::Outcome;
use crate::sync::Mutex;
use crate::trace;
use crate::txn::{Action, Command, Coordinator as Transactions, Reply, STATE_PARTITIONS, STATE_TOPIC};
use crate::types::{ProducerEpoch, ProducerId, TopicPartition};

/// One coordinator, and what is on its way.
#[derive(Debug)]
pub(super) struct TransactionDesk {
    desk: Desk<Transactions, Reply>,
    /// By transactional id.
    markings: BTreeMap<String, Marking>,
    /// What ends transactions that no coordinator knows of.
    hanging: Vec<Marking>,
}

impl AsDesk for TransactionDesk {
    type Machine = Transactions;
    type Reply = Reply;

    const TOPIC: &'static str = STATE_TOPIC;
    const PARTITIONS: u32 = STATE_PARTITIONS;
    /// A record that names every partition of the largest transaction fits.
    const BATCH_BYTES_MAX: u32 = 16 << 20;

    fn desks(node: &Node) -> &Desks<Self> {
        &node.desks
    }

    fn open(desk: Desk<Transactions, Reply>) -> Self {
        Self { desk, markings: BTreeMap::new(), hanging: Vec::new() }
    }

    fn due(&self, now: Now) -> Option<Moment> {
        let markings = self.markings.values().chain(&self.hanging).map(|marking| marking.due);
        markings.chain(self.desk.due(now)).min()
    }

    fn desk(&mut self) -> &mut Desk<Transactions, Reply> {
        &mut self.desk
    }
}

/// What front ends ask for.
impl Node {
    /// Has the coordinator of a transactional id decide, and answers once that is stored. A producer id is brought along
    /// where one is needed.
    pub(crate) fn transact(&self, id: &str, command: impl Fn(Option<ProducerId>) -> Command) -> Result<Reply> {
        match self.command(id, command(None))? {
            Reply::NeedsProducerId => {
                let fresh = self.unknown_producer_id()?;
                self.command(id, command(Some(fresh)))
            }
            other => Ok(other),
        }
    }

    fn command(&self, id: &str, command: Command) -> Result<Reply> {
        let ends = matches!(command, Command::End { .. });
        let desk = self.desk_of::<TransactionDesk>(id)?;
        let slot = Arc::new(Slot::new());
        desk.lock().command(self, id, command, &slot);
        serve(desk, &slot, || self.now());
        let reply = slot.wait();
        if ends && reply.is_ok() {
            self.advance(desk);
        }
        self.note_due(desk);
        reply
    }

    /// Has the markers of what is decided of a transactional id written and stored, waiting for syncs where that helps:
    /// the next command of the id ends it, by one append of both.
    pub(crate) fn settle(&self, id: &str) -> Result<()> {
        let desk = self.desk_of::<TransactionDesk>(id)?;
        self.advance(desk);
        while serve_once(desk, || self.now()) {}
        self.advance(desk);
        let asked = desk.lock().markings.get(id).map(Marking::asked).unwrap_or_default();
        for (name, asker) in &asked {
            self.serve_group_of(name, asker);
        }
        self.advance(desk);
        let written = desk.lock().markings.get(id).map(Marking::written).unwrap_or_default();
        for (partition, receipt) in &written {
            // What fails is written again.
            drop(partition.wait_stored(*receipt));
        }
        self.note_due(desk);
        Ok(())
    }
}

/// What is done without anybody asking.
impl Node {
    /// Reads what the coordinators know, and goes on with what they have decided. What was given out elsewhere is not
    /// given out here: a broker's topic may have been taken in.
    pub(super) fn recover_transactions(&self) {
        let (desks, now) = (self.known_desks::<TransactionDesk>(), self.now());
        for desk in desks {
            let mut locked = desk.lock();
            if !locked.desk.coordinator.has_stopped() {
                continue;
            }
            locked.desk.revive(now);
            if let Some(machine) = locked.desk.coordinator.settled() {
                let greatest = machine.transactions().map(|(_, one)| one.kept.producer_id.0).max();
                self.skip_producer_ids(ProducerId(greatest.map_or(0, |id| id.saturating_add(1))));
            }
        }
        self.find_hanging(desks);
        for desk in desks {
            self.advance(desk);
            self.note_due(desk);
        }
    }

    /// Finds the transactions that are open in a partition and that no coordinator will end, and has them ended.
    ///
    /// They come of a loss of power that took a marker and left the records, in a topic that is not synced, while the
    /// coordinator had noted that all is done. Such a one is ended as its coordinator has decided where that is still
    /// known, and aborted else. Left alone are topics that were found and that nobody has set the settings of yet, which
    /// a broker may take back, and producer ids that this log has not given out, which are a host's own.
    fn find_hanging(&self, desks: &[Mutex<TransactionDesk>]) {
        let (topics, image) = (self.topics(), self.image.load());
        let is_ours = |topic: &&Arc<Topic>| image.topic(&topic.name).is_some_and(|state| !state.adopted);
        let mut open = Vec::new();
        for topic in topics.values().filter(is_ours) {
            for (number, partition) in (0..).zip(&topic.partitions) {
                let name = || TopicPartition { topic: topic.name.to_string(), partition: number };
                let found = partition.open_transactions().into_iter();
                let found = found.filter(|one| one.producer_id < image.next_producer_id());
                open.extend(found.map(|one| (name(), one)));
            }
        }
        if open.is_empty() {
            return;
        }
        let mut kept = BTreeMap::new();
        for desk in desks {
            let desk = desk.lock();
            let partition = desk.desk.coordinator.partition();
            match desk.desk.coordinator.settled() {
                Some(machine) => {
                    for (_, one) in machine.transactions() {
                        let ids = [Some(one.kept.producer_id), one.kept.previous_producer_id];
                        kept.extend(ids.into_iter().flatten().map(|id| (id, one.kept.clone())));
                    }
                }
                None if partition.end() == partition.start() => {}
                // What hangs there and what goes on cannot be told apart.
                None => return,
            }
        }
        let Some(desk) = desks.first() else { return };
        for (name, OpenTransaction { producer_id, epoch }) in open {
            let open = ProducerIdentity { id: producer_id, epoch };
            let outcome = kept.get(&producer_id).map_or(Some(Outcome::Aborted), |kept| kept.outcome_of(open, &name));
            let Some(outcome) = outcome else { continue };
            trace::warn(&self.home.directory, || {
                format!("{name} has a transaction of producer {} that nobody ends: {outcome:?}", producer_id.0)
            });
            let bumped = epoch.0 < i16::MAX;
            let producer = ProducerIdentity { epoch: ProducerEpoch(epoch.0.saturating_add(1)), ..open };
            desk.lock().hanging.push(Marking::new(producer, outcome, bumped, vec![name]));
        }
    }

    /// When a coordinator has something to do.
    pub(super) fn transactions_due(&self) -> Option<Moment> {
        self.desks.due.get()
    }

    /// Does what is due; says whether there was anything.
    pub(super) fn run_transactions(&self, now: Now) -> bool {
        if self.check_open().is_err() || !self.desks.due.take(now.monotonic) {
            return false;
        }
        for desk in self.desks.all() {
            self.advance(desk);
            self.note_due(desk);
        }
        true
    }

    /// Goes on with everything of a desk as far as nothing has to be waited for.
    fn advance(&self, desk: &Mutex<TransactionDesk>) {
        let now = self.now();
        let mut desk = desk.lock();
        desk.desk.revive(now);
        desk.desk.look_after_tasks(now);
        desk.take_actions(now);
        desk.write_markers(self, now);
    }
}

impl TransactionDesk {
    /// A command of a front end. Where the markers of the transaction before are stored, its completion goes along.
    fn command(&mut self, node: &Node, id: &str, command: Command, slot: &Asker<Reply>) {
        let (now, epoch) = (node.now(), self.desk.coordinator.epoch());
        if let Some(marking) = self.markings.get_mut(id)
            && marking.proceed(node, epoch, now)
        {
            let complete = Command::Complete { id: id.to_owned(), producer: marking.producer };
            self.markings.remove(id);
            self.desk.coordinator.submit(now, complete, Arc::new(Slot::new()));
        }
        self.desk.step(now, Input::Command(command, Arc::clone(slot)));
    }

    /// A command that nobody waits for the answer of.
    fn order(&mut self, now: Now, command: Command) {
        self.desk.order(now, command);
    }

    fn take_actions(&mut self, now: Now) {
        for action in self.desk.coordinator.actions(now) {
            match action {
                Action::WriteMarkers { id, producer, outcome, partitions, bumped } => {
                    let is_known = self.markings.get(&id).is_some_and(|known| known.producer == producer);
                    if !is_known {
                        self.markings.insert(id, Marking::new(producer, outcome, bumped, partitions));
                    }
                }
                Action::TimeOut { id, producer } => self.order(now, Command::TimeOut { id, producer }),
                Action::Expire { ids } => self.order(now, Command::Expire { ids }),
            }
        }
    }

    fn write_markers(&mut self, node: &Node, now: Now) {
        let epoch = self.desk.coordinator.epoch();
        self.hanging.retain_mut(|marking| !marking.proceed(node, epoch, now));
        let mut done = Vec::new();
        for (id, marking) in &mut self.markings {
            if marking.proceed(node, epoch, now) {
                done.push((id.clone(), marking.producer));
            }
        }
        for (id, producer) in done {
            self.markings.remove(&id);
            self.order(now, Command::Complete { id, producer });
        }
    }
}
