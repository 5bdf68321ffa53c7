//! Finds the next quote or backslash in a JSON string.

/// The number of bytes that are searched at a time in short strings.
const WORD_BYTES: usize = 8;
/// The number of words to search before a string counts as long: the search in long strings is slow to start.
const SHORT_WORDS: usize = 4;

/// Returns the number of bytes before the next quote or backslash.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for words in 0..SHORT_WORDS {
        let Some((word, behind)) = rest.split_first_chunk() else {
            return run_to_end(rest, words * WORD_BYTES);
        };
        let ends = end_bits(u64::from_le_bytes(*word));
        if ends != 0 {
            return words * WORD_BYTES + (ends.trailing_zeros() / u8::BITS) as usize;
        }
        rest = behind;
    }
    long_run(rest, SHORT_WORDS * WORD_BYTES)
}

/// The same for fewer bytes than a word, after `before` others.
#[inline(never)]
fn run_to_end(bytes: &[u8], before: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
    before + bytes.iter().position(is_end).unwrap_or(bytes.len())
}

/// The same for many bytes, after `before` others.
#[inline(never)]
fn long_run(bytes: &[u8], before: usize) -> usize {
    before + memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
}

const fn repeated_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

/// Sets the highest bit of the first byte that is a quote or a backslash; bits above that one have no meaning
/// (<https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>). Both characters are ASCII, so one mask of the word's own
/// highest bits serves for both.
const fn end_bits(word: u64) -> u64 {
    let quote = (word ^ repeated_byte(b'"')).wrapping_sub(repeated_byte(1));
    let backslash = (word ^ repeated_byte(b'\\')).wrapping_sub(repeated_byte(1));
    (quote | backslash) & !word & repeated_byte(0x80)
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
