//! A lexer for the grammar of RFC 8259. It reads the tokens of an object's text one by one, without recursion.

use crate::domain::wire::json_scan::{JsonFault, ScanError, string};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) enum JsonTokenKind {
    /// The name of an object's member, before the colon.
    Key,
    String,
    Number,
    True,
    False,
    Null,
    /// The opening brace of an object.
    Object,
    /// The opening bracket of an array.
    Array,
    /// The closing brace or bracket of an object or array.
    End,
}

/// A token and its position in the text. A string's token includes both quotes; each bracket of an object or array is a token of
/// its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::domain) struct JsonToken {
    pub(in crate::domain) kind: JsonTokenKind,
    pub(in crate::domain) start: usize,
    pub(in crate::domain) end: usize,
}

impl JsonToken {
    /// Returns the bytes of the token in `text`.
    pub(in crate::domain) fn bytes_in(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A lexer. It consists of a position in a text and the tokens that the grammar allows there. Every call must pass the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StrictLexer {
    at: usize,
    /// The positions at which the last token begins and ends. They are fields, because passing them from function to function
    /// takes longer than the rest of the work for a short token.
    start: usize,
    end: usize,
    expect: LexerExpectation,
    levels: Levels,
    /// Whether the contents of strings are checked.
    is_checking: bool,
    /// Whether the last string or key contains a backslash. The value has a meaning only if the lexer checks strings.
    pub(super) is_escaped: bool,
    /// The offset of an unpaired surrogate in the last string or key; `None` if it has none. The value has a meaning only if the
    /// lexer checks strings.
    pub(super) lone_surrogate: Option<usize>,
}

/// The tokens that the grammar allows next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LexerExpectation {
    Top,
    Value,
    ValueOrEnd,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

impl StrictLexer {
    /// Creates a lexer at the start of a text. It checks every byte.
    pub(super) fn checking(depth_max: usize) -> Self {
        Self {
            at: 0,
            start: 0,
            end: 0,
            expect: LexerExpectation::Top,
            levels: Levels::new(depth_max.clamp(1, DEPTH_MAX)),
            is_checking: true,
            is_escaped: false,
            lone_surrogate: None,
        }
    }

    /// Creates a lexer at the start of a text. It does not check strings, because the caller has checked them before or accepts
    /// any escapes.
    pub(super) fn trusting() -> Self {
        Self::checking(DEPTH_MAX).into_trusting()
    }

    /// Returns this lexer with the check of strings turned off.
    pub(super) fn into_trusting(self) -> Self {
        Self {
            is_checking: false,
            ..self
        }
    }

    /// Returns the number of open containers.
    pub(super) fn depth(&self) -> usize {
        self.levels.depth()
    }

    /// Reads and returns the next token; `None` after the complete object.
    ///
    /// # Errors
    /// The text violates the grammar, nests too deeply, or is not one object.
    #[inline]
    pub(super) fn next(&mut self, text: &[u8]) -> Result<Option<JsonToken>, ScanError> {
        let kind = self.advance(text)?;
        Ok(kind.map(|kind| self.token(kind)))
    }

    /// Skips all tokens up to and including the first one for which `goes_on` is false. Returns the end of that token.
    ///
    /// # Errors
    /// The text violates the grammar, or ends before a token for which `goes_on` is false.
    pub(super) fn skip_while(
        &mut self,
        text: &[u8],
        mut goes_on: impl FnMut(JsonTokenKind) -> bool,
    ) -> Result<usize, ScanError> {
        while let Some(kind) = self.advance(text)? {
            if !goes_on(kind) {
                return Ok(self.end);
            }
        }
        Err(self.fault_here(text, JsonFault::EndsEarly))
    }

    /// Returns the last token. `kind` is its kind, as [`Self::advance`] returned it.
    #[inline]
    pub(super) fn token(&self, kind: JsonTokenKind) -> JsonToken {
        JsonToken {
            kind,
            start: self.start,
            end: self.end,
        }
    }

    /// Reads the next token like [`Self::next`], but returns only its kind. [`Self::token`] returns its position.
    #[inline(always)]
    pub(super) fn advance(&mut self, text: &[u8]) -> Result<Option<JsonTokenKind>, ScanError> {
        self.skip_space(text);
        let next = text.get(self.at).copied();
        match (self.expect, next) {
            (LexerExpectation::CommaOrEnd, Some(b',')) => {
                self.at += 1;
                self.skip_space(text);
                match self.levels.innermost() {
                    LevelKind::Object => self.read_key(text),
                    LevelKind::Array => self.read_value(text),
                }
            }
            (LexerExpectation::CommaOrEnd, Some(b'}')) if self.levels.innermost() == LevelKind::Object => {
                Ok(self.close())
            }
            (LexerExpectation::CommaOrEnd, Some(b']')) if self.levels.innermost() == LevelKind::Array => {
                Ok(self.close())
            }
            (LexerExpectation::CommaOrEnd, _) => Err(self.fault_here(
                text,
                match self.levels.innermost() {
                    LevelKind::Object => JsonFault::CommaOrBraceExpected,
                    LevelKind::Array => JsonFault::CommaOrBracketExpected,
                },
            )),
            (LexerExpectation::KeyOrEnd, Some(b'}')) | (LexerExpectation::ValueOrEnd, Some(b']')) => Ok(self.close()),
            (LexerExpectation::KeyOrEnd, _) => self.read_key(text),
            (LexerExpectation::Value | LexerExpectation::ValueOrEnd, _) => self.read_value(text),
            (LexerExpectation::Top, Some(b'{')) => self.open(LevelKind::Object),
            (LexerExpectation::Top, None) => Err(ScanError::Empty),
            (LexerExpectation::Top, Some(b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9')) => {
                Err(ScanError::NotObject)
            }
            (LexerExpectation::Top, Some(_)) => Err(self.fault_here(text, JsonFault::ValueExpected)),
            (LexerExpectation::Nothing, None) => return Ok(None),
            (LexerExpectation::Nothing, Some(_)) => Err(ScanError::TrailingData { at: self.at }),
        }
        .map(Some)
    }

    #[inline(always)]
    fn read_value(&mut self, text: &[u8]) -> Result<JsonTokenKind, ScanError> {
        let rest = text.get(self.at..).unwrap_or_default();
        let (kind, length) = match rest.first() {
            Some(b'"') => (JsonTokenKind::String, self.string_length(text)?),
            Some(b'{') => return self.open(LevelKind::Object),
            Some(b'[') => return self.open(LevelKind::Array),
            Some(b'-' | b'0'..=b'9') => {
                let length = number_length(rest);
                (
                    JsonTokenKind::Number,
                    length.map_err(|at| self.fault_after(text, (at, JsonFault::DigitExpected)))?,
                )
            }
            Some(b't') => (JsonTokenKind::True, self.literal_length(text, b"true")?),
            Some(b'f') => (JsonTokenKind::False, self.literal_length(text, b"false")?),
            Some(b'n') => (JsonTokenKind::Null, self.literal_length(text, b"null")?),
            _ => return Err(self.fault_here(text, JsonFault::ValueExpected)),
        };
        self.expect = LexerExpectation::CommaOrEnd;
        Ok(self.accept(kind, length))
    }

    fn read_key(&mut self, text: &[u8]) -> Result<JsonTokenKind, ScanError> {
        if text.get(self.at) != Some(&b'"') {
            return Err(self.fault_here(text, JsonFault::KeyExpected));
        }
        let length = self.string_length(text)?;
        let key = self.accept(JsonTokenKind::Key, length);
        self.skip_space(text);
        if text.get(self.at) != Some(&b':') {
            return Err(self.fault_here(text, JsonFault::ColonExpected));
        }
        self.at += 1;
        self.expect = LexerExpectation::Value;
        Ok(key)
    }

    /// Returns the length of the next string in bytes.
    fn string_length(&mut self, text: &[u8]) -> Result<usize, ScanError> {
        let rest = text.get(self.at..).unwrap_or_default();
        if self.is_checking {
            let checked = string::check(rest).map_err(|fault| self.fault_after(text, fault))?;
            self.is_escaped = checked.is_escaped;
            self.lone_surrogate = checked.lone_surrogate.map(|offset| self.at + offset);
            return Ok(checked.length);
        }
        string::string_length(rest).ok_or_else(|| self.fault_after(text, (rest.len(), JsonFault::EndsEarly)))
    }

    fn literal_length(&self, text: &[u8], word: &[u8]) -> Result<usize, ScanError> {
        let rest = text.get(self.at..).unwrap_or_default();
        let same = rest
            .iter()
            .zip(word)
            .take_while(|(found, wanted)| found == wanted)
            .count();
        if same < word.len() {
            return Err(self.fault_after(text, (same, JsonFault::Literal)));
        }
        Ok(same)
    }

    #[inline(always)]
    fn open(&mut self, container: LevelKind) -> Result<JsonTokenKind, ScanError> {
        if !self.levels.enter(container) {
            return Err(ScanError::TooDeep {
                at: self.at,
                depth_max: self.levels.depth_max(),
            });
        }
        let (kind, expect) = match container {
            LevelKind::Object => (JsonTokenKind::Object, LexerExpectation::KeyOrEnd),
            LevelKind::Array => (JsonTokenKind::Array, LexerExpectation::ValueOrEnd),
        };
        self.expect = expect;
        Ok(self.accept(kind, 1))
    }

    /// Leaves the innermost container. The caller has checked that its closing bracket is next.
    #[inline(always)]
    fn close(&mut self) -> JsonTokenKind {
        self.levels.leave();
        self.expect = match self.levels.depth() {
            0 => LexerExpectation::Nothing,
            _ => LexerExpectation::CommaOrEnd,
        };
        self.accept(JsonTokenKind::End, 1)
    }

    /// Records the position of the next token, which is `length` bytes long, and moves past the token. Returns `kind`.
    #[inline(always)]
    fn accept(&mut self, kind: JsonTokenKind, length: usize) -> JsonTokenKind {
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
    fn fault_here(&self, text: &[u8], fault: JsonFault) -> ScanError {
        self.fault_after(text, (0, fault))
    }

    /// Returns the error for a fault `offset` bytes after the current position. If the text ends before or at the place of the
    /// fault, the error is that the text ends too early.
    #[cold]
    fn fault_after(&self, text: &[u8], (offset, fault): (usize, JsonFault)) -> ScanError {
        let at = self.at + offset;
        let fault = if at >= text.len() { JsonFault::EndsEarly } else { fault };
        ScanError::Malformed { at, fault }
    }
}

/// The highest nesting limit that can be configured, in levels.
pub(crate) const DEPTH_MAX: usize = 1024;

const WORD_BITS: usize = 64;

/// The kind of a nesting level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LevelKind {
    Object,
    Array,
}

/// A stack of the open containers, which needs one bit for each and no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Levels {
    /// One bit for each open container except the innermost one. The bit is set if the container is an object. The innermost one
    /// is in `innermost` instead, because it is read after every value.
    outer: [u64; DEPTH_MAX / WORD_BITS],
    innermost: LevelKind,
    depth: usize,
    depth_max: usize,
}

impl Levels {
    /// Creates an empty stack for at most `depth_max` levels, which must not exceed [`DEPTH_MAX`].
    pub(super) fn new(depth_max: usize) -> Levels {
        Levels {
            outer: [0; DEPTH_MAX / WORD_BITS],
            innermost: LevelKind::Object,
            depth: 0,
            depth_max,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn depth_max(&self) -> usize {
        self.depth_max
    }

    /// Returns the kind of the innermost container. It has no meaning at depth 0.
    pub(super) fn innermost(&self) -> LevelKind {
        self.innermost
    }

    /// Opens a level. If that would exceed the limit, changes nothing and returns false.
    #[must_use]
    pub(super) fn enter(&mut self, container: LevelKind) -> bool {
        if self.depth >= self.depth_max {
            return false;
        }
        let Some(word) = self.outer.get_mut(self.depth / WORD_BITS) else {
            return false;
        };
        let bit = 1_u64 << (self.depth % WORD_BITS);
        match self.innermost {
            LevelKind::Object => *word |= bit,
            LevelKind::Array => *word &= !bit,
        }
        self.innermost = container;
        self.depth += 1;
        true
    }

    /// Closes the innermost level.
    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        let word = self.outer.get(self.depth / WORD_BITS).copied().unwrap_or_default();
        let is_object = word >> (self.depth % WORD_BITS) & 1 == 1;
        self.innermost = if is_object { LevelKind::Object } else { LevelKind::Array };
    }
}

/// Returns the length of the number at the beginning of `text` (RFC 8259 section 6), whose first byte must be a minus sign or a
/// digit. The caller checks what follows the number.
///
/// # Errors
/// A digit is missing. The error is the offset of the missing digit.
pub(super) fn number_length(text: &[u8]) -> Result<usize, usize> {
    let peek = |at: usize| text.get(at).copied();
    let mut at = usize::from(peek(0) == Some(b'-'));
    if peek(at) == Some(b'0') {
        // A digit after a leading zero is an error, which the caller finds.
        at += 1;
    } else {
        at = digits_end(text, at)?;
    }
    if peek(at) == Some(b'.') {
        at = digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = peek(at) {
        let has_sign = matches!(peek(at + 1), Some(b'+' | b'-'));
        at = digits_end(text, at + 1 + usize::from(has_sign))?;
    }
    Ok(at)
}

fn digits_end(text: &[u8], start: usize) -> Result<usize, usize> {
    let rest = text.get(start..).unwrap_or_default();
    match rest.iter().take_while(|byte| byte.is_ascii_digit()).count() {
        0 => Err(start),
        digits => Ok(start + digits),
    }
}
