//! JSON strings: where they end, and what they stand for. A token is a string as it is written, with both quotes.

use std::borrow::Cow;

use super::Fault;

/// Bytes that are looked at together in long strings: enough for the compiler to use vector registers.
const BLOCK_BYTES: usize = 64;
/// Bytes of a word, the step in short strings.
const WORD_BYTES: usize = 8;
/// Words that are tried before a string counts as long.
const WORDS_BEFORE_BLOCKS: usize = 8;

/// What is wrong in a string, and at which byte of it.
pub(super) type StringFault = (usize, Fault);

/// A string that was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Its bytes, with both quotes.
    pub length: usize,
    /// Whether it has an escape.
    pub is_escaped: bool,
    /// Its first escape of a surrogate without the other half: RFC 8259 allows it, and no text can hold it.
    pub lone_surrogate: Option<usize>,
}

/// Checks the string that `text` begins with.
#[inline]
pub(super) fn check(text: &[u8]) -> Result<Checked, StringFault> {
    let inside = text.get(1..).unwrap_or_default();
    let plain = plain_length(inside);
    // As most strings are: nothing else has to be looked at.
    match inside.get(plain) {
        Some(b'"') => Ok(Checked {
            length: plain + 2,
            ..Checked::default()
        }),
        _ => check_behind(text, 1 + plain),
    }
}

/// The same, from behind its first plain bytes.
#[inline(never)]
fn check_behind(text: &[u8], mut at: usize) -> Result<Checked, StringFault> {
    let mut checked = Checked::default();
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let plain = plain_length(rest);
        at += plain;
        match rest.get(plain) {
            Some(b'"') => {
                checked.length = at + 1;
                return Ok(checked);
            }
            Some(b'\\') => {
                checked.is_escaped = true;
                let (end, is_lone) = escape_end(text, at)?;
                if is_lone {
                    checked.lone_surrogate.get_or_insert(at);
                }
                at = end;
            }
            _ => return Err((at, Fault::ControlCharacter)),
        }
    }
}

/// The length of the string that `text` begins with; `None` if it does not end.
///
/// Looks for quotes only: one is the end unless an odd number of backslashes stands before it. Text is full of `\n`, and
/// stopping at each costs more than looking back from the few quotes.
pub(super) fn length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        let rest = text.get(at..)?;
        let run = memchr::memchr(b'"', rest)?;
        let before = rest.get(..run)?;
        let backslashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
        at += run + 1;
        if backslashes % 2 == 0 {
            return Some(at);
        }
    }
}

/// The text between the quotes, as it is written.
pub(super) fn inner(token: &[u8]) -> &[u8] {
    token.get(1..token.len().saturating_sub(1)).unwrap_or_default()
}

/// Whether a token is the string `name` once unescaped.
pub(in crate::domain) fn is(token: &[u8], name: &str) -> bool {
    let inner = inner(token);
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

/// What a token stands for; `None` if it is no string, or one that no text can hold.
pub(in crate::domain) fn unescaped(token: &[u8]) -> Option<Cow<'_, str>> {
    if token.first() != Some(&b'"') {
        return None;
    }
    let inner = inner(token);
    if memchr::memchr(b'\\', inner).is_none() {
        return std::str::from_utf8(inner).ok().map(Cow::Borrowed);
    }
    serde_json::from_slice::<String>(token).ok().map(Cow::Owned)
}

/// The text of a checked string, if it is ASCII and there is room for it: for what is looked for in every body, without an
/// allocation.
pub(super) fn ascii<'r>(token: &[u8], room: &'r mut [u8]) -> Option<&'r [u8]> {
    let (mut rest, mut length) = (inner(token), 0);
    while let Some((first, after)) = rest.split_first() {
        let byte;
        (byte, rest) = match (first, after) {
            (b'\\', [b'u', ..]) => (u8::try_from(code_unit(after, 1).ok()?).ok()?, after.get(5..)?),
            (b'\\', [letter, after @ ..]) => (meant(*letter)?, after),
            (plain, after) => (*plain, after),
        };
        *room.get_mut(length).filter(|_| byte.is_ascii())? = byte;
        length += 1;
    }
    room.get(..length)
}

/// What a letter behind a backslash stands for.
const fn meant(letter: u8) -> Option<u8> {
    Some(match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 0x08,
        b'f' => 0x0C,
        b'"' | b'\\' | b'/' => letter,
        _ => return None,
    })
}

/// The end of the escape at `start`, or of two if they are a surrogate pair; and whether it is half of such a pair.
fn escape_end(text: &[u8], start: usize) -> Result<(usize, bool), StringFault> {
    match text.get(start + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => return Ok((start + 2, false)),
        Some(b'u') => {}
        _ => return Err((start + 1, Fault::Escape)),
    }
    let end = start + 6;
    match code_unit(text, start + 2)? {
        0xD800..=0xDBFF if text.get(end..end + 2) == Some(b"\\u") => match code_unit(text, end + 2)? {
            0xDC00..=0xDFFF => Ok((end + 6, false)),
            _ => Ok((end, true)),
        },
        0xD800..=0xDFFF => Ok((end, true)),
        _ => Ok((end, false)),
    }
}

fn code_unit(text: &[u8], start: usize) -> Result<u32, StringFault> {
    (start..start + 4).try_fold(0, |unit, at| {
        let digit = text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        Ok(unit << 4 | digit.ok_or((at, Fault::HexDigits))?)
    })
}

/// How many bytes come before the first quote, backslash or control character; all of them if there is none.
///
/// Short runs, which most keys and prose between escapes are, are found a word at a time; after that, blocks are
/// tested as a whole until one has something in it.
#[inline]
fn plain_length(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for words in 0..WORDS_BEFORE_BLOCKS {
        let Some((word, behind)) = rest.split_first_chunk() else {
            return words * WORD_BYTES + plain_words(rest);
        };
        let marks = special_bytes(u64::from_le_bytes(*word));
        if marks != 0 {
            return words * WORD_BYTES + (marks.trailing_zeros() / 8) as usize;
        }
        rest = behind;
    }
    bytes.len() - rest.len() + plain_blocks(rest)
}

/// The same of many.
#[inline(never)]
fn plain_blocks(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let skipped = blocks.iter().take_while(|block| is_plain_block(block)).count() * BLOCK_BYTES;
    skipped + plain_words(bytes.get(skipped..).unwrap_or_default())
}

/// No early way out, so that it compiles to vector instructions.
fn is_plain_block(block: &[u8; BLOCK_BYTES]) -> bool {
    !block.iter().fold(false, |found, byte| {
        found | (*byte == b'"') | (*byte == b'\\') | (*byte < 0x20)
    })
}

#[inline(never)]
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
/// mark a byte above it), and it is the only one used. All of them are ASCII, so that the top bits of the word itself serve
/// for all.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit);
    let quote = below(word ^ (ONES * 0x22), 1);
    let backslash = below(word ^ (ONES * 0x5C), 1);
    (below(word, 0x20) | quote | backslash) & !word & TOPS
}
