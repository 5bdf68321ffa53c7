//! Steps over a JSON text that is known to be one, or nearly: nothing is checked that the way does not need.

use std::{borrow::Cow, ops::Range};

use super::EditError;

/// A place in a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'t> {
    text: &'t [u8],
    /// Bytes from the start.
    pub(super) at: usize,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t [u8], at: usize) -> Self {
        Self { text, at }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn token(&self, range: Range<usize>) -> &'t [u8] {
        self.text.get(range).unwrap_or_default()
    }

    pub(super) fn fault(&self) -> EditError {
        EditError::NotJson { offset: self.at }
    }

    fn rest(&self) -> &'t [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(super) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), EditError> {
        if self.peek() != Some(byte) {
            return Err(self.fault());
        }
        self.at += 1;
        Ok(())
    }

    /// Steps over a member's name and colon, up to its value; gives the name's place with its quotes.
    pub(super) fn name(&mut self) -> Result<Range<usize>, EditError> {
        let start = self.at;
        self.skip_string()?;
        let name = start..self.at;
        self.space();
        self.expect(b':')?;
        self.space();
        Ok(name)
    }

    /// Looks for quotes only: one is the end unless an odd number of backslashes stands before it. Text is full of
    /// `\n`, and stopping at each costs more than looking back from the few quotes.
    pub(super) fn skip_string(&mut self) -> Result<(), EditError> {
        self.expect(b'"')?;
        loop {
            let run = memchr::memchr(b'"', self.rest()).ok_or(self.fault())?;
            let before = self.rest().get(..run).unwrap_or_default();
            let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
            self.at += run + 1;
            if backslashes % 2 == 0 {
                return Ok(());
            }
        }
    }

    pub(super) fn skip_value(&mut self) -> Result<(), EditError> {
        let mut depth = 0_usize;
        loop {
            match self.peek().ok_or(self.fault())? {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1).ok_or(self.fault())?;
                    self.at += 1;
                }
                b',' | b':' if depth == 0 => return Err(self.fault()),
                _ => self.skip_plain(),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// A number or a literal, or inside a container also separators and white space: up to what could open or close.
    fn skip_plain(&mut self) {
        let is_plain = |byte: &u8| {
            !matches!(
                byte,
                b'"' | b'{' | b'[' | b'}' | b']' | b',' | b' ' | b'\t' | b'\n' | b'\r'
            )
        };
        let plain = self.rest().iter().take_while(|byte| is_plain(byte)).count();
        self.at += plain.max(1);
    }
}

/// Whether a string token, quotes included, is `name` once unescaped.
pub(super) fn is_string(token: &[u8], name: &str) -> bool {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    if token.first() != Some(&b'"') {
        return false;
    }
    if inner == name.as_bytes() {
        // A name with a backslash never looks like itself.
        return !name.contains('\\');
    }
    // An escape is two to six bytes for one, or twelve for four: other lengths need no look.
    inner.len() > name.len()
        && inner.len() <= name.len().saturating_mul(6)
        && memchr::memchr(b'\\', inner).is_some()
        && unescaped(token).is_some_and(|unescaped| unescaped == name)
}

/// What a string token stands for.
pub(super) fn unescaped(token: &[u8]) -> Option<Cow<'_, str>> {
    if token.first() != Some(&b'"') {
        return None;
    }
    let inner = token.get(1..token.len().saturating_sub(1))?;
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(token).ok().map(Cow::Owned)
}
