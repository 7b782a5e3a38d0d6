//! Commits that nobody waits for, of a member that is led on meanwhile: what it gives up is not theirs any more.

use std::sync::Arc;
use std::time::Duration;

use super::group::Place;
use crate::consumer::{Consumer, Rebalance, RebalanceListener};
use crate::controller::Command as Administration;
use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::types::{Offset, TopicPartition};

/// What happened, in order.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    fn put(&self, event: impl Into<String>) {
        self.0.lock().push(event.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl RebalanceListener for Events {
    fn revoked(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.put(format!("{} given back", partitions.len()));
        Ok(())
    }

    fn lost(&mut self, _: &mut Rebalance<'_>, partitions: &[TopicPartition]) -> Result<()> {
        self.put(format!("{} lost", partitions.len()));
        Ok(())
    }
}

/// A consumer that has both partitions.
fn place(events: &Events) -> (Place, Consumer) {
    let place = Place::new();
    let mut consumer = place.consumer().on_rebalance(events.clone()).open().expect("opened");
    consumer.poll(Duration::ZERO).expect("readable");
    assert_eq!(consumer.assignment().len(), 2);
    (place, consumer)
}

fn seek(consumer: &mut Consumer, offset: u64) {
    for number in 0..2 {
        consumer.seek("t", number, Offset(offset)).expect("assigned");
    }
}

fn commit_at(consumer: &mut Consumer, offset: u64, events: &Events) {
    seek(consumer, offset);
    consumer.commit_async(told(offset, events));
}

/// Notes what became of a commit.
fn told(offset: u64, events: &Events) -> impl FnOnce(Result<()>) + Send + 'static {
    let events = events.clone();
    move |outcome| {
        let refused = |error: Error| match error {
            Error::UnknownMember { .. } => format!("{offset} is nobody's"),
            other => format!("{offset}: {other}"),
        };
        events.put(outcome.map_or_else(refused, |()| format!("{offset} stored")));
    }
}

/// Its heartbeats are said, and answered: it polls nothing.
fn let_time_pass(place: &Place) {
    for _ in 0..20 {
        place.clock.advance(Duration::from_millis(500));
        place.node.tick();
    }
}

/// The coordinator leads the member on, which does not know yet.
fn lead_on(place: &Place) -> Consumer {
    place.topic("other", 1);
    let mut other = place.consumer().subscribe(["other"]).open().expect("opened");
    other.poll(Duration::ZERO).expect("readable");
    // It reports, and is not answered before that is stored.
    place.clock.advance(Duration::from_secs(5));
    place.node.tick();
    other
}

#[test]
fn what_is_under_way_is_answered_before_anything_is_given_back() {
    let events = Events::default();
    let (place, mut consumer) = place(&events);
    let mut other = place.consumer().open().expect("opened");
    drop(other.try_poll());
    // It has heard by now that it is to give one back.
    let_time_pass(&place);
    commit_at(&mut consumer, 5, &events);
    assert_eq!(events.take(), [""; 0]);
    // The commits are looked at, and the answer comes only then.
    consumer.rebalance().expect("done");
    assert_eq!(events.take(), ["5 stored", "1 given back"]);
}

#[test]
fn what_was_lost_is_not_sent_again() {
    let events = Events::default();
    let (place, mut consumer) = place(&events);
    consumer.commit_offsets([(("t", 0), Offset(1)), (("t", 1), Offset(1))]).expect("stored");
    let _other = lead_on(&place);
    let member = consumer.member_id().expect("a member");
    commit_at(&mut consumer, 5, &events);
    place.remove(member);
    let_time_pass(&place);
    // The commits were looked at before that; now it is a member again, and may commit what it has from now on.
    consumer.rebalance().expect("done");
    assert!(consumer.member_id().is_some());
    for _ in 0..3 {
        consumer.poll(Duration::ZERO).expect("readable");
        let_time_pass(&place);
    }
    let told = events.take();
    assert_eq!(told, ["2 lost", "5 is nobody's"]);
    let stored = place.node.positions_of("g").expect("known");
    assert!(stored.values().all(|offset| *offset == Offset(1)), "{stored:?}");
}

/// The first comes with the epoch of before, and the second with that which the member was led to.
#[test]
fn one_that_is_sent_again_overtakes_none() {
    let events = Events::default();
    let (place, mut consumer) = place(&events);
    let _other = lead_on(&place);
    commit_at(&mut consumer, 5, &events);
    seek(&mut consumer, 6);
    // It was looked at by then, and not answered; all of this is done by other threads meanwhile.
    place.describe();
    let_time_pass(&place);
    consumer.core.begin_commit(Box::new(told(6, &events)));
    consumer.poll(Duration::ZERO).expect("readable");
    consumer.close().expect("left");
    assert_eq!(events.take(), ["5 stored", "6 stored", "2 given back"]);
    let stored = place.node.positions_of("g").expect("known");
    assert!(stored.len() == 2 && stored.values().all(|offset| *offset == Offset(6)), "{stored:?}");
}

#[test]
fn what_is_of_another_topic_of_that_name_is_not_sent_again() {
    let events = Events::default();
    let (place, mut consumer) = place(&events);
    let _other = lead_on(&place);
    commit_at(&mut consumer, 5, &events);
    place.node.administer("t", Administration::Delete { name: "t".to_owned() }).expect("deleted");
    place.topic("t", 2);
    consumer.close().expect("left");
    assert_eq!(events.take().first().map(String::as_str), Some("5: there is no topic \"t\""));
    assert_eq!(place.node.positions_of("g").expect("known").len(), 0);
}

/// What a transaction is to move is not moved back by a commit from before.
#[test]
fn progress_waits_for_what_is_under_way() {
    let events = Events::default();
    let (place, mut consumer) = place(&events);
    let _other = lead_on(&place);
    commit_at(&mut consumer, 5, &events);
    seek(&mut consumer, 6);
    let progress = consumer.progress();
    assert_eq!(events.take(), ["5 stored"]);
    assert_eq!(progress.positions.len(), 2);
}
