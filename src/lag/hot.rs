//! Which partition takes more than its share of its topic, and has for a while. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Alert, Rate};
use crate::clock::Moment;
use crate::metrics::number;
use crate::types::TopicPartition;

/// A topic with fewer records a second is idle: shares of it mean nothing.
const RECORDS_LEAST: f64 = 10.0;

/// Since when a partition has been hot.
#[derive(Clone, Copy, Debug)]
struct Heat {
    since: Moment,
    is_said: bool,
}

/// The partitions that are hot.
#[derive(Debug, Default)]
pub(super) struct Hot {
    heats: BTreeMap<TopicPartition, Heat>,
}

impl Hot {
    /// Takes in the rates of a topic's partitions, by number; says which has had more than `multiple` times the mean for
    /// as long as `window`, once.
    pub(super) fn look(
        &mut self,
        topic: &str,
        rates: &[Option<Rate>],
        multiple: f64,
        window: Duration,
        now: Moment,
    ) -> Vec<Alert> {
        let known: Vec<Rate> = rates.iter().copied().flatten().collect();
        let total: f64 = known.iter().map(|rate| rate.records).sum();
        let mean = total / number(rates.len() as u64);
        let is_busy = known.len() == rates.len() && total >= RECORDS_LEAST;
        let mut alerts = Vec::new();
        for (number, rate) in (0..).zip(rates) {
            let partition = TopicPartition { topic: topic.to_owned(), partition: number };
            let Some(rate) = rate.filter(|rate| is_busy && rate.records > multiple * mean) else {
                self.heats.remove(&partition);
                continue;
            };
            let heat = self.heats.entry(partition.clone()).or_insert(Heat { since: now, is_said: false });
            if !heat.is_said && now >= heat.since.after(window) {
                heat.is_said = true;
                let shares: Vec<f64> = known.iter().map(|rate| rate.records / total).collect();
                alerts.push(Alert::HotPartition { partition, rate, share: rate.records / total, shares });
            }
        }
        alerts
    }

    /// Forgets the topics that there are no more.
    pub(super) fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.heats.retain(|partition, _| is_there(&partition.topic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn look(hot: &mut Hot, second: u64, records: &[f64]) -> Vec<Alert> {
        let rates: Vec<_> = records.iter().map(|records| Some(Rate { records: *records, bytes: 0.0 })).collect();
        hot.look("t", &rates, 2.0, WINDOW, Moment::default().after(Duration::from_secs(second)))
    }

    /// Three partitions, of which one takes 70 of 100: the mean is 33.3, twice that 66.7.
    #[test]
    fn a_partition_is_hot_after_a_whole_window_and_once() {
        let mut hot = Hot::default();
        let rates = [10.0, 70.0, 20.0];
        for second in [0, 30, 59] {
            assert_eq!(look(&mut hot, second, &rates), []);
        }
        let expected = Alert::HotPartition {
            partition: TopicPartition { topic: "t".to_owned(), partition: 1 },
            rate: Rate { records: 70.0, bytes: 0.0 },
            share: 0.7,
            shares: vec![0.1, 0.7, 0.2],
        };
        assert_eq!(look(&mut hot, 60, &rates).first(), Some(&expected));
        assert_eq!(look(&mut hot, 200, &rates), []);
        assert_eq!(look(&mut hot, 201, &[20.0, 60.0, 20.0]), [], "60 is less than twice the mean");
        assert_eq!(look(&mut hot, 202, &rates), []);
        assert_eq!(look(&mut hot, 262, &rates), [expected]);
    }

    #[test]
    fn a_topic_that_is_idle_or_not_known_has_no_hot_partition() {
        let mut hot = Hot::default();
        for second in [0, 60, 120] {
            assert_eq!(look(&mut hot, second, &[0.0, 9.9, 0.0]), []);
            let unknown = [None, Some(Rate { records: 100.0, bytes: 0.0 }), Some(Rate::default())];
            let now = Moment::default().after(Duration::from_secs(second));
            assert_eq!(hot.look("u", &unknown, 2.0, WINDOW, now), []);
        }
        assert_eq!(look(&mut hot, 121, &[0.0, 10.0, 0.0]), []);
        assert_eq!(look(&mut hot, 181, &[0.0, 10.0, 0.0]).len(), 1);
        hot.keep(|topic| topic != "t");
        assert!(hot.heats.is_empty());
    }
}
