//! What is no handshake (`tests/hostile/tls.toml`), and what breaks off behind a good one.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::ClientConfig;

use super::attacks::{read, try_all};
use super::{closed, report};
use crate::harness::certificates::{Authority, BOTH_VERSIONS, Kind, Offer};
use crate::harness::https::handshake;
use crate::harness::wait::DEADLINE;
use crate::harness::{Request, Weir, WeirBuilder, wait_until};

/// The time limits of these tests, in seconds.
const SHORT_SECONDS: i64 = 1;

fn weir(authority: &Authority) -> Weir {
    let shown = vec![
        authority
            .files("one", &["api.test", "127.0.0.1"], Kind::Ecdsa)
            .setting(),
    ];
    WeirBuilder::new()
        .set("gateway.tls.certificate", shown.clone())
        .set("stability.tls.certificate", shown)
        .set("connections.handshake_seconds", SHORT_SECONDS)
        .set("connections.first_byte_seconds", SHORT_SECONDS)
        .set("connections.head_seconds", SHORT_SECONDS)
        .start()
}

#[test]
fn what_is_no_handshake_gets_no_answer_and_is_ended() {
    let authority = Authority::new();
    let weir = weir(&authority);
    let words = [("{host}", "host: weir.test\r\n")];
    try_all("tls", &weir, &read("tls"), &words);
    let tls = authority.client(Offer::default());
    for listener in [weir.gateway, weir.stability] {
        let mut good = handshake(&tls, "api.test", TcpStream::connect(listener).unwrap()).unwrap();
        let page = Request::get("/web/v1/openapi.json");
        assert_eq!(good.client.exchange(&page).status, 200, "others are served");
    }
}

/// A client that asks by address sends no name; it gets the first certificate.
#[test]
fn a_client_without_a_name_is_served() {
    let authority = Authority::new();
    let weir = weir(&authority);
    let tls = authority.client(Offer::default());
    for listener in [weir.gateway, weir.stability] {
        let mut nameless = handshake(&tls, "127.0.0.1", TcpStream::connect(listener).unwrap()).unwrap();
        assert_eq!(
            nameless.client.exchange(&Request::get("/web/v1/openapi.json")).status,
            200
        );
    }
    report::came("tls", "no name", 2, "200, the first certificate");
}

#[test]
fn what_follows_a_handshake_has_to_be_what_was_agreed_on() {
    let authority = Authority::new();
    let weir = weir(&authority);
    for version in BOTH_VERSIONS {
        let offer = |protocol| Offer {
            versions: vec![version],
            protocols: vec![protocol],
            ..Offer::default()
        };
        let (one, two) = (authority.client(offer("http/1.1")), authority.client(offer("h2")));
        silence(&weir, &one);
        // Another handshake in clear within the connection, as a renegotiation without its protection would be.
        breaks_off(&one, weir.gateway, &[0x16, 3, 3, 0, 5, 1, 0, 0, 1, 0]);
        breaks_off(&one, weir.gateway, &[0x17, 3, 3, 0xff, 0xff]);
        let mut other = handshake(&two, "api.test", TcpStream::connect(weir.gateway).unwrap()).unwrap();
        other.client.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(other.client.try_head_to("GET").is_none(), "HTTP/2 was agreed on");
        let mut other = handshake(&one, "api.test", TcpStream::connect(weir.gateway).unwrap()).unwrap();
        other
            .client
            .write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
        assert_eq!(other.client.response_to("GET").status, 505, "HTTP/1.1 was agreed on");
    }
    for reason in ["handshake", "version_unsupported"] {
        wait_until(&format!("what was not agreed on to be counted as {reason}"), || {
            closed(&weir, "gateway", reason) >= 2
        });
    }
    report::came("tls", "a handshake, and then silence", 4, "closed: silent");
    report::came("tls", "a second handshake in clear", 2, "closed");
    report::came("tls", "a record beyond its size behind the handshake", 2, "closed");
    report::came("tls", "HTTP/1.1 where HTTP/2 was agreed on", 2, "closed: handshake");
    report::came(
        "tls",
        "HTTP/2 where HTTP/1.1 was agreed on",
        2,
        "505, closed: version_unsupported",
    );
}

#[track_caller]
fn silence(weir: &Weir, tls: &Arc<ClientConfig>) {
    for (name, listener) in [("gateway", weir.gateway), ("stability", weir.stability)] {
        let before = closed(weir, name, "first_byte_timeout");
        let mut silent = handshake(tls, "api.test", TcpStream::connect(listener).unwrap()).unwrap();
        assert!(silent.client.closed_within(DEADLINE));
        wait_until("the silence to be counted", || {
            closed(weir, name, "first_byte_timeout") == before + 1
        });
    }
}

/// Shakes hands, sends these bytes outside of TLS, and is left.
#[track_caller]
fn breaks_off(tls: &Arc<ClientConfig>, address: SocketAddr, bytes: &[u8]) {
    let socket = TcpStream::connect(address).unwrap();
    let mut raw = socket.try_clone().unwrap();
    let mut broken = handshake(tls, "api.test", socket).unwrap();
    raw.write_all(bytes).unwrap();
    assert!(broken.client.try_head_to("GET").is_none());
}
