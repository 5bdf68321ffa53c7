//! Tests of certificates, and certificates for the tests beside it.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::ring;

use crate::front::tls::*;

/// A key of the kind that rcgen cannot make; it is used nowhere but in tests.
const RSA: &str = include_str!("../certificate/rsa_for_tests.pem");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ecdsa,
    Rsa,
}

fn key_pair(kind: Kind) -> KeyPair {
    match kind {
        Kind::Ecdsa => KeyPair::generate().unwrap(),
        Kind::Rsa => KeyPair::from_pem(RSA).unwrap(),
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2036, 1, 1));
    params
}

/// A certificate for these names, signed by itself.
pub(crate) fn certificate(names: &[&str], kind: Kind) -> Certificate {
    let key = key_pair(kind);
    let chain = params(names).self_signed(&key).unwrap().pem();
    read(&chain, &key.serialize_pem()).unwrap()
}

fn read(chain: &str, key: &str) -> Result<Certificate, CertificateError> {
    Certificate::read(chain.as_bytes(), key.as_bytes(), &ring::default_provider())
}

fn error(chain: &str, key: &str) -> CertificateError {
    read(chain, key).expect_err("refused")
}

#[test]
fn it_tells_what_it_is_good_for_and_until_when() {
    for (kind, text) in [(Kind::Ecdsa, "ECDSA"), (Kind::Rsa, "RSA")] {
        let certificate = certificate(&["api.example.com", "192.0.2.7"], kind);
        assert_eq!(certificate.names().to_string(), "api.example.com, 192.0.2.7");
        assert_eq!(certificate.kind(), text);
        assert_eq!(certificate.valid_from(), date_time_ymd(2026, 1, 1).unix_timestamp());
        assert_eq!(certificate.valid_until(), date_time_ymd(2036, 1, 1).unix_timestamp());
        assert!(certificate.is_in_order());
    }
}

#[test]
fn a_chain_ends_with_the_first_of_its_certificates_that_ends() {
    let mut authority = params(&[]);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.not_after = date_time_ymd(2030, 1, 1);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf = params(&["a.test"]);
    leaf.distinguished_name.push(rcgen::DnType::CommonName, "leaf");
    let leaf = leaf.signed_by(&key, &authority).unwrap().pem();
    let chain = read(&format!("{leaf}{}", authority.pem()), &key.serialize_pem()).unwrap();
    assert_eq!(chain.valid_until(), date_time_ymd(2030, 1, 1).unix_timestamp());
    assert!(chain.is_in_order());
    let strange = read(&format!("{leaf}{leaf}"), &key.serialize_pem()).unwrap();
    assert!(!strange.is_in_order());
}

#[test]
fn what_no_client_could_use_is_refused_and_the_reason_told() {
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    let good = params(&["a.test"]).self_signed(&key).unwrap().pem();
    let nameless = params(&[]).self_signed(&key).unwrap().pem();
    let other = KeyPair::generate().unwrap().serialize_pem();
    assert_eq!(error("", &pem), CertificateError::NoCertificate);
    assert_eq!(error(&pem, &pem), CertificateError::NoCertificate);
    assert_eq!(error(&good, ""), CertificateError::NoKey);
    assert_eq!(error(&good, &good), CertificateError::NoKey);
    assert_eq!(error(&good, &other), CertificateError::OtherKey);
    assert_eq!(error(&nameless, &pem), CertificateError::NoName);
    let damaged = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    assert_eq!(error(damaged, &pem), CertificateError::Damaged(1));
    assert_eq!(error(&format!("{good}{damaged}"), &pem), CertificateError::Damaged(2));
    // As a write that is under way leaves it.
    let half = good.get(..good.len() / 2).unwrap();
    assert_eq!(error(half, &pem), CertificateError::Damaged(1));
    let encrypted = pem.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert_eq!(error(&good, &encrypted), CertificateError::NoKey);
}

#[test]
fn the_holder_of_a_certificate_is_told_apart() {
    let key = KeyPair::generate().unwrap();
    let mut params = params(&["a.test"]);
    params.distinguished_name.push(rcgen::DnType::CommonName, "alice");
    let der = params.self_signed(&key).unwrap();
    let told = describe_holder(der.der()).unwrap();
    let (name, digest) = told.split_once(" sha256:").unwrap();
    assert!(name.contains("CN=alice"), "{told}");
    assert_eq!(digest.len(), 64);
    assert_eq!(describe_holder(b"no certificate"), None);
}
