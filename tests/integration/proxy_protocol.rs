//! The PROXY protocol: the client that a listed peer names is the one that limits go by, and nobody else may name one.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};

use crate::harness::certificates::{Authority, Kind, Offer};
use crate::harness::{Client, Request, Weir, WeirBuilder, https, wait_until};

const SUMMARY: &str = "/web/v1/model-stability/summary";
/// A balancer's address, and one that is not listed.
const BALANCER: [u8; 4] = [127, 0, 0, 7];
const STRANGER: [u8; 4] = [127, 0, 0, 8];

/// One request of each address, and then one each minute.
fn strict() -> WeirBuilder {
    let builder = ["gateway", "stability"]
        .into_iter()
        .fold(WeirBuilder::new(), |builder, section| {
            builder.set(&format!("{section}.proxy_protocol_from"), vec!["127.0.0.7"])
        });
    builder
        .set("stability.requests_per_minute", 1)
        .set("stability.burst", 1)
}

/// A connection from this address that begins with these bytes.
fn socket(from: [u8; 4], to: SocketAddr, begin: &[u8]) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut socket = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    socket.set_nonblocking(false).unwrap();
    socket.write_all(begin).unwrap();
    socket
}

fn text(client: &str) -> Vec<u8> {
    let family = if client.contains(':') {
        ("TCP6", "::1")
    } else {
        ("TCP4", "127.0.0.1")
    };
    format!("PROXY {} {client} {} 40000 443\r\n", family.0, family.1).into_bytes()
}

fn binary(client: &str) -> Vec<u8> {
    let (family, mut fields) = match client.parse().unwrap() {
        IpAddr::V4(client) => (0x11, [client.octets(), [127, 0, 0, 1]].concat()),
        IpAddr::V6(client) => (0x21, [client.octets(), [0; 16]].concat()),
    };
    fields.extend([0x9c, 0x40, 1, 0xbb]);
    // A further field, as balancers add them.
    fields.extend([4, 0, 2, 7, 7]);
    let length = u8::try_from(fields.len()).unwrap();
    [b"\r\n\r\n\0\r\nQUIT\n\x21".as_slice(), &[family, 0, length], &fields].concat()
}

/// The status that a client gets; `None`: no answer at all.
fn asked(from: [u8; 4], to: SocketAddr, begin: &[u8]) -> Option<u16> {
    let mut client = Client::over(socket(from, to, begin));
    client.write(format!("GET {SUMMARY} HTTP/1.1\r\nhost: weir\r\n\r\n").as_bytes());
    Some(client.try_head_to("GET")?.status)
}

fn closed_at_handshake(weir: &Weir, listener: &str) -> String {
    let name = format!("weir_connections_closed_total{{listener=\"{listener}\",reason=\"handshake\"}} ");
    let metrics = weir.metrics();
    metrics
        .lines()
        .find_map(|line| line.strip_prefix(&name))
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn limits_go_by_the_client_that_a_listed_peer_names() {
    let weir = strict().start();
    for (listener, network) in [(weir.gateway, "203.0.113"), (weir.stability, "198.51.100")] {
        let (one, other, six) = (format!("{network}.1"), format!("{network}.2"), "2001:db8:5::1");
        assert_eq!(asked(BALANCER, listener, &text(&one)), Some(200));
        assert_eq!(
            asked(BALANCER, listener, &binary(&one)),
            Some(429),
            "the same client, in the other version"
        );
        assert_eq!(asked(BALANCER, listener, &binary(&other)), Some(200));
        assert_eq!(asked(BALANCER, listener, &text(&other)), Some(429));
        let status = asked(BALANCER, listener, &binary(six));
        assert_eq!(
            status,
            Some(if listener == weir.gateway { 200 } else { 429 }),
            "both listeners count as one"
        );
    }
    // A check of the balancer itself, in both versions: its own address.
    let local = [b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".as_slice(), b"PROXY UNKNOWN\r\n"];
    let both = local.map(|header| asked(BALANCER, weir.stability, header));
    assert_eq!(both, [Some(200), Some(429)]);
}

#[test]
fn who_is_not_listed_names_nobody_and_who_is_listed_names_somebody() {
    let weir = strict().start();
    for (listener, name) in [(weir.gateway, "gateway"), (weir.stability, "stability")] {
        for header in [text("203.0.113.9"), binary("203.0.113.9")] {
            assert_eq!(asked(STRANGER, listener, &header).filter(|status| *status != 400), None);
        }
        // No header, and half of one.
        assert_eq!(asked(BALANCER, listener, b""), None);
        assert_eq!(asked(BALANCER, listener, b"PROXY TCP4 nonsense\r\n"), None);
        wait_until("both to be counted", || closed_at_handshake(&weir, name) == "2");
    }
    assert_eq!(asked(STRANGER, weir.gateway, b""), Some(200));
    assert_eq!(
        asked(STRANGER, weir.stability, b""),
        Some(429),
        "it has its own address, whatever it said"
    );
}

#[test]
fn the_header_comes_before_tls() {
    let authority = Authority::new();
    let files = vec![authority.files("one", &["api.test"], Kind::Ecdsa).setting()];
    let weir = strict().set("gateway.tls.certificate", files).start();
    let tls = authority.client(Offer::default());
    let asked = |header: &[u8]| {
        let mut connection = https::handshake(&tls, "api.test", socket(BALANCER, weir.gateway, header)).ok()?;
        Some(connection.client.exchange(&Request::get(SUMMARY)).status)
    };
    assert_eq!(asked(&text("203.0.113.1")), Some(200));
    assert_eq!(asked(&binary("203.0.113.1")), Some(429));
    assert_eq!(asked(&binary("203.0.113.2")), Some(200));
    assert_eq!(asked(b""), None);
    assert!(
        https::connect(&tls, "api.test", weir.gateway).is_ok(),
        "others come without one"
    );
}
