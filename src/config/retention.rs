//! How long and how much of a partition is kept, and for whom longer.

use std::collections::BTreeSet;
use std::time::Duration;

/// So many bytes at most take the names of the groups that a topic is held for, with what separates them: they are stored
/// as one text.
const HELD_NAMES_BYTES_MAX: usize = 32 << 10;
/// Kafka's settings are numbers of 63 bits.
const BYTES_MAX: u64 = i64::MAX.cast_unsigned();

/// How long and how much is kept. Both bounds hold together; without any, everything is kept.
///
/// ```
/// use std::time::Duration;
/// use taffrail::{Retention, TopicConfig};
/// // A day, but what billing has not read stays, as long as that is not more than 50 GiB a partition.
/// let retention = Retention::forever().age(Duration::from_secs(86_400)).hold_for(["billing"], 50 << 30);
/// let config = TopicConfig::new().retention(retention);
/// # let _ = config;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Segments whose newest record is older than this go (Kafka: `retention.ms`).
    #[doc(alias = "retention.ms")]
    pub age: Option<Duration>,
    /// Segments go from the front while the log without them is still at least this many bytes long
    /// (Kafka: `retention.bytes`).
    #[doc(alias = "retention.bytes")]
    pub bytes: Option<u64>,
    /// The groups that it is held for: see [`Retention::hold_for`]. Empty: for none.
    pub held_groups: BTreeSet<String>,
    /// How many bytes of a partition are held for them at most.
    pub held_bytes_max: u64,
}

impl Retention {
    /// Keeps everything.
    #[must_use]
    pub const fn forever() -> Self {
        Self { age: None, bytes: None, held_groups: BTreeSet::new(), held_bytes_max: 0 }
    }

    /// Bounds the age of what is kept. Age is counted from a record's own timestamp to now: a topic that is filled with
    /// old events is emptied by it.
    #[must_use]
    pub const fn age(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }

    /// Bounds the size of what is kept, in bytes of each partition.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Keeps beyond the other bounds what the named groups have not read, up to `max_bytes` of each partition. Default: for
    /// no group. Kafka has no such setting.
    ///
    /// What a group has read is what it has committed. The segment that holds the least position of these groups stays, and
    /// all behind it, as long as the bytes from that segment's start to the log's end are `max_bytes` or fewer. Where they
    /// are more that segment goes as the other bounds say, and it is said: by
    /// [`RemovalReason::HoldExceeded`](crate::RemovalReason::HoldExceeded), a warning, and
    /// [`Alert::HoldExceeded`](crate::Alert::HoldExceeded).
    ///
    /// A named group that has no position in a partition has read nothing of it, so that all is held, up to the bound; and
    /// so it is where positions cannot be known, as for a group that is not there. Positions of a group that nobody uses
    /// expire.
    ///
    /// Compaction, [`delete_records`](crate::Partition::delete_records), [`trim_before`](crate::Partition::trim_before) and
    /// [`remove_while`](crate::Partition::remove_while) do not ask for it. A partition by itself knows of no groups, and
    /// refuses it.
    ///
    /// # Errors
    /// None here: the call that makes or changes the topic answers [`Error::InvalidConfig`](crate::Error::InvalidConfig)
    /// where no group is named, or one without a name, where `max_bytes` is 0 or above 2<sup>63</sup> - 1, or where the names
    /// take more than 32 KiB.
    #[must_use]
    pub fn hold_for<G: Into<String>>(mut self, groups: impl IntoIterator<Item = G>, max_bytes: u64) -> Self {
        self.held_groups = groups.into_iter().map(Into::into).collect();
        self.held_bytes_max = max_bytes;
        self
    }

    /// Refuses what cannot be said or contradicts itself; the error is a reason for a person.
    pub(super) fn check(&self) -> std::result::Result<(), String> {
        match () {
            () if self.held_groups.contains("") => Err("a group that it is held for has no name".to_owned()),
            () if held_text(&self.held_groups).len() > HELD_NAMES_BYTES_MAX => {
                Err(format!("the names of the groups that it is held for take more than {HELD_NAMES_BYTES_MAX} bytes"))
            }
            () if self.held_groups.is_empty() != (self.held_bytes_max == 0) => {
                Err("what is held names groups, and how many bytes are held for them at most".to_owned())
            }
            () if self.held_bytes_max > BYTES_MAX => Err(format!("{} is above 2^63 - 1", self.held_bytes_max)),
            () => Ok(()),
        }
    }
}

/// Names as one text: separated by commas, and those in a name, and its backslashes, behind a backslash.
pub(super) fn held_text(groups: &BTreeSet<String>) -> String {
    let escaped: Vec<_> = groups.iter().map(|name| name.replace('\\', "\\\\").replace(',', "\\,")).collect();
    escaped.join(",")
}

/// [`held_text`], undone.
pub(super) fn held_groups(text: &str) -> std::result::Result<BTreeSet<String>, String> {
    let mut groups = BTreeSet::new();
    if text.is_empty() {
        return Ok(groups);
    }
    let (mut name, mut rest) = (String::new(), text.chars());
    loop {
        match rest.next() {
            Some('\\') => match rest.next() {
                Some(next @ ('\\' | ',')) => name.push(next),
                _ => return Err(format!("{text:?} has a backslash before neither a comma nor another")),
            },
            Some(other) if other != ',' => name.push(other),
            end => {
                if name.is_empty() {
                    return Err(format!("{text:?} names a group without a name"));
                }
                groups.insert(std::mem::take(&mut name));
                if end.is_none() {
                    return Ok(groups);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_text_whatever_is_in_them() {
        let names = ["a", "b,c", "d\\", "\\,", " e "].map(str::to_owned);
        let groups = BTreeSet::from(names);
        assert_eq!(held_text(&groups), r" e ,\\\,,a,b\,c,d\\");
        assert_eq!(held_groups(&held_text(&groups)), Ok(groups));
        assert_eq!(held_groups(""), Ok(BTreeSet::new()));
        for text in [",", "a,", ",a", "a,,b", "a\\", "\\a"] {
            assert!(held_groups(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_hold_names_groups_and_a_bound() {
        let hold = |groups: &[&str], bytes| Retention::forever().hold_for(groups.iter().copied(), bytes).check();
        assert_eq!(hold(&["a"], 1), Ok(()));
        assert_eq!(Retention::forever().check(), Ok(()));
        let long = "x".repeat(HELD_NAMES_BYTES_MAX + 1);
        assert_eq!(hold(&[&long[1..]], 1), Ok(()));
        assert!(hold(&[&long], 1).is_err());
        for (groups, bytes) in [(&["a"][..], 0), (&[], 1), (&["a", ""], 1), (&["a"], 1 << 63)] {
            assert!(hold(groups, bytes).is_err(), "{groups:?} {bytes}");
        }
    }
}
