//! Remembers the last event that only brought more text, since most events of an answer differ in their text only.
//!
//! Such an event is recognised by comparison with the previous one, and needs no parser. Besides the text it may differ in what
//! its protocol says of itself in every event ([`Varying`]): its number, filling that means nothing, and how much was used so
//! far. An event that differs in anything else, is cut in two, or has an escape in its text is parsed like any other.

use std::ops::Range;

use crate::domain::wire::protocol::varying::{Spoken, Varies, Varying};

/// Bytes of an event, its holes apart, that are kept; a longer one is not. Places in them fit into 16 bits.
pub(super) const TEMPLATE_BYTES_MAX: usize = 1024;
/// The text, and three counts of a usage.
const HOLES_MAX: usize = 4;

/// An event with holes.
#[derive(Debug, Default)]
pub(super) struct Template {
    /// What stands around the holes, without a gap; empty before there is an event.
    bytes: Vec<u8>,
    /// The holes in the order of the event.
    holes: [Option<Hole>; HOLES_MAX],
    /// Where the event's usage stands in the bytes around the holes, if it carries one.
    usage: Option<Range<u16>>,
}

/// Where the text stands in an event that has said nothing else, and what else may differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct MereText {
    pub(super) at: usize,
    pub(super) length: usize,
    pub(super) spoken: Spoken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    /// Where it is in the bytes around it.
    at: u16,
    value: Varies,
}

/// An event that was recognised.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recognised<'a> {
    /// The text that it brings; it has no escapes.
    pub(super) text: &'a [u8],
    /// Its number, if it has one.
    pub(super) number: Option<u64>,
    /// Its usage, if it carries one.
    pub(super) usage: Option<&'a [u8]>,
    /// What follows the event.
    pub(super) rest: &'a [u8],
}

impl Template {
    /// Keeps a whole event that is nothing but more text. Filling or a count whose key stands there more than once, or that is
    /// written in another way, is taken to be always the same. With such a number or usage the event is not kept: whoever
    /// recognised it would have to know which one it had.
    pub(super) fn learn(&mut self, event: &[u8], text: MereText) {
        self.bytes.clear();
        self.holes = [None; HOLES_MAX];
        self.usage = None;
        let Spoken { varying, usage } = text.spoken;
        let mut places = [(usize::MAX, 0, Varies::Text); HOLES_MAX];
        let values = varying.iter().filter_map(|member| member.find(event));
        let found = std::iter::once((text.at, text.length, Varies::Text)).chain(values);
        for (place, found) in places.iter_mut().zip(found) {
            *place = found;
        }
        places.sort_unstable_by_key(|(at, ..)| *at);
        let lacks = |value| has(varying, value) && places.iter().all(|(.., found)| *found != value);
        let usage_at = usage.map(|usage| usage.find(event).map(|at| (at, at + usage.length)));
        if lacks(Varies::Number) || usage_at == Some(None) || self.keep(event, &places).is_none() {
            self.bytes.clear();
            return;
        }
        let around = |at: usize| {
            let before = places.iter().filter(|(hole, ..)| *hole < at);
            u16::try_from(at - before.map(|(_, length, _)| length).sum::<usize>()).ok()
        };
        if let Some((from, end)) = usage_at.flatten() {
            self.usage = around(from).zip(around(end)).map(|(from, end)| from..end);
            if self.usage.is_none() {
                self.bytes.clear();
            }
        }
    }

    /// Forgets the event.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
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
                at: u16::try_from(self.bytes.len()).ok()?,
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
        // What the holes in front of the usage, and those in front of its end, have brought.
        let (mut before, mut within) = (0, 0);
        for hole in self.holes.iter().flatten() {
            let at = usize::from(hole.at);
            rest = rest.strip_prefix(self.bytes.get(from..at)?)?;
            let (value, after) = rest.split_at_checked(hole.value.length(rest)?)?;
            match hole.value {
                Varies::Text => event.text = value,
                Varies::Number => event.number = Some(decimal(value)),
                Varies::Filling | Varies::Count => {}
            }
            if let Some(usage) = &self.usage {
                before += if hole.at <= usage.start { value.len() } else { 0 };
                within += if hole.at < usage.end { value.len() } else { 0 };
            }
            (from, rest) = (at, after);
        }
        event.rest = rest.strip_prefix(self.bytes.get(from..)?)?;
        if let Some(usage) = &self.usage {
            let (start, end) = (usize::from(usage.start), usize::from(usage.end));
            event.usage = Some(bytes.get(start + before..end + within)?);
        }
        Some(event)
    }

    /// The bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Whether such a value is among these members.
fn has(varying: &[Varying], value: Varies) -> bool {
    varying.iter().any(|member| member.value == value)
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
    use crate::domain::wire::protocol::varying::Carried;

    const NUMBER: Varying = Varying {
        key: b"\"n\"",
        value: Varies::Number,
    };
    const FILLING: Varying = Varying {
        key: b"\"f\"",
        value: Varies::Filling,
    };

    fn learnt(event: &str, text: &str, varying: &'static [Varying]) -> Template {
        learnt_with(event, text, varying, None)
    }

    fn learnt_with(event: &str, text: &str, varying: &'static [Varying], usage: Option<Carried>) -> Template {
        let at = event.find(text).expect("the text stands in the event");
        let (length, spoken) = (text.len(), Spoken { varying, usage });
        let mut template = Template::default();
        template.learn(event.as_bytes(), MereText { at, length, spoken });
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
                ..Recognised::default()
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

    const COUNTS: &[Varying] = &[COUNT, TOTAL];
    const COUNT: Varying = Varying {
        key: b"\"c\"",
        value: Varies::Count,
    };
    const TOTAL: Varying = Varying {
        key: b"\"all\"",
        value: Varies::Count,
    };

    fn usage(length: usize) -> Option<Carried> {
        let key = b"\"u\"";
        Some(Carried { key, length })
    }

    #[test]
    fn the_usage_of_a_recognised_event_is_its_own() {
        for (event, next, length, wanted) in [
            (
                r#"data: {"t":"ab","u":{"c":9,"all":10},"m":"x"}"#,
                r#"data: {"t":"a longer one","u":{"c":10,"all":111},"m":"x"}"#,
                16,
                r#"{"c":10,"all":111}"#,
            ),
            (
                r#"data: {"u": {"all": 10, "c": 9},"t": "ab"}"#,
                r#"data: {"u": {"all": 9, "c": 8},"t": ""}"#,
                19,
                r#"{"all": 9, "c": 8}"#,
            ),
            (
                r#"data: {"c":1,"t":"ab","u":{"p":7},"all":2}"#,
                r#"data: {"c":123,"t":"c","u":{"p":7},"all":456}"#,
                7,
                r#"{"p":7}"#,
            ),
        ] {
            let template = learnt_with(event, "ab", COUNTS, usage(length));
            let found = template.split(next.as_bytes()).expect(next);
            assert_eq!(found.usage, Some(wanted.as_bytes()), "{next}");
            assert_eq!(found.rest, b"");
        }
    }

    #[test]
    fn an_event_whose_usage_is_not_certain_is_not_kept() {
        for event in [
            r#"data: {"t":"ab","u":{"c":9},"x":{"u":{"c":9}}}"#,
            r#"data: {"t":"ab","u" :{"c":9}}"#,
            r#"data: {"t":"ab","u":  {"c":9}}"#,
            r#"data: {"t":"ab","u":[{"c":9}]}"#,
            r#"data: {"t":"ab","u":{"#,
        ] {
            let template = learnt_with(event, "ab", COUNTS, usage(7));
            assert_eq!(template.split(event.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn a_count_that_stands_there_twice_is_taken_to_be_always_the_same() {
        let event = r#"data: {"t":"ab","u":{"c":9,"of":[{"c":9}]}}"#;
        let template = learnt_with(event, "ab", COUNTS, usage(23));
        let same = event.replace("ab", "xyz");
        assert!(template.split(same.as_bytes()).is_some());
        assert_eq!(template.split(event.replace("\"c\":9,", "\"c\":8,").as_bytes()), None);
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept() {
        let event = |fill: usize| [b"data: {\"t\":\"", "x".repeat(fill).as_bytes(), b"\"}\n\n"].concat();
        let mut template = Template::default();
        let spoken = Spoken {
            varying: &[],
            usage: None,
        };
        let (at, length) = (12, 4000);
        template.learn(&event(4000), MereText { at, length, spoken });
        assert!(template.split(&event(3)).is_some(), "the text does not count");
        for (fill, fits) in [(TEMPLATE_BYTES_MAX - 16, true), (TEMPLATE_BYTES_MAX - 15, false)] {
            let event = event(fill);
            let (at, length) = (12 + fill, 0);
            template.learn(&event, MereText { at, length, spoken });
            assert_eq!(template.split(&event).is_some(), fits, "{fill}");
            assert!(template.heap_bytes() <= TEMPLATE_BYTES_MAX);
        }
    }
}
