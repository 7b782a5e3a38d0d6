//! How compaction is run: what it may use. (What it does to a partition is said by
//! [`PartitionConfig`](super::PartitionConfig).)

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};

/// What one slot of the map of keys takes, in bytes.
pub(crate) const SLOT_BYTES: usize = 24;
const BATCHES_AT_ONCE_BYTES: usize = 256 << 10;

/// What compaction may use (Kafka: `log.cleaner.*`).
///
/// ```
/// use taffrail::{CleanerConfig, Log};
/// # let directory = tempfile::tempdir()?;
/// let cleaner = CleanerConfig::new().map_bytes_max(16 << 20).bytes_per_second(Some(8 << 20));
/// let log = Log::builder(directory.path().join("data")).cleaner(cleaner).open()?;
/// # log.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct CleanerConfig {
    /// See the [method](Self::map_bytes_max()) of this name.
    pub map_bytes_max: usize,
    /// See the [method](Self::read_bytes()) of this name.
    pub read_bytes: usize,
    /// See the [method](Self::bytes_per_second()) of this name.
    pub bytes_per_second: Option<u64>,
    /// See the [method](Self::backoff()) of this name.
    pub backoff: Duration,
}

impl Default for CleanerConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl CleanerConfig {
    /// The default settings.
    pub const fn new() -> Self {
        Self {
            map_bytes_max: 128 << 20,
            read_bytes: BATCHES_AT_ONCE_BYTES,
            bytes_per_second: None,
            backoff: Duration::from_secs(15),
        }
    }

    /// How many bytes of memory the map of keys may take. A key takes 24 bytes, and the map is filled to nine tenths;
    /// where the keys are more, a compaction goes as far as they fit, and the next goes on. Default: 128 MiB, for
    /// 5 million keys. A map is no larger than the records that are to be compacted need.
    #[doc(alias = "log.cleaner.dedupe.buffer.size")]
    pub const fn map_bytes_max(mut self, bytes: usize) -> Self {
        self.map_bytes_max = bytes;
        self
    }

    /// How many bytes are read at once; a batch that is larger is read whole. Default: 256 KiB, which a
    /// processor has at hand (Kafka: 512 KiB).
    #[doc(alias = "log.cleaner.io.buffer.size")]
    pub const fn read_bytes(mut self, bytes: usize) -> Self {
        self.read_bytes = bytes;
        self
    }

    /// How many bytes a second a log's compaction in the background reads and writes, together, at most. Default: as
    /// many as it can.
    #[doc(alias = "log.cleaner.io.max.bytes.per.second")]
    pub const fn bytes_per_second(mut self, bytes: Option<u64>) -> Self {
        self.bytes_per_second = bytes;
        self
    }

    /// How long a log waits before it looks again for a partition to be compacted, where there is none, and a partition
    /// before it tries again after the disk was full. Default: 15 s.
    #[doc(alias = "log.cleaner.backoff.ms")]
    pub const fn backoff(mut self, time: Duration) -> Self {
        self.backoff = time;
        self
    }

    /// Refuses what cannot work.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |setting, reason: &str| Err(Error::InvalidConfig { setting, reason: reason.to_owned() });
        match () {
            () if self.map_bytes_max < 4 * SLOT_BYTES => {
                refuse("map_bytes_max", "a map of keys has room for four of them at least, of 24 bytes each")
            }
            () if self.read_bytes == 0 => refuse("read_bytes", "nothing can be compacted without being read"),
            () if self.bytes_per_second == Some(0) => refuse("bytes_per_second", "it would never get anywhere"),
            () => Ok(()),
        }
    }
}

/// A part of a whole, from 0 to 1, to six places.
///
/// ```
/// use taffrail::Ratio;
/// assert_eq!(Ratio::new(0.25).to_string(), "0.25");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio {
    millionths: u32,
}

const WHOLE: u32 = 1_000_000;

impl Ratio {
    /// The ratio as a number. One below 0 or above 1, or that is none, is refused where it is used.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and a million")]
    pub const fn new(part: f64) -> Self {
        let is_possible = part >= 0.0 && part <= 1.0;
        Self { millionths: if is_possible { (part * 1_000_000.0 + 0.5) as u32 } else { u32::MAX } }
    }

    /// It as a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.millionths) / f64::from(WHOLE)
    }

    pub(crate) const fn is_possible(self) -> bool {
        self.millionths <= WHOLE
    }

    /// Whether `part` of `whole` is more than this.
    pub(crate) fn is_exceeded_by(self, part: u64, whole: u64) -> bool {
        u128::from(part) * u128::from(WHOLE) > u128::from(whole) * u128::from(self.millionths)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.millionths / WHOLE, self.millionths % WHOLE);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let ratio = text.parse().map(Self::new).ok().filter(|ratio| ratio.is_possible());
        ratio.ok_or_else(|| format!("{text:?} is no number from 0 to 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_exact_where_it_counts() {
        let half = Ratio::new(0.5);
        assert!(!half.is_exceeded_by(5, 10) && half.is_exceeded_by(6, 10) && !half.is_exceeded_by(0, 0));
        assert!(Ratio::new(0.0).is_exceeded_by(1, u64::MAX) && !Ratio::new(1.0).is_exceeded_by(7, 7));
        for text in ["0", "1", "0.5", "0.000001", "0.999999"] {
            assert_eq!(text.parse::<Ratio>().map(|ratio| ratio.to_string()), Ok(text.to_owned()));
        }
        for text in ["-0.1", "1.1", "NaN", "x", ""] {
            assert!(text.parse::<Ratio>().is_err(), "{text}");
        }
        assert!(!Ratio::new(f64::NAN).is_possible() && !Ratio::new(-1.0).is_possible());
    }

    #[test]
    fn a_cleaner_that_cannot_work_is_refused() {
        let new = CleanerConfig::new;
        assert!(new().check().is_ok());
        for config in [new().map_bytes_max(95), new().read_bytes(0), new().bytes_per_second(Some(0))] {
            assert!(matches!(config.check(), Err(Error::InvalidConfig { .. })), "{config:?}");
        }
    }
}
