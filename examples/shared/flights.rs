//! Flights as the examples publish them: one JSON object a line, keyed by aircraft, timed by its scheduled departure.

use std::error::Error;
use std::fs;
use std::path::Path;

use taffrail::Timestamp;

/// One event: the line as it stands in the file, its key and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    /// The aircraft; flights without one have no key.
    pub(crate) tail: Option<String>,
    /// The scheduled departure.
    pub(crate) scheduled: Timestamp,
    /// The line.
    pub(crate) line: String,
}

impl Flight {
    /// Reads a line: an object with `tail` (text or null) and `scheduled` (a time as RFC 3339 has it).
    pub(crate) fn parse(line: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let event: serde_json::Value = serde_json::from_str(line)?;
        let tail = match &event["tail"] {
            serde_json::Value::Null => None,
            serde_json::Value::String(tail) => Some(tail.clone()),
            other => return Err(format!("tail is {other}, neither text nor null").into()),
        };
        let text = event["scheduled"].as_str().ok_or("scheduled is missing or no text")?;
        let millis = unix_millis(text).ok_or_else(|| format!("{text:?} is not a time as RFC 3339 has it"))?;
        Ok(Self { tail, scheduled: Timestamp(millis), line: line.to_owned() })
    }
}

/// Reads a file of flights; empty lines are passed over.
pub(crate) fn read(path: &Path) -> Result<Vec<Flight>, Box<dyn Error + Send + Sync>> {
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        Flight::parse(line).map_err(|error| format!("{}, line {}: {error}", path.display(), number + 1).into())
    };
    lines.map(parse).collect()
}

/// Milliseconds since 1970 of a time such as `2013-01-01T05:15:00-05:00`; `None` where it is none.
///
/// Fractions of a second count down to milliseconds; a leap second is taken for the second behind it.
pub(crate) fn unix_millis(text: &str) -> Option<i64> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let (fraction, zone) = rest.split_at(rest.find(['Z', 'z', '+', '-'])?);
    let millis = match fraction.strip_prefix('.') {
        Some(digits) if is_number(digits) => format!("{digits:0<3}")[..3].parse::<i64>().ok()?,
        None if fraction.is_empty() => 0,
        _ => return None,
    };
    let in_range = (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    in_range.then_some((seconds - zone_seconds(zone)?) * 1000 + millis)
}

/// Seconds east of Greenwich.
fn zone_seconds(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let [hours, minutes] = numbers(zone.get(1..)?, ':', [2, 2])?;
    let seconds = hours * 3600 + minutes * 60;
    (hours < 24 && minutes < 60).then_some(if zone.starts_with('-') { -seconds } else { seconds })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The parts of a text as numbers of fixed width.
fn numbers<const N: usize>(text: &str, between: char, widths: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(between).collect();
    let parts: [&str; N] = parts.try_into().ok()?;
    let fits = parts.iter().zip(widths).all(|(part, width)| part.len() == width && is_number(part));
    fits.then(|| parts.map(|part| part.parse().unwrap_or_default()))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 January 1970 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let years = year - 1;
    let before_year = years * 365 + years.div_euclid(4) - years.div_euclid(100) + years.div_euclid(400);
    let before_month: i64 = (1..month).map(|month| days_in_month(year, month)).sum();
    before_year + before_month + day - 1 - 719_162
}
