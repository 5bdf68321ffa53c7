//! Tokens that are believed, and each thing that can be wrong with one.

use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair},
};
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;
const EXPECTED: ExpectedClaims<'_> = ExpectedClaims {
    issuer: "https://login.example",
    client_id: "weir",
    nonce: "n",
    now: NOW,
};

fn claims() -> Value {
    json!({"iss": "https://login.example", "aud": "weir", "sub": "7", "nonce": "n", "iat": NOW, "exp": NOW + 300})
}

fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

/// Signs with a key that is drawn from a seed.
fn signed_by(seed: u8, header: &Value, claims: &Value) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = Ed25519KeyPair::from_seed_unchecked(&[seed; 32])
        .unwrap()
        .sign(message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn signed(claims: &Value) -> String {
    signed_by(1, &json!({"alg": "EdDSA", "kid": "one"}), claims)
}

fn key(seed: u8, id: &str) -> Value {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": URL_SAFE_NO_PAD.encode(pair.public_key())})
}

fn keys() -> IdTokenKeys {
    let strange = [
        json!({"kty": "oct", "k": "AAAA"}),
        json!(7),
        json!({"kty": "RSA", "n": "!", "e": "AQAB"}),
    ];
    IdTokenKeys::read(&json!({"keys": [strange[0], strange[1], strange[2], key(2, "two"), key(1, "one")]}))
}

#[test]
fn a_token_that_is_right_is_believed() {
    assert_eq!(check(&signed(&claims()), &keys(), &EXPECTED), Ok(claims()));
    let mut several = claims();
    several["aud"] = json!(["other", "weir"]);
    several["azp"] = json!("weir");
    several["iat"] = json!(NOW as f64 - 0.5);
    assert!(check(&signed(&several), &keys(), &EXPECTED).is_ok());
    let without_id = signed_by(1, &json!({"alg": "EdDSA"}), &claims());
    assert!(
        check(&without_id, &keys(), &EXPECTED).is_ok(),
        "any key of the set may have signed it"
    );
}

#[test]
fn each_claim_that_is_wrong_or_missing_is_a_fault() {
    let wrong = [
        ("iss", json!("https://login.example/"), IdTokenFault::Issuer),
        ("iss", json!(null), IdTokenFault::Issuer),
        ("aud", json!("other"), IdTokenFault::Audience),
        ("aud", json!(["other"]), IdTokenFault::Audience),
        ("aud", json!(["weir", "other"]), IdTokenFault::Audience),
        ("aud", json!(null), IdTokenFault::Audience),
        ("azp", json!("other"), IdTokenFault::Audience),
        ("exp", json!(NOW - SKEW), IdTokenFault::Expired),
        ("exp", json!("soon"), IdTokenFault::Expired),
        ("iat", json!(NOW + SKEW + 1), IdTokenFault::Issued),
        ("iat", json!(NOW - AGE_MAX - 1), IdTokenFault::Issued),
        ("iat", json!(null), IdTokenFault::Issued),
        ("nbf", json!(NOW + SKEW + 1), IdTokenFault::Issued),
        ("nonce", json!("m"), IdTokenFault::Nonce),
        ("nonce", json!(null), IdTokenFault::Nonce),
        ("sub", json!(""), IdTokenFault::Subject),
        ("sub", json!("x".repeat(256)), IdTokenFault::Subject),
        ("sub", json!(7), IdTokenFault::Subject),
    ];
    for (name, value, fault) in wrong {
        let mut claims = claims();
        claims[name] = value.clone();
        assert_eq!(
            check(&signed(&claims), &keys(), &EXPECTED),
            Err(fault),
            "{name}: {value}"
        );
    }
    let at_the_edges = [
        ("exp", NOW - SKEW + 1),
        ("iat", NOW + SKEW),
        ("iat", NOW - AGE_MAX),
        ("nbf", NOW + SKEW),
    ];
    for (name, value) in at_the_edges {
        let mut claims = claims();
        claims[name] = json!(value);
        assert!(check(&signed(&claims), &keys(), &EXPECTED).is_ok(), "{name}: {value}");
    }
}

#[test]
fn only_a_key_of_the_provider_that_is_meant_has_signed_it() {
    let header = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let faults = [
        (
            signed_by(3, &header("EdDSA", "one"), &claims()),
            IdTokenFault::Signature,
        ),
        (
            signed_by(1, &header("EdDSA", "two"), &claims()),
            IdTokenFault::Signature,
        ),
        (
            signed_by(1, &header("EdDSA", "three"), &claims()),
            IdTokenFault::Signature,
        ),
        // What a key is for says the key, not the token.
        (
            signed_by(1, &header("RS256", "one"), &claims()),
            IdTokenFault::Signature,
        ),
        (
            signed_by(1, &header("ES256", "one"), &claims()),
            IdTokenFault::Signature,
        ),
        (signed_by(1, &header("none", "one"), &claims()), IdTokenFault::Algorithm),
        (
            signed_by(1, &header("HS256", "one"), &claims()),
            IdTokenFault::Algorithm,
        ),
        (signed_by(1, &json!({"kid": "one"}), &claims()), IdTokenFault::Form),
        (
            signed_by(1, &json!({"alg": "EdDSA", "crit": ["b64"]}), &claims()),
            IdTokenFault::Form,
        ),
        (String::new(), IdTokenFault::Form),
        ("a.b.c".to_owned(), IdTokenFault::Form),
        ("a.b".to_owned(), IdTokenFault::Form),
    ];
    for (token, fault) in faults {
        assert_eq!(check(&token, &keys(), &EXPECTED), Err(fault), "{token}");
    }
    let token = signed(&claims());
    let (message, _) = token.rsplit_once('.').unwrap();
    assert_eq!(
        check(&format!("{message}."), &keys(), &EXPECTED),
        Err(IdTokenFault::Signature)
    );
    assert_eq!(
        check(&token, &IdTokenKeys::default(), &EXPECTED),
        Err(IdTokenFault::Signature)
    );
    let mut other = claims();
    other["sub"] = json!("8");
    let (header, signature) = (token.split('.').next().unwrap(), token.rsplit('.').next().unwrap());
    let changed = format!("{header}.{}.{signature}", encode(&other));
    assert_eq!(check(&changed, &keys(), &EXPECTED), Err(IdTokenFault::Signature));
}

#[test]
fn a_key_that_is_for_something_else_has_signed_nothing() {
    for (member, value) in [("use", "enc"), ("alg", "ES256"), ("crv", "X25519")] {
        let mut key = key(1, "one");
        key[member] = json!(value);
        let keys = IdTokenKeys::read(&json!({"keys": [key]}));
        assert_eq!(
            check(&signed(&claims()), &keys, &EXPECTED),
            Err(IdTokenFault::Signature),
            "{member}"
        );
    }
}

#[test]
fn a_signature_on_an_elliptic_curve_is_verified() {
    let random = SystemRandom::new();
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
    let message = format!("{}.{}", encode(&json!({"alg": "ES256"})), encode(&claims()));
    let signature = pair.sign(&random, message.as_bytes()).unwrap();
    let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
    let point = pair.public_key().as_ref();
    let (x, y) = (
        URL_SAFE_NO_PAD.encode(&point[1..33]),
        URL_SAFE_NO_PAD.encode(&point[33..]),
    );
    let keys = |crv: &str| IdTokenKeys::read(&json!({"keys": [{"kty": "EC", "crv": crv, "x": x, "y": y}]}));
    assert!(check(&token, &keys("P-256"), &EXPECTED).is_ok());
    assert_eq!(check(&token, &keys("P-384"), &EXPECTED), Err(IdTokenFault::Signature));
}
