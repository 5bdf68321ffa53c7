//! Tests of keys: where a request carries them, and their records.

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::domain::{
    ledger::{FinishFactor, KeyTerms},
    money::NanoUsd,
};

fn record() -> KeyRecord {
    KeyRecord {
        id: KeyId::generate(&mut StdRng::seed_from_u64(1)),
        name: "laptop".into(),
        account: "acme".into(),
        created_at: 100,
        expires_at: Some(200),
        models: None,
        state: KeyState::Active,
        hint: "wxyz".into(),
        revision: 0,
        terms: KeyTerms::default(),
        former: None,
        text_since: None,
    }
}

fn digest(number: u8) -> KeyDigest {
    KeyDigest::from_bytes([number; 32])
}

#[test]
fn a_key_works_until_its_end() {
    let key = record();
    assert_eq!(key.check(&digest(1), 199), Ok(()));
    assert_eq!(key.check(&digest(1), 200), Err(KeyInvalid::Expired));
    assert_eq!(
        KeyRecord {
            expires_at: None,
            ..key
        }
        .check(&digest(1), i64::MAX),
        Ok(())
    );
}

#[test]
fn revoked_is_said_before_expired() {
    let key = KeyRecord {
        state: KeyState::Revoked { at: 150 },
        ..record()
    };
    assert_eq!(key.check(&digest(1), 0), Err(KeyInvalid::Revoked));
    assert_eq!(key.check(&digest(1), 300), Err(KeyInvalid::Revoked));
}

#[test]
fn the_text_before_a_rotation_is_good_until_its_end() {
    let key = KeyRecord {
        expires_at: None,
        ..record()
    };
    let to = |number, overlap_until| Rotation {
        digest: digest(number),
        hint: "abcd".into(),
        at: 150,
        overlap_until,
    };
    let rotated = key.rotated(&digest(1), &to(2, Some(300)));
    let former = rotated.former.clone().unwrap();
    assert_eq!((rotated.hint.as_str(), former.hint.as_str()), ("abcd", "wxyz"));
    assert_eq!((rotated.revision, former.digest), (1, digest(1)));
    assert_eq!(rotated.check(&digest(1), 299), Ok(()));
    assert_eq!(rotated.check(&digest(1), 300), Err(KeyInvalid::Replaced));
    assert_eq!(rotated.check(&digest(2), 300), Ok(()), "the new one goes on");
    assert_eq!(rotated.revoked(250).check(&digest(1), 299), Err(KeyInvalid::Revoked));
    assert_eq!(key.rotated(&digest(1), &to(2, None)).former, None);
    // Of three texts the first has ended.
    let again = rotated.rotated(&digest(2), &to(3, Some(400)));
    assert_eq!(again.former_digest(), Some(digest(2)));
    let ended = again.overlap_ended();
    assert_eq!((ended.former_digest(), ended.revision), (None, 3));
    assert_eq!(ended.overlap_ended(), ended, "there is nothing to end");
}

#[test]
fn a_record_without_a_former_text_is_written_as_before() {
    let text = serde_json::to_string(&record()).unwrap();
    assert!(!text.contains("former"), "{text}");
}

#[test]
fn models_are_all_some_or_none() {
    let with = |models| KeyRecord { models, ..record() };
    assert!(with(None).allows_model("any"));
    assert!(with(Some(vec!["a".into(), "b".into()])).allows_model("b"));
    assert!(!with(Some(vec!["a".into()])).allows_model("A"));
    assert!(!with(Some(Vec::new())).allows_model("a"));
}

#[test]
fn the_stored_form_is_pinned() {
    let text = serde_json::to_string(&KeyRecord {
        state: KeyState::Revoked { at: 7 },
        ..record()
    })
    .unwrap();
    let id = record().id;
    assert_eq!(
        text,
        format!(
            r#"{{"id":"{id}","name":"laptop","account":"acme","created_at":100,"expires_at":200,"models":null,"state":"revoked","at":7,"hint":"wxyz","revision":0,"terms":{{"reset":"none","on_exhausted":"finish"}}}}"#
        )
    );
}

#[test]
fn a_bound_for_answers_that_finish_is_read_and_where_none_was_written_it_is_twice_the_quota() {
    let terms = |text: &str| serde_json::from_str::<KeyTerms>(text).unwrap().finish_factor;
    assert_eq!(
        terms(r#"{"reset":"none","on_exhausted":"finish"}"#),
        FinishFactor::default()
    );
    for factor in [
        FinishFactor::NONE,
        FinishFactor::new(5).unwrap(),
        FinishFactor::default(),
    ] {
        let written = KeyTerms {
            finish_factor: factor,
            ..KeyTerms::default()
        };
        assert_eq!(terms(&serde_json::to_string(&written).unwrap()), factor);
    }
    assert_eq!((FinishFactor::new(0), FinishFactor::new(1_001)), (None, None));
    let cents = NanoUsd::from_nanos(7);
    assert_eq!(FinishFactor::default().times(cents), Some(NanoUsd::from_nanos(14)));
    assert_eq!(FinishFactor::default().times(NanoUsd::MAX), Some(NanoUsd::MAX));
}

#[test]
fn a_pasted_key_is_no_id_and_is_not_repeated() {
    let error = KeyId::parse("weir-secret").unwrap_err().to_string();
    assert!(!error.contains("secret"));
    assert!(KeyId::parse("key_0123456789abcde_").is_err() && KeyId::parse("key_0123456789abcdef0").is_err());
}

proptest! {
    #[test]
    fn records_round_trip(name in ".*", at: i64, revoked: bool, models: Option<Vec<String>>, revision: u64) {
        let state = if revoked { KeyState::Revoked { at } } else { KeyState::Active };
        let key = KeyRecord { name, state, models, revision, ..record() };
        let text = serde_json::to_string(&key).unwrap();
        prop_assert_eq!(serde_json::from_str::<KeyRecord>(&text).unwrap(), key);
    }

    #[test]
    fn ids_parse_back(seed: u64) {
        let id = KeyId::generate(&mut StdRng::seed_from_u64(seed));
        prop_assert_eq!(KeyId::parse(id.as_str()), Ok(id));
    }
}

#[test]
fn of_two_forms_of_a_key_the_later_holds_and_a_revocation_always() {
    let at = |revision| KeyRecord { revision, ..record() };
    let revoked = |revision| KeyRecord {
        state: KeyState::Revoked { at: 150 },
        ..at(revision)
    };
    assert_eq!(at(2).merged_with(&at(2)), None);
    assert_eq!(at(2).merged_with(&at(1)), None);
    assert_eq!(at(2).merged_with(&at(3)), Some(at(3)));
    assert_eq!(at(2).merged_with(&revoked(3)), Some(revoked(3)));
    assert_eq!(at(2).merged_with(&revoked(1)), Some(revoked(3)));
    assert_eq!(revoked(2).merged_with(&at(5)), Some(revoked(6)));
    assert_eq!(revoked(2).merged_with(&at(1)), None);
    assert_eq!(revoked(2).merged_with(&revoked(2)), None);
}

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
                lacks_bearer_scheme: false,
            },
        ),
        (
            Protocol::Responses,
            PresentedCredentials {
                bearer: k(),
                x_api_key: o(),
                x_goog_api_key: o(),
                query_key: o(),
                lacks_bearer_scheme: false,
            },
        ),
        (
            Protocol::Gemini,
            PresentedCredentials {
                x_goog_api_key: k(),
                query_key: o(),
                x_api_key: o(),
                bearer: o(),
                lacks_bearer_scheme: false,
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
fn a_missing_scheme_is_said_where_the_header_authorization_is_the_only_place() {
    let (key, _) = two_keys();
    let offered = |x_api_key: Vec<&'static str>| PresentedCredentials {
        x_api_key,
        bearer: vec![""],
        lacks_bearer_scheme: true,
        ..PresentedCredentials::default()
    };
    for (protocol, x_api_key, error) in [
        (Protocol::Messages, vec![], CredentialError::BearerSchemeMissing),
        (Protocol::Messages, vec!["cut-off"], CredentialError::Malformed),
        (Protocol::Responses, vec![], CredentialError::BearerSchemeMissing),
        (
            Protocol::Responses,
            vec!["cut-off"],
            CredentialError::BearerSchemeMissing,
        ),
        (Protocol::Gemini, vec![], CredentialError::Missing),
    ] {
        let offered = offered(x_api_key);
        assert_eq!(taken(protocol, &offered), Err(error), "{protocol:?} {offered:?}");
    }
    let beside = PresentedCredentials {
        x_api_key: vec![&key],
        ..offered(Vec::new())
    };
    assert_eq!(taken(Protocol::Messages, &beside).as_deref(), Ok(key.as_str()));
    let login = PresentedCredentials {
        x_goog_api_key: vec!["cut-off"],
        ..offered(Vec::new())
    };
    assert_eq!(taken(Protocol::Gemini, &login), Err(CredentialError::Malformed));
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
