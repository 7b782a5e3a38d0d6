//! The fields of the records that are taffrail's own: integers big-endian, texts with their length before them.
//!
//! ```text
//!  text   2  length in bytes (unsigned)
//!         .. UTF-8
//! ```
//!
//! Invariant: nothing here panics or allocates by a number that was read; what is missing is named by its field.

/// Takes fields off the front of bytes that are not trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, field: &str) -> Result<[u8; N], String> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.missing(field, N))?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, field: &str) -> Result<u8, String> {
        self.array(field).map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self, field: &str) -> Result<u16, String> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, field: &str) -> Result<u32, String> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, field: &str) -> Result<u64, String> {
        self.array(field).map(u64::from_be_bytes)
    }

    pub(crate) fn i32(&mut self, field: &str) -> Result<i32, String> {
        self.array(field).map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self, field: &str) -> Result<i64, String> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// A byte that is 0 or 1.
    pub(crate) fn flag(&mut self, field: &str) -> Result<bool, String> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{field} is {other}, neither 0 nor 1")),
        }
    }

    pub(crate) fn text(&mut self, field: &str) -> Result<&'a str, String> {
        let length = usize::from(self.u16(field)?);
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.missing(field, length))?;
        self.rest = rest;
        std::str::from_utf8(taken).map_err(|error| format!("{field} is no text: {error}"))
    }

    /// Everything that is left.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(format!("{left} bytes are left over")),
        }
    }

    fn missing(&self, field: &str, needed: usize) -> String {
        format!("{field} needs {needed} bytes, {} are left", self.rest.len())
    }
}

/// Writes a text of at most 65,535 bytes; of a longer one the characters that fit.
pub(crate) fn put_text(text: &str, into: &mut Vec<u8>) {
    let longest = text.len().min(usize::from(u16::MAX));
    let end = (0..=longest).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let length = u16::try_from(end).unwrap_or(u16::MAX);
    into.extend_from_slice(&length.to_be_bytes());
    into.extend_from_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut bytes = vec![1, 2, 3];
        put_text("né", &mut bytes);
        bytes.extend_from_slice(&[0, 0, 0, 9]);
        let mut fields = Fields::of(&bytes);
        assert_eq!((fields.flag("a"), fields.u16("b"), fields.text("c")), (Ok(true), Ok(0x203), Ok("né")));
        assert_eq!((fields.i32("d"), fields.end()), (Ok(9), Ok(())));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(Fields::of(&[0, 1]).u32("the count"), Err("the count needs 4 bytes, 2 are left".to_owned()));
        assert_eq!(Fields::of(&[0, 9, b'a']).text("the name"), Err("the name needs 9 bytes, 1 are left".to_owned()));
        assert!(
            Fields::of(&[0, 1, 0xff])
                .text("the name")
                .is_err_and(|reason| reason.contains("UTF-8") || reason.contains("utf-8"))
        );
        assert_eq!(Fields::of(&[2]).flag("set"), Err("set is 2, neither 0 nor 1".to_owned()));
        assert_eq!(Fields::of(&[2]).end(), Err("1 bytes are left over".to_owned()));
    }

    #[test]
    fn a_text_that_does_not_fit_is_cut_between_characters() {
        let mut bytes = Vec::new();
        put_text(&"é".repeat(40_000), &mut bytes);
        assert_eq!(Fields::of(&bytes).text("text").map(str::len), Ok(65_534));
    }
}
