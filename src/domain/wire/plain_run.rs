//! How far a JSON string goes without a quote or a backslash.

/// The bytes that are looked at together in short strings.
const WORD_BYTES: usize = 8;
/// Words that are tried before a string counts as long: a search for those takes a while to begin.
const SHORT_WORDS: usize = 4;

/// The number of bytes before the next quote or backslash.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for words in 0..SHORT_WORDS {
        let Some((word, behind)) = rest.split_first_chunk() else {
            return run_to_end(rest, words * WORD_BYTES);
        };
        let ends = ends(u64::from_le_bytes(*word));
        if ends != 0 {
            return words * WORD_BYTES + (ends.trailing_zeros() / u8::BITS) as usize;
        }
        rest = behind;
    }
    long_run(rest, SHORT_WORDS * WORD_BYTES)
}

/// The same of a few bytes behind so many others.
#[inline(never)]
fn run_to_end(bytes: &[u8], before: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
    before + bytes.iter().position(is_end).unwrap_or(bytes.len())
}

/// The same of many.
#[inline(never)]
fn long_run(bytes: &[u8], before: usize) -> usize {
    before + memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
}

const fn every_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

/// The highest bit of each byte that is a quote or a backslash, up to the first one: what stands above that means nothing
/// (<https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>). Both are ASCII, so that the highest bits of the word
/// itself serve for both.
const fn ends(word: u64) -> u64 {
    let quote = (word ^ every_byte(b'"')).wrapping_sub(every_byte(1));
    let backslash = (word ^ every_byte(b'\\')).wrapping_sub(every_byte(1));
    (quote | backslash) & !word & every_byte(0x80)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_run_ends_where_the_first_quote_or_backslash_stands(
            before in prop::collection::vec(any::<u8>(), 0..200),
            behind in "[\"\\\\!#\\[\\]a\u{80}\u{a2}\u{dc}]{0,20}",
        ) {
            let bytes = [before.as_slice(), behind.as_bytes()].concat();
            let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), end);
        }
    }
}
