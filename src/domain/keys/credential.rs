//! Which key a request is made with (docs/interface.md, Authentication).

use crate::domain::{
    keys::secret::{KeyPrefix, ServiceKey},
    wire::protocol::Protocol,
};

/// Request headers that can carry a credential. None of them is ever forwarded.
pub(crate) const CREDENTIAL_HEADERS: [&str; 6] = [
    "x-api-key",
    "authorization",
    "x-goog-api-key",
    "x-genai-api-key",
    "api-key",
    "proxy-authorization",
];

/// The places of one request where a client may have put a key. A header that came twice has two entries.
#[derive(Debug, Default)]
pub(crate) struct Offered<'a> {
    /// `x-api-key`
    pub x_api_key: Vec<&'a str>,
    /// The text after `Bearer ` in `authorization`.
    pub bearer: Vec<&'a str>,
    /// `x-goog-api-key` and `x-genai-api-key`, two names of one place.
    pub x_goog_api_key: Vec<&'a str>,
    /// The `key` parameter of the query.
    pub query_key: Vec<&'a str>,
}

/// Why no key could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialError {
    /// The protocol's places hold nothing.
    Missing,
    /// One place twice.
    Ambiguous,
    /// Something was given, but it is not a key of this service (wrong prefix, alphabet, length or checksum).
    Malformed,
}

/// Takes the key of a request: that of the protocol's preferred place wins, also over another key elsewhere. What is not in
/// this service's key format is passed over, so then the fallback serves. A place that came twice is refused: whose request it
/// is would depend on who reads which line.
pub(crate) fn take(
    protocol: Protocol,
    offered: &Offered<'_>,
    prefix: &KeyPrefix,
) -> Result<ServiceKey, CredentialError> {
    // A bearer beside Google's header is ignored: Gemini CLI sends its login there.
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
    fn the_preferred_places_key_wins_over_a_second_valid_one() {
        let (key, other) = two_keys();
        let (k, o) = (|| vec![key.as_str()], || vec![other.as_str()]);
        let cases = [
            (
                Protocol::Messages,
                Offered {
                    x_api_key: k(),
                    bearer: o(),
                    x_goog_api_key: o(),
                    query_key: o(),
                },
            ),
            (
                Protocol::Responses,
                Offered {
                    bearer: k(),
                    x_api_key: o(),
                    x_goog_api_key: o(),
                    query_key: o(),
                },
            ),
            (
                Protocol::Gemini,
                Offered {
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
                    Offered {
                        x_api_key: twice(),
                        ..Offered::default()
                    },
                ),
                (
                    Protocol::Messages,
                    Offered {
                        x_api_key: vec![&key],
                        bearer: twice(),
                        ..Offered::default()
                    },
                ),
                (
                    Protocol::Responses,
                    Offered {
                        bearer: twice(),
                        ..Offered::default()
                    },
                ),
                (
                    Protocol::Gemini,
                    Offered {
                        x_goog_api_key: twice(),
                        ..Offered::default()
                    },
                ),
                (
                    Protocol::Gemini,
                    Offered {
                        query_key: twice(),
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
