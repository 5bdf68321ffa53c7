//! Scans a request body once: checks that it is strict JSON (RFC 8259), reads the facts that routing, billing and the choice of a
//! credential need, and records the tokens, which the edits of the body use.
//!
//! No tree is built, so a 30 MB body costs one pass over its bytes and no second copy. The scan is strict because weir routes and
//! bills by its own reading of the body, while the provider parses the body again. A body that two parsers could read differently
//! is therefore refused.
//!
//! The lexer is weir's own. simd-json records the tokens in a tape, but without their offsets in the text. weir needs the offsets
//! to edit the body. simd-json also unescapes strings in place, so the client's bytes would have to be mutable. sonic-rs and
//! jiter return values one by one and leave no tape. All of these libraries except jiter rely on `unsafe` SIMD. weir's lexer also
//! skips long strings, which are most of a body, with vector instructions.

mod body_position;
mod facts;
mod input_tokens;
mod lexer;
mod references;
mod string;
mod tape;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::domain::wire::{
    Protocol,
    json_scan::{
        facts::{OutputLimits, TopLevelReader, TurnReader},
        input_tokens::InputTokenEstimate,
        lexer::StrictLexer,
        references::ReferenceReader,
        string::BodyKey,
        tape::TapeRecorder,
    },
};

pub(crate) use crate::domain::wire::json_scan::facts::ConversationTurns;
pub(crate) use crate::domain::wire::json_scan::input_tokens::input_estimate;
pub(crate) use crate::domain::wire::json_scan::lexer::DEPTH_MAX;
pub(in crate::domain) use crate::domain::wire::json_scan::lexer::{JsonToken, JsonTokenKind};
pub use crate::domain::wire::json_scan::references::NamedModels;
pub(crate) use crate::domain::wire::json_scan::references::Reference;
pub(in crate::domain) use crate::domain::wire::json_scan::string::{is_text as is_string, unescaped};
pub(crate) use crate::domain::wire::json_scan::tape::Tape;
pub(in crate::domain) use crate::domain::wire::json_scan::tape::{TAPE_ENTRIES_MAX, TapeReader};

/// The limits for a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// The maximum nesting depth of objects and arrays. The top-level object has depth 1. The value is clamped to
    /// 1..=[`DEPTH_MAX`].
    pub depth_max: usize,
    /// The maximum number of references to state at a provider.
    pub references_max: usize,
}

/// Checks that a complete body is one strict JSON object, and returns the facts read from it.
///
/// # Errors
/// The first fault in the order of the bytes, with its byte offset. UTF-8 is checked before anything else. No error contains text
/// of the body.
pub fn scan(body: &[u8], protocol: Protocol, limits: &ScanLimits) -> Result<Scan, ScanError> {
    scan_onto(body, protocol, limits, TAPE_ENTRIES_MAX)
}

/// Like [`scan`], with a tape of at most `entries_max` entries.
pub(in crate::domain) fn scan_onto(
    body: &[u8],
    protocol: Protocol,
    limits: &ScanLimits,
    entries_max: usize,
) -> Result<Scan, ScanError> {
    let mut scanner = Scanner::with_tape(body, protocol, limits, entries_max)?;
    loop {
        match scanner.advance(body, usize::MAX)? {
            ScanProgress::Complete(scan) => return Ok(*scan),
            ScanProgress::Suspended(suspended) => scanner = *suspended,
        }
    }
}

/// A scan that can be suspended between two tokens and continued on another thread.
#[derive(Debug)]
pub(crate) struct Scanner {
    lexer: StrictLexer,
    tape: TapeRecorder,
    readers: ScanReaders,
}

/// The state of a scan after a step.
#[derive(Debug)]
pub(crate) enum ScanProgress {
    /// The scan has reached the end of the body.
    Complete(Box<Scan>),
    /// The scan can be continued with the same body.
    Suspended(Box<Scanner>),
}

impl Scanner {
    /// Starts a scan of `body`.
    ///
    /// # Errors
    /// The body is not UTF-8 or starts with a byte order mark.
    pub(crate) fn new(body: &[u8], protocol: Protocol, limits: &ScanLimits) -> Result<Self, ScanError> {
        Self::with_tape(body, protocol, limits, TAPE_ENTRIES_MAX)
    }

    fn with_tape(body: &[u8], protocol: Protocol, limits: &ScanLimits, entries_max: usize) -> Result<Self, ScanError> {
        if body.starts_with(b"\xEF\xBB\xBF") {
            return Err(ScanError::ByteOrderMark);
        }
        std::str::from_utf8(body).map_err(|error| ScanError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        Ok(Self {
            lexer: StrictLexer::checking(limits.depth_max),
            tape: TapeRecorder::new(body.len(), entries_max),
            readers: ScanReaders {
                facts: TopLevelReader::default(),
                references: ReferenceReader::new(protocol, limits.references_max),
                turns: TurnReader::default(),
                input: InputTokenEstimate::default(),
            },
        })
    }

    /// Scans at most `tokens_max` further tokens. Every call must be given the same body.
    ///
    /// # Errors
    /// The first fault in these tokens, with its byte offset.
    pub(crate) fn advance(self, body: &[u8], tokens_max: usize) -> Result<ScanProgress, ScanError> {
        // As local variables, the parts stay in registers.
        let Self {
            mut lexer,
            mut tape,
            mut readers,
        } = self;
        for _ in 0..tokens_max {
            let Some(kind) = lexer.advance(body)? else {
                return Ok(ScanProgress::Complete(Box::new(Scan {
                    tape: tape.finish(),
                    ..readers.into_scan(body)?
                })));
            };
            let token = lexer.token(kind);
            tape.push(token, &lexer);
            match kind {
                JsonTokenKind::Key => readers.on_key(body, token, &lexer)?,
                JsonTokenKind::End => {}
                _ => readers.on_value(body, token, &lexer)?,
            }
        }
        Ok(ScanProgress::Suspended(Box::new(Self { lexer, tape, readers })))
    }
}

/// The readers to which the scan passes every key and value.
#[derive(Debug)]
struct ScanReaders {
    facts: TopLevelReader,
    references: ReferenceReader,
    turns: TurnReader,
    input: InputTokenEstimate,
}

impl ScanReaders {
    fn on_key(&mut self, body: &[u8], token: JsonToken, lexer: &StrictLexer) -> Result<(), ScanError> {
        if let Some(at) = lexer.lone_surrogate {
            return Err(lone_surrogate_error(at));
        }
        let depth = lexer.depth();
        let key = BodyKey::from_token(token.bytes_in(body), lexer.is_escaped);
        self.facts.on_key(depth, key, token.start)?;
        self.references.on_key(depth, key, body)?;
        self.turns.on_key(depth, key, || self.input.tokens());
        let in_tools = self.facts.last_top_level() == Some(BodyKey::Tools);
        self.input.on_key(string::string_inner(token.bytes_in(body)), in_tools);
        Ok(())
    }

    /// Handles a value. For an object or array, handles its first byte.
    fn on_value(&mut self, body: &[u8], token: JsonToken, lexer: &StrictLexer) -> Result<(), ScanError> {
        let depth = lexer.depth();
        if token.kind == JsonTokenKind::String {
            // Only strings that weir reads must be valid text, because the provider checks the others.
            if let Some(at) = lexer.lone_surrogate
                && (self.facts.is_model_next() || self.references.is_string_read(depth))
            {
                return Err(lone_surrogate_error(at));
            }
            self.facts.on_value(body, token)?;
            self.references.on_string(depth, body, token)?;
            let raw = string::string_inner(token.bytes_in(body));
            self.turns.on_string(raw, || self.input.tokens());
            self.input.on_string(raw);
            return Ok(());
        }
        self.facts.on_value(body, token)?;
        match token.kind {
            JsonTokenKind::Object | JsonTokenKind::Array => self.references.on_container(depth, token.kind, body)?,
            kind => {
                self.references.on_scalar(depth, kind);
                if kind != JsonTokenKind::Null {
                    self.input.on_scalar();
                }
            }
        }
        Ok(())
    }

    fn into_scan(self, body: &[u8]) -> Result<Scan, ScanError> {
        let (references, models) = self.references.finish(body)?;
        Ok(Scan {
            references,
            models,
            input_tokens: self.input.tokens(),
            turns: self.turns.into_turns(|| self.input.tokens()),
            ..self.facts.into_scan()
        })
    }
}

fn lone_surrogate_error(at: usize) -> ScanError {
    ScanError::Malformed {
        at,
        fault: JsonFault::LoneSurrogate,
    }
}

/// The facts that a scan has read from a request body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The value of the member `model`; `None` if the member is missing.
    pub model: Option<ModelSpan>,
    /// The value of `stream` if it is a boolean; otherwise `None`. The provider has to refuse other values.
    pub stream: Option<bool>,
    /// The last value of `max_tokens`, `max_output_tokens`, `max_completion_tokens` or `generationConfig.maxOutputTokens` that is
    /// a non-negative integer, in tokens; `None` if there is no such value. `generationConfig` and `maxOutputTokens` can also be
    /// written in snake case, because Gemini accepts both spellings.
    pub output_max: Option<u64>,
    /// The output limits in the body, one for each name that a limit can have. They limit the request's bill.
    pub output_limits: OutputLimits,
    /// Whether the body has a member `contents`, with any value.
    pub has_contents: bool,
    /// The first member of a Responses request that could hide the usage from weir: `background`, unless it is false, or
    /// `stream_options.include_usage`, unless it is true. A `null` counts as missing. `None` if there is no such member.
    pub unseen_usage: Option<&'static str>,
    /// The value of `store` if it is a boolean; otherwise `None`.
    pub store: Option<bool>,
    /// Whether the body has a `thread` or `diagnostics` object. If so, a later request can refer to the answer.
    pub may_be_continued: bool,
    /// The position of the value of `prompt_cache_key` in the body, including both quotes; `None` if it is missing.
    pub prompt_cache_key: Option<Range<usize>>,
    /// The body's references to state at a provider, at most [`ScanLimits::references_max`].
    pub references: Vec<Reference>,
    /// The models that the body names in addition to the requested model.
    pub models: NamedModels,
    /// The estimated number of input tokens, as the tokenizer o200k counts them (see `input_tokens`).
    pub input_tokens: u64,
    /// The facts about the turns of the conversation.
    pub turns: ConversationTurns,
    /// Whether the body has a member that is bound to one account at the provider, because only this account can read it or has
    /// it in its cache.
    pub is_account_bound: bool,
    /// The tokens of the body. Edits of the body use them.
    pub tape: Tape,
}

/// The name of the requested model, and its position in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpan {
    /// The name, with its escapes resolved. It can be empty or implausible (see
    /// [`crate::domain::wire::operation::is_plausible`]).
    pub text: String,
    /// The position of the value in the body, including both quotes. An edit replaces these bytes.
    pub value: Range<usize>,
}

/// The reason why a request body cannot be routed. Offsets (`at`) are in bytes from the start of the body, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The body contains nothing but white space.
    #[error("the body is empty")]
    Empty,
    /// The body begins with a byte order mark. A sender must not add one (RFC 8259 section 8.1), and not all parsers skip it.
    #[error("the body starts with a byte order mark, which JSON does not allow")]
    ByteOrderMark,
    /// The body is not UTF-8.
    #[error("the body is not valid UTF-8 at byte {at}")]
    NotUtf8 {
        /// The offset of the first byte that is not part of a valid UTF-8 sequence.
        at: usize,
    },
    /// The body violates the grammar of RFC 8259.
    #[error("the body is not valid JSON at byte {at}: {fault}")]
    Malformed {
        /// The offset of the fault; the length of the body if it ends too early.
        at: usize,
        /// The violation of the grammar.
        fault: JsonFault,
    },
    /// The top-level value is not an object.
    #[error("the body must be a JSON object")]
    NotObject,
    /// The body is nested deeper than [`ScanLimits::depth_max`].
    #[error("the body nests deeper than {depth_max} levels")]
    TooDeep {
        /// The offset of the bracket that opens the first level beyond the limit.
        at: usize,
        /// The limit, in levels.
        depth_max: usize,
    },
    /// A second value, or anything else but white space, follows the object.
    #[error("after the JSON object, more data begins at byte {at}")]
    TrailingData {
        /// The offset of the first byte after the object that is not white space.
        at: usize,
    },
    /// The body has two members whose names, with their escapes resolved, are both `model`. Parsers differ in which one they use.
    #[error("`model` occurs twice (byte {at})")]
    ModelTwice {
        /// The offset of the opening quote of the second member's name.
        at: usize,
    },
    /// The value of `model` is a number, boolean, null, array or object.
    #[error("`model` must be a string")]
    ModelNotString {
        /// The offset of the first byte of the value.
        at: usize,
    },
    /// The body has more references to state at a provider than [`ScanLimits::references_max`].
    #[error(
        "the body names more than {references_max} files, items and other objects at the provider; the first one beyond the limit is at byte {at}"
    )]
    TooManyReferences {
        /// The offset of the first identifier beyond the limit.
        at: usize,
        /// The maximum number of references.
        references_max: usize,
    },
    /// The body has two members whose names, with their escapes resolved, are both `stream`. Parsers differ in which one they
    /// use.
    #[error("`stream` occurs twice (byte {at})")]
    StreamTwice {
        /// The offset of the opening quote of the second member's name.
        at: usize,
    },
}

/// A violation of the JSON grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// The body ends inside a value.
    #[error("the body ends too early")]
    EndsEarly,
    /// A value is missing at this position.
    #[error("a value was expected")]
    ValueExpected,
    /// A key is missing at this position.
    #[error("a key in double quotes was expected")]
    KeyExpected,
    /// A key is not followed by a colon.
    #[error("a colon was expected")]
    ColonExpected,
    /// A member is followed by neither a further member nor the end of the object.
    #[error("a comma or a closing brace was expected")]
    CommaOrBraceExpected,
    /// An element is followed by neither a further element nor the end of the array.
    #[error("a comma or a closing bracket was expected")]
    CommaOrBracketExpected,
    /// A literal is a misspelt `true`, `false` or `null`.
    #[error("an unknown literal")]
    Literal,
    /// A number violates the grammar.
    #[error("a digit was expected")]
    DigitExpected,
    /// A string contains an unescaped byte below 0x20.
    #[error("a control character in a string must be escaped")]
    ControlCharacter,
    /// A backslash is followed by a character other than those in `"\/bfnrtu`.
    #[error("an unknown escape")]
    Escape,
    /// `\u` is not followed by four hexadecimal digits.
    #[error("a Unicode escape must have four hexadecimal digits")]
    HexDigits,
    /// A member's name, or a value that weir reads, contains half of a surrogate pair, which is not valid text.
    #[error("a name or an identifier contains only half of an escaped surrogate pair")]
    LoneSurrogate,
}

/// Whether the JSON value ends in the current piece of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonEndProgress {
    /// The value continues in the next piece.
    More,
    /// The value is complete. It ends at this offset in the piece.
    CompleteAt(usize),
}

/// A detector for the end of a top-level object or array that arrives in pieces. It follows only strings, escapes and the nesting
/// depth. [`scan`] validates the complete body later.
#[derive(Debug, Clone, Default)]
pub struct JsonEnd {
    state: JsonEndState,
    depth: usize,
}

#[derive(Debug, Clone, Copy, Default)]
enum JsonEndState {
    /// Before the value: only white space has arrived.
    #[default]
    Before,
    Between,
    InString,
    /// Directly after a backslash in a string.
    Escaped,
    Complete,
    /// The top-level value is not a container, so its end cannot be recognised.
    Unbounded,
}

impl JsonEnd {
    /// Returns a detector at the start of a body.
    pub fn new() -> JsonEnd {
        JsonEnd::default()
    }

    /// Reads the next piece, which can have any size. After the end of the value, every further call returns `CompleteAt(0)`. If
    /// the top-level value is neither an object nor an array, every call returns `More`.
    pub fn push(&mut self, piece: &[u8]) -> JsonEndProgress {
        let mut rest = piece;
        loop {
            let step = match self.state {
                JsonEndState::Complete => return JsonEndProgress::CompleteAt(piece.len() - rest.len()),
                JsonEndState::Unbounded => return JsonEndProgress::More,
                JsonEndState::Before => rest
                    .iter()
                    .position(|byte| !matches!(byte, b' ' | b'\n' | b'\r' | b'\t')),
                JsonEndState::Between => rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')),
                JsonEndState::InString => memchr::memchr2(b'"', b'\\', rest),
                JsonEndState::Escaped => (!rest.is_empty()).then_some(0),
            };
            let Some((byte, after)) = step.and_then(|at| rest.get(at..)).and_then(<[u8]>::split_first) else {
                return JsonEndProgress::More;
            };
            self.on_byte(*byte);
            rest = after;
        }
    }

    /// Handles a byte that has a meaning in the current state.
    fn on_byte(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (JsonEndState::Before | JsonEndState::Between, b'{' | b'[') => {
                self.depth += 1;
                JsonEndState::Between
            }
            (JsonEndState::Between, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    JsonEndState::Complete
                } else {
                    JsonEndState::Between
                }
            }
            (JsonEndState::Between, b'"') | (JsonEndState::Escaped, _) => JsonEndState::InString,
            (JsonEndState::InString, b'"') => JsonEndState::Between,
            (JsonEndState::InString, _) => JsonEndState::Escaped,
            (JsonEndState::Before, _) => JsonEndState::Unbounded,
            (unchanged, _) => unchanged,
        };
    }
}
