//! Kafka's generated messages, as its coordinators keep their records in: integers big-endian, and two forms.
//!
//! ```text
//!              plain versions                     flexible versions
//!  text        2 length, -1 for none, UTF-8       uvarint length + 1, 0 for none, UTF-8
//!  array       4 count, -1 for none               uvarint count + 1, 0 for none
//!  struct      its fields                         its fields, then tagged ones: uvarint count, and each
//!                                                 uvarint tag, uvarint size, payload; tags rise
//! ```
//!
//! A uvarint is LEB128 without zig-zag, of 5 bytes at most. Tags that are not known are passed over.
//!
//! Invariant: nothing here panics or allocates by a number that was read.

use crate::machine::fields::Fields;

type Parsed<T> = Result<T, String>;

/// Which of the two forms a message is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Flexible,
}

/// Takes fields off the front of a message that is not trusted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageReader<'a> {
    form: Form,
    fields: Fields<'a>,
}

impl<'a> MessageReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], form: Form) -> Self {
        Self { form, fields: Fields::of(bytes) }
    }

    pub(crate) fn i8(&mut self, field: &str) -> Parsed<i8> {
        self.fields.array(field).map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self, field: &str) -> Parsed<i16> {
        self.fields.array(field).map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self, field: &str) -> Parsed<i32> {
        self.fields.i32(field)
    }

    pub(crate) fn i64(&mut self, field: &str) -> Parsed<i64> {
        self.fields.i64(field)
    }

    /// A uuid, the most significant byte first.
    pub(crate) fn uuid(&mut self, field: &str) -> Parsed<[u8; 16]> {
        self.fields.array(field)
    }

    /// A text that is there.
    pub(crate) fn text(&mut self, field: &str) -> Parsed<&'a str> {
        self.optional_text(field)?.ok_or_else(|| format!("{field} is missing"))
    }

    /// A text, or none.
    pub(crate) fn optional_text(&mut self, field: &str) -> Parsed<Option<&'a str>> {
        let length = match self.form {
            Form::Plain => i32::from(self.i16(field)?),
            Form::Flexible => self.length(field)?,
        };
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| format!("{field} is of length {length}"))?;
        let text = std::str::from_utf8(self.take(length, field)?);
        text.map(Some).map_err(|error| format!("{field} is no text: {error}"))
    }

    /// How many elements an array has that follow; `None` where there is no array.
    pub(crate) fn count(&mut self, field: &str) -> Parsed<Option<u32>> {
        let count = match self.form {
            Form::Plain => self.i32(field)?,
            Form::Flexible => self.length(field)?,
        };
        match count {
            -1 => Ok(None),
            other => u32::try_from(other).map(Some).map_err(|_| format!("{field} is {other}")),
        }
    }

    /// The tagged fields that end a struct; none in a plain one. `take` is given those of each tag, with nothing behind.
    pub(crate) fn tagged(&mut self, mut take: impl FnMut(u32, &mut Self) -> Parsed<bool>) -> Parsed<()> {
        if self.form == Form::Plain {
            return Ok(());
        }
        let mut least = 0;
        for _ in 0..self.uvarint("the number of tagged fields")? {
            let tag = self.uvarint("a tag")?;
            if tag < least {
                return Err(format!("tag {tag} is out of order"));
            }
            least = tag.saturating_add(1);
            let size = self.uvarint("the size of a tagged field")?;
            let size = usize::try_from(size).map_err(|_| "a tagged field is too long")?;
            let mut field = Self::new(self.take(size, "a tagged field")?, self.form);
            if take(tag, &mut field)? {
                field.end()?;
            }
        }
        Ok(())
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Parsed<()> {
        self.fields.end()
    }

    /// A length or a count of the flexible form; -1 for none.
    fn length(&mut self, field: &str) -> Parsed<i32> {
        let written = self.uvarint(field)?;
        i32::try_from(i64::from(written) - 1).map_err(|_| format!("{field} is of length {written}"))
    }

    fn uvarint(&mut self, field: &str) -> Parsed<u32> {
        let mut value = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.fields.u8(field)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| format!("{field} is {value}"));
            }
        }
        Err(format!("{field} has more than 5 bytes"))
    }

    fn take(&mut self, length: usize, field: &str) -> Parsed<&'a [u8]> {
        let rest = self.fields.rest();
        let missing = || format!("{field} needs {length} bytes, {} are left", rest.len());
        let (taken, behind) = rest.split_at_checked(length).ok_or_else(missing)?;
        self.fields = Fields::of(behind);
        Ok(taken)
    }
}

/// Writes a message of the flexible form.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlexibleWriter {
    bytes: Vec<u8>,
}

impl FlexibleWriter {
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.uvarint(text.len() as u64 + 1);
        self.put(text.as_bytes());
    }

    /// A text, or none.
    pub(crate) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.uvarint(0),
        }
    }

    /// How many elements follow; `None` writes that there is no array.
    pub(crate) fn count(&mut self, count: Option<usize>) {
        self.uvarint(count.map_or(0, |count| count as u64 + 1));
    }

    /// The tagged fields that end a struct, by rising tags.
    pub(crate) fn tagged(&mut self, fields: &[(u32, &[u8])]) {
        self.uvarint(fields.len() as u64);
        for (tag, payload) in fields {
            self.uvarint(u64::from(*tag));
            self.uvarint(payload.len() as u64);
            self.put(payload);
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn uvarint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or_default();
            value >>= 7;
            self.bytes.push(if value == 0 { low } else { low | 0x80 });
            if value == 0 {
                return;
            }
        }
    }
}

/// Writes a text of the plain form, of at most 32,767 bytes.
pub(crate) fn put_plain_text(text: &str, into: &mut Vec<u8>) {
    let length = i16::try_from(text.len()).unwrap_or(i16::MAX);
    into.extend_from_slice(&length.to_be_bytes());
    into.extend_from_slice(&text.as_bytes()[..text.len().min(usize::from(length.unsigned_abs()))]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flexible_message_is_read_as_it_was_written() {
        let mut writer = FlexibleWriter::default();
        writer.text(&"é".repeat(100));
        writer.optional_text(None);
        writer.optional_text(Some("b"));
        writer.put(&[9; 16]);
        writer.count(None);
        writer.count(Some(0));
        writer.count(Some(300));
        writer.tagged(&[(0, &[7]), (5, &[1, 2]), (200, &[])]);
        let bytes = writer.into_bytes();
        let mut reader = MessageReader::new(&bytes, Form::Flexible);
        assert_eq!(reader.text("text").map(str::len), Ok(200));
        assert_eq!([reader.optional_text("none"), reader.optional_text("some")], [Ok(None), Ok(Some("b"))]);
        assert_eq!(reader.uuid("id"), Ok([9; 16]));
        assert_eq!([reader.count("a"), reader.count("b"), reader.count("c")], [Ok(None), Ok(Some(0)), Ok(Some(300))]);
        let mut seen = Vec::new();
        let tagged = reader.tagged(|tag, field| match tag {
            0 => field.i8("zero").map(|value| seen.push(value)).map(|()| true),
            _ => Ok(false),
        });
        assert_eq!((tagged, seen, reader.end()), (Ok(()), vec![7], Ok(())));
    }

    #[test]
    fn what_no_message_holds_says_why() {
        let flexible = |bytes: &'static [u8]| MessageReader::new(bytes, Form::Flexible);
        assert_eq!(flexible(&[0]).text("the name"), Err("the name is missing".to_owned()));
        assert_eq!(flexible(&[9, 1]).text("the name"), Err("the name needs 8 bytes, 1 are left".to_owned()));
        assert_eq!(flexible(&[0x80; 9]).count("the count"), Err("the count has more than 5 bytes".to_owned()));
        assert_eq!(flexible(&[0xff, 0xff, 0xff, 0xff, 0x1f]).count("n"), Err("n is 8589934591".to_owned()));
        assert_eq!(flexible(&[2, 1, 0, 0, 0]).tagged(|_, _| Ok(true)), Err("tag 0 is out of order".to_owned()));
        assert_eq!(flexible(&[1, 0, 1, 9]).tagged(|_, _| Ok(true)), Err("1 bytes are left over".to_owned()));
        let mut plain = MessageReader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xfe], Form::Plain);
        assert_eq!(plain.text("the name"), Err("the name is missing".to_owned()));
        assert_eq!(plain.count("n"), Err("n is -2".to_owned()));
        let mut plain = MessageReader::new(&[0xff, 0xfe], Form::Plain);
        assert_eq!(plain.text("the name"), Err("the name is of length -2".to_owned()));
    }
}
