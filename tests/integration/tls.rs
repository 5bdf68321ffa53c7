//! TLS to providers: always verified, and a peer that fails gets no byte of a key.

use std::sync::Arc;

use crate::harness::certificates::{Authority, Flaw};
use crate::harness::provider::Welcome;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::{RecordingProvider, Weir, WeirBuilder};

fn provider_with(tls: &Arc<rustls::ServerConfig>) -> RecordingProvider {
    RecordingProvider::start_with(Some(Arc::clone(tls)), |_| Welcome::Serve, |_, answer| answer.least())
}

fn trusting(authority: &Authority, provider: &RecordingProvider) -> Weir {
    WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
        .start()
}

#[track_caller]
fn assert_refused(weir: &Weir, provider: &RecordingProvider, what: &str) {
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(answer.status, 503, "{what}, {wire:?}: {}", answer.text());
        assert!(answer.json()["error"]["message"].is_string(), "{what}");
    }
    assert!(provider.connections() > 0, "{what}: it was never tried");
    assert_eq!(
        provider.plain_bytes(),
        b"",
        "{what}: bytes were sent to a peer that is not verified"
    );
    assert_eq!(provider.count(), 0, "{what}");
}

#[test]
fn a_certificate_of_the_given_authority_is_accepted() {
    let authority = Authority::new();
    let provider = provider_with(&authority.server(Flaw::None));
    let weir = trusting(&authority, &provider);
    let key = weir.key().text;
    for wire in ALL_WIRES {
        assert_eq!(weir.exchange(&wire.request(&key, "hi")).status, 200, "{wire:?}");
    }
    assert!(provider.handshakes() > 0);
}

#[test]
fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let provider = provider_with(&authority.server(Flaw::Expired));
    assert_refused(&trusting(&authority, &provider), &provider, "an expired certificate");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let provider = provider_with(&authority.server(Flaw::WrongName));
    assert_refused(
        &trusting(&authority, &provider),
        &provider,
        "a certificate for another name",
    );
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused() {
    let (known, unknown) = (Authority::new(), Authority::new());
    let provider = provider_with(&unknown.server(Flaw::None));
    assert_refused(&trusting(&known, &provider), &provider, "an unknown authority");
    let provider = provider_with(&unknown.server(Flaw::None));
    let weir = WeirBuilder::new().all_providers(&provider.base_url()).start();
    assert_refused(&weir, &provider, "an unknown authority, with the platform's roots");
}

#[test]
fn a_certificate_that_nobody_signed_is_refused() {
    let authority = Authority::new();
    let provider = provider_with(&authority.server(Flaw::SelfSigned));
    assert_refused(&trusting(&authority, &provider), &provider, "a self-signed certificate");
}

#[test]
fn a_peer_that_speaks_no_tls_is_refused() {
    let authority = Authority::new();
    let provider = RecordingProvider::least();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url().replace("http://127.0.0.1", "https://localhost"))
        .set("upstream.ca_file", authority.ca_file().to_str().unwrap())
        .start();
    let key = weir.key().text;
    let answer = weir.exchange(&Wire::Messages.request(&key, "hi"));
    assert_eq!(answer.status, 503, "{}", answer.text());
    let seen = String::from_utf8_lossy(&provider.plain_bytes()).into_owned();
    assert!(
        !seen.contains(crate::harness::weir::PROVIDER_KEY) && !seen.contains("messages"),
        "{seen}"
    );
}
