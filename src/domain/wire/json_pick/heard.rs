//! Counts the text at certain paths: JSON strings without their escapes. The text is not kept.

use crate::domain::wire::tokens::CharClasses;

/// What stands for half a surrogate pair.
const REPLACEMENT: char = '\u{FFFD}';

/// Counts texts that are written as JSON strings. A text goes on where the one before it ended: the pieces of an answer
/// are one text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard {
    classes: CharClasses,
    escape: Escape,
}

/// Where in an escape a string is. `high` is the first half of a surrogate pair that waits for its second, or 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    AfterHigh(u16),
    Slash {
        high: u16,
    },
    Hex {
        digits: u8,
        value: u16,
        high: u16,
    },
}

/// Whether the bytes that come are listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listening {
    No,
    /// In a string.
    Text,
    /// In an object or array with so many containers around it.
    Within(usize),
}

impl Heard {
    /// What was counted.
    pub(crate) fn classes(&self) -> &CharClasses {
        &self.classes
    }

    /// Counts more of a string as it is written between its quotes, in any split. What is no escape ends one.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((first, after)) = rest.split_first() {
            if matches!(self.escape, Escape::None) {
                let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
                let (plain, escaped) = rest.split_at_checked(run).unwrap_or((rest, &[]));
                self.classes.push(plain);
                rest = match escaped {
                    [_slash, letter, after @ ..] if *letter != b'u' => {
                        self.classes.push(&[meant(*letter)]);
                        after
                    }
                    [_slash, after @ ..] => {
                        self.escape = Escape::Slash { high: 0 };
                        after
                    }
                    [] => &[],
                };
                continue;
            }
            if self.step(*first) {
                rest = after;
            }
        }
    }

    /// Counts a piece of a string that is a run without a backslash, or one byte of an escape: what a lexer gives.
    #[inline]
    pub(crate) fn push_run(&mut self, piece: &[u8]) {
        match (self.escape, piece) {
            (Escape::None, [first, ..]) if *first != b'\\' => self.classes.push(piece),
            _ => self.push(piece),
        }
    }

    /// Counts a whole string that has no escapes.
    pub(crate) fn push_text(&mut self, text: &[u8]) {
        self.push_run(text);
        self.end();
    }

    /// Counts JSON as it is written.
    pub(crate) fn push_plain(&mut self, bytes: &[u8]) {
        self.classes.push(bytes);
    }

    /// A string ends; the next one may follow.
    pub(crate) fn end(&mut self) {
        if let Escape::AfterHigh(_) = self.escape {
            self.count(REPLACEMENT);
        }
        self.escape = Escape::None;
    }

    /// A string ends, and the next one has nothing to do with it.
    pub(crate) fn end_apart(&mut self) {
        self.end();
        self.classes.end_text();
    }

    /// Takes a byte of an escape; false if it belongs to no escape and has to be looked at again.
    fn step(&mut self, byte: u8) -> bool {
        match self.escape {
            Escape::None => false,
            Escape::AfterHigh(high) if byte == b'\\' => {
                self.escape = Escape::Slash { high };
                true
            }
            Escape::AfterHigh(_) => {
                self.count(REPLACEMENT);
                self.escape = Escape::None;
                false
            }
            Escape::Slash { high } if byte == b'u' => {
                self.escape = Escape::Hex {
                    digits: 0,
                    value: 0,
                    high,
                };
                true
            }
            Escape::Slash { high } => {
                if high != 0 {
                    self.count(REPLACEMENT);
                }
                self.classes.push(&[meant(byte)]);
                self.escape = Escape::None;
                true
            }
            Escape::Hex { digits, value, high } => {
                let Some(digit) = hex(byte) else {
                    self.escape = Escape::None;
                    return false;
                };
                let value = (value << 4) | digit;
                if digits == 3 {
                    self.unit(value, high);
                } else {
                    self.escape = Escape::Hex {
                        digits: digits + 1,
                        value,
                        high,
                    };
                }
                true
            }
        }
    }

    /// A whole `\uXXXX`.
    fn unit(&mut self, unit: u16, high: u16) {
        self.escape = Escape::None;
        match (unit, high) {
            (0xDC00..=0xDFFF, 1..) => {
                let code = 0x1_0000 + ((u32::from(high) & 0x3FF) << 10 | u32::from(unit) & 0x3FF);
                self.count(char::from_u32(code).unwrap_or(REPLACEMENT));
            }
            _ => {
                if high != 0 {
                    self.count(REPLACEMENT);
                }
                if matches!(unit, 0xD800..=0xDBFF) {
                    self.escape = Escape::AfterHigh(unit);
                } else {
                    self.count(char::from_u32(u32::from(unit)).unwrap_or(REPLACEMENT));
                }
            }
        }
    }

    fn count(&mut self, character: char) {
        self.classes.push(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// What a letter behind a backslash stands for.
fn meant(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0C,
        itself => itself,
    }
}

fn hex(byte: u8) -> Option<u16> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u16::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(text: &str) -> CharClasses {
        let mut classes = CharClasses::default();
        classes.push(text.as_bytes());
        classes
    }

    #[test]
    fn escapes_are_counted_as_what_they_stand_for() {
        let mut heard = Heard::default();
        heard.push(br#"a\n\t\"\\\/\u00e9\u4E2d\ud83d\uDE00 z"#);
        heard.end();
        assert_eq!(heard.classes(), &plain("a\n\t\"\\/é中\u{1F600} z"));
    }

    #[test]
    fn half_a_surrogate_pair_counts_as_one_character() {
        for half in [r"\ud83dx", r"\ude00x"] {
            let mut heard = Heard::default();
            heard.push(half.as_bytes());
            assert_eq!(heard.classes(), &plain("\u{FFFD}x"), "{half}");
        }
        let mut heard = Heard::default();
        heard.push(br"\ud83d\ud83d\n");
        heard.end();
        assert_eq!(heard.classes(), &plain("\u{FFFD}\u{FFFD}\n"));
        let mut heard = Heard::default();
        heard.push(br"\ud83d");
        heard.end();
        assert_eq!(heard.classes(), &plain("\u{FFFD}"));
    }

    proptest! {
        #[test]
        fn any_text_in_any_split_is_counted_as_itself(text in any::<String>(), ascii in any::<bool>(), size in 1_usize..9) {
            let mut json = serde_json::to_string(&text).unwrap();
            if ascii {
                let escaped = |character: char| -> String {
                    if character.is_ascii() {
                        return character.to_string();
                    }
                    character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
                };
                json = json.chars().map(escaped).collect();
            }
            let mut heard = Heard::default();
            for piece in json.as_bytes()[1..json.len() - 1].chunks(size) {
                heard.push(piece);
            }
            heard.end();
            prop_assert_eq!(heard.classes(), &plain(&text));
        }

        #[test]
        fn what_is_no_json_string_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut heard = Heard::default();
            heard.push(&bytes);
            heard.end();
        }
    }
}
