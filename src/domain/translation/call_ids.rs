//! Converts the ids of tool calls. The conversion is reversible: each provider gets its own ids back, and each client gets ids
//! that it can use.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The maximum length of a provider's id that is sent to a client without escaping, in bytes.
const ID_BYTES_MAX: usize = 64;
/// The prefix of an escaped id.
const PREFIX: &str = "weir_";
/// The length of an id at providers that require the form `[A-Za-z0-9]{9}`, in characters.
const SHORT_CHARS: usize = 9;

/// The form of the call ids that a provider accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CallIdForm {
    /// Any id.
    #[default]
    Any,
    /// An id of nine letters and digits.
    #[serde(rename = "alnum9")]
    NineAlphanumeric,
}

/// Returns the client's id of the call that has this id at the provider.
pub(crate) fn client_id(provider_id: &str) -> Cow<'_, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_plain = (1..=ID_BYTES_MAX).contains(&provider_id.len())
        && provider_id.bytes().all(fits)
        && !provider_id.starts_with(PREFIX);
    if is_plain {
        return Cow::Borrowed(provider_id);
    }
    Cow::Owned(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(provider_id)))
}

/// Returns the provider's id of the call that has this id at the client. Reverses [`client_id`], and returns an id in the form
/// that the provider accepts.
pub(crate) fn provider_id(client_id: &str, form: CallIdForm) -> Cow<'_, str> {
    let escaped = client_id
        .strip_prefix(PREFIX)
        .and_then(|escaped| URL_SAFE_NO_PAD.decode(escaped).ok());
    let id = match escaped.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(own) => Cow::Owned(own),
        None => Cow::Borrowed(client_id),
    };
    let is_short = |id: &str| id.len() == SHORT_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match form {
        CallIdForm::Any => id,
        CallIdForm::NineAlphanumeric if is_short(&id) => id,
        CallIdForm::NineAlphanumeric => {
            let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(id.as_bytes()));
            let letters = digest.chars().filter(char::is_ascii_alphanumeric);
            Cow::Owned(letters.take(SHORT_CHARS).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_of_a_provider_returns_as_it_was(id in ".{0,80}") {
            let at_client = client_id(&id).into_owned();
            let fits = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
            prop_assert!(!at_client.is_empty() && at_client.chars().all(fits));
            prop_assert_eq!(provider_id(&at_client, CallIdForm::Any), id);
        }

        #[test]
        fn a_short_id_is_the_same_for_call_and_result(id in ".{0,80}") {
            let short = provider_id(&id, CallIdForm::NineAlphanumeric).into_owned();
            prop_assert!(short.len() == SHORT_CHARS && short.chars().all(|c| c.is_ascii_alphanumeric()), "{}", short);
            prop_assert_eq!(provider_id(&id, CallIdForm::NineAlphanumeric), short);
        }
    }

    #[test]
    fn usual_ids_pass_and_others_are_escaped() {
        assert_eq!(client_id("call_abc-1"), "call_abc-1");
        let kimi = client_id("functions.Bash:0");
        assert!(kimi.starts_with(PREFIX), "{kimi}");
        assert_eq!(provider_id("toolu_01", CallIdForm::NineAlphanumeric).len(), SHORT_CHARS);
        assert_eq!(provider_id("abcdefghi", CallIdForm::NineAlphanumeric), "abcdefghi");
    }
}
