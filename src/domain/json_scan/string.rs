//! Strings: skips most of them fast, and reads the few that matter.

use std::ops::Range;
use std::str::Chars;

use super::cursor::Cursor;
use super::{Fault, ScanError};

/// Bytes that are looked at together in long strings: enough for the compiler to use vector registers.
const BLOCK_BYTES: usize = 64;
/// Bytes of a word, the step in short strings.
const WORD_BYTES: usize = 8;
/// Words that are tried before a string counts as long.
const WORDS_BEFORE_BLOCKS: usize = 8;

/// A string of the body.
#[derive(Debug)]
pub(super) struct StringToken {
    /// Its bytes with both quotes.
    pub(super) span: Range<usize>,
    /// Whether it has a backslash.
    pub(super) is_escaped: bool,
}

impl StringToken {
    /// The text between the quotes, as it is written.
    pub(super) fn raw<'a>(&self, body: &'a str) -> &'a str {
        body.get(self.span.start + 1..self.span.end.saturating_sub(1))
            .unwrap_or_default()
    }

    /// Whether the text, unescaped, is `name`.
    pub(super) fn is(&self, body: &str, name: &str) -> bool {
        let raw = self.raw(body);
        if self.is_escaped {
            Unescaped::new(raw).eq(name.chars())
        } else {
            raw == name
        }
    }

    /// The text, unescaped, if it has at most as many bytes as the buffer, in which it is put together if need be.
    pub(super) fn short<'t, const N: usize>(&self, body: &'t str, buffer: &'t mut [u8; N]) -> Option<&'t str> {
        let raw = self.raw(body);
        if !self.is_escaped {
            return (raw.len() <= N).then_some(raw);
        }
        let mut length = 0;
        for character in Unescaped::new(raw) {
            let end = length + character.len_utf8();
            character.encode_utf8(buffer.get_mut(length..end)?);
            length = end;
        }
        std::str::from_utf8(buffer.get(..length)?).ok()
    }

    pub(super) fn decode(&self, body: &str) -> String {
        let raw = self.raw(body);
        if self.is_escaped {
            Unescaped::new(raw).collect()
        } else {
            raw.to_owned()
        }
    }
}

/// Steps over a string; the cursor stands on its opening quote.
pub(super) fn skip(cursor: &mut Cursor<'_>) -> Result<StringToken, ScanError> {
    let start = cursor.at();
    let mut is_escaped = false;
    cursor.advance(1);
    loop {
        let plain = plain_length(cursor.rest());
        cursor.advance(plain);
        match cursor.peek() {
            Some(b'"') => {
                cursor.advance(1);
                return Ok(StringToken {
                    span: start..cursor.at(),
                    is_escaped,
                });
            }
            Some(b'\\') => {
                is_escaped = true;
                skip_escape(cursor)?;
            }
            _ => return Err(cursor.fault(Fault::ControlCharacter)),
        }
    }
}

/// Steps over an escape, or two if they are a surrogate pair; the cursor stands on the backslash.
fn skip_escape(cursor: &mut Cursor<'_>) -> Result<(), ScanError> {
    let start = cursor.at();
    cursor.advance(1);
    match cursor.peek() {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
            cursor.advance(1);
            return Ok(());
        }
        Some(b'u') => cursor.advance(1),
        _ => return Err(cursor.fault(Fault::Escape)),
    }
    let lone = ScanError::Malformed {
        at: start,
        fault: Fault::LoneSurrogate,
    };
    match code_unit(cursor)? {
        0xD800..=0xDBFF => {
            if !cursor.rest().starts_with(b"\\u") {
                return Err(lone);
            }
            cursor.advance(2);
            if matches!(code_unit(cursor)?, 0xDC00..=0xDFFF) {
                Ok(())
            } else {
                Err(lone)
            }
        }
        0xDC00..=0xDFFF => Err(lone),
        _ => Ok(()),
    }
}

fn code_unit(cursor: &mut Cursor<'_>) -> Result<u32, ScanError> {
    let mut unit = 0;
    for _ in 0..4 {
        let Some(digit) = cursor.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
            return Err(cursor.fault(Fault::HexDigits));
        };
        unit = unit << 4 | digit;
        cursor.advance(1);
    }
    Ok(unit)
}

/// How many bytes come before the first quote, backslash or control character; all of them if there is none.
///
/// Short runs, which most keys and prose between escapes are, are found a word at a time; after that, blocks are
/// tested as a whole until one has something in it.
fn plain_length(bytes: &[u8]) -> usize {
    let head = bytes.get(..WORD_BYTES * WORDS_BEFORE_BLOCKS).unwrap_or(bytes);
    let in_head = plain_words(head);
    if in_head < head.len() || head.len() == bytes.len() {
        return in_head;
    }
    let after_head = bytes.get(in_head..).unwrap_or_default();
    let (blocks, _) = after_head.as_chunks::<BLOCK_BYTES>();
    let plain_blocks = blocks.iter().take_while(|block| is_plain_block(block)).count();
    let skipped = in_head + plain_blocks * BLOCK_BYTES;
    skipped + plain_words(bytes.get(skipped..).unwrap_or_default())
}

/// No early way out, so that it compiles to vector instructions.
fn is_plain_block(block: &[u8; BLOCK_BYTES]) -> bool {
    !block.iter().fold(false, |found, byte| {
        found | (*byte == b'"') | (*byte == b'\\') | (*byte < 0x20)
    })
}

fn plain_words(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<WORD_BYTES>();
    for (index, word) in words.iter().enumerate() {
        let marks = special_bytes(u64::from_le_bytes(*word));
        if marks != 0 {
            return index * WORD_BYTES + (marks.trailing_zeros() / 8) as usize;
        }
    }
    let in_tail = tail
        .iter()
        .take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
        .count();
    words.len() * WORD_BYTES + in_tail
}

/// Marks the top bit of bytes that are a quote, a backslash or below 0x20. Only the lowest mark is exact (a borrow can
/// mark a byte above it), and it is the only one used.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word;
    let quote = below(word ^ (ONES * 0x22), 1);
    let backslash = below(word ^ (ONES * 0x5C), 1);
    (below(word, 0x20) | quote | backslash) & TOPS
}

/// The characters a string stands for. Its text was validated by [`skip`]: on anything else this ends early.
struct Unescaped<'a> {
    chars: Chars<'a>,
}

impl<'a> Unescaped<'a> {
    fn new(raw: &'a str) -> Unescaped<'a> {
        Unescaped { chars: raw.chars() }
    }

    fn code_unit(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | self.chars.next()?.to_digit(16)?))
    }

    fn code_point(&mut self) -> Option<char> {
        let unit = self.code_unit()?;
        if !matches!(unit, 0xD800..=0xDBFF) {
            return char::from_u32(unit);
        }
        // The second half is another `\u`.
        self.chars.nth(1)?;
        let low = self.code_unit()?;
        char::from_u32(0x1_0000 + ((unit & 0x3FF) << 10 | (low & 0x3FF)))
    }
}

impl Iterator for Unescaped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self.chars.next()? {
            '\\' => match self.chars.next()? {
                'u' => self.code_point(),
                'b' => Some('\u{8}'),
                'f' => Some('\u{c}'),
                'n' => Some('\n'),
                'r' => Some('\r'),
                't' => Some('\t'),
                itself => Some(itself),
            },
            plain => Some(plain),
        }
    }
}
