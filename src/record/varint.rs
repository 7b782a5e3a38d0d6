//! Kafka's variable-length integers: zig-zag, then seven bits a byte, the least significant group first.
//!
//! ```text
//! value   0    −1    1    −2    63    −64    64      8191    8192
//! bytes   00   01    02   03    7e    7f     80 01   fe 7f   80 80 01
//! ```
//!
//! A varint (`i32`) has at most 5 bytes, a varlong (`i64`) at most 10; a continuation bit in the last of
//! them is an error. Longer forms of a small value are read and never written.
//!
//! Invariant: nothing here panics or reads beyond the slice, whatever the bytes are. Nearly all varints of a
//! record have one or two bytes, so these two cases stand inline and the rest is out of the way.

/// The bytes that the longest varlong takes.
pub(crate) const VARLONG_BYTES_MAX: usize = 10;

#[inline]
pub(crate) const fn zigzag64(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

#[inline]
pub(crate) const fn unzigzag32(value: u32) -> i32 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[inline]
const fn unzigzag64(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

/// How many bytes `value`, already zig-zagged, takes.
#[inline]
pub(crate) const fn size(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros();
    ((bits * 9 + 64) / 64) as usize
}

/// A value, already zig-zagged, as a varint of one or two bytes: the bytes, the lower one first, and how many bits
/// they are; `None` where it takes more.
#[inline]
pub(crate) const fn short_of(value: u64) -> Option<(u16, u32)> {
    let [a, b, ..] = value.to_le_bytes();
    if value < 0x80 {
        Some((a as u16, 8))
    } else if value < 0x4000 {
        Some((u16::from_le_bytes([a | 0x80, b << 1 | a >> 7]), 16))
    } else {
        None
    }
}

/// Writes `value`, already zig-zagged, at `at` and returns where it ends. `out` has room for it.
#[inline]
pub(crate) fn put(out: &mut [u8], mut at: usize, mut value: u64) -> usize {
    while value >= 0x80 {
        out[at] = low_byte(value) | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = low_byte(value);
    at + 1
}

#[inline]
const fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// A varint of one or two bytes at the low end of `window`: its bits, still zig-zagged, and how many bits of the
/// window it takes; `None` for a longer one.
#[inline]
pub(crate) const fn short(window: u64) -> Option<(u32, u32)> {
    let [a, b, ..] = window.to_le_bytes();
    if a < 0x80 {
        Some((a as u32, 8))
    } else if b < 0x80 {
        Some(((a & 0x7f) as u32 | (b as u32) << 7, 16))
    } else {
        None
    }
}

/// Takes a varint off the front of `bytes`; `None` where it is cut off or too long.
#[inline]
pub(crate) fn take_i32(bytes: &mut &[u8]) -> Option<i32> {
    match *bytes {
        [a, rest @ ..] if *a < 0x80 => {
            *bytes = rest;
            Some(unzigzag32(u32::from(*a)))
        }
        [a, b, rest @ ..] if *b < 0x80 => {
            *bytes = rest;
            Some(unzigzag32(u32::from(*a & 0x7f) | u32::from(*b) << 7))
        }
        _ => {
            let (value, rest) = take_long::<5>(bytes)?;
            *bytes = rest;
            Some(unzigzag32(low_u32(value)))
        }
    }
}

/// Takes a varlong off the front of `bytes`; `None` where it is cut off or too long.
#[inline]
pub(crate) fn take_i64(bytes: &mut &[u8]) -> Option<i64> {
    match *bytes {
        [a, rest @ ..] if *a < 0x80 => {
            *bytes = rest;
            Some(unzigzag64(u64::from(*a)))
        }
        [a, b, rest @ ..] if *b < 0x80 => {
            *bytes = rest;
            Some(unzigzag64(u64::from(*a & 0x7f) | u64::from(*b) << 7))
        }
        _ => {
            let (value, rest) = take_long::<VARLONG_BYTES_MAX>(bytes)?;
            *bytes = rest;
            Some(unzigzag64(value))
        }
    }
}

/// Bits beyond the type's width are dropped, as Kafka drops them.
const fn low_u32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// By value, so that the caller's slice can stay in registers.
#[cold]
#[inline(never)]
fn take_long<const BYTES_MAX: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(BYTES_MAX).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: u64) -> Vec<u8> {
        let mut out = [0; VARLONG_BYTES_MAX];
        let end = put(&mut out, 0, value);
        assert_eq!(end, size(value), "{value:x}");
        out[..end].to_vec()
    }

    #[test]
    fn varints_are_kafkas() {
        let vectors: [(i32, &[u8]); 12] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (-2, &[3]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (-65, &[0x81, 1]),
            (8191, &[0xfe, 0x7f]),
            (8192, &[0x80, 0x80, 1]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (value, bytes) in vectors {
            assert_eq!(written(zigzag64(i64::from(value))), bytes, "{value}");
            let mut rest = bytes;
            assert_eq!(take_i32(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn varlongs_are_kafkas() {
        let vectors: [(i64, &[u8]); 3] = [
            (i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
            (1 << 40, &[0x80, 0x80, 0x80, 0x80, 0x80, 0x40]),
        ];
        for (value, bytes) in vectors {
            assert_eq!(written(zigzag64(value)), bytes, "{value}");
            let mut rest = bytes;
            assert_eq!(take_i64(&mut rest), Some(value));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn every_length_is_read_back() {
        for shift in 0..64 {
            for value in [1_i64 << shift, (1_i64 << shift).wrapping_sub(1), -(1_i64 << (shift % 63))] {
                let bytes = written(zigzag64(value));
                let mut rest = &bytes[..];
                assert_eq!(take_i64(&mut rest), Some(value));
            }
        }
    }

    #[test]
    fn longer_forms_are_read_and_endless_ones_refused() {
        assert_eq!(take_i32(&mut &[0x82, 0x80, 0x00][..]), Some(1));
        assert_eq!(take_i32(&mut &[0x80; 5][..]), None);
        assert_eq!(take_i64(&mut &[0x80; 10][..]), None);
        assert_eq!(take_i32(&mut &[][..]), None);
        assert_eq!(take_i32(&mut &[0x80][..]), None);
    }
}
