//! What follows from a heartbeat: who comes, goes on and leaves, and what each is led to.

use std::sync::Arc;
use std::time::Duration;

use super::decide::{Decided, Draft, check_group, check_name, said};
use super::partitions::Partitions;
use super::protocol::{Answer, Details, Epoch, Heartbeat, Intent, Report};
use super::reconcile::{Current, Phase, Standing};
use super::roster::{Roster, Seat};
use super::state::{Coordinator, Pulse, Soft};
use super::topics::compile;
use super::{Event, Reply};
use crate::clock::Now;
use crate::error::{Error, Result};
use crate::types::check_topic_name;

/// So many bytes at most have the names and the pattern that a member subscribes to: its record has to fit a batch.
const SUBSCRIPTION_BYTES_MAX: usize = 256 * 1024;
/// So many members are remembered that have left.
const GONE_MAX: usize = 10_000;
/// No member reports more often.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

pub(super) fn decide(state: &mut Coordinator, now: Now, beat: Heartbeat) -> Decided {
    check_group(&beat.group)?;
    check_name(&beat.member, "a member's id is not empty", "a member's id has at most 32,767 bytes")?;
    match beat.intent {
        Intent::Join => join(state, now, beat),
        Intent::Stay(epoch) => stay(state, now, beat, epoch),
        Intent::Leave | Intent::LeaveForNow => Ok((leave(state, now, &beat), Reply::Left)),
    }
}

fn join(state: &mut Coordinator, now: Now, beat: Heartbeat) -> Decided {
    let Heartbeat { group, member, details, report, .. } = beat;
    let roster = state.group(&group).map(|group| &group.roster);
    if let Some(seat) = roster.and_then(|roster| roster.seat(&member)).cloned() {
        let session = session_of(&details, &state.soft)?;
        return joined_before(state, &group, &member, &seat, &report, session);
    }
    if state.soft.has_left(&group, &member) {
        return Err(Error::UnknownMember { group, member });
    }
    check_details(&details)?;
    let session = session_of(&details, &state.soft)?;
    let details = kept(details);
    let before = details.instance.as_ref().and_then(|instance| roster?.holder(instance)).cloned();
    let limit = state.soft.settings.members_max;
    if before.is_none() && roster.is_some_and(|roster| roster.members().count() >= limit) {
        return Err(Error::GroupFull { group, limit });
    }
    let mut draft = Draft::new(&group, roster, now.wall);
    let Some(catalogue) = &mut state.soft.catalogue else { return Err(Error::CoordinatorLoading { group }) };
    let event =
        Event::Member { group: group.clone(), member: member.clone(), details: Some(Arc::new(details.clone())) };
    draft.push(event);
    let (has_changed, removed) = if let Some(before) = &before {
        succeed(&mut draft, before, &member, &details)
    } else {
        seat(&mut draft, &member, Partitions::default());
        (true, None)
    };
    if has_changed {
        draft.raise();
    }
    draft.retarget(catalogue);
    draft.lead(&member, Some(&Partitions::default()));
    if let Some(removed) = removed {
        state.soft.forget(&group, &removed);
    }
    state.soft.hear(&group, &member, &report, session);
    let reply = conclude(&mut state.soft, &group, &member, draft.roster.seat(&member), draft.has_led(), &report);
    Ok((draft.into_events(), reply))
}

/// A join that was sent twice, as its answer was lost, or that is late.
fn joined_before(
    state: &mut Coordinator,
    group: &str,
    member: &str,
    seat: &Seat,
    report: &Report,
    session: Duration,
) -> Decided {
    let Some(known) = state.group(group) else { return Err(unknown(group, member)) };
    if known.roster.is_replaced(member) {
        return Err(replaced(group, seat));
    }
    let is_first = seat.current.as_ref().is_some_and(|one| one.previous == Epoch(0) && one.standing != Standing::Away);
    if !is_first || !report.owned.is_empty() {
        return Err(fenced(group, member, Epoch(0)));
    }
    let is_late = state.soft.pulse(group, member).is_some_and(|pulse| report.number <= pulse.number);
    if !is_late {
        state.soft.hear(group, member, report, session);
    }
    Ok((Vec::new(), answer(&state.soft, group, member, seat.current.as_ref(), report)))
}

/// The instance of `before` has come as `member`: it has what was meant for that one, and what it held if it has left.
/// Says whether the target has to be another, and who is gone.
fn succeed(draft: &mut Draft, before: &str, member: &str, details: &Details) -> (bool, Option<String>) {
    let old = draft.roster.seat(before).cloned().unwrap_or_default();
    let partitions = Some(old.target()).filter(|target| !target.is_empty());
    let has_changed = old.details.as_deref().is_none_or(|old| wants_other(old, details));
    let is_gone = old.is_away() || !old.holds_something();
    if is_gone {
        draft.remove(before);
    } else {
        draft.push(Event::Target { group: draft.group(), member: before.to_owned(), partitions: None });
    }
    if partitions.is_some() {
        draft.push(Event::Target { group: draft.group(), member: member.to_owned(), partitions });
    }
    let held = old.current.filter(|_| is_gone).map(|current| current.assigned).unwrap_or_default();
    seat(draft, member, held);
    (has_changed, is_gone.then(|| before.to_owned()))
}

/// Where the first step starts from.
fn seat(draft: &mut Draft, member: &str, held: Partitions) {
    let current = Some(Current::joining(held));
    draft.assume(&Event::Current { group: draft.group(), member: member.to_owned(), current });
}

fn stay(state: &mut Coordinator, now: Now, beat: Heartbeat, epoch: Epoch) -> Decided {
    let Heartbeat { group, member, details, report, .. } = beat;
    let Some(known) = state.group(&group) else { return Err(unknown(&group, &member)) };
    let roster = &known.roster;
    let seat = present(&group, &member, details.instance.as_deref(), roster)?;
    let (Some(before), Some(current)) = (&seat.details, &seat.current) else {
        return Err(fenced(&group, &member, epoch));
    };
    if state.soft.catalogue.is_none() {
        return Err(Error::CoordinatorLoading { group });
    }
    if state.soft.pulse(&group, &member).is_some_and(|pulse| report.number <= pulse.number) {
        return Ok((Vec::new(), answer(&state.soft, &group, &member, Some(current), &report)));
    }
    let is_behind = check_epoch(&group, &member, current, epoch, &report)?;
    // Whoever owns what is not its own is of another time: of before the group was forgotten, and made again.
    let is_beyond = !report.owned.is_within(&current.assigned.joined_with(&current.revoking));
    if before.instance != details.instance || is_beyond {
        return Err(fenced(&group, &member, epoch));
    }
    let session = session_of(&details, &state.soft)?;
    let details = kept(details);
    let has_changed = **before != details;
    if has_changed {
        check_details(&details)?;
    }
    // What it owns it says where it has heard this machine; else the heartbeat may be an old one.
    let owned = (report.seen == Some(state.soft.incarnation)).then_some(&report.owned);
    if is_behind || !has_changed && roster.is_assigned() {
        let step = if is_behind { None } else { roster.step(&member, owned) };
        let seat = seat.led(step.as_ref());
        state.soft.hear(&group, &member, &report, session);
        let reply = conclude(&mut state.soft, &group, &member, Some(&seat), step.is_some(), &report);
        let event = step.map(|current| Event::Current { group, member, current: Some(current) });
        return Ok((event.into_iter().collect(), reply));
    }
    let mut draft = Draft::new(&group, Some(roster), now.wall);
    if has_changed {
        let has_other_wishes = wants_other(before, &details);
        let details = Some(Arc::new(details));
        draft.push(Event::Member { group: group.clone(), member: member.clone(), details });
        if has_other_wishes {
            draft.raise();
        }
    }
    if let Some(catalogue) = &mut state.soft.catalogue {
        draft.retarget(catalogue);
    }
    draft.lead(&member, owned);
    state.soft.hear(&group, &member, &report, session);
    let reply = conclude(&mut state.soft, &group, &member, draft.roster.seat(&member), draft.has_led(), &report);
    Ok((draft.into_events(), reply))
}

/// Whether the member has not heard of its last step. It is not led on before it has.
fn check_epoch(group: &str, member: &str, current: &Current, epoch: Epoch, report: &Report) -> Result<bool> {
    match current.epoch() {
        Some(now) if now == epoch => Ok(false),
        Some(now) if epoch < now && epoch == current.previous && report.owned.is_within(&current.assigned) => Ok(true),
        _ => Err(fenced(group, member, epoch)),
    }
}

fn leave(state: &mut Coordinator, now: Now, beat: &Heartbeat) -> Vec<Event> {
    let Heartbeat { group, member, intent, .. } = beat;
    let Some(roster) = state.group(group).map(|group| &group.roster) else { return Vec::new() };
    let Some(seat) = roster.seat(member) else { return Vec::new() };
    let is_replaced = roster.is_replaced(member);
    let mut draft = Draft::new(group, Some(roster), now.wall);
    match &seat.current {
        Some(current) if *intent == Intent::LeaveForNow && seat.instance().is_some() && !is_replaced => {
            let Standing::Here(previous) = current.standing else { return Vec::new() };
            let (assigned, revoking) = (current.assigned.clone(), Partitions::default());
            let away = Current { standing: Standing::Away, previous, phase: Phase::Stable, assigned, revoking };
            let current = Some(away);
            draft.push(Event::Current { group: group.clone(), member: member.clone(), current });
            state.soft.leave_for_now(group, member);
        }
        _ => {
            draft.remove(member);
            if !is_replaced {
                draft.raise();
            }
            state.soft.forget(group, member);
        }
    }
    draft.into_events()
}

/// Notes by when the member has to give back, and answers it.
fn conclude(soft: &mut Soft, group: &str, member: &str, seat: Option<&Seat>, has_led: bool, report: &Report) -> Reply {
    let elapsed = soft.clock.elapsed();
    if let Some(pulse) = soft.pulses.get_mut(group).and_then(|pulses| pulses.get_mut(member)) {
        let details = seat.and_then(|seat| seat.details.as_ref());
        let within = details.map_or(Duration::ZERO, |details| details.rebalance_timeout);
        // Until its session is over it may not have heard of it.
        let end = pulse.session_end.max(elapsed + within);
        pulse.revoke_end = match pulse.revoke_end {
            _ if !seat.is_some_and(Seat::is_revoking) => None,
            Some(end) if !has_led => Some(end),
            _ => Some(end),
        };
    }
    answer(soft, group, member, seat.and_then(|seat| seat.current.as_ref()), report)
}

fn answer(soft: &Soft, group: &str, member: &str, current: Option<&Current>, report: &Report) -> Reply {
    let pulse = soft.pulse(group, member);
    let assigned = current.map(|current| current.assigned.clone()).unwrap_or_default();
    let elapsed = soft.clock.elapsed();
    Reply::Answer(Answer {
        number: report.number,
        epoch: current.and_then(Current::epoch).unwrap_or_default(),
        incarnation: soft.incarnation,
        heartbeat_interval: interval_of(soft, pulse.map(|pulse| pulse.timeout)),
        session_timeout: pulse.map_or(Duration::ZERO, |pulse| pulse.timeout),
        assignment: Some(assigned).filter(|assigned| *assigned != report.owned),
        revoke_within: pulse.and_then(|pulse| pulse.revoke_end).map(|end| end.saturating_sub(elapsed)),
    })
}

/// How often a member with this session reports: as often as the setting says, and three times a session at least, so that
/// one that is late ends nothing.
fn interval_of(soft: &Soft, session: Option<Duration>) -> Duration {
    let longest = session.map_or(Duration::MAX, |session| session / 3);
    soft.settings.heartbeat_interval.min(longest).max(INTERVAL_MIN)
}

/// The seat of a member that is not replaced.
pub(super) fn present<'a>(group: &str, member: &str, instance: Option<&str>, roster: &'a Roster) -> Result<&'a Seat> {
    let holder = instance.and_then(|instance| roster.holder(instance));
    match roster.seat(member) {
        Some(seat) if roster.is_replaced(member) => Err(replaced(group, seat)),
        Some(seat) => Ok(seat),
        None if holder.is_some() => {
            Err(Error::FencedInstance { group: group.to_owned(), instance: instance.unwrap_or_default().to_owned() })
        }
        None => Err(unknown(group, member)),
    }
}

fn replaced(group: &str, seat: &Seat) -> Error {
    Error::FencedInstance { group: group.to_owned(), instance: seat.instance().cloned().unwrap_or_default() }
}

pub(super) fn unknown(group: &str, member: &str) -> Error {
    Error::UnknownMember { group: group.to_owned(), member: member.to_owned() }
}

pub(super) fn fenced(group: &str, member: &str, epoch: Epoch) -> Error {
    Error::FencedMember { group: group.to_owned(), member: member.to_owned(), epoch: said(epoch) }
}

/// Whether other partitions may be meant for it.
fn wants_other(before: &Details, now: &Details) -> bool {
    before.subscription != now.subscription || before.assignor != now.assignor
}

/// As the record holds it.
fn kept(details: Details) -> Details {
    let millis = u64::try_from(details.rebalance_timeout.as_millis()).unwrap_or(u64::MAX);
    Details { session_timeout: None, rebalance_timeout: Duration::from_millis(millis), ..details }
}

/// How long its session is: what it asks for, and no longer than the setting.
fn session_of(details: &Details, soft: &Soft) -> Result<Duration> {
    let longest = soft.settings.session_timeout;
    let session = details.session_timeout.map_or(longest, |wanted| wanted.min(longest));
    check_time("session_timeout", session)?;
    Ok(session)
}

/// Checks what a member says of itself, but for its session, which the coordinator may shorten.
pub(crate) fn check_details(details: &Details) -> Result<()> {
    let Details { instance, rack, client_id, client_host, subscription, .. } = details;
    let long = "an instance id, a rack, a client's id and its host have at most 32,767 bytes";
    for name in [instance.as_ref(), rack.as_ref()].into_iter().flatten() {
        check_name(name, "an instance id, and a rack, is not empty", long)?;
    }
    for name in [client_id, client_host].into_iter().filter(|name| !name.is_empty()) {
        check_name(name, "", long)?;
    }
    for topic in &subscription.topics {
        check_topic_name(topic).map_err(|reason| Error::InvalidName { name: topic.clone(), reason })?;
    }
    let bytes = subscription.topics.iter().chain(&subscription.pattern).map(String::len).sum::<usize>();
    if bytes > SUBSCRIPTION_BYTES_MAX {
        let reason = format!("it has {bytes} bytes, at most {SUBSCRIPTION_BYTES_MAX}");
        return Err(Error::InvalidConfig { setting: "subscription", reason });
    }
    if let Some(pattern) = &subscription.pattern {
        compile(pattern)?;
    }
    check_time("max_poll_interval", details.rebalance_timeout)
}

/// Whether it is a time that Kafka's records hold.
pub(crate) fn check_time(setting: &'static str, time: Duration) -> Result<()> {
    let millis = i32::try_from(time.as_millis()).ok().filter(|millis| *millis > 0);
    let reason = || format!("{time:?} is outside of 1 ms to {} ms", i32::MAX);
    millis.map(|_| ()).ok_or_else(|| Error::InvalidConfig { setting, reason: reason() })
}

impl Soft {
    pub(super) fn pulse(&self, group: &str, member: &str) -> Option<&Pulse> {
        self.pulses.get(group)?.get(member)
    }

    /// A heartbeat has come that is not late: the session begins again.
    fn hear(&mut self, group: &str, member: &str, report: &Report, timeout: Duration) {
        let pulses = self.pulses.entry(group.to_owned()).or_default();
        let before = pulses.get(member);
        // An earlier answer may have promised more, and is what the member goes by until it has this one.
        let promised = before.map_or(Duration::ZERO, |pulse| pulse.session_end);
        let session_end = promised.max(self.clock.elapsed() + timeout);
        let revoke_end = before.and_then(|pulse| pulse.revoke_end);
        pulses.insert(member.to_owned(), Pulse { number: report.number, timeout, session_end, revoke_end });
    }

    fn leave_for_now(&mut self, group: &str, member: &str) {
        let elapsed = self.clock.elapsed();
        if let Some(pulse) = self.pulses.get_mut(group).and_then(|pulses| pulses.get_mut(member)) {
            pulse.session_end = elapsed + pulse.timeout;
            pulse.revoke_end = None;
        }
    }

    /// The member is gone; a heartbeat of its that is late is known for what it is for a while.
    pub(super) fn forget(&mut self, group: &str, member: &str) {
        if let Some(pulses) = self.pulses.get_mut(group) {
            pulses.remove(member);
            if pulses.is_empty() {
                self.pulses.remove(group);
            }
        }
        let elapsed = self.clock.elapsed();
        if self.gone.len() >= GONE_MAX {
            self.gone.retain(|_, until| *until > elapsed);
        }
        if self.gone.len() >= GONE_MAX {
            self.gone.pop_first();
        }
        self.gone.insert(gone_key(group, member), elapsed + 2 * self.settings.session_timeout);
    }

    fn has_left(&self, group: &str, member: &str) -> bool {
        let until = self.gone.get(&gone_key(group, member));
        until.is_some_and(|until| *until > self.clock.elapsed())
    }
}

fn gone_key(group: &str, member: &str) -> String {
    format!("{group}\0{member}")
}
