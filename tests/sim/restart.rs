//! The end of a process, by a loss of power, a kill or a close, and the next one.

use taffrail::Log;

use super::faults::Doom;
use super::groups::group_config;
use super::producers::Answers;
use super::world::{DIRECTORY, World};

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Power,
    Kill,
    Close,
}

impl World {
    /// Ends the process somehow, and begins another.
    pub(super) fn restart(&mut self) {
        let mut ends = vec![End::Close];
        ends.extend(self.plan.power_losses.then_some(End::Power));
        ends.extend(self.plan.kills.then_some(End::Kill));
        match self.choice.pick(&ends) {
            End::Close => drop(self.close()),
            End::Power => self.lose_power(),
            End::Kill => self.kill(),
        }
        self.open();
    }

    /// Ends the process where the end that was to come has come.
    pub(super) fn meet_doom(&mut self) {
        if !self.is_over() {
            return;
        }
        match self.doom {
            Some(Doom::Kill(_)) => self.kill(),
            _ => self.lose_power(),
        }
        self.open();
    }

    pub(super) fn lose_power(&mut self) {
        self.trace.note("the power goes");
        self.trace.count("power losses");
        let next = self.storage.crash(self.choice.seed());
        self.leave(Answers::Unheard);
        self.storage = next;
        self.model.lost_power();
        self.end_readers(true);
        self.end_groups(true);
    }

    fn kill(&mut self) {
        self.trace.note("the process is killed");
        self.trace.count("kills");
        let next = self.storage.kill();
        self.leave(Answers::Closed);
        self.storage = next;
        self.end_readers(false);
        self.end_groups(false);
        if self.excused {
            self.ended_badly();
        }
    }

    fn ended_badly(&mut self) {
        let paths: std::collections::BTreeSet<_> = self.storage.paths().into_iter().collect();
        let note = |name: &str, number| format!("{DIRECTORY}/{name}-{number}/sync-failed.taffrail");
        self.model.ended_badly(|name, number| paths.contains(std::path::Path::new(&note(name, number))));
    }

    /// Lets go of a log whose disk does not answer any more.
    fn leave(&mut self, answers: Answers) {
        self.model.was_named |= self.log.is_some() && self.names_damaged_positions();
        let outcome = self.log.take().map(Log::close);
        self.trace.note(format_args!("left: {outcome:?}"));
        self.holds.clear();
        self.end_producers(answers);
        self.end_transactors(answers);
    }

    /// Closes the log; says whether that went well, in which case everything in it is on the disk.
    pub(super) fn close(&mut self) -> bool {
        self.trace.count("closes");
        self.holds.clear();
        self.model.was_named |= self.names_damaged_positions();
        let outcome = self.log.take().expect("it is open").close();
        self.trace.note(format_args!("closes: {outcome:?}"));
        if self.storage.has_lost_power() {
            self.end_producers(Answers::Unheard);
            self.end_transactors(Answers::Unheard);
            self.storage = self.storage.crash(self.choice.seed());
            self.model.lost_power();
            self.end_readers(true);
            self.end_groups(true);
            return false;
        }
        self.end_producers(Answers::Closed);
        self.end_transactors(Answers::Closed);
        self.end_readers(false);
        self.end_groups(false);
        match &outcome {
            Ok(()) => self.model.synced(&self.model.live()),
            Err(error) => {
                self.excuse(error, "the log cannot be closed");
                self.ended_badly();
            }
        }
        outcome.is_ok()
    }

    /// Opens the log, at last on a sound disk.
    pub(super) fn open(&mut self) {
        let mut attempt = 0;
        self.storage.clear_faults();
        self.log = loop {
            self.break_open(attempt);
            let opened = self.try_open();
            if self.storage.has_lost_power() {
                drop(opened);
                self.trace.note("the power goes while it opens");
                self.storage = self.storage.crash(self.choice.seed());
                self.model.lost_power();
                self.end_readers(true);
                self.end_groups(true);
            } else if opened.is_some() {
                break opened;
            } else {
                self.ended_badly();
                self.storage = if self.choice.one_in(2) { self.storage.kill() } else { self.storage.clone() };
            }
            attempt += 1;
        };
        self.storage.clear_faults();
        (self.armed, self.doom, self.reopened) = (false, None, false);
        for name in self.names() {
            self.settle(name);
        }
        self.forget_kept(&self.model.live());
        self.scan_all();
        (0..self.groups.len()).for_each(|index| self.observe_group(index));
    }

    /// Something goes wrong with the next open, unless there were enough of those.
    fn break_open(&mut self, attempt: u64) {
        self.storage.clear_faults();
        (self.armed, self.excused) = (false, false);
        if attempt > 3 || self.trace.step > self.plan.steps {
            return;
        }
        if self.plan.one_fault_in > 0 && self.choice.one_in(4) {
            self.break_operations();
        } else if self.plan.power_losses && self.choice.one_in(6) {
            self.storage.crash_at(self.storage.operations() + self.choice.below(150));
            (self.armed, self.excused) = (true, true);
        }
    }

    fn try_open(&mut self) -> Option<Log> {
        let cleaner = self.cleaner();
        let builder = Log::builder(DIRECTORY).cleaner(cleaner).storage(self.storage.shared()).clock(self.clock.clone());
        let builder = builder.groups(group_config(&self.plan));
        let opened = builder.background(false).seed(self.choice.seed()).open();
        match opened {
            Ok(log) => {
                self.trace.note("opens");
                Some(log)
            }
            Err(error) => {
                self.trace.note(format_args!("does not open: {error}"));
                // It may have cut something off before that.
                self.model.was_named = true;
                self.trace.count("failed opens");
                self.excuse(&error, "the log does not open");
                None
            }
        }
    }
}
