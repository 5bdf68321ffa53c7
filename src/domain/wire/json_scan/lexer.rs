//! The grammar of RFC 8259: the tokens of an object's text, one after the other, without recursion.

use super::levels::DEPTH_MAX;
use super::levels::{Container, Levels};
use super::{Fault, ScanError, number, string};

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) enum Kind {
    /// A member's name; its colon follows it.
    Key,
    String,
    Number,
    True,
    False,
    Null,
    /// An object opens.
    Object,
    /// An array opens.
    Array,
    /// An object or array closes.
    End,
}

/// A token and its bytes in the text: of a string with both quotes, of an object or array one bracket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct Token {
    pub(in crate::domain) kind: Kind,
    pub(in crate::domain) start: usize,
    pub(in crate::domain) end: usize,
}

impl Token {
    /// Its bytes.
    pub(in crate::domain) fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A place in a text, and what the grammar allows there. Every call has to be given the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lexer {
    at: usize,
    /// Where the token begins and ends that was given last. It is kept here and not handed from function to function, which
    /// takes longer than all else that a short token needs.
    start: usize,
    end: usize,
    expect: Expect,
    levels: Levels,
    /// Whether what stands in strings is checked.
    is_checking: bool,
    /// Whether the last string or key has a backslash; told while checking only.
    pub(super) is_escaped: bool,
    /// Where in the text the last string or key has a surrogate without its other half; told while checking only.
    pub(super) lone_surrogate: Option<usize>,
}

/// What the grammar allows next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Top,
    Value,
    ValueOrEnd,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

impl Lexer {
    /// At the start of a text whose every byte is checked.
    pub(super) fn checking(depth_max: usize) -> Self {
        Self {
            at: 0,
            start: 0,
            end: 0,
            expect: Expect::Top,
            levels: Levels::new(depth_max.clamp(1, DEPTH_MAX)),
            is_checking: true,
            is_escaped: false,
            lone_surrogate: None,
        }
    }

    /// At the start of a text that was checked before, or that may have any escapes in its strings.
    pub(super) fn trusting() -> Self {
        Self::checking(DEPTH_MAX).into_trusting()
    }

    /// From here on strings are not checked.
    pub(super) fn into_trusting(self) -> Self {
        Self {
            is_checking: false,
            ..self
        }
    }

    /// How many containers are open.
    pub(super) fn depth(&self) -> usize {
        self.levels.depth()
    }

    /// The next token; `None` behind the whole object.
    ///
    /// # Errors
    /// The text breaks the grammar, nests too deep, or is not one object.
    #[inline]
    pub(super) fn next(&mut self, text: &[u8]) -> Result<Option<Token>, ScanError> {
        let kind = self.advance(text)?;
        Ok(kind.map(|kind| self.token(kind)))
    }

    /// Goes behind the first token for which `goes_on` is false, and gives where it ends.
    ///
    /// # Errors
    /// The text breaks the grammar, or is over.
    pub(super) fn skip(&mut self, text: &[u8], mut goes_on: impl FnMut(Kind) -> bool) -> Result<usize, ScanError> {
        while let Some(kind) = self.advance(text)? {
            if !goes_on(kind) {
                return Ok(self.end);
            }
        }
        Err(self.fault(text, Fault::EndsEarly))
    }

    /// The token that was given last, of this kind.
    #[inline]
    pub(super) fn token(&self, kind: Kind) -> Token {
        Token {
            kind,
            start: self.start,
            end: self.end,
        }
    }

    /// As [`Self::next`]; [`Self::token`] has the bytes.
    #[inline(always)]
    pub(super) fn advance(&mut self, text: &[u8]) -> Result<Option<Kind>, ScanError> {
        self.skip_space(text);
        let next = text.get(self.at).copied();
        match (self.expect, next) {
            (Expect::CommaOrEnd, Some(b',')) => {
                self.at += 1;
                self.skip_space(text);
                match self.levels.innermost() {
                    Container::Object => self.key(text),
                    Container::Array => self.value(text),
                }
            }
            (Expect::CommaOrEnd, Some(b'}')) if self.levels.innermost() == Container::Object => Ok(self.close()),
            (Expect::CommaOrEnd, Some(b']')) if self.levels.innermost() == Container::Array => Ok(self.close()),
            (Expect::CommaOrEnd, _) => Err(self.fault(
                text,
                match self.levels.innermost() {
                    Container::Object => Fault::CommaOrBraceExpected,
                    Container::Array => Fault::CommaOrBracketExpected,
                },
            )),
            (Expect::KeyOrEnd, Some(b'}')) | (Expect::ValueOrEnd, Some(b']')) => Ok(self.close()),
            (Expect::KeyOrEnd, _) => self.key(text),
            (Expect::Value | Expect::ValueOrEnd, _) => self.value(text),
            (Expect::Top, Some(b'{')) => self.open(Container::Object),
            (Expect::Top, None) => Err(ScanError::Empty),
            (Expect::Top, Some(b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9')) => Err(ScanError::NotObject),
            (Expect::Top, Some(_)) => Err(self.fault(text, Fault::ValueExpected)),
            (Expect::Nothing, None) => return Ok(None),
            (Expect::Nothing, Some(_)) => Err(ScanError::TrailingData { at: self.at }),
        }
        .map(Some)
    }

    #[inline(always)]
    fn value(&mut self, text: &[u8]) -> Result<Kind, ScanError> {
        let rest = text.get(self.at..).unwrap_or_default();
        let (kind, length) = match rest.first() {
            Some(b'"') => (Kind::String, self.string(text)?),
            Some(b'{') => return self.open(Container::Object),
            Some(b'[') => return self.open(Container::Array),
            Some(b'-' | b'0'..=b'9') => {
                let length = number::length(rest);
                (
                    Kind::Number,
                    length.map_err(|at| self.fault_behind(text, (at, Fault::DigitExpected)))?,
                )
            }
            Some(b't') => (Kind::True, self.literal(text, b"true")?),
            Some(b'f') => (Kind::False, self.literal(text, b"false")?),
            Some(b'n') => (Kind::Null, self.literal(text, b"null")?),
            _ => return Err(self.fault(text, Fault::ValueExpected)),
        };
        self.expect = Expect::CommaOrEnd;
        Ok(self.take(kind, length))
    }

    fn key(&mut self, text: &[u8]) -> Result<Kind, ScanError> {
        if text.get(self.at) != Some(&b'"') {
            return Err(self.fault(text, Fault::KeyExpected));
        }
        let length = self.string(text)?;
        let key = self.take(Kind::Key, length);
        self.skip_space(text);
        if text.get(self.at) != Some(&b':') {
            return Err(self.fault(text, Fault::ColonExpected));
        }
        self.at += 1;
        self.expect = Expect::Value;
        Ok(key)
    }

    /// The length of the string that is next.
    fn string(&mut self, text: &[u8]) -> Result<usize, ScanError> {
        let rest = text.get(self.at..).unwrap_or_default();
        if self.is_checking {
            let checked = string::check(rest).map_err(|fault| self.fault_behind(text, fault))?;
            self.is_escaped = checked.is_escaped;
            self.lone_surrogate = checked.lone_surrogate.map(|offset| self.at + offset);
            return Ok(checked.length);
        }
        string::length(rest).ok_or_else(|| self.fault_behind(text, (rest.len(), Fault::EndsEarly)))
    }

    fn literal(&self, text: &[u8], word: &[u8]) -> Result<usize, ScanError> {
        let rest = text.get(self.at..).unwrap_or_default();
        let same = rest
            .iter()
            .zip(word)
            .take_while(|(found, wanted)| found == wanted)
            .count();
        if same < word.len() {
            return Err(self.fault_behind(text, (same, Fault::Literal)));
        }
        Ok(same)
    }

    #[inline(always)]
    fn open(&mut self, container: Container) -> Result<Kind, ScanError> {
        if !self.levels.enter(container) {
            return Err(ScanError::TooDeep {
                at: self.at,
                depth_max: self.levels.depth_max(),
            });
        }
        let (kind, expect) = match container {
            Container::Object => (Kind::Object, Expect::KeyOrEnd),
            Container::Array => (Kind::Array, Expect::ValueOrEnd),
        };
        self.expect = expect;
        Ok(self.take(kind, 1))
    }

    /// Leaves the innermost container; the caller saw that its closing byte is next.
    #[inline(always)]
    fn close(&mut self) -> Kind {
        self.levels.leave();
        self.expect = match self.levels.depth() {
            0 => Expect::Nothing,
            _ => Expect::CommaOrEnd,
        };
        self.take(Kind::End, 1)
    }

    /// The token that is next, with its length.
    #[inline(always)]
    fn take(&mut self, kind: Kind, length: usize) -> Kind {
        self.start = self.at;
        self.at += length;
        self.end = self.at;
        kind
    }

    #[inline(always)]
    fn skip_space(&mut self, text: &[u8]) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(self.at) {
            self.at += 1;
        }
    }

    #[cold]
    fn fault(&self, text: &[u8], fault: Fault) -> ScanError {
        self.fault_behind(text, (0, fault))
    }

    /// The error for a fault so many bytes from here; at the end of the text, the fault is that it ends.
    #[cold]
    fn fault_behind(&self, text: &[u8], (offset, fault): (usize, Fault)) -> ScanError {
        let at = self.at + offset;
        let fault = if at >= text.len() { Fault::EndsEarly } else { fault };
        ScanError::Malformed { at, fault }
    }
}
