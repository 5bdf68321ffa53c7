//! Which key a request is made with (spec section 5, design.md section 7).

use crate::domain::{
    protocol::Protocol,
    secret::{KeyPrefix, ServiceKey},
};

/// Request headers that can carry a credential. None of them is ever forwarded.
pub const CREDENTIAL_HEADERS: [&str; 6] = [
    "x-api-key",
    "authorization",
    "x-goog-api-key",
    "x-genai-api-key",
    "api-key",
    "proxy-authorization",
];

/// The places of one request where a client may have put a key. A header that came twice has two entries.
#[derive(Debug, Default)]
pub struct Offered<'a> {
    /// `x-api-key`
    pub x_api_key: Vec<&'a str>,
    /// The text after `Bearer ` in `authorization`.
    pub bearer: Vec<&'a str>,
    /// `x-goog-api-key` and `x-genai-api-key`, the spec's name for the same header.
    pub x_goog_api_key: Vec<&'a str>,
    /// The `key` parameter of the query.
    pub query_key: Vec<&'a str>,
}

/// Why no key could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialError {
    /// The protocol's places hold nothing.
    Missing,
    /// One place twice, or two well-formed keys that differ.
    Ambiguous,
    /// Something was given, but it is not a key of this service (wrong prefix, alphabet, length or checksum).
    Malformed,
}

/// Takes the key of a request: the protocol's preferred place wins, then its fallback. A second credential that is not
/// in this service's key format is ignored; two well-formed keys that differ are refused, because the client's
/// identity would depend on who reads which header.
pub fn take(protocol: Protocol, offered: &Offered<'_>, prefix: &KeyPrefix) -> Result<ServiceKey, CredentialError> {
    // A bearer beside Google's header is ignored: Gemini CLI sends its login there.
    let places: &[&Vec<&str>] = match protocol {
        Protocol::Messages => &[&offered.x_api_key, &offered.bearer],
        Protocol::Responses => &[&offered.bearer],
        Protocol::Gemini => &[&offered.x_goog_api_key, &offered.query_key],
    };
    if places.iter().any(|values| values.len() > 1) {
        return Err(CredentialError::Ambiguous);
    }
    let values = || places.iter().filter_map(|values| values.first().copied());
    let mut keys = values().filter_map(|text| ServiceKey::parse(prefix, text).ok());
    let Some(first) = keys.next() else {
        return Err(if values().next().is_some() {
            CredentialError::Malformed
        } else {
            CredentialError::Missing
        });
    };
    let others = keys.chain(strays(protocol, offered, prefix));
    for other in others {
        if other.digest() != first.digest() {
            return Err(CredentialError::Ambiguous);
        }
    }
    Ok(first)
}

/// Well-formed keys in places that the protocol does not read.
fn strays<'a>(
    protocol: Protocol,
    offered: &'a Offered<'_>,
    prefix: &'a KeyPrefix,
) -> impl Iterator<Item = ServiceKey> + 'a {
    let places: &[&Vec<&str>] = match protocol {
        Protocol::Messages => &[&offered.x_goog_api_key, &offered.query_key],
        Protocol::Responses => &[&offered.x_api_key, &offered.x_goog_api_key, &offered.query_key],
        Protocol::Gemini => &[&offered.x_api_key],
    };
    let texts: Vec<&str> = places.iter().flat_map(|values| values.iter().copied()).collect();
    texts
        .into_iter()
        .filter_map(move |text| ServiceKey::parse(prefix, text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix() -> KeyPrefix {
        KeyPrefix::new("weir").expect("a valid prefix")
    }

    fn two_keys() -> (String, String) {
        let mut random = rand::rng();
        let mut key = || ServiceKey::generate(&prefix(), &mut random).as_str().to_owned();
        (key(), key())
    }

    fn taken(protocol: Protocol, offered: &Offered<'_>) -> Result<String, CredentialError> {
        take(protocol, offered, &prefix()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn the_preferred_place_wins_and_the_fallback_serves() {
        let (key, _) = two_keys();
        let k = || vec![key.as_str()];
        let cases = [
            (
                Protocol::Messages,
                Offered {
                    x_api_key: k(),
                    ..Offered::default()
                },
            ),
            (
                Protocol::Messages,
                Offered {
                    bearer: k(),
                    ..Offered::default()
                },
            ),
            (
                Protocol::Messages,
                Offered {
                    x_api_key: k(),
                    bearer: k(),
                    ..Offered::default()
                },
            ),
            (
                Protocol::Responses,
                Offered {
                    bearer: k(),
                    ..Offered::default()
                },
            ),
            (
                Protocol::Gemini,
                Offered {
                    x_goog_api_key: k(),
                    ..Offered::default()
                },
            ),
            (
                Protocol::Gemini,
                Offered {
                    query_key: k(),
                    ..Offered::default()
                },
            ),
            (
                Protocol::Gemini,
                Offered {
                    x_goog_api_key: k(),
                    query_key: k(),
                    ..Offered::default()
                },
            ),
        ];
        for (protocol, offered) in cases {
            assert_eq!(
                taken(protocol, &offered).as_deref(),
                Ok(key.as_str()),
                "{protocol:?} {offered:?}"
            );
        }
    }

    #[test]
    fn what_is_no_key_of_this_service_is_ignored_beside_one_that_is() {
        let (key, _) = two_keys();
        let offered = Offered {
            x_api_key: vec!["sk-ant-other"],
            bearer: vec![&key],
            ..Offered::default()
        };
        assert_eq!(taken(Protocol::Messages, &offered).as_deref(), Ok(key.as_str()));
    }

    #[test]
    fn two_keys_that_differ_or_one_place_twice_are_ambiguous() {
        let (key, other) = two_keys();
        let cases = [
            (
                Protocol::Messages,
                Offered {
                    x_api_key: vec![&key],
                    bearer: vec![&other],
                    ..Offered::default()
                },
            ),
            (
                Protocol::Messages,
                Offered {
                    x_api_key: vec![&key, &key],
                    ..Offered::default()
                },
            ),
            (
                Protocol::Responses,
                Offered {
                    bearer: vec![&key],
                    x_api_key: vec![&other],
                    ..Offered::default()
                },
            ),
            (
                Protocol::Gemini,
                Offered {
                    x_goog_api_key: vec![&key],
                    query_key: vec![&other],
                    ..Offered::default()
                },
            ),
        ];
        for (protocol, offered) in cases {
            assert_eq!(
                taken(protocol, &offered),
                Err(CredentialError::Ambiguous),
                "{protocol:?} {offered:?}"
            );
        }
    }

    #[test]
    fn a_bearer_beside_googles_header_is_ignored() {
        let (key, other) = two_keys();
        let offered = Offered {
            x_goog_api_key: vec![&key],
            bearer: vec![&other],
            ..Offered::default()
        };
        assert_eq!(taken(Protocol::Gemini, &offered).as_deref(), Ok(key.as_str()));
    }

    #[test]
    fn nothing_is_missing_and_anything_else_is_malformed() {
        let (key, _) = two_keys();
        assert_eq!(
            taken(Protocol::Responses, &Offered::default()),
            Err(CredentialError::Missing)
        );
        let elsewhere = Offered {
            x_api_key: vec![&key],
            ..Offered::default()
        };
        assert_eq!(
            taken(Protocol::Responses, &elsewhere),
            Err(CredentialError::Missing),
            "Responses takes Bearer only"
        );
        let other = Offered {
            bearer: vec!["sk-other"],
            ..Offered::default()
        };
        assert_eq!(taken(Protocol::Responses, &other), Err(CredentialError::Malformed));
    }
}
