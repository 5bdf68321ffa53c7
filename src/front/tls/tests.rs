//! Tests of the choice of a certificate, and certificates for tests elsewhere.

pub(crate) mod certificate;

use rustls::crypto::ring;

use self::certificate::{Kind, certificate};
use super::*;

const BOTH: [SignatureScheme; 2] = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256];

fn choice(of: &[(&[&str], Kind)]) -> CertificateResolver {
    let crypto = ring::default_provider();
    CertificateResolver::new(
        of.iter().map(|(names, kind)| certificate(names, *kind)).collect(),
        &crypto,
    )
}

#[track_caller]
fn chosen(
    choice: &CertificateResolver,
    name: Option<&str>,
    schemes: &[SignatureScheme],
    suites: &[CipherSuite],
) -> Option<usize> {
    let certified = choice.choose(name, schemes, suites)?;
    choice
        .certificates
        .iter()
        .position(|one| Arc::ptr_eq(one.certified_key(), certified))
}

#[test]
fn the_name_decides_and_the_exact_one_goes_before_a_wildcard() {
    let choice = choice(&[
        (&["*.example.com"], Kind::Ecdsa),
        (&["api.example.com"], Kind::Ecdsa),
        (&["other.test", "third.test"], Kind::Ecdsa),
    ]);
    let suites = [CipherSuite::TLS13_AES_128_GCM_SHA256];
    for (name, place) in [
        (Some("api.example.com"), 1),
        (Some("API.Example.com"), 1),
        (Some("www.example.com"), 0),
        (Some("third.test"), 2),
        (Some("unknown.test"), 0),
        (None, 0),
    ] {
        assert_eq!(chosen(&choice, name, &BOTH, &suites), Some(place), "{name:?}");
    }
}

#[test]
fn among_those_of_a_name_the_client_gets_one_it_can_verify() {
    let choice = choice(&[(&["a.test"], Kind::Ecdsa), (&["a.test"], Kind::Rsa)]);
    let tls13 = [CipherSuite::TLS13_AES_128_GCM_SHA256];
    let rsa12 = [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    assert_eq!(chosen(&choice, Some("a.test"), &BOTH, &tls13), Some(0));
    assert_eq!(chosen(&choice, Some("a.test"), &BOTH[1..], &tls13), Some(1));
    assert_eq!(
        chosen(&choice, Some("a.test"), &BOTH, &rsa12),
        Some(1),
        "the suite decides in TLS 1.2"
    );
    assert_eq!(chosen(&choice, None, &BOTH[1..], &tls13), Some(1), "without a name too");
    assert_eq!(
        chosen(&choice, Some("a.test"), &[SignatureScheme::ED25519], &tls13),
        None
    );
}

fn names(dns: &[&str], addresses: &[&str]) -> CertificateNames {
    CertificateNames {
        dns: dns.iter().map(|name| (*name).to_owned()).collect(),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
    }
}

#[test]
fn a_wildcard_stands_for_one_label() {
    let names = names(&["*.example.com", "example.com"], &[]);
    assert_eq!(names.covers("API.example.com"), Some(NameMatch::Wildcard));
    assert_eq!(names.covers("Example.Com"), Some(NameMatch::Exact));
    for other in [
        "a.b.example.com",
        "example.org",
        "",
        "com",
        ".com",
        "*.com",
        "example.com.evil.test",
    ] {
        assert_eq!(names.covers(other), None, "{other}");
    }
}

#[test]
fn an_address_is_compared_as_such() {
    let names = names(&["10.0.0.1"], &["2001:db8::1", "192.0.2.7"]);
    assert_eq!(names.covers("2001:db8:0::1"), Some(NameMatch::Exact));
    assert_eq!(names.covers("192.0.2.7"), Some(NameMatch::Exact));
    assert_eq!(
        names.covers("10.0.0.1"),
        None,
        "a DNS name in the form of an address is no address"
    );
    assert_eq!(names.to_string(), "10.0.0.1, 2001:db8::1, 192.0.2.7");
}
