//! Messages of the magics 0 and 1, which Kafka wrote before version 0.11. They are recognised, not read.
//!
//! ```text
//! offset i64, size i32, crc u32, magic i8, attributes i8, [timestamp i64 if magic 1],
//! key length i32 (−1 null), key, value length i32 (−1 null), value
//! ```
//!
//! The CRC is the IEEE one, over everything from the magic on. Its being right is what tells a message of an old
//! log from damage to a batch of today.

use crate::error::Corruption;

/// Offset and size field.
const PREFIX_BYTES: usize = 12;
const MAGIC_AT: usize = 16;
/// CRC, magic, attributes, both lengths.
const SIZE_MIN: i32 = 14;
/// With the timestamp.
const SIZE_MIN_MAGIC_1: i32 = 22;

/// Checks framing and checksum of the message at the front of `bytes`; returns the bytes that it takes.
///
/// # Errors
/// [`Corruption::Magic`] where it is neither 0 nor 1, [`Corruption::Length`], [`Corruption::Truncated`],
/// [`Corruption::Checksum`] and [`Corruption::Header`] where it is no whole message.
pub(crate) fn check(bytes: &[u8]) -> Result<u64, Corruption> {
    let truncated = |needed: u64| Corruption::Truncated { needed, present: bytes.len() as u64 };
    let Some((front, _)) = bytes.split_first_chunk::<{ MAGIC_AT + 1 }>() else {
        return Err(truncated(MAGIC_AT as u64 + 1));
    };
    let size = i32::from_be_bytes([front[8], front[9], front[10], front[11]]);
    let stored = u32::from_be_bytes([front[12], front[13], front[14], front[15]]);
    let size_min = match front[MAGIC_AT].cast_signed() {
        0 => SIZE_MIN,
        1 => SIZE_MIN_MAGIC_1,
        other => return Err(Corruption::Magic(other)),
    };
    let payload_size = usize::try_from(size).ok().filter(|_| size >= size_min).ok_or(Corruption::Length(size))?;
    let total = PREFIX_BYTES as u64 + payload_size as u64;
    let Some(message) = bytes[PREFIX_BYTES..].get(..payload_size) else { return Err(truncated(total)) };
    let computed = crc32fast::hash(&message[4..]);
    if computed != stored {
        return Err(Corruption::Checksum { stored, computed });
    }
    let fields = &message[usize::try_from(size_min).unwrap_or(usize::MAX) - 8..];
    check_field(fields, "key").and_then(|rest| check_field(rest, "value")).and_then(|rest| match rest.len() {
        0 => Ok(total),
        left => Err(Corruption::Header { field: "size", value: i64::try_from(left).unwrap_or(i64::MAX) }),
    })
}

/// A length and as many bytes; −1 is null.
fn check_field<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a [u8], Corruption> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(Corruption::Truncated { needed: 4, present: bytes.len() as u64 });
    };
    let length = i32::from_be_bytes(*length);
    let bytes = if length == -1 { Some(rest) } else { usize::try_from(length).ok().and_then(|n| rest.get(n..)) };
    bytes.ok_or(Corruption::Header { field, value: i64::from(length) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "in a test it is an assertion")]
mod tests {
    use super::*;

    fn message(magic: u8, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let mut body = vec![magic, 0];
        if magic == 1 {
            body.extend_from_slice(&1_700_000_000_000_i64.to_be_bytes());
        }
        for field in [key, value] {
            body.extend_from_slice(&field.map_or(-1, |f| i32::try_from(f.len()).unwrap()).to_be_bytes());
            body.extend_from_slice(field.unwrap_or_default());
        }
        let mut bytes = 42_i64.to_be_bytes().to_vec();
        bytes.extend_from_slice(&i32::try_from(body.len() + 4).unwrap().to_be_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    #[test]
    fn messages_of_both_magics_are_recognised() {
        for magic in [0, 1] {
            for (key, value) in [(None, None), (Some(&b"k"[..]), Some(&b"value"[..])), (None, Some(&b""[..]))] {
                let mut bytes = message(magic, key, value);
                let size = bytes.len() as u64;
                bytes.extend_from_slice(b"the next one");
                assert_eq!(check(&bytes), Ok(size), "magic {magic}");
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is_covered() {
        let bytes = message(1, Some(b"k"), Some(b"value"));
        for at in 8..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(check(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn cut_off_messages_and_zeros_are_errors() {
        let bytes = message(0, Some(b"k"), Some(b"value"));
        for len in 0..bytes.len() {
            assert!(matches!(check(&bytes[..len]), Err(Corruption::Truncated { .. })), "{len}");
        }
        assert_eq!(check(&[0; 64]), Err(Corruption::Length(0)));
    }

    #[test]
    fn a_field_beyond_the_message_is_an_error() {
        let mut bytes = message(0, None, Some(b"value"));
        bytes[22..26].copy_from_slice(&1000_i32.to_be_bytes());
        let crc = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_be_bytes());
        assert_eq!(check(&bytes), Err(Corruption::Header { field: "value", value: 1000 }));
    }
}
