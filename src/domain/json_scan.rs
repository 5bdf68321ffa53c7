//! One pass over a request body: checks that it is strict JSON (RFC 8259), and reads from its top level what routing
//! needs.
//!
//! No tree is built and only the decoded model name is allocated, so a 30 MB body costs one walk over its bytes and no
//! second copy. Strictness matters because weir routes and bills by its reading while the provider acts on its own: a
//! body that two parsers could read differently is refused.

mod cursor;
mod error;
mod facts;
mod json_end;
mod levels;
mod number;
mod output_limits;
mod references;
mod string;
mod turns;

#[cfg(test)]
mod tests;

use std::ops::Range;

use cursor::Cursor;
pub use error::{Fault, ScanError};
use facts::{Facts, Plain};
pub use json_end::{JsonEnd, Progress};
use levels::{Container, Levels};
pub use output_limits::OutputLimits;
pub use references::REFERENCES_MAX;
pub use turns::Turns;
use turns::TurnsRead;

use crate::domain::{provider_state::Reference, tokens::input::InputTally};

/// The deepest nesting that can be configured, in levels; the level stack is an array of this many bits.
pub const DEPTH_MAX: usize = 1024;

/// The longest model name that is looked up, in bytes.
pub const MODEL_NAME_BYTES_MAX: usize = 128;

/// What a body may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// How many levels objects and arrays may nest; the top-level object is level 1. Held within 1..=[`DEPTH_MAX`].
    pub depth_max: usize,
}

/// What the top level of a request body says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The value of `model`; none if the key is missing.
    pub model: Option<ModelSpan>,
    /// The value of `stream` if it is a boolean. Any other value is the provider's to refuse.
    pub stream: Option<bool>,
    /// The last non-negative integer, in tokens, of `max_tokens`, `max_output_tokens`, `max_completion_tokens` or
    /// `generationConfig.maxOutputTokens` (either spelling of both names: Gemini takes both).
    pub output_max: Option<u64>,
    /// What bounds the output that is billed.
    pub output_limits: OutputLimits,
    /// Whether there is a `contents` key, whatever its value.
    pub has_contents: bool,
    /// The member, if there is one, with which a Responses request would have an answer whose usage weir never sees:
    /// `background`, unless it is false, or `stream_options.include_usage`, unless it is true.
    pub unseen_usage: Option<&'static str>,
    /// The value of `store` if it is a boolean.
    pub store: Option<bool>,
    /// Whether there is a `thread` or a `diagnostics` object: the answer may be named by a later request.
    pub may_be_continued: bool,
    /// The bytes of the value of `prompt_cache_key` in the body, with both quotes.
    pub prompt_cache_key: Option<Range<usize>>,
    /// What the request names that lies at a provider's account, of whatever protocol; at most [`REFERENCES_MAX`].
    pub references: Vec<Reference>,
    /// What the body costs to read, in tokens of o200k, estimated by [`crate::domain::tokens::input`].
    pub input_tokens: u64,
    /// What it says of the conversation that it goes on with.
    pub turns: Turns,
}

/// The model a request names, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpan {
    /// The name, escapes decoded. May be empty or implausible: see [`is_plausible_model`].
    pub text: String,
    /// The bytes of the value's token in the body, with both quotes: what an edit replaces.
    pub value: Range<usize>,
}

/// Validates a whole body as one strict JSON object and collects the facts of its top level.
///
/// # Errors
/// The first fault in byte order (but UTF-8 is checked before all else), with its byte offset. No error holds text of
/// the body.
pub fn scan(body: &[u8], limits: &ScanLimits) -> Result<Scan, ScanError> {
    if body.starts_with(b"\xEF\xBB\xBF") {
        return Err(ScanError::ByteOrderMark);
    }
    let text = std::str::from_utf8(body).map_err(|error| ScanError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let mut walk = Walk {
        cursor: Cursor::new(text),
        levels: Levels::new(limits.depth_max.clamp(1, DEPTH_MAX)),
        facts: Facts::default(),
        input: InputTally::default(),
        turns: TurnsRead::default(),
    };
    let mut expect = walk.open_top()?;
    loop {
        walk.cursor.skip_space();
        expect = match expect {
            Expect::Value => walk.value()?,
            Expect::ValueOrEnd => match walk.cursor.peek() {
                Some(b']') => walk.close(),
                _ => walk.value()?,
            },
            Expect::Key => walk.key()?,
            Expect::KeyOrEnd => match walk.cursor.peek() {
                Some(b'}') => walk.close(),
                _ => walk.key()?,
            },
            Expect::CommaOrEnd => walk.comma_or_end()?,
            Expect::Nothing => match walk.cursor.peek() {
                Some(_) => return Err(ScanError::TrailingData { at: walk.cursor.at() }),
                None => return Ok(walk.into_scan()),
            },
        };
    }
}

/// Whether a name could be a model's: 1 to [`MODEL_NAME_BYTES_MAX`] characters of `[A-Za-z0-9._:/@-]`. Others are
/// refused before they reach a look-up, a log line or a provider's path.
pub fn is_plausible_model(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'/' | b'@' | b'-');
    (1..=MODEL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// What the grammar allows next.
#[derive(Debug, Clone, Copy)]
enum Expect {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    CommaOrEnd,
    Nothing,
}

struct Walk<'a> {
    cursor: Cursor<'a>,
    levels: Levels,
    facts: Facts,
    input: InputTally,
    turns: TurnsRead,
}

impl Walk<'_> {
    fn into_scan(self) -> Scan {
        Scan {
            input_tokens: self.input.tokens(),
            turns: self.turns.into_turns(|| self.input.tokens()),
            ..self.facts.into_scan()
        }
    }

    fn open_top(&mut self) -> Result<Expect, ScanError> {
        self.cursor.skip_space();
        match self.cursor.peek() {
            None => Err(ScanError::Empty),
            Some(b'{') => self.open(Container::Object),
            Some(b'[' | b'"' | b't' | b'f' | b'n' | b'-' | b'0'..=b'9') => Err(ScanError::NotObject),
            Some(_) => Err(self.cursor.fault(Fault::ValueExpected)),
        }
    }

    fn value(&mut self) -> Result<Expect, ScanError> {
        let start = self.cursor.at();
        match self.cursor.peek() {
            Some(b'"') => {
                let token = string::skip(&mut self.cursor)?;
                self.facts.string(self.levels.depth(), self.cursor.text(), &token)?;
                self.turns.string(self.cursor.text(), &token, || self.input.tokens());
                self.input.string(token.raw(self.cursor.text()));
                return Ok(Expect::CommaOrEnd);
            }
            Some(b'{') => {
                self.facts.plain(start, Plain::Container)?;
                let expect = self.open(Container::Object)?;
                self.facts.object(self.levels.depth());
                return Ok(expect);
            }
            Some(b'[') => {
                self.facts.plain(start, Plain::Container)?;
                return self.open(Container::Array);
            }
            Some(b'-' | b'0'..=b'9') => {
                let integer = number::skip(&mut self.cursor)?;
                self.facts.plain(start, Plain::Number(integer))?;
                self.input.scalar();
            }
            Some(b't') => {
                self.cursor.literal(b"true")?;
                self.facts.plain(start, Plain::Boolean(true))?;
                self.input.scalar();
            }
            Some(b'f') => {
                self.cursor.literal(b"false")?;
                self.facts.plain(start, Plain::Boolean(false))?;
                self.input.scalar();
            }
            Some(b'n') => {
                self.cursor.literal(b"null")?;
                self.facts.plain(start, Plain::Null)?;
            }
            _ => return Err(self.cursor.fault(Fault::ValueExpected)),
        }
        Ok(Expect::CommaOrEnd)
    }

    fn key(&mut self) -> Result<Expect, ScanError> {
        if self.cursor.peek() != Some(b'"') {
            return Err(self.cursor.fault(Fault::KeyExpected));
        }
        let token = string::skip(&mut self.cursor)?;
        let (depth, text) = (self.levels.depth(), self.cursor.text());
        self.facts.key(depth, text, &token)?;
        self.turns.key(depth, text, &token, || self.input.tokens());
        self.input.key(token.raw(self.cursor.text()), self.facts.in_tools());
        self.cursor.skip_space();
        if self.cursor.peek() != Some(b':') {
            return Err(self.cursor.fault(Fault::ColonExpected));
        }
        self.cursor.advance(1);
        Ok(Expect::Value)
    }

    fn comma_or_end(&mut self) -> Result<Expect, ScanError> {
        match (self.cursor.peek(), self.levels.innermost()) {
            (Some(b','), Container::Object) => {
                self.cursor.advance(1);
                Ok(Expect::Key)
            }
            (Some(b','), Container::Array) => {
                self.cursor.advance(1);
                Ok(Expect::Value)
            }
            (Some(b'}'), Container::Object) | (Some(b']'), Container::Array) => Ok(self.close()),
            (_, Container::Object) => Err(self.cursor.fault(Fault::CommaOrBraceExpected)),
            (_, Container::Array) => Err(self.cursor.fault(Fault::CommaOrBracketExpected)),
        }
    }

    fn open(&mut self, container: Container) -> Result<Expect, ScanError> {
        if !self.levels.enter(container) {
            return Err(ScanError::TooDeep {
                at: self.cursor.at(),
                depth_max: self.levels.depth_max(),
            });
        }
        self.cursor.advance(1);
        Ok(match container {
            Container::Object => Expect::KeyOrEnd,
            Container::Array => Expect::ValueOrEnd,
        })
    }

    /// Leaves the innermost container; the caller saw that its closing byte is next.
    fn close(&mut self) -> Expect {
        self.cursor.advance(1);
        self.levels.leave();
        if self.levels.depth() == 0 {
            Expect::Nothing
        } else {
            Expect::CommaOrEnd
        }
    }
}
