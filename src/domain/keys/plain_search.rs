//! Looks for a secret in short texts, such as the values of a head.

use memchr::memchr_iter;

/// Whether `secret` stands in `text`, byte for byte. An empty one stands nowhere.
///
/// A searcher that is made for the secret first would cost more than all the texts of a request, most of which are shorter
/// than the secret.
pub(crate) fn is_in(text: &[u8], secret: &[u8]) -> bool {
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
            assert!(is_in(text.as_bytes(), b"abcab"), "{text}");
        }
        for text in ["", "abca", "bcab", "abcaxb", "abca-abca"] {
            assert!(!is_in(text.as_bytes(), b"abcab"), "{text}");
        }
        assert!(!is_in(b"abc", b""));
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_of_the_standard_library_finds(text in "[ab]{0,40}", secret in "[ab]{1,6}") {
            prop_assert_eq!(is_in(text.as_bytes(), secret.as_bytes()), text.contains(&secret));
        }
    }
}
