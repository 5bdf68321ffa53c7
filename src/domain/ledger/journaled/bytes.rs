//! Reads and writes numbers and texts as bytes without zeros, in the form described in [`super`].

use smol_str::SmolStr;

/// A byte with this bit is followed by another one of the same number.
const MORE: u8 = 0x80;
const BITS: u32 = 7;
/// The two bytes that replace a zero in a text.
const ZERO: [u8; 2] = [0xC0, 0x80];

/// Appends numbers and texts.
pub(super) struct RecordWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Whether zeros in texts are replaced.
    escapes: bool,
}

/// Appends the output of `write` without zeros. Calls `write` a second time if a text contains zeros, which is rare: checking
/// each text in advance would cost more.
pub(super) fn without_zeros(out: &mut Vec<u8>, write: impl Fn(&mut RecordWriter<'_>)) {
    let begin = out.len();
    write(&mut RecordWriter { out, escapes: false });
    if memchr::memchr(0, out.get(begin..).unwrap_or_default()).is_some() {
        out.truncate(begin);
        write(&mut RecordWriter { out, escapes: true });
    }
}

impl RecordWriter<'_> {
    /// Appends a number.
    pub(super) fn number(&mut self, number: u64) {
        let mut left = number;
        loop {
            let [low, ..] = left.to_le_bytes();
            if left < u64::from(!MORE) {
                return self.out.push(low + 1);
            }
            self.out.push(low | MORE);
            left >>= BITS;
        }
    }

    /// Appends a signed number.
    pub(super) fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> (i64::BITS - 1))).cast_unsigned());
    }

    /// Appends a text.
    pub(super) fn text(&mut self, text: &str) {
        let bytes = text.as_bytes();
        if self.escapes && bytes.contains(&0) {
            let parts: Vec<&[u8]> = bytes.split(|byte| *byte == 0).collect();
            return self.bytes(&parts.join(ZERO.as_slice()));
        }
        self.bytes(bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }
}

/// Reads the output of a [`Writer`]. Its methods return `None` for other bytes.
pub(super) struct RecordReader<'a>(pub(super) &'a [u8]);

impl RecordReader<'_> {
    /// Whether all bytes were read.
    pub(super) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a number.
    pub(super) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let is_last = byte & MORE == 0;
            let bits = u64::from(if is_last { byte.checked_sub(1)? } else { byte & !MORE });
            let place = bits.checked_shl(shift)?;
            if place >> shift != bits {
                return None;
            }
            number |= place;
            if is_last {
                return Some(number);
            }
            shift += BITS;
        }
    }

    /// Reads a signed number.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    /// Reads a text.
    pub(super) fn text(&mut self) -> Option<SmolStr> {
        self.text_as(|text| Some(text.into()))
    }

    /// Reads a text and converts it with `read`.
    pub(super) fn text_as<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        match std::str::from_utf8(bytes) {
            Ok(text) => read(text),
            Err(_) => read(&with_zeros(bytes)?),
        }
    }
}

/// The text with zeros restored in place of [`ZERO`].
fn with_zeros(bytes: &[u8]) -> Option<String> {
    let [first, second] = ZERO;
    let mut parts = bytes.split(|byte| *byte == first);
    let mut text = parts.next()?.to_vec();
    for part in parts {
        text.push(0);
        text.extend_from_slice(part.strip_prefix(&[second])?);
    }
    String::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_number_takes_a_byte_for_seven_bits() {
        for (number, bytes) in [
            (0, vec![1]),
            (126, vec![127]),
            (127, vec![255, 1]),
            (128, vec![128, 2]),
            ((127 << 7) - 1, vec![255, 127]),
            (u64::MAX, [vec![255; 9], vec![2]].concat()),
        ] {
            let mut out = Vec::new();
            without_zeros(&mut out, |to| to.number(number));
            assert_eq!(out, bytes, "{number}");
            assert_eq!(RecordReader(&out).number(), Some(number));
        }
        for bad in [
            &[][..],
            &[0],
            &[128],
            &[255; 10],
            &[255, 255, 255, 255, 255, 255, 255, 255, 255, 3],
        ] {
            assert_eq!(RecordReader(bad).number(), None, "{bad:?}");
        }
    }

    #[test]
    fn a_text_with_zeros_is_escaped_and_nothing_else_is() {
        for (text, bytes) in [
            ("", &[1][..]),
            ("é", &[3, 0xC3, 0xA9]),
            ("\0a\0", &[6, 0xC0, 0x80, b'a', 0xC0, 0x80]),
        ] {
            let mut out = Vec::new();
            without_zeros(&mut out, |to| to.text(text));
            assert_eq!(out, bytes);
        }
        for bad in [&[3, 0xC0, b'a'][..], &[2, 0xC0], &[2, 0xFF], &[3, b'a']] {
            assert_eq!(RecordReader(bad).text(), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_has_no_zeros(numbers: Vec<u64>, signed: Vec<i64>, texts in prop::collection::vec("[\0a-zé]{0,9}", 0..5)) {
            let mut out = Vec::new();
            without_zeros(&mut out, |to| {
                numbers.iter().for_each(|number| to.number(*number));
                signed.iter().for_each(|number| to.signed(*number));
                texts.iter().for_each(|text| to.text(text));
            });
            prop_assert!(!out.contains(&0));
            let mut from = RecordReader(&out);
            for number in numbers {
                prop_assert_eq!(from.number(), Some(number));
            }
            for number in signed {
                prop_assert_eq!(from.signed(), Some(number));
            }
            for text in texts {
                prop_assert_eq!(from.text(), Some(text.into()));
            }
            prop_assert!(from.is_at_end());
        }
    }
}
