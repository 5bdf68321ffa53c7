//! Counts the text at certain paths of JSON without storing it.

use crate::domain::wire::tokens::CharClasses;

/// The character that is counted instead of an unpaired half of a surrogate pair.
const REPLACEMENT: char = '\u{FFFD}';

/// A counter of the text in JSON strings. It resolves the strings' escapes. Each string continues the text of the string before
/// it, because the pieces of an answer are one text.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextCounter {
    classes: CharClasses,
    escape: TextEscapeState,
}

/// The position within an escape in a string. `high` is the first half of a surrogate pair whose second half has not arrived, or
/// 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextEscapeState {
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

/// Whether the next bytes of the JSON are counted as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextCounting {
    No,
    /// The next bytes are in a string whose text is counted.
    Text,
    /// The next bytes are in an object or array whose text is counted, with this many containers around it.
    Within(usize),
}

impl TextCounter {
    /// Returns the token estimate of the characters counted so far.
    pub(crate) fn classes(&self) -> &CharClasses {
        &self.classes
    }

    /// Counts more bytes of a string, as they are written between its quotes. The string can be split anywhere. A byte that
    /// cannot continue an escape ends the escape.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((first, after)) = rest.split_first() {
            if matches!(self.escape, TextEscapeState::None) {
                let run = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
                let (plain, escaped) = rest.split_at_checked(run).unwrap_or((rest, &[]));
                self.classes.push(plain);
                rest = match escaped {
                    [_slash, letter, after @ ..] if *letter != b'u' => {
                        self.classes.push(&[unescaped_letter(*letter)]);
                        after
                    }
                    [_slash, after @ ..] => {
                        self.escape = TextEscapeState::Slash { high: 0 };
                        after
                    }
                    [] => &[],
                };
                continue;
            }
            if self.push_escape_byte(*first) {
                rest = after;
            }
        }
    }

    /// Counts one of the pieces into which the lexer splits a string. A piece is either bytes without a backslash, or one byte of
    /// an escape.
    #[inline]
    pub(crate) fn push_run(&mut self, piece: &[u8]) {
        match (self.escape, piece) {
            (TextEscapeState::None, [first, ..]) if *first != b'\\' => self.classes.push(piece),
            _ => self.push(piece),
        }
    }

    /// Counts a complete string without escapes.
    pub(crate) fn push_complete(&mut self, text: &[u8]) {
        self.push_run(text);
        self.end();
    }

    /// Counts JSON text as it is written, without resolving escapes.
    pub(crate) fn push_json(&mut self, bytes: &[u8]) {
        self.classes.push(bytes);
    }

    /// Ends a string. The next string continues the text.
    pub(crate) fn end(&mut self) {
        if let TextEscapeState::AfterHigh(_) = self.escape {
            self.push_char(REPLACEMENT);
        }
        self.escape = TextEscapeState::None;
    }

    /// Ends a string and the text. The next string begins a new text.
    pub(crate) fn end_text(&mut self) {
        self.end();
        self.classes.end_text();
    }

    /// Reads a byte of an escape. Returns false if the byte does not belong to the escape and must be read again.
    fn push_escape_byte(&mut self, byte: u8) -> bool {
        match self.escape {
            TextEscapeState::None => false,
            TextEscapeState::AfterHigh(high) if byte == b'\\' => {
                self.escape = TextEscapeState::Slash { high };
                true
            }
            TextEscapeState::AfterHigh(_) => {
                self.push_char(REPLACEMENT);
                self.escape = TextEscapeState::None;
                false
            }
            TextEscapeState::Slash { high } if byte == b'u' => {
                self.escape = TextEscapeState::Hex {
                    digits: 0,
                    value: 0,
                    high,
                };
                true
            }
            TextEscapeState::Slash { high } => {
                if high != 0 {
                    self.push_char(REPLACEMENT);
                }
                self.classes.push(&[unescaped_letter(byte)]);
                self.escape = TextEscapeState::None;
                true
            }
            TextEscapeState::Hex { digits, value, high } => {
                let Some(digit) = hex_digit(byte) else {
                    self.escape = TextEscapeState::None;
                    return false;
                };
                let value = (value << 4) | digit;
                if digits == 3 {
                    self.push_code_unit(value, high);
                } else {
                    self.escape = TextEscapeState::Hex {
                        digits: digits + 1,
                        value,
                        high,
                    };
                }
                true
            }
        }
    }

    /// Counts the UTF-16 code unit `unit` of a complete `\uXXXX`. `high` is the first half of a surrogate pair before it, or 0.
    fn push_code_unit(&mut self, unit: u16, high: u16) {
        self.escape = TextEscapeState::None;
        match (unit, high) {
            (0xDC00..=0xDFFF, 1..) => {
                let code = 0x1_0000 + ((u32::from(high) & 0x3FF) << 10 | u32::from(unit) & 0x3FF);
                self.push_char(char::from_u32(code).unwrap_or(REPLACEMENT));
            }
            _ => {
                if high != 0 {
                    self.push_char(REPLACEMENT);
                }
                if matches!(unit, 0xD800..=0xDBFF) {
                    self.escape = TextEscapeState::AfterHigh(unit);
                } else {
                    self.push_char(char::from_u32(u32::from(unit)).unwrap_or(REPLACEMENT));
                }
            }
        }
    }

    fn push_char(&mut self, character: char) {
        self.classes.push(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Returns the character that a letter after a backslash denotes.
fn unescaped_letter(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0C,
        itself => itself,
    }
}

fn hex_digit(byte: u8) -> Option<u16> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u16::try_from(digit).ok())
}

/// The position of the text that was counted in a JSON value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TextSpan {
    #[default]
    Nothing,
    /// One string without escapes, which arrived in one piece.
    Once {
        /// The offset in the piece at which the string's content begins, after its opening quote.
        at: usize,
        /// The length of the string's content in bytes, without its quotes.
        length: usize,
    },
    /// Any other text: several strings, a string with escapes, or a string in several pieces.
    More,
}

impl TextSpan {
    /// Records a string that has ended. `at` and `length` are the offset and length of its last run of plain bytes.
    pub(super) fn record_string(&mut self, at: usize, length: usize) {
        *self = match self {
            Self::Nothing => Self::Once { at, length },
            Self::Once { .. } | Self::More => Self::More,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(text: &str) -> CharClasses {
        let mut classes = CharClasses::default();
        classes.push(text.as_bytes());
        classes
    }

    #[test]
    fn escapes_are_counted_as_what_they_stand_for() {
        let mut heard = TextCounter::default();
        heard.push(br#"a\n\t\"\\\/\u00e9\u4E2d\ud83d\uDE00 z"#);
        heard.end();
        assert_eq!(heard.classes(), &plain("a\n\t\"\\/é中\u{1F600} z"));
    }

    #[test]
    fn half_a_surrogate_pair_counts_as_one_character() {
        for half in [r"\ud83dx", r"\ude00x"] {
            let mut heard = TextCounter::default();
            heard.push(half.as_bytes());
            assert_eq!(heard.classes(), &plain("\u{FFFD}x"), "{half}");
        }
        let mut heard = TextCounter::default();
        heard.push(br"\ud83d\ud83d\n");
        heard.end();
        assert_eq!(heard.classes(), &plain("\u{FFFD}\u{FFFD}\n"));
        let mut heard = TextCounter::default();
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
            let mut heard = TextCounter::default();
            for piece in json.as_bytes()[1..json.len() - 1].chunks(size) {
                heard.push(piece);
            }
            heard.end();
            prop_assert_eq!(heard.classes(), &plain(&text));
        }

        #[test]
        fn what_is_no_json_string_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut heard = TextCounter::default();
            heard.push(&bytes);
            heard.end();
        }
    }
}
