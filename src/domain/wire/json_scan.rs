//! One walk over a request body: checks that it is strict JSON (RFC 8259), reads what routing, billing and the choice of
//! a credential need, and leaves the tokens for the edits of providers.
//!
//! No tree is built, so a 30 MB body costs one walk over its bytes and no second copy. Strictness matters because weir
//! routes and bills by its reading while the provider acts on its own: a body that two parsers could read differently is
//! refused.
//!
//! The lexer is weir's own. The tape of simd-json has no offsets into the text, so that nothing could be spliced, and needs
//! the client's bytes mutable, to unescape into them; sonic-rs and jiter hand out values one by one and leave no tape. All
//! of them but jiter rest on `unsafe` SIMD; long strings, most of every body, are found in vector steps here too.

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

pub(crate) use error::{Fault, ScanError};
use facts::Facts;
pub(crate) use input_tokens::input_estimate;
pub use json_end::{JsonEnd, Progress};
use key::Key;
pub(crate) use levels::DEPTH_MAX;
use lexer::Lexer;
pub(in crate::domain) use lexer::{Kind, Token};
pub use named_models::NamedModels;
pub(crate) use references::Reference;
use references::References;
pub(crate) use scanned::ModelSpan;
pub use scanned::Scan;
pub(in crate::domain) use string::{is as is_string, unescaped};
use tape::Recorder;
pub(crate) use tape::Tape;
pub(in crate::domain) use tape::{Reader, TAPE_ENTRIES_MAX};
pub(crate) use turns::Turns;
use turns::TurnsRead;

use crate::domain::wire::Protocol;
use input_tokens::InputTally;

/// What a body may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanLimits {
    /// How many levels objects and arrays may nest; the top-level object is level 1. Held within 1..=[`DEPTH_MAX`].
    pub depth_max: usize,
    /// How much state at a provider it may name.
    pub references_max: usize,
}

/// Validates a whole body of a protocol as one strict JSON object, and collects its facts.
///
/// # Errors
/// The first fault in byte order (but UTF-8 is checked before all else), with its byte offset. No error holds text of
/// the body.
pub fn scan(body: &[u8], protocol: Protocol, limits: &ScanLimits) -> Result<Scan, ScanError> {
    scan_onto(body, protocol, limits, TAPE_ENTRIES_MAX)
}

/// As [`scan`], with a tape of at most so many entries.
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
    let mut lexer = Lexer::checking(limits.depth_max);
    let mut tape = Recorder::new(body.len(), entries_max);
    let mut readers = Readers {
        facts: Facts::default(),
        references: References::new(protocol, limits.references_max),
        turns: TurnsRead::default(),
        input: InputTally::default(),
    };
    while let Some(kind) = lexer.advance(body)? {
        let token = lexer.token(kind);
        tape.push(token, &lexer);
        match kind {
            Kind::Key => readers.key(body, token, &lexer)?,
            Kind::End => {}
            _ => readers.value(body, token, &lexer)?,
        }
    }
    Ok(Scan {
        tape: tape.finish(),
        ..readers.into_scan(body)?
    })
}

/// Who is told of every key and value.
#[derive(Debug)]
struct Readers {
    facts: Facts,
    references: References,
    turns: TurnsRead,
    input: InputTally,
}

impl Readers {
    fn key(&mut self, body: &[u8], token: Token, lexer: &Lexer) -> Result<(), ScanError> {
        if let Some(at) = lexer.lone_surrogate {
            return Err(lone_surrogate(at));
        }
        let depth = lexer.depth();
        let key = Key::of(token.of(body), lexer.is_escaped);
        self.facts.key(depth, key, token.start)?;
        self.references.key(depth, key, body)?;
        self.turns.key(depth, key, || self.input.tokens());
        let in_tools = self.facts.top() == Some(Key::Tools);
        self.input.key(string::inner(token.of(body)), in_tools);
        Ok(())
    }

    /// A value, or the first byte of one that opens a container.
    fn value(&mut self, body: &[u8], token: Token, lexer: &Lexer) -> Result<(), ScanError> {
        let depth = lexer.depth();
        if token.kind == Kind::String {
            // Only what weir goes by has to be a text: the rest is the provider's to judge.
            if let Some(at) = lexer.lone_surrogate
                && (self.facts.is_model_next() || self.references.is_read(depth))
            {
                return Err(lone_surrogate(at));
            }
            self.facts.value(body, token)?;
            self.references.string(depth, body, token)?;
            let raw = string::inner(token.of(body));
            self.turns.string(raw, || self.input.tokens());
            self.input.string(raw);
            return Ok(());
        }
        self.facts.value(body, token)?;
        match token.kind {
            Kind::Object | Kind::Array => self.references.open(depth, token.kind, body)?,
            kind => {
                self.references.scalar(depth, kind);
                if kind != Kind::Null {
                    self.input.scalar();
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

fn lone_surrogate(at: usize) -> ScanError {
    ScanError::Malformed {
        at,
        fault: Fault::LoneSurrogate,
    }
}
