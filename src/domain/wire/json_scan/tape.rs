//! The tokens of a text as the one walk over it saw them, so that nobody has to look at its bytes for them again.
//!
//! A token takes 12 bytes, a string of any length is one token. The tape ends at [`TAPE_ENTRIES_MAX`]: what lies
//! behind them in the text is read from its bytes, which takes longer and gives the same.

use std::ops::Range;

use super::lexer::{Kind, Lexer, Token};
use super::{Fault, ScanError};

/// The most tokens that are kept of one body: 768 KiB. A long conversation of an agent, of some 3 MB, fits.
pub(in crate::domain) const TAPE_ENTRIES_MAX: usize = 1 << 16;
/// Bytes of text for which room for a token is made at first; few bodies have more tokens.
const TEXT_BYTES_PER_ENTRY: usize = 8;

/// The tokens of a text from its start on, as many as fit. Empty, it is the tape of any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tape {
    entries: Vec<Entry>,
    /// Where the text goes on behind the last entry; `None`: nowhere, or at its start if there are no entries.
    beyond: Option<Box<Lexer>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: u32,
    /// The end of the token; of a container its closing entry, [`NOT_CLOSED`] if that is not on the tape.
    end: u32,
    kind: Kind,
}

/// The root comes first, so no closing entry does.
const NOT_CLOSED: u32 = 0;

impl Tape {
    /// Gives its memory back; from here on the text is read from its bytes.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many tokens there are, and the bytes of memory that they take.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.entries.capacity() * size_of::<Entry>())
    }
}

/// Writes a tape.
#[derive(Debug)]
pub(super) struct Recorder {
    tape: Tape,
    entries_max: usize,
    /// The entry of the innermost open container. Until it closes, the entry of an open container has that of the one
    /// around it for its end.
    innermost: u32,
}

impl Recorder {
    /// Nothing yet of a text of this length, and at most so many entries.
    pub(super) fn new(text_bytes: usize, entries_max: usize) -> Self {
        // Offsets behind 4 GiB do not fit.
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

    /// Takes the token that the lexer has just given.
    #[inline]
    pub(super) fn push(&mut self, token: Token, lexer: &Lexer) {
        if self.tape.entries.len() >= self.entries_max {
            return;
        }
        let offset = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let index = offset(self.tape.entries.len());
        let end = match token.kind {
            Kind::Object | Kind::Array => std::mem::replace(&mut self.innermost, index),
            Kind::End => {
                self.close(index);
                offset(token.end)
            }
            _ => offset(token.end),
        };
        self.tape.entries.push(Entry {
            start: offset(token.start),
            end,
            kind: token.kind,
        });
        if self.tape.entries.len() == self.entries_max {
            self.tape.beyond = Some(Box::new(lexer.clone().into_trusting()));
        }
    }

    /// The innermost container closes with the entry of this index.
    fn close(&mut self, index: u32) {
        if let Some(entry) = self.tape.entries.get_mut(self.innermost as usize) {
            self.innermost = std::mem::replace(&mut entry.end, index);
        }
    }

    /// The tape, after the last token.
    pub(super) fn finish(mut self) -> Tape {
        while self.innermost != NOT_CLOSED {
            self.close(NOT_CLOSED);
        }
        self.tape.entries.shrink_to_fit();
        self.tape
    }
}

/// Reads the tokens of a text, from its tape and behind that from its bytes. Cheap to clone: a clone keeps the place.
#[derive(Clone, Debug)]
pub(in crate::domain) struct Reader<'t> {
    text: &'t [u8],
    entries: &'t [Entry],
    /// The index of the next entry.
    next: usize,
    /// Reads what lies behind the entries.
    lexer: Option<Lexer>,
}

impl<'t> Reader<'t> {
    /// At the start of the text, which this tape is of.
    pub(in crate::domain) fn new(text: &'t [u8], tape: &'t Tape) -> Self {
        let lexer = match &tape.beyond {
            Some(lexer) => Some(Lexer::clone(lexer)),
            None if tape.entries.is_empty() => Some(Lexer::trusting()),
            None => None,
        };
        Self {
            text,
            entries: &tape.entries,
            next: 0,
            lexer,
        }
    }

    /// A part of the text.
    pub(in crate::domain) fn bytes(&self, range: Range<usize>) -> &'t [u8] {
        self.text.get(range).unwrap_or_default()
    }

    /// The next token.
    ///
    /// # Errors
    /// The text is not an object, breaks the grammar, or is over.
    pub(in crate::domain) fn token(&mut self) -> Result<Token, ScanError> {
        self.next()?.ok_or_else(|| self.ends_early())
    }

    /// Checks that nothing follows the object, whose last token has been read.
    ///
    /// # Errors
    /// Something follows it.
    pub(in crate::domain) fn end(&mut self) -> Result<(), ScanError> {
        self.next().map(drop)
    }

    /// The bytes of the value that begins with `first`, which has just been read. Goes on behind it.
    ///
    /// # Errors
    /// The text breaks the grammar, or is over.
    pub(in crate::domain) fn value(&mut self, first: Token) -> Result<Range<usize>, ScanError> {
        if !matches!(first.kind, Kind::Object | Kind::Array) {
            return Ok(first.start..first.end);
        }
        if let Some(end) = self.jump(first) {
            return Ok(first.start..end);
        }
        let mut depth = 1_usize;
        let mut goes_on = |kind| {
            match kind {
                Kind::Object | Kind::Array => depth += 1,
                Kind::End => depth -= 1,
                _ => {}
            }
            depth > 0
        };
        while self.next < self.entries.len() {
            let token = self.token()?;
            if !goes_on(token.kind) {
                return Ok(first.start..token.end);
            }
        }
        let end = self.lexer.as_mut().map(|lexer| lexer.skip(self.text, goes_on));
        Ok(first.start..end.unwrap_or(Err(self.ends_early()))?)
    }

    fn ends_early(&self) -> ScanError {
        ScanError::Malformed {
            at: self.text.len(),
            fault: Fault::EndsEarly,
        }
    }

    /// Goes behind the container that has just opened, if its end is on the tape; gives where it ends.
    fn jump(&mut self, first: Token) -> Option<usize> {
        let opened = self.entries.get(self.next.checked_sub(1)?)?;
        if opened.start as usize != first.start || opened.end == NOT_CLOSED {
            return None;
        }
        let closing = self.entries.get(opened.end as usize)?;
        self.next = opened.end as usize + 1;
        Some(closing.end as usize)
    }

    fn next(&mut self) -> Result<Option<Token>, ScanError> {
        let Some(entry) = self.entries.get(self.next) else {
            return self.lexer.as_mut().map_or(Ok(None), |lexer| lexer.next(self.text));
        };
        self.next += 1;
        let start = entry.start as usize;
        let end = match entry.kind {
            Kind::Object | Kind::Array => start + 1,
            _ => entry.end as usize,
        };
        Ok(Some(Token {
            kind: entry.kind,
            start,
            end,
        }))
    }
}
