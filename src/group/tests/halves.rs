//! The member's half by itself, against answers that the test makes up.

use super::*;
use crate::random::Random;

struct Half {
    member: Member,
    now: Moment,
    /// The heartbeat that was sent last.
    sent: Option<Heartbeat>,
}

impl Half {
    fn new(details: Details) -> Self {
        let settings = MemberSettings { max_poll_interval: POLLS, ..MemberSettings::new(GROUP.to_owned(), details) };
        let member = Member::new(Moment(1), settings, Random::seeded(7));
        Self { member, now: Moment(1), sent: None }
    }

    /// One that has joined, and owns these.
    fn owning(owned: &Partitions) -> Self {
        let mut half = Self::new(details(&["orders"]));
        half.beat().unwrap();
        half.answer(1, Some(owned.clone()), None);
        assert_eq!(half.poll().assigned, *owned);
        half
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.now = self.now.after(SECOND / 2);
        }
    }

    /// What it says while time passes, of which it takes note.
    fn beats_within(&mut self, time: Duration) -> Vec<Intent> {
        let (end, mut said) = (self.now.after(time), Vec::new());
        while self.now < end {
            self.now = self.now.after(SECOND / 2);
            while let Some(beat) = self.beat() {
                said.push(beat.intent);
            }
        }
        said
    }

    fn beat(&mut self) -> Option<Heartbeat> {
        let beat = self.member.heartbeat(self.now);
        if beat.is_some() {
            self.sent.clone_from(&beat);
        }
        beat
    }

    fn answer_to(&mut self, number: u64, epoch: u32, assignment: Option<Partitions>, within: Option<Duration>) {
        let answer = Answer {
            number,
            epoch: Epoch(epoch),
            incarnation: Incarnation(Now { wall: Timestamp(5), monotonic: Moment(5) }),
            heartbeat_interval: 5 * SECOND,
            session_timeout: SESSION,
            assignment,
            revoke_within: within,
        };
        self.member.answered(self.now, number, Ok(answer));
    }

    fn answer(&mut self, epoch: u32, assignment: Option<Partitions>, within: Option<Duration>) {
        let number = self.sent.as_ref().unwrap().report.number;
        self.answer_to(number, epoch, assignment, within);
    }

    fn refuse(&mut self, error: Error) {
        let number = self.sent.as_ref().unwrap().report.number;
        self.member.answered(self.now, number, Err(error));
    }

    fn poll(&mut self) -> Changes {
        self.member.polled(self.now).unwrap()
    }

    fn readable(&self) -> Option<Partitions> {
        self.member.readable(self.now).cloned()
    }
}

fn unknown() -> Error {
    Error::UnknownMember { group: GROUP.to_owned(), member: "m".to_owned() }
}

fn fenced() -> Error {
    Error::FencedMember { group: GROUP.to_owned(), member: "m".to_owned(), epoch: 1 }
}

#[test]
fn a_consumer_has_five_minutes_between_polls_by_default() {
    let settings = MemberSettings::new(GROUP.to_owned(), Details::default());
    let mut member = Member::new(Moment(1), settings, Random::seeded(7));
    assert_eq!(member.heartbeat(Moment(1)).unwrap().details.rebalance_timeout, 300 * SECOND);
}

#[test]
fn it_joins_at_once_and_reports_every_interval() {
    let mut half = Half::new(details(&["orders"]));
    assert_eq!(half.member.deadline(), Some(half.now.after(SECOND / 2)).min(Some(half.now)));
    let beat = half.beat().unwrap();
    assert_eq!((beat.intent, beat.details.rebalance_timeout), (Intent::Join, POLLS));
    assert_eq!(half.beat(), None, "one is on its way");
    half.pass(5 * SECOND);
    let again = half.beat().unwrap();
    assert_eq!((again.member.clone(), again.intent, again.report.number), (beat.member, Intent::Join, 2));
    half.answer_to(1, 9, Some(some("orders", 0..9)), None);
    assert_eq!(half.member.claim(), None, "it answers one that counts no more");
    half.answer(1, Some(some("orders", 0..2)), None);
    assert_eq!(half.member.claim().unwrap().epoch, Epoch(1));
    half.answer(2, Some(some("orders", 0..9)), None);
    assert_eq!(half.member.claim().unwrap().epoch, Epoch(1), "it comes twice");
    half.pass(SECOND * 9 / 2);
    assert_eq!(half.beat(), None);
    half.pass(SECOND / 2);
    let beat = half.beat().unwrap();
    assert_eq!((beat.intent, beat.report.owned), (Intent::Stay(Epoch(1)), some("orders", 0..2)));
    assert!(beat.report.seen.is_some());
}

/// Answers take three intervals: each was passed over, since the next heartbeat was on its way by then.
#[test]
fn answers_that_are_slow_are_heard_at_last() {
    let mut half = Half::owning(&some("orders", 0..2));
    let (mut under_way, mut heard): (Vec<(Moment, u64)>, bool) = (Vec::new(), false);
    for _ in 0..120 {
        half.pass(SECOND / 2);
        half.poll();
        under_way.extend(half.beat().map(|beat| (half.now.after(15 * SECOND), beat.report.number)));
        let now = half.now;
        for (_, number) in under_way.extract_if(.., |(due, _)| *due <= now) {
            half.answer_to(number, 2, None, None);
        }
        heard |= half.member.claim().is_some_and(|claim| claim.epoch == Epoch(2));
    }
    assert!(heard);
}

#[test]
fn nothing_is_owned_before_a_poll_and_nothing_given_back() {
    let mut half = Half::new(details(&["orders"]));
    half.beat();
    half.answer(1, Some(some("orders", 0..4)), None);
    assert_eq!(half.readable(), Some(Partitions::default()));
    assert_eq!(half.poll().assigned, some("orders", 0..4));
    assert_eq!(half.readable(), Some(some("orders", 0..4)));
    half.pass(5 * SECOND);
    half.beat();
    half.answer(1, Some(some("orders", 0..2)), Some(POLLS));
    half.pass(5 * SECOND);
    assert_eq!(half.beat().unwrap().report.owned, some("orders", 0..4), "a poll gives back");
    half.answer(1, Some(some("orders", 0..2)), Some(POLLS));
    let upcoming = half.member.upcoming(half.now);
    assert_eq!(half.readable(), Some(some("orders", 0..4)));
    let changes = half.poll();
    assert_eq!((&changes.revoked, &upcoming), (&some("orders", 2..4), &changes));
    assert_eq!(half.beat().unwrap().report.owned, some("orders", 0..2), "it is said at once");
    assert_eq!(half.poll(), Changes::default());
}

#[test]
fn what_was_offered_and_not_taken_needs_no_poll() {
    let mut half = Half::owning(&some("orders", [0]));
    half.pass(5 * SECOND);
    half.beat();
    half.answer(2, Some(some("orders", 0..3)), None);
    half.pass(5 * SECOND);
    assert_eq!(half.beat().unwrap().report.owned, some("orders", 0..3), "a poll may take it meanwhile");
    half.answer(2, Some(some("orders", 0..2)), Some(POLLS));
    assert_eq!(half.beat().unwrap().report.owned, some("orders", 0..2));
    half.answer(3, None, None);
    assert_eq!(half.poll().assigned, some("orders", [1]));
}

#[test]
fn who_is_removed_has_lost_what_it_owned_and_comes_again_as_another() {
    for (error, leaves) in [(unknown(), false), (fenced(), true)] {
        let mut half = Half::owning(&some("orders", 0..2));
        half.pass(5 * SECOND);
        let before = half.beat().unwrap();
        half.refuse(error);
        assert_eq!((half.readable(), half.member.claim()), (None, None));
        let mut beat = half.beat().unwrap();
        if leaves {
            assert_eq!((&beat.member, beat.intent), (&before.member, Intent::Leave));
            beat = half.beat().unwrap();
        }
        assert_eq!((beat.intent, beat.report.owned.is_empty(), beat.report.seen), (Intent::Join, true, None));
        assert_ne!(beat.member, before.member);
        half.answer(9, Some(some("orders", 1..3)), None);
        let changes = half.poll();
        assert_eq!((changes.lost, changes.assigned), (some("orders", 0..2), some("orders", 1..3)));
        assert_eq!(half.readable(), Some(some("orders", 1..3)));
    }
}

/// A consumer that was removed and is a member again, before it has polled, read on in what it had lost, and committed it
/// as the member that it is now.
#[test]
fn nothing_is_read_or_committed_before_it_is_told_what_is_lost() {
    let mut half = Half::owning(&some("orders", 0..2));
    half.pass(5 * SECOND);
    half.beat().unwrap();
    half.refuse(unknown());
    half.beat().unwrap();
    half.answer(9, Some(some("orders", 1..3)), None);
    assert_eq!((half.readable(), half.member.claim()), (None, None));
    assert_eq!(half.poll().lost, some("orders", 0..2));
    assert!(half.readable().is_some() && half.member.claim().is_some());
}

/// What it is asked back between two looks was not committed yet: it stays until the next poll.
#[test]
fn a_poll_gives_back_what_the_consumer_is_prepared_for() {
    let mut half = Half::owning(&some("orders", 0..4));
    half.pass(5 * SECOND);
    half.beat().unwrap();
    half.answer(1, Some(some("orders", 0..3)), Some(60 * SECOND));
    let prepared = half.member.upcoming(half.now).revoked;
    half.pass(5 * SECOND);
    half.beat().unwrap();
    half.answer(1, Some(some("orders", 0..1)), Some(60 * SECOND));
    let changes = half.member.polled_prepared(half.now, &prepared).unwrap();
    assert_eq!((changes.revoked, half.readable()), (some("orders", 3..4), Some(some("orders", 0..3))));
    assert_eq!(half.beat().unwrap().report.owned, some("orders", 0..3));
    assert_eq!(half.member.upcoming(half.now).revoked, some("orders", 1..3));
    assert_eq!(half.poll().revoked, some("orders", 1..3));
    assert_eq!((half.poll(), half.readable()), (Changes::default(), Some(some("orders", 0..1))));
}

#[test]
fn a_consumer_that_does_not_poll_leaves() {
    for (instance, intent) in [(None, Intent::LeaveForNow), (Some("i".to_owned()), Intent::LeaveForNow)] {
        let mut half = Half::new(Details { instance, ..details(&["orders"]) });
        half.beat();
        half.answer(1, Some(some("orders", 0..2)), None);
        half.poll();
        for second in 0..=120 {
            half.pass(SECOND / 2);
            if let Some(beat) = half.beat() {
                if beat.intent == intent {
                    assert_eq!(second, 120);
                    assert!(beat.report.owned.is_empty());
                } else {
                    half.answer(1, None, None);
                }
            }
        }
        assert_eq!((half.sent.as_ref().unwrap().intent, half.readable()), (intent, None));
        half.pass(600 * SECOND);
        assert_eq!((half.beat(), half.member.deadline()), (None, None));
        assert_eq!(half.poll().lost, some("orders", 0..2));
        assert_eq!(half.beat().unwrap().intent, Intent::Join);
    }
}

#[test]
fn a_suspended_process_has_not_missed_its_poll() {
    let mut half = Half::owning(&some("orders", 0..2));
    half.now = half.now.after(3600 * SECOND);
    assert_eq!(half.readable(), None, "another may have it by now");
    assert_eq!(half.poll(), Changes::default(), "but that is not known");
    half.beat().unwrap();
    half.answer(1, None, None);
    assert_eq!(half.readable(), Some(some("orders", 0..2)));
}

/// It was asked for one of two, and has given it: while that is not answered, for it is slow to be stored, or the process is
/// suspended, it stays. It once left the group when the time was up, and lost the other, too.
#[test]
fn whoever_has_given_back_does_not_leave() {
    let mut half = Half::owning(&some("orders", 0..2));
    half.pass(5 * SECOND);
    half.beat().unwrap();
    half.answer(1, Some(some("orders", 0..1)), Some(POLLS / 2));
    assert_eq!(half.poll().revoked, some("orders", 1..2));
    half.beat().unwrap();
    half.now = half.now.after(3600 * SECOND);
    assert_eq!(half.readable(), None, "another may have it by now");
    let beats = half.beats_within(POLLS / 2);
    assert!(beats.iter().all(|intent| *intent == Intent::Stay(Epoch(1))), "but that is not known: {beats:?}");
    half.answer(2, None, None);
    assert_eq!((half.poll(), half.readable()), (Changes::default(), Some(some("orders", 0..1))));

    // It is asked, and suspended before it has polled.
    let mut half = Half::owning(&some("orders", 0..2));
    half.pass(5 * SECOND);
    half.beat().unwrap();
    half.answer(1, Some(some("orders", 0..1)), Some(POLLS));
    half.now = half.now.after(3600 * SECOND);
    assert_eq!(half.beat().unwrap().intent, Intent::Stay(Epoch(1)), "it has waited for a second");
    half.answer(1, Some(some("orders", 0..1)), Some(POLLS / 2));
    assert_eq!(half.poll().revoked, some("orders", 1..2));
}

#[test]
fn a_lease_lasts_from_when_the_heartbeat_was_sent() {
    let mut half = Half::new(details(&["orders"]));
    half.beat();
    let sent = half.now;
    half.pass(3 * SECOND);
    half.answer(1, Some(some("orders", 0..2)), Some(20 * SECOND));
    half.poll();
    half.now = Moment(sent.after(20 * SECOND).0 - 1);
    assert!(half.readable().is_some());
    half.now = sent.after(20 * SECOND);
    assert_eq!(half.readable(), None, "it was to give back");
    // Whoever does not give back what it was asked for leaves when the time is up, as its coordinator counts it.
    let mut half = Half::owning(&some("orders", 0..2));
    half.pass(5 * SECOND);
    half.beat().unwrap();
    half.answer(1, Some(some("orders", 0..1)), Some(20 * SECOND));
    let beats = half.beats_within(19 * SECOND);
    assert!(beats.iter().all(|intent| *intent == Intent::Stay(Epoch(1))), "{beats:?}");
    let beats = half.beats_within(2 * SECOND);
    assert_eq!(beats[beats.len() - 2..], [Intent::Leave, Intent::Join]);
    assert_eq!(half.poll().lost, some("orders", 0..2));

    let mut half = Half::owning(&some("orders", 0..2));
    half.now = Moment(Moment(1).after(SESSION).0 - 1);
    assert!(half.readable().is_some());
    half.now = Moment(1).after(SESSION);
    assert_eq!(half.readable(), None);
}

#[test]
fn a_refusal_that_may_pass_is_tried_again_and_another_is_for_good() {
    let mut half = Half::new(details(&["orders"]));
    half.beat();
    half.refuse(Error::CoordinatorLoading { group: GROUP.to_owned() });
    assert_eq!(half.beat(), None);
    half.pass(SECOND / 2);
    assert_eq!(half.beat().unwrap().intent, Intent::Join);
    half.answer(1, Some(some("orders", [0])), None);
    half.poll();
    half.pass(5 * SECOND);
    half.beat();
    half.refuse(Error::FencedInstance { group: GROUP.to_owned(), instance: "i".to_owned() });
    assert_eq!(half.beat().unwrap().intent, Intent::Leave, "what it holds is free");
    assert_eq!((half.beat(), half.member.deadline(), half.readable()), (None, None, None));
    for _ in 0..2 {
        assert!(matches!(half.member.polled(half.now), Err(Error::FencedInstance { .. })));
    }
    half.member.subscribe(half.now, named(&["bills"]));
    let beat = half.beat().unwrap();
    assert_eq!((beat.intent, beat.details.subscription), (Intent::Join, named(&["bills"])));
}

#[test]
fn a_close_says_so_and_is_the_end() {
    let mut half = Half::owning(&some("orders", [0]));
    let leave = half.member.close().unwrap();
    assert_eq!((leave.intent, leave.report.owned.is_empty()), (Intent::LeaveForNow, true));
    assert_eq!((half.beat(), half.member.deadline(), half.readable()), (None, None, None));
    assert!(matches!(half.member.polled(half.now), Err(Error::Closed)));
    assert_eq!(Half::new(details(&[])).member.close(), None, "nobody has heard of it");
}

#[test]
fn another_subscription_is_said_at_once() {
    let mut half = Half::owning(&some("orders", [0]));
    assert_eq!(half.beat(), None);
    half.member.subscribe(half.now, named(&["bills"]));
    assert_eq!(half.beat().unwrap().details.subscription, named(&["bills"]));
}
