//! Scans a request body once: checks that it is strict JSON (RFC 8259), reads the facts that routing, billing and the choice of
//! a credential need, and records the tokens for the edits of providers.
//!
//! No tree is built, so a 30 MB body costs one pass over its bytes and no second copy. Strictness matters because weir
//! routes and bills by its own reading while the provider acts on another: a body that two parsers could read differently is
//! refused.
//!
//! The lexer is weir's own. The tape of simd-json has no offsets into the text, which splicing needs, and it unescapes strings
//! in place, so the client's bytes would have to be mutable; sonic-rs and jiter return values one by one and leave no tape. All
//! of them but jiter rely on `unsafe` SIMD; this lexer too skips long strings, most of every body, in vector steps.

mod body_position;
mod error;
mod facts;
mod input_tokens;
mod items;
mod json_end;
mod key;
mod levels;
mod lexer;
mod named_models;
mod number;
mod output_limits;
mod references;
mod scanned;
mod string;
mod tape;
mod turns;

#[cfg(test)]
mod tests;

pub(crate) use error::{JsonFault, ScanError};
use facts::TopLevelReader;
pub(crate) use input_tokens::input_estimate;
pub use json_end::{JsonEnd, JsonEndProgress};
use key::BodyKey;
pub(crate) use levels::DEPTH_MAX;
use lexer::StrictLexer;
pub(in crate::domain) use lexer::{JsonToken, JsonTokenKind};
pub use named_models::NamedModels;
pub(crate) use references::Reference;
use references::ReferenceReader;
pub(crate) use scanned::ModelSpan;
pub use scanned::Scan;
pub(in crate::domain) use string::{is_text as is_string, unescaped};
pub(crate) use tape::Tape;
use tape::TapeRecorder;
pub(in crate::domain) use tape::{TAPE_ENTRIES_MAX, TapeReader};
pub(crate) use turns::ConversationTurns;
use turns::TurnReader;

use crate::domain::wire::Protocol;
use input_tokens::InputTokenEstimate;

/// The limits of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// The maximum nesting of objects and arrays; the top-level object is level 1. Clamped to 1..=[`DEPTH_MAX`].
    pub depth_max: usize,
    /// The maximum number of references to state at a provider.
    pub references_max: usize,
}

/// Checks that a complete body is one strict JSON object, and collects its facts.
///
/// # Errors
/// The first fault in byte order, with its byte offset; UTF-8 is checked before anything else. No error contains text of the
/// body.
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
    if body.starts_with(b"\xEF\xBB\xBF") {
        return Err(ScanError::ByteOrderMark);
    }
    std::str::from_utf8(body).map_err(|error| ScanError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    let mut lexer = StrictLexer::checking(limits.depth_max);
    let mut tape = TapeRecorder::new(body.len(), entries_max);
    let mut readers = ScanReaders {
        facts: TopLevelReader::default(),
        references: ReferenceReader::new(protocol, limits.references_max),
        turns: TurnReader::default(),
        input: InputTokenEstimate::default(),
    };
    while let Some(kind) = lexer.advance(body)? {
        let token = lexer.token(kind);
        tape.push(token, &lexer);
        match kind {
            JsonTokenKind::Key => readers.on_key(body, token, &lexer)?,
            JsonTokenKind::End => {}
            _ => readers.on_value(body, token, &lexer)?,
        }
    }
    Ok(Scan {
        tape: tape.finish(),
        ..readers.into_scan(body)?
    })
}

/// The readers, which get every key and value.
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

    /// Handles a value, or the first byte of an object or array.
    fn on_value(&mut self, body: &[u8], token: JsonToken, lexer: &StrictLexer) -> Result<(), ScanError> {
        let depth = lexer.depth();
        if token.kind == JsonTokenKind::String {
            // Only strings that weir reads must be valid text: the provider judges the others.
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
