//! The picker's JSON lexer: bytes in any split, one token at a time, no allocation, no recursion.

mod completion;

use crate::domain::wire::{json_skip::DEPTH_MAX, plain_run::plain_run};

/// One bit for each container that may be open; deeper values make the lexer inert.
const STACK_WORDS: usize = DEPTH_MAX / 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Object,
    Array,
}

/// What the last of the bytes just consumed means. A key or a text begins and ends with its quote; pieces between
/// come without a token, the last one with the end. Colons, commas and white space come before the byte that the token is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Key,
    KeyEnd,
    Text,
    TextEnd,
    /// A number, `true`, `false` or `null`.
    Plain,
    PlainEnd,
    Open(Container),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A value has to follow.
    Value,
    /// After `[`.
    FirstValue,
    /// After `{`.
    FirstKey,
    /// After a comma in an object.
    NextKey,
    /// After a key.
    Colon,
    /// After a value inside a container.
    Next,
    Text(Role),
    Number,
    Literal(&'static [u8]),
    /// The top-level value is closed.
    Done,
    /// Not JSON, or too deep.
    Inert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

/// Where in an escape a text is. `after_high`: directly behind a leading surrogate, which has to be followed by a trailing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    AfterHigh,
    Slash { after_high: bool },
    Hex { digits: u8, value: u16, after_high: bool },
}

/// The last bytes of a text or a number that ran to the end of a chunk: a cut may lie within a UTF-8 sequence.
const TAIL_BYTES: usize = 3;

#[derive(Debug)]
pub(super) struct Lexer {
    /// One bit per open container: set for an array.
    stack: [u64; STACK_WORDS],
    depth: usize,
    mode: Mode,
    escape: Escape,
    tail: [u8; TAIL_BYTES],
}

impl Lexer {
    pub(super) fn new() -> Self {
        Self {
            stack: [0; STACK_WORDS],
            depth: 0,
            mode: Mode::Value,
            escape: Escape::None,
            tail: [0; TAIL_BYTES],
        }
    }

    pub(super) fn reset(&mut self) {
        self.depth = 0;
        self.mode = Mode::Value;
        self.escape = Escape::None;
    }

    pub(super) fn is_done(&self) -> bool {
        self.mode == Mode::Done
    }

    pub(super) fn is_inert(&self) -> bool {
        self.mode == Mode::Inert
    }

    /// The number of open containers.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the container with this number (1 is the outermost) is an array.
    pub(super) fn is_array(&self, level: usize) -> bool {
        let Some(bit) = level.checked_sub(1) else { return false };
        self.stack
            .get(bit / 64)
            .is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Consumes bytes from the front, at most to the next token; returns how many and the token that they end in.
    /// Only the end of a number consumes nothing.
    #[inline]
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, Option<Token>) {
        match self.mode {
            Mode::Text(role) => self.text(bytes, role),
            Mode::Number => self.number(bytes),
            Mode::Literal(rest) => self.literal(bytes, rest),
            Mode::Done | Mode::Inert => (bytes.len(), None),
            Mode::Value | Mode::FirstValue | Mode::FirstKey | Mode::NextKey | Mode::Colon | Mode::Next => {
                self.structure(bytes)
            }
        }
    }

    fn structure(&mut self, bytes: &[u8]) -> (usize, Option<Token>) {
        // Most JSON is written without white space, and most of its values are strings.
        match (self.mode, bytes) {
            (Mode::Next, [b',', b'"', ..]) if !self.is_array(self.depth) => {
                self.begin_text(Role::Key);
                return (2, Some(Token::Key));
            }
            (Mode::Colon, [b':', b'"', ..]) => {
                self.begin_text(Role::Value);
                return (2, Some(Token::Text));
            }
            _ => {}
        }
        for (at, &byte) in bytes.iter().enumerate() {
            let token = match (self.mode, byte) {
                (_, b' ' | b'\t' | b'\r' | b'\n') => None,
                (Mode::Value | Mode::FirstValue, _) if byte != b']' => self.begin_value(byte),
                (Mode::Colon, b':') => {
                    self.mode = Mode::Value;
                    None
                }
                (Mode::Next, b',') => {
                    self.mode = if self.is_array(self.depth) {
                        Mode::Value
                    } else {
                        Mode::NextKey
                    };
                    None
                }
                (Mode::FirstKey | Mode::NextKey, b'"') => {
                    self.begin_text(Role::Key);
                    Some(Token::Key)
                }
                (Mode::FirstKey, b'}') | (Mode::FirstValue, b']') => self.close(),
                (Mode::Next, b'}') if !self.is_array(self.depth) => self.close(),
                (Mode::Next, b']') if self.is_array(self.depth) => self.close(),
                _ => self.give_up(),
            };
            if token.is_some() || self.mode == Mode::Inert {
                return (at + 1, token);
            }
        }
        (bytes.len(), None)
    }

    fn begin_value(&mut self, byte: u8) -> Option<Token> {
        match byte {
            b'"' => {
                self.begin_text(Role::Value);
                return Some(Token::Text);
            }
            b'{' => return self.open(Container::Object),
            b'[' => return self.open(Container::Array),
            b'-' | b'0'..=b'9' => {
                self.tail = [0, 0, byte];
                self.mode = Mode::Number;
            }
            b't' => self.mode = Mode::Literal(b"rue"),
            b'f' => self.mode = Mode::Literal(b"alse"),
            b'n' => self.mode = Mode::Literal(b"ull"),
            _ => return self.give_up(),
        }
        Some(Token::Plain)
    }

    fn begin_text(&mut self, role: Role) {
        self.mode = Mode::Text(role);
        self.escape = Escape::None;
        self.tail = [0; TAIL_BYTES];
    }

    fn open(&mut self, container: Container) -> Option<Token> {
        let Some(word) = self.stack.get_mut(self.depth / 64) else {
            return self.give_up();
        };
        let bit = 1 << (self.depth % 64);
        self.mode = match container {
            Container::Object => {
                *word &= !bit;
                Mode::FirstKey
            }
            Container::Array => {
                *word |= bit;
                Mode::FirstValue
            }
        };
        self.depth += 1;
        Some(Token::Open(container))
    }

    fn close(&mut self) -> Option<Token> {
        self.depth = self.depth.saturating_sub(1);
        self.end_value();
        Some(Token::Close)
    }

    fn end_value(&mut self) {
        self.mode = if self.depth == 0 { Mode::Done } else { Mode::Next };
    }

    fn give_up(&mut self) -> Option<Token> {
        self.mode = Mode::Inert;
        None
    }

    fn number(&mut self, bytes: &[u8]) -> (usize, Option<Token>) {
        let digits = bytes
            .iter()
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .count();
        if digits > 0 {
            self.remember(bytes.get(..digits).unwrap_or(bytes));
            return (digits, None);
        }
        self.end_value();
        (0, Some(Token::PlainEnd))
    }

    fn literal(&mut self, bytes: &[u8], rest: &'static [u8]) -> (usize, Option<Token>) {
        let same = bytes
            .iter()
            .zip(rest)
            .take_while(|(byte, wanted)| byte == wanted)
            .count();
        let left = rest.get(same..).unwrap_or_default();
        if left.is_empty() {
            self.end_value();
            return (same, Some(Token::PlainEnd));
        }
        if same < bytes.len() {
            return (same + 1, self.give_up());
        }
        self.mode = Mode::Literal(left);
        (same, None)
    }

    fn text(&mut self, bytes: &[u8], role: Role) -> (usize, Option<Token>) {
        let Some(&first) = bytes.first() else { return (0, None) };
        match self.escape {
            Escape::None | Escape::AfterHigh => self.plain_text(bytes, first, role),
            Escape::Slash { after_high } => {
                match first {
                    b'u' => {
                        self.escape = Escape::Hex {
                            digits: 0,
                            value: 0,
                            after_high,
                        }
                    }
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.escape = Escape::None,
                    _ => self.mode = Mode::Inert,
                }
                (1, None)
            }
            Escape::Hex {
                digits,
                value,
                after_high,
            } => {
                let Some(digit) = char::from(first)
                    .to_digit(16)
                    .and_then(|digit| u16::try_from(digit).ok())
                else {
                    self.mode = Mode::Inert;
                    return (1, None);
                };
                let value = (value << 4) | digit;
                self.escape = match (digits, value) {
                    (3, 0xD800..=0xDBFF) => Escape::AfterHigh,
                    (3, _) => Escape::None,
                    _ => Escape::Hex {
                        digits: digits + 1,
                        value,
                        after_high,
                    },
                };
                (1, None)
            }
        }
    }

    fn plain_text(&mut self, bytes: &[u8], first: u8, role: Role) -> (usize, Option<Token>) {
        if first == b'\\' {
            self.escape = Escape::Slash {
                after_high: self.escape == Escape::AfterHigh,
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
                self.escape = Escape::None;
                (run, None)
            }
            None => {
                self.escape = Escape::None;
                self.remember(bytes);
                (run, None)
            }
        }
    }

    fn end_text(&mut self, role: Role) -> Token {
        match role {
            Role::Key => {
                self.mode = Mode::Colon;
                Token::KeyEnd
            }
            Role::Value => {
                self.end_value();
                Token::TextEnd
            }
        }
    }

    fn remember(&mut self, run: &[u8]) {
        let [_, second, third] = self.tail;
        self.tail = match run {
            [.., a, b, c] => [*a, *b, *c],
            [a, b] => [third, *a, *b],
            [a] => [second, third, *a],
            [] => self.tail,
        };
    }
}
