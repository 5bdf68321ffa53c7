//! Searches for a secret in short texts, such as header values.

use memchr::memchr_iter;

/// Whether `text` contains `secret`, byte for byte. An empty secret is never contained.
///
/// Building a searcher for the secret would cost more than searching all texts of a request, most of which are shorter than the
/// secret.
pub(crate) fn contains_secret(text: &[u8], secret: &[u8]) -> bool {
    let Some((first, last_start)) = secret.first().zip(text.len().checked_sub(secret.len())) else {
        return false;
    };
    let starts = text.get(..=last_start).unwrap_or_default();
    memchr_iter(*first, starts).any(|at| text.get(at..).is_some_and(|rest| rest.starts_with(secret)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_secret_is_found_at_both_ends_and_in_full_only() {
        for text in ["abcab", "xabcab", "abcabx", "ababcab"] {
            assert!(contains_secret(text.as_bytes(), b"abcab"), "{text}");
        }
        for text in ["", "abca", "bcab", "abcaxb", "abca-abca"] {
            assert!(!contains_secret(text.as_bytes(), b"abcab"), "{text}");
        }
        assert!(!contains_secret(b"abc", b""));
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_of_the_standard_library_finds(text in "[ab]{0,40}", secret in "[ab]{1,6}") {
            prop_assert_eq!(contains_secret(text.as_bytes(), secret.as_bytes()), text.contains(&secret));
        }
    }
}
