//! Tests of `domain::proxy_protocol`.

use std::net::{SocketAddrV4, SocketAddrV6};

use proptest::prelude::*;

use super::*;

/// Reads a connection as it comes: as many bytes as asked for, each time. How many were taken, and what they say.
fn connection(bytes: &[u8]) -> Result<(usize, Option<SocketAddr>), ProxyHeaderInvalid> {
    let mut taken = 0;
    loop {
        match read(&bytes[..taken])? {
            ProxyHeaderProgress::Whole(source) => return Ok((taken, source)),
            ProxyHeaderProgress::Needs(more) => {
                assert!(more > 0);
                taken += more;
                assert!(taken <= HEADER_BYTES_MAX);
                if taken > bytes.len() {
                    return Err(ProxyHeaderInvalid);
                }
            }
        }
    }
}

fn of(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

fn binary_header(command: u8, family: u8, fields: &[u8]) -> Vec<u8> {
    let length = u16::try_from(fields.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &length, fields].concat()
}

/// Source, target, ports: 203.0.113.7:1025 to 10.0.0.1:443.
const FOUR: [u8; 12] = [203, 0, 113, 7, 10, 0, 0, 1, 4, 1, 1, 187];

#[test]
fn version_1_tells_the_source() {
    let longest =
        "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), 104);
    for (header, source) in [
        ("PROXY TCP4 203.0.113.7 10.0.0.1 1025 443\r\n", of("203.0.113.7:1025")),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 0 1\r\n", of("1.1.1.1:0")),
        ("PROXY TCP6 2001:db8::1 :: 9 443\r\n", of("[2001:db8::1]:9")),
        (longest, of("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ff:ff 1.1.1.1 whatever 5\r\n", None),
    ] {
        assert_eq!(
            connection(format!("{header}\r\nGET /").as_bytes()),
            Ok((header.len(), source)),
            "{header}"
        );
    }
}

#[test]
fn version_2_tells_the_source() {
    let six: Vec<u8> = [[0x20; 16], [0; 16]]
        .concat()
        .into_iter()
        .chain([0, 9, 1, 187])
        .collect();
    let with_tlvs = [FOUR.as_slice(), &[3, 0, 4, 1, 2, 3, 4]].concat();
    let source = of("203.0.113.7:1025");
    for (header, source) in [
        (binary_header(0x21, 0x11, &FOUR), source),
        (binary_header(0x21, 0x11, &with_tlvs), source),
        (
            binary_header(0x21, 0x21, &six),
            of("[2020:2020:2020:2020:2020:2020:2020:2020]:9"),
        ),
        (binary_header(0x20, 0x11, &FOUR), None),
        (binary_header(0x20, 0x00, &[]), None),
        (binary_header(0x21, 0x31, &[0; 216]), None),
    ] {
        let bytes = [header.as_slice(), b"\x16\x03\x01"].concat();
        assert_eq!(connection(&bytes), Ok((header.len(), source)), "{header:?}");
    }
}

#[test]
fn anything_else_is_refused() {
    for text in [
        "GET / HTTP/1.1\r\n\r\n",
        "PROXY",
        "PROXY\r\n          ",
        "PROXYx TCP4 1.1.1.1 1.1.1.1 1 1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1 1 1 1\r\n",
        "PROXY TCP4  1.1.1.1 1.1.1.1 1 1\r\n",
        "PROXY TCP4 ::1 ::1 1 1\r\n",
        "PROXY TCP6 1.1.1.1 1.1.1.1 1 1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1 +1 1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1 01 1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1 65536 1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1  1\r\n",
        "PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n\r\n",
        "PROXY UDP4 1.1.1.1 1.1.1.1 1 1\r\n",
        "\r\n\r\n\0\r\nQUIT",
        "\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03",
    ] {
        assert_eq!(connection(text.as_bytes()), Err(ProxyHeaderInvalid), "{text:?}");
    }
    let endless = format!("PROXY UNKNOWN {}\r\n", "x".repeat(200));
    assert_eq!(connection(endless.as_bytes()), Err(ProxyHeaderInvalid));
    let huge = binary_header(0x21, 0x11, &vec![0; HEADER_BYTES_MAX - BINARY_BYTES_MIN + 1]);
    assert_eq!(connection(&huge), Err(ProxyHeaderInvalid));
    for wrong in [
        binary_header(0x22, 0x11, &FOUR),
        binary_header(0x31, 0x11, &FOUR),
        binary_header(0x21, 0x12, &FOUR),
        binary_header(0x21, 0x11, &FOUR[..11]),
        binary_header(0x21, 0x21, &FOUR),
    ] {
        assert_eq!(connection(&wrong), Err(ProxyHeaderInvalid), "{wrong:?}");
    }
}

#[test]
fn the_longest_headers_are_read() {
    let begin = "PROXY UNKNOWN ";
    let line = format!("{begin}{}\r\n", "x".repeat(TEXT_BYTES_MAX - begin.len() - 2));
    assert_eq!(connection(line.as_bytes()), Ok((TEXT_BYTES_MAX, None)));
    let fields = [FOUR.as_slice(), &[0; HEADER_BYTES_MAX - BINARY_BYTES_MIN - FOUR.len()]].concat();
    let header = binary_header(0x21, 0x11, &fields);
    assert_eq!(connection(&header), Ok((HEADER_BYTES_MAX, of("203.0.113.7:1025"))));
}

proptest! {
    #[test]
    fn whatever_comes_is_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0..3_usize) {
        let begin: &[u8] = [&b""[..], b"PROXY ", SIGNATURE][kind];
        let _ = connection(&[begin, &bytes].concat());
        let _ = read(&bytes);
    }

    #[test]
    fn no_byte_behind_a_header_is_taken(
        (source, target) in prop_oneof![
            any::<(SocketAddrV4, SocketAddrV4)>().prop_map(|(one, other)| (SocketAddr::from(one), SocketAddr::from(other))),
            any::<(SocketAddrV6, SocketAddrV6)>().prop_map(|(one, other)| (SocketAddr::from(one), SocketAddr::from(other))),
        ],
        tail in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let header = format!(
            "PROXY {family} {} {} {} {}\r\n", source.ip(), target.ip(), source.port(), target.port()
        );
        prop_assert!(header.len() <= TEXT_BYTES_MAX);
        let told = SocketAddr::new(source.ip(), source.port());
        prop_assert_eq!(connection(&[header.as_bytes(), &tail].concat()), Ok((header.len(), Some(told))));
    }
}
