//! Recognises events that only add text, by comparison with a template: the last event of this kind. Most events of an answer
//! differ only in their text.
//!
//! The comparison needs no parser. In addition to its text, an event can differ from the template in the members that its
//! protocol changes in every event ([`VaryingMember`]): its sequence number, padding, and the usage so far. An event that differs
//! in anything else, is split between two pieces, or has an escape in its text is parsed like any other.

use std::ops::Range;

use crate::domain::wire::protocol::varying::{TextDelta, VaryingKind, VaryingMember};

/// The maximum length of a template in bytes, without its holes. A longer event does not become the template. Offsets in a
/// template fit into 16 bits.
pub(super) const TEMPLATE_BYTES_MAX: usize = 1024;
/// The maximum number of holes in a template: the text, and three counts of a usage.
const HOLES_MAX: usize = 4;

/// A template: an event with holes for the values that can differ.
#[derive(Debug, Default)]
pub(super) struct TextEventTemplate {
    /// The bytes around the holes, joined; empty if there is no template yet.
    bytes: Vec<u8>,
    /// The holes, in the order of their positions in the event.
    holes: [Option<TemplateHole>; HOLES_MAX],
    /// The range of the event's usage in the bytes around the holes; `None` if the event has none.
    usage: Option<Range<u16>>,
}

/// The position of the text in an event that only adds text, and the members of the event that can differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextOnlyEvent {
    pub(super) at: usize,
    pub(super) length: usize,
    pub(super) delta: TextDelta,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TemplateHole {
    /// The offset of the hole in the bytes around the holes.
    at: u16,
    value: VaryingKind,
}

/// An event that the template has recognised.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RecognisedEvent<'a> {
    /// The event's text, without escapes.
    pub(super) text: &'a [u8],
    /// The event's sequence number; `None` if it has none.
    pub(super) number: Option<u64>,
    /// The event's usage as JSON text; `None` if it has none.
    pub(super) usage: Option<&'a [u8]>,
    /// The bytes after the event.
    pub(super) rest: &'a [u8],
}

impl TextEventTemplate {
    /// Makes `event` the template. It must be complete, and must only add text. The template gets a hole for a member only if the
    /// member's key occurs once and its value is written in the expected way. If this is not so for padding or a count, the
    /// template matches only events in which this member has the same value. If it is not so for the sequence number or the
    /// usage, the event does not become the template, because weir must read these two members from every recognised event.
    pub(super) fn learn(&mut self, event: &[u8], text: TextOnlyEvent) {
        self.bytes.clear();
        self.holes = [None; HOLES_MAX];
        self.usage = None;
        let TextDelta { varying, usage } = text.delta;
        let mut places = [(usize::MAX, 0, VaryingKind::Text); HOLES_MAX];
        let values = varying.iter().filter_map(|member| member.find(event));
        let found = std::iter::once((text.at, text.length, VaryingKind::Text)).chain(values);
        for (place, found) in places.iter_mut().zip(found) {
            *place = found;
        }
        places.sort_unstable_by_key(|(at, ..)| *at);
        let lacks = |value| has_varying(varying, value) && places.iter().all(|(.., found)| *found != value);
        let usage_at = usage.map(|usage| usage.find(event).map(|at| (at, at + usage.length)));
        if lacks(VaryingKind::Number) || usage_at == Some(None) || self.store_around(event, &places).is_none() {
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

    /// Discards the template.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    /// Copies the bytes around the holes; `None` if the event is too long or its text does not end with a quote.
    fn store_around(&mut self, event: &[u8], places: &[(usize, usize, VaryingKind)]) -> Option<()> {
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
            *hole = Some(TemplateHole {
                at: u16::try_from(self.bytes.len()).ok()?,
                value: *value,
            });
            from = at.checked_add(*length)?;
            if *value == VaryingKind::Text && event.get(from) != Some(&b'"') {
                return None;
            }
        }
        self.bytes.extend_from_slice(event.get(from..)?);
        Some(())
    }

    /// Recognises the event at the beginning of `bytes`; `None` if it does not match the template.
    #[inline]
    pub(super) fn recognise<'a>(&self, bytes: &'a [u8]) -> Option<RecognisedEvent<'a>> {
        if self.bytes.is_empty() {
            return None;
        }
        let (mut from, mut rest) = (0, bytes);
        let mut event = RecognisedEvent::default();
        // The total length of the values in the holes before the usage, and in those before the end of the usage.
        let (mut before, mut within) = (0, 0);
        for hole in self.holes.iter().flatten() {
            let at = usize::from(hole.at);
            rest = rest.strip_prefix(self.bytes.get(from..at)?)?;
            let (value, after) = rest.split_at_checked(hole.value.length(rest)?)?;
            match hole.value {
                VaryingKind::Text => event.text = value,
                VaryingKind::Number => event.number = Some(decimal(value)),
                VaryingKind::Filling | VaryingKind::Count => {}
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

    /// Returns the number of bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Whether one of these members has a value of this kind.
fn has_varying(varying: &[VaryingMember], value: VaryingKind) -> bool {
    varying.iter().any(|member| member.value == value)
}

/// Returns the number that `digits`, at most 15 of them, denote.
fn decimal(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0, |number, digit| number * 10 + u64::from(digit & 0x0f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::wire::protocol::varying::VerbatimMember;

    const NUMBER: VaryingMember = VaryingMember {
        key: b"\"n\"",
        value: VaryingKind::Number,
    };
    const FILLING: VaryingMember = VaryingMember {
        key: b"\"f\"",
        value: VaryingKind::Filling,
    };

    fn learnt(event: &str, text: &str, varying: &'static [VaryingMember]) -> TextEventTemplate {
        learnt_with(event, text, varying, None)
    }

    fn learnt_with(
        event: &str,
        text: &str,
        varying: &'static [VaryingMember],
        usage: Option<VerbatimMember>,
    ) -> TextEventTemplate {
        let at = event.find(text).expect("the text stands in the event");
        let (length, spoken) = (text.len(), TextDelta { varying, usage });
        let mut template = TextEventTemplate::default();
        template.learn(
            event.as_bytes(),
            TextOnlyEvent {
                at,
                length,
                delta: spoken,
            },
        );
        template
    }

    fn text_of<'a>(template: &TextEventTemplate, event: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        template.recognise(event).map(|event| (event.text, event.rest))
    }

    #[test]
    fn only_the_text_may_differ() {
        let template = TextEventTemplate::default();
        assert_eq!(template.recognise(b""), None);
        assert_eq!(
            template.recognise(b"data: {\"t\":\"a\"}\n\n"),
            None,
            "nothing is known yet"
        );
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
            let found = RecognisedEvent {
                text: b"c",
                number: Some(10),
                ..RecognisedEvent::default()
            };
            assert_eq!(template.recognise(next.as_bytes()), Some(found), "{event}");
            let none = learnt(event, "ab", &[]);
            assert_eq!(none.recognise(next.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn a_number_that_is_written_otherwise_is_none() {
        let template = learnt(r#"data: {"n":9,"t":"ab"}"#, "ab", &[NUMBER]);
        let number = |text: &str| {
            let event = format!(r#"data: {{"n":{text},"t":"ab"}}"#);
            template.recognise(event.as_bytes()).and_then(|event| event.number)
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
            assert_eq!(template.recognise(event.as_bytes()), None, "{event}");
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
            let text = template.recognise(next.as_bytes()).map(|event| event.text);
            assert_eq!(text, Some(b"c".as_slice()), "{event}");
            let other = event.replace('X', "Z").replace('9', "8");
            assert_eq!(template.recognise(other.as_bytes()), None, "{event}");
        }
    }

    const COUNTS: &[VaryingMember] = &[COUNT, TOTAL];
    const COUNT: VaryingMember = VaryingMember {
        key: b"\"c\"",
        value: VaryingKind::Count,
    };
    const TOTAL: VaryingMember = VaryingMember {
        key: b"\"all\"",
        value: VaryingKind::Count,
    };

    fn usage(length: usize) -> Option<VerbatimMember> {
        let key = b"\"u\"";
        Some(VerbatimMember { key, length })
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
            let found = template.recognise(next.as_bytes()).expect(next);
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
            assert_eq!(template.recognise(event.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn a_count_that_stands_there_twice_is_taken_to_be_always_the_same() {
        let event = r#"data: {"t":"ab","u":{"c":9,"of":[{"c":9}]}}"#;
        let template = learnt_with(event, "ab", COUNTS, usage(23));
        let same = event.replace("ab", "xyz");
        assert!(template.recognise(same.as_bytes()).is_some());
        assert_eq!(
            template.recognise(event.replace("\"c\":9,", "\"c\":8,").as_bytes()),
            None
        );
    }

    #[test]
    fn an_event_that_is_too_long_is_not_kept() {
        let event = |fill: usize| [b"data: {\"t\":\"", "x".repeat(fill).as_bytes(), b"\"}\n\n"].concat();
        let mut template = TextEventTemplate::default();
        let spoken = TextDelta {
            varying: &[],
            usage: None,
        };
        let (at, length) = (12, 4000);
        template.learn(
            &event(4000),
            TextOnlyEvent {
                at,
                length,
                delta: spoken,
            },
        );
        assert!(template.recognise(&event(3)).is_some(), "the text does not count");
        for (fill, fits) in [(TEMPLATE_BYTES_MAX - 16, true), (TEMPLATE_BYTES_MAX - 15, false)] {
            let event = event(fill);
            let (at, length) = (12 + fill, 0);
            template.learn(
                &event,
                TextOnlyEvent {
                    at,
                    length,
                    delta: spoken,
                },
            );
            assert_eq!(template.recognise(&event).is_some(), fits, "{fill}");
            assert!(template.heap_bytes() <= TEMPLATE_BYTES_MAX);
        }
    }
}
