//! TLS of weir's own listeners: versions, names, tickets, certificates exchanged while clients come in.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::crypto::ring;
use rustls::crypto::ring::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
use rustls::version::TLS12;
use rustls::{ClientConfig, HandshakeKind};

use crate::harness::at_end::SetAtEnd;
use crate::harness::certificates::{Authority, BOTH_VERSIONS, Files, Kind, Offer};
use crate::harness::request::ALL_WIRES;
use crate::harness::tools::rounds;
use crate::harness::wait::DEADLINE;
use crate::harness::{Client, RecordingProvider, Request, Weir, WeirBuilder, h2c, https, wait_until};

const SUMMARY: &str = "/web/v1/model-stability/summary";

fn weir(certificates: &[&Files]) -> WeirBuilder {
    let settings: Vec<toml::Value> = certificates.iter().map(|files| files.setting()).collect();
    WeirBuilder::new()
        .set("gateway.tls.certificate", settings.clone())
        .set("stability.tls.certificate", settings)
}

fn ready(weir: &Weir, listener: &str) -> SocketAddr {
    let text = std::fs::read_to_string(weir.folder().join("ready.json")).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&text).unwrap();
    ready[listener].as_str().unwrap().parse().unwrap()
}

/// The value of a metric, with its labels as it is rendered.
fn metric(weir: &Weir, name: &str) -> Option<i64> {
    let text = weir.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
}

#[track_caller]
fn served(tls: &Arc<ClientConfig>, name: &str, address: SocketAddr) -> https::Https {
    let mut connection = https::connect(tls, name, address).unwrap_or_else(|error| panic!("{name}: {error}"));
    let answer = connection.client.exchange(&Request::get(SUMMARY));
    assert_eq!(answer.status, 200, "{}", answer.text());
    connection
}

#[test]
fn every_protocol_is_served_over_both_versions_and_over_http_1_and_2() {
    let authority = Authority::new();
    let provider = RecordingProvider::least();
    let weir = weir(&[&authority.files("one", &["api.test"], Kind::Ecdsa)])
        .all_providers(&provider.base_url())
        .start();
    let key = weir.key().text;
    for version in BOTH_VERSIONS {
        for protocol in ["http/1.1", "h2"] {
            let tls = authority.client(Offer {
                versions: vec![version],
                protocols: vec![protocol],
                ..Offer::default()
            });
            let agreed = https::connect(&tls, "api.test", weir.gateway).unwrap();
            assert_eq!(agreed.version, version.version);
            assert_eq!(agreed.protocol.as_deref(), Some(protocol));
            for wire in ALL_WIRES {
                let request = wire.request(&key, "hi");
                let answer = match protocol {
                    "h2" => h2c::exchange_tls(Arc::clone(&tls), "api.test", weir.gateway, &request),
                    _ => https::connect(&tls, "api.test", weir.gateway)
                        .unwrap()
                        .client
                        .exchange(&request),
                };
                assert_eq!(answer.status, 200, "{version:?} {protocol} {wire:?}: {}", answer.text());
            }
        }
        let tls = authority.client(Offer {
            versions: vec![version],
            ..Offer::default()
        });
        served(&tls, "api.test", weir.stability);
    }
    let both = authority.client(Offer {
        protocols: vec!["http/1.1", "h2"],
        ..Offer::default()
    });
    let agreed = https::connect(&both, "api.test", weir.gateway).unwrap();
    assert_eq!(agreed.protocol.as_deref(), Some("h2"), "the better one is taken");
    let foreign = authority.client(Offer {
        protocols: vec!["smtp"],
        ..Offer::default()
    });
    assert!(https::connect(&foreign, "api.test", weir.gateway).is_err());
}

#[test]
fn a_client_gets_the_certificate_for_its_name_that_it_can_verify() {
    let authority = Authority::new();
    let [default, wild, exact, rsa] = [
        ("default", "first.test", Kind::Ecdsa),
        ("wild", "*.b.test", Kind::Ecdsa),
        ("exact", "api.b.test", Kind::Ecdsa),
        ("rsa", "first.test", Kind::Rsa),
    ]
    .map(|(file, name, kind)| authority.files(file, &[name], kind));
    let weir = weir(&[&default, &wild, &exact, &rsa]).start();
    let tls = authority.client(Offer::default());
    let got = |tls: &Arc<ClientConfig>, name| https::connect(tls, name, weir.gateway).map(|one| one.certificate);
    assert_eq!(got(&tls, "first.test").unwrap(), default.certificate());
    assert_eq!(got(&tls, "api.b.test").unwrap(), exact.certificate());
    assert_eq!(got(&tls, "other.b.test").unwrap(), wild.certificate());
    assert!(got(&tls, "unknown.test").is_err(), "the client refuses what it gets");
    let mut crypto = ring::default_provider();
    crypto.cipher_suites = vec![TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    let old = authority.client(Offer {
        versions: vec![&TLS12],
        crypto,
        ..Offer::default()
    });
    assert_eq!(got(&old, "first.test").unwrap(), rsa.certificate());
}

#[test]
fn a_client_that_comes_back_resumes_its_session() {
    let authority = Authority::new();
    let weir = weir(&[&authority.files("one", &["api.test"], Kind::Ecdsa)]).start();
    wait_until("the record to be read", || {
        let tls = authority.client(Offer::default());
        let mut connection = https::connect(&tls, "api.test", weir.stability).unwrap();
        connection.client.exchange(&Request::get(SUMMARY)).status == 200
    });
    for version in BOTH_VERSIONS {
        for listener in [weir.gateway, weir.stability] {
            let tls = authority.client(Offer {
                versions: vec![version],
                ..Offer::default()
            });
            // A ticket of TLS 1.3 comes with the first answer.
            served(&tls, "api.test", listener);
            let again = served(&tls, "api.test", listener);
            assert_eq!(again.kind, HandshakeKind::Resumed, "{version:?}");
        }
    }
}

#[test]
fn certificates_are_exchanged_under_load_and_a_broken_one_leaves_the_old_one_serving() {
    let authority = Authority::new();
    let shown = authority.files("shown", &["api.test"], Kind::Ecdsa);
    let weir = weir(&[&shown]).start();
    let tls = authority.client(Offer::default());
    let (stop, failed, done) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = SetAtEnd([&stop]);
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // A new configuration each time: nothing is resumed, every handshake is whole.
                    let tls = authority.client(Offer::default());
                    let served = https::connect(&tls, "api.test", weir.gateway)
                        .is_ok_and(|mut one| one.client.exchange(&Request::get("/api/hello")).status == 200);
                    (if served { &done } else { &failed }).fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let gets = || https::connect(&tls, "api.test", weir.gateway).unwrap().certificate;
        for round in 0..rounds(3, 30) {
            let kind = [Kind::Rsa, Kind::Ecdsa][round % 2];
            let fresh = authority.files("fresh", &["api.test"], kind);
            shown.replace_with(&fresh);
            wait_until("the new certificate to be shown", || gets() == fresh.certificate());
        }
        let last = gets();
        let whole = std::fs::read(&shown.chain).unwrap();
        std::fs::write(&shown.chain, &whole[..whole.len() / 2]).unwrap();
        wait_until("the broken certificate to be told", || {
            metric(&weir, "weir_config_reload_failed ") == Some(1)
        });
        assert_eq!(gets(), last);
        let logs = weir.logs();
        assert!(
            logs.contains("gateway.tls.certificate.1") && logs.contains("certificate 1 of the chain is damaged"),
            "{logs}"
        );
        let other = authority.files("other", &["api.test"], Kind::Ecdsa);
        std::fs::copy(&other.chain, &shown.chain).unwrap();
        wait_until("the certificate of another key to be told", || {
            weir.logs()
                .contains("the private key does not belong to the first certificate")
        });
        assert_eq!(gets(), last);
        shown.replace_with(&other);
        wait_until("the mended certificate to be shown", || gets() == other.certificate());
        wait_until("the reload to be told", || {
            metric(&weir, "weir_config_reload_failed ") == Some(0)
        });
        let enough = done.load(Ordering::Relaxed) + 10;
        wait_until("handshakes after the last exchange", || {
            done.load(Ordering::Relaxed) >= enough
        });
    });
    assert_eq!(
        failed.load(Ordering::Relaxed),
        0,
        "of {} handshakes",
        done.load(Ordering::Relaxed)
    );
    for listener in ["gateway", "stability"] {
        let name = format!(
            "weir_tls_certificate_end_timestamp_seconds{{key=\"ECDSA\",listener=\"{listener}\",name=\"api.test\"}}"
        );
        // 2040-01-01.
        assert_eq!(metric(&weir, &name), Some(2_208_988_800), "{}", weir.metrics());
    }
    assert!(
        !weir.metrics().contains("key=\"RSA\""),
        "one that is not shown any more is not told either"
    );
}

#[test]
fn who_speaks_no_tls_gets_no_answer_and_is_counted() {
    let authority = Authority::new();
    let weir = weir(&[&authority.files("one", &["api.test"], Kind::Ecdsa)])
        .set("connections.handshake_seconds", 1)
        .start();
    for listener in [weir.gateway, weir.stability] {
        let mut plain = Client::connect(listener);
        plain.write(b"GET /v1/models HTTP/1.1\r\nhost: weir\r\n\r\n");
        assert!(plain.try_head_to("GET").is_none());
        // Half a record, and then nothing.
        let mut slow = Client::connect(listener);
        slow.write(&[0x16, 3, 1, 2, 0, 1]);
        assert!(slow.try_head_to("GET").is_none());
    }
    for listener in ["gateway", "stability"] {
        let name = format!("weir_connections_closed_total{{listener=\"{listener}\",reason=\"handshake\"}}");
        wait_until("both to be counted", || metric(&weir, &name) == Some(2));
    }
}

#[test]
fn the_plain_listener_sends_clients_to_the_one_with_tls_and_names_no_other_host() {
    let authority = Authority::new();
    let files = authority.files("one", &["api.test", "*.b.test", "127.0.0.1"], Kind::Ecdsa);
    let weir = weir(&[&files])
        .set("gateway.tls.redirect_listen", "127.0.0.1:0")
        .start();
    let (redirect, port) = (ready(&weir, "redirect"), weir.gateway.port());
    let asked = |target: &str, host: &str| {
        let mut request = Request::get(target);
        request.headers.retain(|(name, _)| name != "host");
        Client::connect(redirect).exchange(&request.header("host", host))
    };
    for (target, host, to) in [
        (
            "/v1/models?limit=1",
            "api.test",
            format!("https://api.test:{port}/v1/models?limit=1"),
        ),
        ("/", "API.test:80", format!("https://API.test:{port}/")),
        ("/status", "any.b.test", format!("https://any.b.test:{port}/status")),
        ("/", "127.0.0.1", format!("https://127.0.0.1:{port}/")),
    ] {
        let answer = asked(target, host);
        assert_eq!(answer.status, 308, "{host}");
        assert_eq!(answer.header("location"), Some(to.as_str()));
    }
    for host in ["evil.test", "api.test.evil.test", "a.b.b.test", "[::1]"] {
        let answer = asked("/", host);
        assert_eq!((answer.status, answer.header("location")), (421, None), "{host}");
        assert!(answer.text().contains("Use HTTPS"), "{}", answer.text());
    }
    let mut client = Client::connect(redirect);
    client.write(b"HEAD /status HTTP/1.1\r\nhost: api.test\r\n\r\n");
    let answer = client.response_to("HEAD");
    assert_eq!(answer.status, 308);
    assert!(client.closed_within(DEADLINE), "nothing follows the head");
    let key = weir.key().text;
    let posted = Client::connect(redirect).exchange(&ALL_WIRES[0].request(&key, "hi").header("host", "api.test"));
    assert_ne!(posted.status, 200, "nothing is served in clear");
}

/// Nothing, half a hello, and one that is trickled.
#[test]
fn a_handshake_that_does_not_end_is_not_waited_for() {
    let authority = Authority::new();
    let weir = weir(&[&authority.files("one", &["api.test"], Kind::Ecdsa)])
        .set("connections.handshake_seconds", 1)
        .start();
    let name = "weir_connections_closed_total{listener=\"gateway\",reason=\"handshake\"} ";
    for half in [&b""[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"] {
        let mut client = weir.connect();
        client.write(half);
        assert!(client.closed_within(DEADLINE), "{half:?}");
    }
    wait_until("both to be counted", || metric(&weir, name) == Some(2));
    let mut trickling = std::net::TcpStream::connect(weir.gateway).unwrap();
    // A record of 16 KiB that is all hello, so that none of its bytes is wrong.
    let mut bytes = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"
        .iter()
        .chain(std::iter::repeat(&0));
    wait_until("the end of a trickled handshake", || {
        std::io::Write::write_all(&mut trickling, &[*bytes.next().unwrap()]).is_err() || metric(&weir, name) == Some(3)
    });
    let tls = authority.client(Offer::default());
    served(&tls, "api.test", weir.gateway);
}
