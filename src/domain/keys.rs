//! API keys: where requests carry them, their records and limits, and the headers and query parameters that never reach a
//! provider.

pub(crate) mod account_headers;
pub(crate) mod change;
pub(crate) mod forwarding;
pub(crate) mod key;
pub(crate) mod secret;
pub(crate) mod terms;

use crate::domain::{
    keys::secret::{KeyPrefix, ServiceKey},
    wire::protocol::Protocol,
};

/// The request headers that can carry a credential. None of them is ever forwarded to a provider.
pub(crate) const CREDENTIAL_HEADERS: [&str; 6] = [
    "x-api-key",
    "authorization",
    "x-goog-api-key",
    "x-genai-api-key",
    "api-key",
    "proxy-authorization",
];

/// The values that a request has in the places that can carry a key. A header that was sent twice has two values.
#[derive(Debug, Default)]
pub(crate) struct PresentedCredentials<'a> {
    /// The values of the header `x-api-key`.
    pub x_api_key: Vec<&'a str>,
    /// The tokens after `Bearer ` in the header `authorization`.
    pub bearer: Vec<&'a str>,
    /// The values of the headers `x-goog-api-key` and `x-genai-api-key`, which are treated as one place.
    pub x_goog_api_key: Vec<&'a str>,
    /// The values of the query parameter `key`.
    pub query_key: Vec<&'a str>,
}

/// Why a request has no usable key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialError {
    /// None of the places that the protocol uses for a key has a value.
    Missing,
    /// One of the places has two values.
    Ambiguous,
    /// No value is a key of this service: the prefix, the alphabet, the length or the checksum is wrong.
    Malformed,
}

/// Chooses the key of a request: the key in the place that the protocol prefers, or else in the protocol's second place. A value
/// that does not have the format of this service's keys is skipped. A place with two values is an error, because readers differ
/// in which of the two they use.
pub(crate) fn choose_key(
    protocol: Protocol,
    offered: &PresentedCredentials<'_>,
    prefix: &KeyPrefix,
) -> Result<ServiceKey, CredentialError> {
    // For Gemini-style requests, a bearer token is ignored, because Gemini CLI sends its Google login there.
    let places: &[&Vec<&str>] = match protocol {
        Protocol::Messages => &[&offered.x_api_key, &offered.bearer],
        Protocol::Responses => &[&offered.bearer],
        Protocol::Gemini => &[&offered.x_goog_api_key, &offered.query_key],
    };
    if places.iter().any(|values| values.len() > 1) {
        return Err(CredentialError::Ambiguous);
    }
    let mut values = places.iter().filter_map(|values| values.first().copied()).peekable();
    if values.peek().is_none() {
        return Err(CredentialError::Missing);
    }
    values
        .find_map(|text| ServiceKey::parse(prefix, text).ok())
        .ok_or(CredentialError::Malformed)
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

    fn taken(protocol: Protocol, offered: &PresentedCredentials<'_>) -> Result<String, CredentialError> {
        choose_key(protocol, offered, &prefix()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn the_preferred_place_wins_and_the_fallback_serves() {
        let (key, _) = two_keys();
        let k = || vec![key.as_str()];
        let cases = [
            (
                Protocol::Messages,
                PresentedCredentials {
                    x_api_key: k(),
                    ..PresentedCredentials::default()
                },
            ),
            (
                Protocol::Messages,
                PresentedCredentials {
                    bearer: k(),
                    ..PresentedCredentials::default()
                },
            ),
            (
                Protocol::Messages,
                PresentedCredentials {
                    x_api_key: k(),
                    bearer: k(),
                    ..PresentedCredentials::default()
                },
            ),
            (
                Protocol::Responses,
                PresentedCredentials {
                    bearer: k(),
                    ..PresentedCredentials::default()
                },
            ),
            (
                Protocol::Gemini,
                PresentedCredentials {
                    x_goog_api_key: k(),
                    ..PresentedCredentials::default()
                },
            ),
            (
                Protocol::Gemini,
                PresentedCredentials {
                    query_key: k(),
                    ..PresentedCredentials::default()
                },
            ),
            (
                Protocol::Gemini,
                PresentedCredentials {
                    x_goog_api_key: k(),
                    query_key: k(),
                    ..PresentedCredentials::default()
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
        let offered = PresentedCredentials {
            x_api_key: vec!["sk-ant-other"],
            bearer: vec![&key],
            ..PresentedCredentials::default()
        };
        assert_eq!(taken(Protocol::Messages, &offered).as_deref(), Ok(key.as_str()));
    }

    #[test]
    fn the_preferred_places_key_wins_over_a_second_valid_one() {
        let (key, other) = two_keys();
        let (k, o) = (|| vec![key.as_str()], || vec![other.as_str()]);
        let cases = [
            (
                Protocol::Messages,
                PresentedCredentials {
                    x_api_key: k(),
                    bearer: o(),
                    x_goog_api_key: o(),
                    query_key: o(),
                },
            ),
            (
                Protocol::Responses,
                PresentedCredentials {
                    bearer: k(),
                    x_api_key: o(),
                    x_goog_api_key: o(),
                    query_key: o(),
                },
            ),
            (
                Protocol::Gemini,
                PresentedCredentials {
                    x_goog_api_key: k(),
                    query_key: o(),
                    x_api_key: o(),
                    bearer: o(),
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
    fn one_place_twice_is_ambiguous() {
        let (key, other) = two_keys();
        for second in [&key, &other] {
            let twice = || vec![key.as_str(), second.as_str()];
            let cases = [
                (
                    Protocol::Messages,
                    PresentedCredentials {
                        x_api_key: twice(),
                        ..PresentedCredentials::default()
                    },
                ),
                (
                    Protocol::Messages,
                    PresentedCredentials {
                        x_api_key: vec![&key],
                        bearer: twice(),
                        ..PresentedCredentials::default()
                    },
                ),
                (
                    Protocol::Responses,
                    PresentedCredentials {
                        bearer: twice(),
                        ..PresentedCredentials::default()
                    },
                ),
                (
                    Protocol::Gemini,
                    PresentedCredentials {
                        x_goog_api_key: twice(),
                        ..PresentedCredentials::default()
                    },
                ),
                (
                    Protocol::Gemini,
                    PresentedCredentials {
                        query_key: twice(),
                        ..PresentedCredentials::default()
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
    }

    #[test]
    fn a_bearer_beside_googles_header_is_ignored() {
        let (key, other) = two_keys();
        let offered = PresentedCredentials {
            x_goog_api_key: vec![&key],
            bearer: vec![&other],
            ..PresentedCredentials::default()
        };
        assert_eq!(taken(Protocol::Gemini, &offered).as_deref(), Ok(key.as_str()));
    }

    #[test]
    fn nothing_is_missing_and_anything_else_is_malformed() {
        let (key, _) = two_keys();
        assert_eq!(
            taken(Protocol::Responses, &PresentedCredentials::default()),
            Err(CredentialError::Missing)
        );
        let elsewhere = PresentedCredentials {
            x_api_key: vec![&key],
            ..PresentedCredentials::default()
        };
        assert_eq!(
            taken(Protocol::Responses, &elsewhere),
            Err(CredentialError::Missing),
            "Responses takes Bearer only"
        );
        let other = PresentedCredentials {
            bearer: vec!["sk-other"],
            ..PresentedCredentials::default()
        };
        assert_eq!(taken(Protocol::Responses, &other), Err(CredentialError::Malformed));
    }
}
