//! Remembers the last event that only brought more text, since most events of an answer differ in their text only.
//!
//! Such an event is recognised by comparison with the previous one, and needs no parser. An event that differs in
//! anything else, is cut in two, or has an escape in its text is parsed like any other.

/// Bytes of an event, its text apart, that are kept; a longer one is not.
pub(super) const TEMPLATE_BYTES_MAX: usize = 512;

/// An event with a place for text.
#[derive(Debug, Default)]
pub(super) struct Template {
    /// What stands in front of the text, and then what stands behind it; empty before there is one.
    bytes: Vec<u8>,
    text_at: usize,
}

impl Template {
    /// Keeps a whole event whose text is the `length` bytes at `text_at`.
    pub(super) fn learn(&mut self, event: &[u8], text_at: usize, length: usize) {
        self.bytes.clear();
        let (Some(before), Some(behind)) = (event.get(..text_at), event.get(text_at.saturating_add(length)..)) else {
            return;
        };
        if before.len() + behind.len() <= TEMPLATE_BYTES_MAX && behind.first() == Some(&b'"') {
            self.bytes.reserve_exact(before.len() + behind.len());
            self.bytes.extend_from_slice(before);
            self.bytes.extend_from_slice(behind);
            self.text_at = text_at;
        }
    }

    /// The text of the event that `bytes` begin with, and what follows the event; `None` when it is no such event.
    #[inline]
    pub(super) fn split<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let (before, behind) = self.bytes.split_at_checked(self.text_at)?;
        if before.is_empty() {
            return None;
        }
        let rest = bytes.strip_prefix(before)?;
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | b'\n' | b'\r');
        let (text, rest) = rest.split_at_checked(rest.iter().position(ends)?)?;
        Some((text, rest.strip_prefix(behind)?))
    }

    /// The bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_may_differ() {
        let mut template = Template::default();
        assert_eq!(template.split(b""), None);
        assert_eq!(template.split(b"data: {\"t\":\"a\"}\n\n"), None, "nothing is known yet");
        template.learn(b"data: {\"t\":\"ab\"}\n\n", 12, 2);
        let split = |bytes: &'static [u8]| template.split(bytes);
        assert_eq!(
            split(b"data: {\"t\":\"xyz\"}\n\nrest"),
            Some((b"xyz".as_slice(), b"rest".as_slice()))
        );
        assert_eq!(split(b"data: {\"t\":\"\"}\n\n"), Some((b"".as_slice(), b"".as_slice())));
        for other in [
            b"data: {\"u\":\"xyz\"}\n\n".as_slice(),
            b"data: {\"t\":\"x\\n\"}\n\n",
            b"data: {\"t\":\"x\n\"}\n\n",
            b"data: {\"t\":\"x\r\"}\n\n",
            b"data: {\"t\":\"x\",\"u\":1}\n\n",
            b"data: {\"t\":\"xyz\"}\n",
            b"data: {\"t\":\"xyz",
            b"data: {\"t\":",
        ] {
            assert_eq!(split(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept() {
        let event = |fill: usize| [b"data: {\"t\":\"", "x".repeat(fill).as_bytes(), b"\"}\n\n"].concat();
        let mut template = Template::default();
        template.learn(&event(4000), 12, 4000);
        assert!(template.split(&event(3)).is_some(), "the text does not count");
        for (fill, fits) in [(TEMPLATE_BYTES_MAX - 16, true), (TEMPLATE_BYTES_MAX - 15, false)] {
            let event = event(fill);
            template.learn(&event, 12 + fill, 0);
            assert_eq!(template.split(&event).is_some(), fits, "{fill}");
            assert!(template.heap_bytes() <= TEMPLATE_BYTES_MAX);
        }
    }
}
