//! How far a group's consumer has come, committed in the transaction of whoever has one open.

use taffrail::{Error, Progress};

use super::instance::{Answer, Call};
use super::transactions::Fenced;
use super::world::World;

impl World {
    /// Commits it in an open transaction, which then has something in it if this `is_something`: in which, and whether
    /// that was taken.
    pub(super) fn progress_in(
        &mut self,
        progress: Progress,
        is_something: bool,
    ) -> Option<(usize, taffrail::Result<()>)> {
        let index = self.choice.index(self.transactors.len());
        if self.transactors[index].instances.is_empty() && !self.open_instance(index) {
            return None;
        }
        let at = self.transactors[index].instances.len() - 1;
        if self.transactors[index].instances[at].open.is_none() && !self.begin(index, at) {
            return None;
        }
        let instance = &mut self.transactors[index].instances[at];
        let number = instance.open.expect("it is open");
        let Answer::Progressed(outcome) = instance.instance.ask(Call::Progress(Box::new(progress))) else {
            panic!("it was to commit progress");
        };
        let fenced = instance.fenced;
        let transaction = &mut self.model.transactions[number];
        transaction.has_progress |= is_something && outcome.is_ok();
        if let Err(error) = &outcome {
            transaction.has_failed = true;
            self.check_refused_progress(index, at, fenced, error);
        }
        Some((number, outcome))
    }

    fn check_refused_progress(&mut self, index: usize, at: usize, fenced: Fenced, error: &Error) {
        let cause = match error {
            Error::TransactionFailed { cause } => (**cause).clone(),
            other => other.clone(),
        };
        match &cause {
            Error::UnknownMember { .. }
            | Error::FencedMember { .. }
            | Error::StaleMember { .. }
            | Error::FencedInstance { .. }
            | Error::GivenUp { .. } => self.trace.count("refused commits"),
            Error::TransactionAborted if fenced != Fenced::No => {}
            cause => self.check_refusal_in(index, at, "__consumer_offsets", None, cause),
        }
    }
}
