//! Remembers the last event that only brought more text, since most events of an answer differ in their text only.
//!
//! Such an event is recognised by comparison with the previous one, and needs no parser. Besides the text it may differ in what
//! its protocol says of itself in every event ([`Varying`]): its number, and filling that means nothing. An event that differs
//! in anything else, is cut in two, or has an escape in its text is parsed like any other.

use crate::domain::wire::protocol::varying::{Varies, Varying};

/// Bytes of an event, its holes apart, that are kept; a longer one is not.
pub(super) const TEMPLATE_BYTES_MAX: usize = 512;
/// The text, the number and the filling.
const HOLES_MAX: usize = 3;

/// An event with holes.
#[derive(Debug, Default)]
pub(super) struct Template {
    /// What stands around the holes, without a gap; empty before there is an event.
    bytes: Vec<u8>,
    /// The holes in the order of the event.
    holes: [Option<Hole>; HOLES_MAX],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    /// Where it is in the bytes around it.
    at: usize,
    value: Varies,
}

/// An event that was recognised.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recognised<'a> {
    /// The text that it brings; it has no escapes.
    pub(super) text: &'a [u8],
    /// Its number, if it has one.
    pub(super) number: Option<u64>,
    /// What follows the event.
    pub(super) rest: &'a [u8],
}

impl Template {
    /// Keeps a whole event whose text is the `length` bytes at `text_at`, and in which these members differ. Filling whose key
    /// stands there more than once, or that is written in another way, is taken to be always the same. With such a number the
    /// event is not kept: whoever recognised it would have to know which one it had.
    pub(super) fn learn(&mut self, event: &[u8], text_at: usize, length: usize, varying: &[Varying]) {
        self.bytes.clear();
        self.holes = [None; HOLES_MAX];
        let mut places = [(usize::MAX, 0, Varies::Text); HOLES_MAX];
        let values = varying.iter().filter_map(|member| member.find(event));
        let found = std::iter::once((text_at, length, Varies::Text)).chain(values);
        for (place, found) in places.iter_mut().zip(found) {
            *place = found;
        }
        places.sort_unstable_by_key(|(at, ..)| *at);
        let lacks_number = varying.iter().any(|member| member.value == Varies::Number)
            && places.iter().all(|(.., value)| *value != Varies::Number);
        if lacks_number || self.keep(event, &places).is_none() {
            self.bytes.clear();
        }
    }

    /// Takes over what stands around the holes; `None` where the text does not end with its quote.
    fn keep(&mut self, event: &[u8], places: &[(usize, usize, Varies)]) -> Option<()> {
        let taken = places.iter().filter(|(at, ..)| *at < event.len());
        let around = taken.clone().map(|(_, length, _)| length).sum::<usize>();
        let size = event.len().checked_sub(around)?;
        if size > TEMPLATE_BYTES_MAX {
            return None;
        }
        self.bytes.reserve_exact(size);
        let mut from = 0;
        for (hole, (at, length, value)) in self.holes.iter_mut().zip(taken) {
            self.bytes.extend_from_slice(event.get(from..*at)?);
            *hole = Some(Hole {
                at: self.bytes.len(),
                value: *value,
            });
            from = at.checked_add(*length)?;
            if *value == Varies::Text && event.get(from) != Some(&b'"') {
                return None;
            }
        }
        self.bytes.extend_from_slice(event.get(from..)?);
        Some(())
    }

    /// The event that `bytes` begin with; `None` when it is no such event.
    #[inline]
    pub(super) fn split<'a>(&self, bytes: &'a [u8]) -> Option<Recognised<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let (mut from, mut rest) = (0, bytes);
        let mut event = Recognised::default();
        for hole in self.holes.iter().flatten() {
            rest = rest.strip_prefix(self.bytes.get(from..hole.at)?)?;
            let (value, after) = rest.split_at_checked(hole.value.length(rest)?)?;
            match hole.value {
                Varies::Text => event.text = value,
                Varies::Number => event.number = Some(decimal(value)),
                Varies::Filling => {}
            }
            (from, rest) = (hole.at, after);
        }
        event.rest = rest.strip_prefix(self.bytes.get(from..)?)?;
        Some(event)
    }

    /// The bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// The number that a few digits stand for.
fn decimal(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0, |number, digit| number * 10 + u64::from(digit & 0x0f))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: Varying = Varying {
        key: b"\"n\"",
        value: Varies::Number,
    };
    const FILLING: Varying = Varying {
        key: b"\"f\"",
        value: Varies::Filling,
    };

    fn learnt(event: &str, text: &str, varying: &[Varying]) -> Template {
        let mut template = Template::default();
        let at = event.find(text).expect("the text stands in the event");
        template.learn(event.as_bytes(), at, text.len(), varying);
        template
    }

    fn text_of<'a>(template: &Template, event: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        template.split(event).map(|event| (event.text, event.rest))
    }

    #[test]
    fn only_the_text_may_differ() {
        let template = Template::default();
        assert_eq!(template.split(b""), None);
        assert_eq!(template.split(b"data: {\"t\":\"a\"}\n\n"), None, "nothing is known yet");
        let template = learnt("data: {\"t\":\"ab\"}\n\n", "ab", &[]);
        let split = |bytes: &'static [u8]| text_of(&template, bytes);
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
    fn a_number_and_filling_may_differ_wherever_they_stand() {
        for (event, next) in [
            (r#"data: {"n":9,"t":"ab","f":"Xy"}"#, r#"data: {"n":10,"t":"c","f":""}"#),
            (r#"data: {"f":"Xy","t":"ab","n":9}"#, r#"data: {"f":"","t":"c","n":10}"#),
            (r#"data: {"t":"ab","f":"Xy","n":9}"#, r#"data: {"t":"c","f":"","n":10}"#),
        ] {
            let template = learnt(event, "ab", &[NUMBER, FILLING]);
            let found = Recognised {
                text: b"c",
                number: Some(10),
                rest: b"",
            };
            assert_eq!(template.split(next.as_bytes()), Some(found), "{event}");
            let none = learnt(event, "ab", &[]);
            assert_eq!(none.split(next.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn a_number_that_is_written_otherwise_is_none() {
        let template = learnt(r#"data: {"n":9,"t":"ab"}"#, "ab", &[NUMBER]);
        let number = |text: &str| {
            let event = format!(r#"data: {{"n":{text},"t":"ab"}}"#);
            template.split(event.as_bytes()).and_then(|event| event.number)
        };
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("999999999999999"), Some(999_999_999_999_999));
        for other in ["1000000000000000", "-1", "1.5", "1e3", "null", "\"1\"", "", " 1"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn an_event_whose_number_is_not_certain_is_not_kept() {
        for event in [
            r#"data: {"n":9,"t":"ab","x":{"n":9}}"#,
            r#"data: {"n":9,"t":"ab","x":"n"}"#,
            r#"data: {"n" :9,"t":"ab"}"#,
            r#"data: {"n": 9,"t":"ab"}"#,
            r#"data: {"n":9.0,"t":"ab"}"#,
            r#"data: {"n":"9","t":"ab"}"#,
        ] {
            let template = learnt(event, "ab", &[NUMBER]);
            assert_eq!(template.split(event.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn filling_that_is_not_certain_is_taken_to_be_always_the_same() {
        for event in [
            r#"data: {"f":"Xy","t":"ab","x":{"f":"Xy"}}"#,
            r#"data: {"f": "Xy","t":"ab"}"#,
            r#"data: {"f":"X\"y","t":"ab"}"#,
            r#"data: {"f":9,"t":"ab"}"#,
        ] {
            let template = learnt(event, "ab", &[FILLING]);
            let next = event.replace("ab", "c");
            let text = template.split(next.as_bytes()).map(|event| event.text);
            assert_eq!(text, Some(b"c".as_slice()), "{event}");
            let other = event.replace('X', "Z").replace('9', "8");
            assert_eq!(template.split(other.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept() {
        let event = |fill: usize| [b"data: {\"t\":\"", "x".repeat(fill).as_bytes(), b"\"}\n\n"].concat();
        let mut template = Template::default();
        template.learn(&event(4000), 12, 4000, &[]);
        assert!(template.split(&event(3)).is_some(), "the text does not count");
        for (fill, fits) in [(TEMPLATE_BYTES_MAX - 16, true), (TEMPLATE_BYTES_MAX - 15, false)] {
            let event = event(fill);
            template.learn(&event, 12 + fill, 0, &[]);
            assert_eq!(template.split(&event).is_some(), fits, "{fill}");
            assert!(template.heap_bytes() <= TEMPLATE_BYTES_MAX);
        }
    }
}
