//! A position in the body.

use super::{Fault, ScanError};

/// The body and what is left of it. UTF-8 is known to be valid, so that all walking is by bytes.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Cursor<'a> {
        Cursor {
            text,
            rest: text.as_bytes(),
        }
    }

    /// The whole body.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Bytes from the start of the body.
    pub(super) fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// Goes `count` bytes ahead, or to the end.
    pub(super) fn advance(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    pub(super) fn skip_space(&mut self) {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Steps over digits and says how many there were.
    pub(super) fn skip_digits(&mut self) -> usize {
        let before = self.rest.len();
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
        before - self.rest.len()
    }

    pub(super) fn literal(&mut self, word: &[u8]) -> Result<(), ScanError> {
        for expected in word {
            if self.peek() != Some(*expected) {
                return Err(self.fault(Fault::Literal));
            }
            self.advance(1);
        }
        Ok(())
    }

    /// The error for a fault right here; at the end of the body, the fault is that it ends.
    pub(super) fn fault(&self, fault: Fault) -> ScanError {
        let fault = if self.rest.is_empty() { Fault::EndsEarly } else { fault };
        ScanError::Malformed { at: self.at(), fault }
    }
}
