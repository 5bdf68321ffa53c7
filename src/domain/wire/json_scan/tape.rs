//! Records the tokens of a text during its scan, so that the bytes do not have to be parsed again.
//!
//! A token takes 12 bytes of memory; a string of any length is one token. The tape has at most [`TAPE_ENTRIES_MAX`] entries. The
//! text after the last entry is not on the tape, so a lexer parses it a second time. This is slower, but has the same result.

use std::ops::Range;

use super::lexer::{JsonToken, JsonTokenKind, StrictLexer};
use super::{JsonFault, ScanError};

/// The maximum number of tokens that are recorded for one body; they take 768 KiB. The tokens of an agent's long conversation,
/// with a body of about 3 MB, do not exceed this number.
pub(in crate::domain) const TAPE_ENTRIES_MAX: usize = 1 << 16;
/// The expected number of bytes of text per token, for the first allocation. Few bodies have more tokens for their length.
const TEXT_BYTES_PER_ENTRY: usize = 8;

/// The tokens of a text from its start on, up to the maximum number of entries. An empty tape is valid for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    entries: Vec<TapeEntry>,
    /// A lexer that reads the text after the last entry; `None` if the text ends there, or if the tape is empty.
    beyond: Option<Box<StrictLexer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TapeEntry {
    start: u32,
    /// The position at which the token ends. If the token opens a container, this field is instead the index of the entry that
    /// closes the container, or [`NOT_CLOSED`] if that entry is not on the tape.
    end: u32,
    kind: JsonTokenKind,
}

/// The index for a container that is not closed on the tape. The first entry opens the root, so no closing entry has this index.
const NOT_CLOSED: u32 = 0;

impl Tape {
    /// Frees the memory of the tape. After this call, readers parse the bytes of the text again.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the number of recorded tokens.
    pub(crate) fn tokens(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of tokens, and the number of bytes of memory that they take.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.entries.capacity() * size_of::<TapeEntry>())
    }
}

/// A recorder that writes a tape.
#[derive(Debug)]
pub(super) struct TapeRecorder {
    tape: Tape,
    entries_max: usize,
    /// The index of the entry that opens the innermost open container. Until a container is closed, its opening entry stores in
    /// `end` the index of the opening entry of the next outer container.
    innermost: u32,
}

impl TapeRecorder {
    /// Creates a recorder at the start of a text of `text_bytes` bytes.
    pub(super) fn new(text_bytes: usize, entries_max: usize) -> Self {
        // Offsets beyond 4 GiB do not fit into an entry.
        let entries_max = if u32::try_from(text_bytes).is_ok() {
            entries_max
        } else {
            0
        };
        let expected = (text_bytes / TEXT_BYTES_PER_ENTRY).next_power_of_two();
        Self {
            tape: Tape {
                entries: Vec::with_capacity(expected.min(entries_max)),
                beyond: None,
            },
            entries_max,
            innermost: NOT_CLOSED,
        }
    }

    /// Records the token that the lexer has just returned.
    #[inline]
    pub(super) fn push(&mut self, token: JsonToken, lexer: &StrictLexer) {
        if self.tape.entries.len() >= self.entries_max {
            return;
        }
        let offset = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let index = offset(self.tape.entries.len());
        let end = match token.kind {
            JsonTokenKind::Object | JsonTokenKind::Array => std::mem::replace(&mut self.innermost, index),
            JsonTokenKind::End => {
                self.close(index);
                offset(token.end)
            }
            _ => offset(token.end),
        };
        self.tape.entries.push(TapeEntry {
            start: offset(token.start),
            end,
            kind: token.kind,
        });
        if self.tape.entries.len() == self.entries_max {
            self.tape.beyond = Some(Box::new(lexer.clone().into_trusting()));
        }
    }

    /// Closes the innermost container. `index` is the index of the entry that closes it.
    fn close(&mut self, index: u32) {
        if let Some(entry) = self.tape.entries.get_mut(self.innermost as usize) {
            self.innermost = std::mem::replace(&mut entry.end, index);
        }
    }

    /// Returns the tape. Called after the last token.
    pub(super) fn finish(mut self) -> Tape {
        while self.innermost != NOT_CLOSED {
            self.close(NOT_CLOSED);
        }
        self.tape.entries.shrink_to_fit();
        self.tape
    }
}

/// A reader of a text's tokens. It takes them from the tape, and parses the bytes after the tape's last entry. It is cheap to
/// clone; a clone has the same position.
#[derive(Clone, Debug)]
pub(in crate::domain) struct TapeReader<'t> {
    text: &'t [u8],
    entries: &'t [TapeEntry],
    /// The index of the next entry.
    next: usize,
    /// The lexer that reads the text after the last entry; `None` if the tape has all tokens.
    lexer: Option<StrictLexer>,
}

impl<'t> TapeReader<'t> {
    /// Creates a reader at the start of the text, whose tokens `tape` has recorded.
    pub(in crate::domain) fn new(text: &'t [u8], tape: &'t Tape) -> Self {
        let lexer = match &tape.beyond {
            Some(lexer) => Some(StrictLexer::clone(lexer)),
            None if tape.entries.is_empty() => Some(StrictLexer::trusting()),
            None => None,
        };
        Self {
            text,
            entries: &tape.entries,
            next: 0,
            lexer,
        }
    }

    /// Returns a part of the text.
    pub(in crate::domain) fn bytes(&self, range: Range<usize>) -> &'t [u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// Reads the next token.
    ///
    /// # Errors
    /// The text is not an object, violates the grammar, or has ended.
    pub(in crate::domain) fn next_token(&mut self) -> Result<JsonToken, ScanError> {
        self.next()?.ok_or_else(|| self.ends_early())
    }

    /// Checks that nothing follows the object, whose last token must have been read.
    ///
    /// # Errors
    /// Data follows the object.
    pub(in crate::domain) fn expect_end(&mut self) -> Result<(), ScanError> {
        self.next().map(drop)
    }

    /// Skips the value that begins with `first`, the token that was read last. Returns the position of the value.
    ///
    /// # Errors
    /// The text violates the grammar, or has ended.
    pub(in crate::domain) fn skip_value(&mut self, first: JsonToken) -> Result<Range<usize>, ScanError> {
        if !matches!(first.kind, JsonTokenKind::Object | JsonTokenKind::Array) {
            return Ok(first.start..first.end);
        }
        if let Some(end) = self.skip_container(first) {
            return Ok(first.start..end);
        }
        let mut depth = 1_usize;
        let mut goes_on = |kind| {
            match kind {
                JsonTokenKind::Object | JsonTokenKind::Array => depth += 1,
                JsonTokenKind::End => depth -= 1,
                _ => {}
            }
            depth > 0
        };
        while self.next < self.entries.len() {
            let token = self.next_token()?;
            if !goes_on(token.kind) {
                return Ok(first.start..token.end);
            }
        }
        let end = self.lexer.as_mut().map(|lexer| lexer.skip_while(self.text, goes_on));
        Ok(first.start..end.unwrap_or(Err(self.ends_early()))?)
    }

    fn ends_early(&self) -> ScanError {
        ScanError::Malformed {
            at: self.text.len(),
            fault: JsonFault::EndsEarly,
        }
    }

    /// Skips the container that begins with `first`, the token that was read last. Returns the position of the container's end.
    /// If the end is not on the tape, skips nothing and returns `None`.
    fn skip_container(&mut self, first: JsonToken) -> Option<usize> {
        let opened = self.entries.get(self.next.checked_sub(1)?)?;
        if opened.start as usize != first.start || opened.end == NOT_CLOSED {
            return None;
        }
        let closing = self.entries.get(opened.end as usize)?;
        self.next = opened.end as usize + 1;
        Some(closing.end as usize)
    }

    fn next(&mut self) -> Result<Option<JsonToken>, ScanError> {
        let Some(entry) = self.entries.get(self.next) else {
            return self.lexer.as_mut().map_or(Ok(None), |lexer| lexer.next(self.text));
        };
        self.next += 1;
        let start = entry.start as usize;
        let end = match entry.kind {
            JsonTokenKind::Object | JsonTokenKind::Array => start + 1,
            _ => entry.end as usize,
        };
        Ok(Some(JsonToken {
            kind: entry.kind,
            start,
            end,
        }))
    }
}
