//! How far a JSON string goes without a quote or a backslash.

/// The bytes that are looked at together in short strings.
const WORD_BYTES: usize = 8;
/// Words that are tried before a string counts as long.
const SHORT_WORDS: usize = 4;

/// The number of bytes before the next quote or backslash. Most strings are short, and a search for long ones takes a while to
/// begin.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    for (word, before) in words.iter().take(SHORT_WORDS).zip((0..).step_by(WORD_BYTES)) {
        let word = u64::from_le_bytes(*word);
        let found = holes(word ^ every_byte(b'"')) | holes(word ^ every_byte(b'\\'));
        if found != 0 {
            return before + usize::try_from(found.trailing_zeros()).unwrap_or(0) / WORD_BYTES;
        }
    }
    if words.len() <= SHORT_WORDS {
        let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
        return bytes.len() - rest.len() + rest.iter().position(is_end).unwrap_or(rest.len());
    }
    let (_, long) = bytes.split_at_checked(SHORT_WORDS * WORD_BYTES).unwrap_or((bytes, &[]));
    bytes.len() - long.len() + memchr::memchr2(b'"', b'\\', long).unwrap_or(long.len())
}

const fn every_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

/// The highest bit of each byte that is zero, up to the first one: what stands above that means nothing
/// (<https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>).
const fn holes(word: u64) -> u64 {
    word.wrapping_sub(every_byte(1)) & !word & every_byte(0x80)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_run_ends_where_the_first_quote_or_backslash_stands(
            before in prop::collection::vec(any::<u8>(), 0..80),
            behind in "[\"\\\\!#\\[\\]a\u{80}\u{a2}\u{dc}]{0,20}",
        ) {
            let bytes = [before.as_slice(), behind.as_bytes()].concat();
            let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), end);
        }
    }
}
