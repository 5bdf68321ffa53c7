//! The JSON lexer of a picker. It reads bytes in pieces of any size, one token at a time, without allocation or recursion. It can
//! complete an interrupted value so that it becomes valid.

use crate::domain::wire::{json_skip::DEPTH_MAX, plain_run};

/// The number of 64-bit words that contain one bit for each open container. If more containers are open than there are bits, the
/// lexer becomes inert.
const STACK_WORDS: usize = DEPTH_MAX / 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PickContainer {
    Object,
    Array,
}

/// The token that the last consumed byte completes. A key or string has one token at its opening quote and one at its closing
/// quote. Bytes between the quotes complete no token, unless they are consumed together with the closing quote. Colons, commas
/// and white space are consumed together with the next token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PickToken {
    Key,
    KeyEnd,
    Text,
    TextEnd,
    /// A number, `true`, `false` or `null`.
    Plain,
    PlainEnd,
    Open(PickContainer),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PickLexerMode {
    /// A value must follow.
    Value,
    /// After `[`: a value or the end of the array must follow.
    FirstValue,
    /// After `{`: a key or the end of the object must follow.
    FirstKey,
    /// After a comma in an object: a key must follow.
    NextKey,
    /// After a key: a colon must follow.
    Colon,
    /// After a value in a container: a comma or the end of the container must follow.
    Next,
    Text(StringRole),
    Number,
    Literal(&'static [u8]),
    /// The top-level value is complete.
    Done,
    /// The bytes are not JSON, or are nested too deeply.
    Inert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringRole {
    Key,
    Value,
}

/// The position within an escape in a string. `after_high` is true if the escape directly follows the first half of a surrogate
/// pair, and must therefore be the second half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LexerEscapeState {
    None,
    AfterHigh,
    Slash { after_high: bool },
    Hex { digits: u8, value: u16, after_high: bool },
}

/// The number of bytes that are remembered from the end of the latest piece of a string or number. They are needed because a
/// piece can end within a UTF-8 sequence.
const TAIL_BYTES: usize = 3;

#[derive(Debug)]
pub(super) struct PickLexer {
    /// One bit for each open container. The bit is set if the container is an array.
    stack: [u64; STACK_WORDS],
    depth: usize,
    mode: PickLexerMode,
    escape: LexerEscapeState,
    tail: [u8; TAIL_BYTES],
}

impl PickLexer {
    pub(super) fn new() -> Self {
        Self {
            stack: [0; STACK_WORDS],
            depth: 0,
            mode: PickLexerMode::Value,
            escape: LexerEscapeState::None,
            tail: [0; TAIL_BYTES],
        }
    }

    pub(super) fn reset(&mut self) {
        self.depth = 0;
        self.mode = PickLexerMode::Value;
        self.escape = LexerEscapeState::None;
    }

    pub(super) fn is_done(&self) -> bool {
        self.mode == PickLexerMode::Done
    }

    pub(super) fn is_inert(&self) -> bool {
        self.mode == PickLexerMode::Inert
    }

    /// Returns the number of open containers.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the open container at `level` is an array. The outermost container has level 1.
    pub(super) fn is_array(&self, level: usize) -> bool {
        let Some(bit) = level.checked_sub(1) else { return false };
        self.stack
            .get(bit / 64)
            .is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Consumes bytes from the front, at most up to the end of the next token. Returns the number of consumed bytes, and the
    /// token that they complete, if any. The number of consumed bytes is 0 only if the token is the end of a number.
    #[inline]
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, Option<PickToken>) {
        match self.mode {
            PickLexerMode::Text(role) => self.text(bytes, role),
            PickLexerMode::Number => self.number(bytes),
            PickLexerMode::Literal(rest) => self.literal(bytes, rest),
            PickLexerMode::Done | PickLexerMode::Inert => (bytes.len(), None),
            PickLexerMode::Value
            | PickLexerMode::FirstValue
            | PickLexerMode::FirstKey
            | PickLexerMode::NextKey
            | PickLexerMode::Colon
            | PickLexerMode::Next => self.structure(bytes),
        }
    }

    fn structure(&mut self, bytes: &[u8]) -> (usize, Option<PickToken>) {
        // Most JSON has no white space, and most values are strings, so these two cases are tried first.
        match (self.mode, bytes) {
            (PickLexerMode::Next, [b',', b'"', ..]) if !self.is_array(self.depth) => {
                self.begin_text(StringRole::Key);
                return (2, Some(PickToken::Key));
            }
            (PickLexerMode::Colon, [b':', b'"', ..]) => {
                self.begin_text(StringRole::Value);
                return (2, Some(PickToken::Text));
            }
            _ => {}
        }
        for (at, &byte) in bytes.iter().enumerate() {
            let token = match (self.mode, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => None,
                (PickLexerMode::Value | PickLexerMode::FirstValue, _) if byte != b']' => self.begin_value(byte),
                (PickLexerMode::Colon, b':') => {
                    self.mode = PickLexerMode::Value;
                    None
                }
                (PickLexerMode::Next, b',') => {
                    self.mode = if self.is_array(self.depth) {
                        PickLexerMode::Value
                    } else {
                        PickLexerMode::NextKey
                    };
                    None
                }
                (PickLexerMode::FirstKey | PickLexerMode::NextKey, b'"') => {
                    self.begin_text(StringRole::Key);
                    Some(PickToken::Key)
                }
                (PickLexerMode::FirstKey, b'}') | (PickLexerMode::FirstValue, b']') => self.close(),
                (PickLexerMode::Next, b'}') if !self.is_array(self.depth) => self.close(),
                (PickLexerMode::Next, b']') if self.is_array(self.depth) => self.close(),
                _ => self.give_up(),
            };
            if token.is_some() || self.mode == PickLexerMode::Inert {
                return (at + 1, token);
            }
        }
        (bytes.len(), None)
    }

    fn begin_value(&mut self, byte: u8) -> Option<PickToken> {
        match byte {
            b'"' => {
                self.begin_text(StringRole::Value);
                return Some(PickToken::Text);
            }
            b'{' => return self.open(PickContainer::Object),
            b'[' => return self.open(PickContainer::Array),
            b'-' | b'0'..=b'9' => {
                self.tail = [0, 0, byte];
                self.mode = PickLexerMode::Number;
            }
            b't' => self.mode = PickLexerMode::Literal(b"rue"),
            b'f' => self.mode = PickLexerMode::Literal(b"alse"),
            b'n' => self.mode = PickLexerMode::Literal(b"ull"),
            _ => return self.give_up(),
        }
        Some(PickToken::Plain)
    }

    fn begin_text(&mut self, role: StringRole) {
        self.mode = PickLexerMode::Text(role);
        self.escape = LexerEscapeState::None;
        self.tail = [0; TAIL_BYTES];
    }

    fn open(&mut self, container: PickContainer) -> Option<PickToken> {
        let Some(word) = self.stack.get_mut(self.depth / 64) else {
            return self.give_up();
        };
        let bit = 1 << (self.depth % 64);
        self.mode = match container {
            PickContainer::Object => {
                *word &= !bit;
                PickLexerMode::FirstKey
            }
            PickContainer::Array => {
                *word |= bit;
                PickLexerMode::FirstValue
            }
        };
        self.depth += 1;
        Some(PickToken::Open(container))
    }

    fn close(&mut self) -> Option<PickToken> {
        self.depth = self.depth.saturating_sub(1);
        self.end_value();
        Some(PickToken::Close)
    }

    fn end_value(&mut self) {
        self.mode = if self.depth == 0 {
            PickLexerMode::Done
        } else {
            PickLexerMode::Next
        };
    }

    fn give_up(&mut self) -> Option<PickToken> {
        self.mode = PickLexerMode::Inert;
        None
    }

    fn number(&mut self, bytes: &[u8]) -> (usize, Option<PickToken>) {
        let digits = bytes
            .iter()
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .count();
        if digits > 0 {
            self.record_tail(bytes.get(..digits).unwrap_or(bytes));
            return (digits, None);
        }
        self.end_value();
        (0, Some(PickToken::PlainEnd))
    }

    fn literal(&mut self, bytes: &[u8], rest: &'static [u8]) -> (usize, Option<PickToken>) {
        let same = bytes
            .iter()
            .zip(rest)
            .take_while(|(byte, wanted)| byte == wanted)
            .count();
        let left = rest.get(same..).unwrap_or_default();
        if left.is_empty() {
            self.end_value();
            return (same, Some(PickToken::PlainEnd));
        }
        if same < bytes.len() {
            return (same + 1, self.give_up());
        }
        self.mode = PickLexerMode::Literal(left);
        (same, None)
    }

    fn text(&mut self, bytes: &[u8], role: StringRole) -> (usize, Option<PickToken>) {
        let Some(&first) = bytes.first() else { return (0, None) };
        match self.escape {
            LexerEscapeState::None | LexerEscapeState::AfterHigh => self.plain_text(bytes, first, role),
            LexerEscapeState::Slash { after_high } => {
                match first {
                    b'u' => {
                        self.escape = LexerEscapeState::Hex {
                            digits: 0,
                            value: 0,
                            after_high,
                        }
                    }
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.escape = LexerEscapeState::None,
                    _ => self.mode = PickLexerMode::Inert,
                }
                (1, None)
            }
            LexerEscapeState::Hex {
                digits,
                value,
                after_high,
            } => {
                let Some(digit) = char::from(first)
                    .to_digit(16)
                    .and_then(|digit| u16::try_from(digit).ok())
                else {
                    self.mode = PickLexerMode::Inert;
                    return (1, None);
                };
                let value = (value << 4) | digit;
                self.escape = match (digits, value) {
                    (3, 0xD800..=0xDBFF) => LexerEscapeState::AfterHigh,
                    (3, _) => LexerEscapeState::None,
                    _ => LexerEscapeState::Hex {
                        digits: digits + 1,
                        value,
                        after_high,
                    },
                };
                (1, None)
            }
        }
    }

    fn plain_text(&mut self, bytes: &[u8], first: u8, role: StringRole) -> (usize, Option<PickToken>) {
        if first == b'\\' {
            self.escape = LexerEscapeState::Slash {
                after_high: self.escape == LexerEscapeState::AfterHigh,
            };
            self.tail = [0; TAIL_BYTES];
            return (1, None);
        }
        let run = plain_run(bytes);
        match bytes.get(run) {
            Some(b'"') => {
                let token = self.end_text(role);
                (run + 1, Some(token))
            }
            Some(_) => {
                self.escape = LexerEscapeState::None;
                (run, None)
            }
            None => {
                self.escape = LexerEscapeState::None;
                self.record_tail(bytes);
                (run, None)
            }
        }
    }

    fn end_text(&mut self, role: StringRole) -> PickToken {
        match role {
            StringRole::Key => {
                self.mode = PickLexerMode::Colon;
                PickToken::KeyEnd
            }
            StringRole::Value => {
                self.end_value();
                PickToken::TextEnd
            }
        }
    }

    fn record_tail(&mut self, run: &[u8]) {
        let [_, second, third] = self.tail;
        self.tail = match run {
            [.., a, b, c] => [*a, *b, *c],
            [a, b] => [third, *a, *b],
            [a] => [second, third, *a],
            [] => self.tail,
        };
    }
}

impl PickLexer {
    /// Returns the bytes that must be appended to complete the JSON value read so far; `None` if the value is already invalid.
    pub(in crate::domain::wire::json_pick) fn completion(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        match self.mode {
            PickLexerMode::Inert => return None,
            PickLexerMode::Text(role) => {
                self.complete_text(&mut out);
                out.push(b'"');
                if role == StringRole::Key {
                    out.extend_from_slice(b":null");
                }
            }
            PickLexerMode::Number => {
                if matches!(self.tail, [_, _, b'-' | b'+' | b'.' | b'e' | b'E']) {
                    out.push(b'0');
                }
            }
            PickLexerMode::Literal(rest) => out.extend_from_slice(rest),
            PickLexerMode::Value => out.extend_from_slice(b"null"),
            PickLexerMode::NextKey => out.extend_from_slice(b"\"\":null"),
            PickLexerMode::Colon => out.extend_from_slice(b":null"),
            PickLexerMode::FirstValue | PickLexerMode::FirstKey | PickLexerMode::Next | PickLexerMode::Done => {}
        }
        for level in (1..=self.depth).rev() {
            out.push(if self.is_array(level) { b']' } else { b'}' });
        }
        Some(out)
    }

    fn complete_text(&self, out: &mut Vec<u8>) {
        const TRAILING: &[u8; 6] = b"\\udc00";
        match self.escape {
            LexerEscapeState::None => complete_utf8(self.tail, out),
            LexerEscapeState::AfterHigh => out.extend_from_slice(TRAILING),
            LexerEscapeState::Slash { after_high: true } => {
                out.extend_from_slice(TRAILING.get(1..).unwrap_or_default())
            }
            LexerEscapeState::Slash { after_high: false } => out.push(b'n'),
            LexerEscapeState::Hex {
                digits,
                after_high: true,
                ..
            } => {
                out.extend_from_slice(TRAILING.get(2 + usize::from(digits)..).unwrap_or_default());
            }
            LexerEscapeState::Hex {
                digits,
                value,
                after_high: false,
            } => {
                let missing = 4_u8.saturating_sub(digits);
                out.resize(out.len() + usize::from(missing), b'0');
                if (0xD800..=0xDBFF).contains(&value.checked_shl(4 * u32::from(missing)).unwrap_or(0)) {
                    out.extend_from_slice(TRAILING);
                }
            }
        }
    }
}

/// Appends the missing bytes of a UTF-8 sequence that has arrived only in part. `tail` contains the last bytes that have arrived.
fn complete_utf8(tail: [u8; TAIL_BYTES], out: &mut Vec<u8>) {
    let continuations = tail.iter().rev().take_while(|byte| matches!(byte, 0x80..=0xBF)).count();
    let Some(&lead) = tail.iter().rev().nth(continuations) else {
        return;
    };
    let wanted = match lead {
        0xC2..=0xDF => 1,
        0xE0..=0xEF => 2,
        0xF0..=0xF4 => 3,
        _ => 0,
    };
    for at in continuations..wanted {
        // After these two lead bytes the range of the next byte is smaller, because overlong forms are invalid.
        out.push(match (at, lead) {
            (0, 0xE0) => 0xA0,
            (0, 0xF0) => 0x90,
            _ => 0x80,
        });
    }
}
