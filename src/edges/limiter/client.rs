//! Clients, identified by their addresses, for limits per client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// A client's address. An IPv6 address counts as its /64 network, because one household or machine has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientAddress(IpAddr);

impl ClientAddress {
    /// The peer's address, or the address that it forwards for. `x-forwarded-for` counts only from a trusted peer; it is read
    /// from its end, past trusted addresses, up to the first that is not trusted. An entry that is not an address ends the
    /// reading, because no trusted proxy wrote what precedes it.
    pub(crate) fn from_headers(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Self {
        Self::from(forwarded_address(peer, headers, trusted))
    }

    /// Like [`Client::of`], but `None` if the result is a trusted proxy, which many clients share.
    pub(crate) fn single_from_headers(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Option<Self> {
        let last = forwarded_address(peer, headers, trusted);
        (!is_trusted(&last, trusted)).then(|| Self::from(last))
    }
}

fn is_trusted(address: &IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

fn forwarded_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut last = peer.to_canonical();
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    let mut entries = lines.flat_map(|line| line.to_str().unwrap_or_default().rsplit(','));
    while is_trusted(&last, trusted)
        && let Some(before) = entries.next().and_then(parse_entry)
    {
        last = before;
    }
    last
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from(network)))
            }
            four @ IpAddr::V4(_) => Self(four),
        }
    }
}

/// Parses an entry: an address, which some proxies write in brackets or with a port.
fn parse_entry(entry: &str) -> Option<IpAddr> {
    let entry = entry.trim();
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = bare.unwrap_or(entry).parse::<IpAddr>().ok();
    let address = parsed.or_else(|| entry.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn trusted() -> Vec<IpNet> {
        ["10.0.0.0/8", "127.0.0.1/32", "fd00::/8"]
            .map(|network| network.parse().unwrap())
            .to_vec()
    }

    fn client(peer: &str, lines: &[&str]) -> ClientAddress {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        ClientAddress::from_headers(ip(peer), &headers, &trusted())
    }

    #[test]
    fn an_untrusted_peer_speaks_for_itself() {
        assert_eq!(client("192.0.2.1", &["203.0.113.5"]), ClientAddress(ip("192.0.2.1")));
        assert_eq!(client("192.0.2.1", &[]), ClientAddress(ip("192.0.2.1")));
    }

    #[test]
    fn a_trusted_peer_names_the_last_address_that_is_not_trusted() {
        for (lines, named) in [
            (&["203.0.113.5"][..], "203.0.113.5"),
            (&["6.6.6.6, 203.0.113.5, 10.1.1.1"], "203.0.113.5"),
            (&["6.6.6.6", "203.0.113.5", "10.1.1.1,10.2.2.2"], "203.0.113.5"),
            (&["10.3.3.3, 10.1.1.1"], "10.3.3.3"),
            (&["6.6.6.6, nonsense, 10.1.1.1"], "10.1.1.1"),
            (&["203.0.113.5, "], "10.0.0.1"),
            (&["unknown"], "10.0.0.1"),
            (&[], "10.0.0.1"),
            (&["203.0.113.5:4711"], "203.0.113.5"),
            (&["[2001:db8::7]:4711"], "2001:db8::"),
            (&["[2001:db8::7]"], "2001:db8::"),
            (&["::ffff:203.0.113.5"], "203.0.113.5"),
        ] {
            assert_eq!(client("10.0.0.1", lines), ClientAddress(ip(named)), "{lines:?}");
        }
        assert_eq!(
            client("::ffff:10.0.0.1", &["203.0.113.5"]),
            ClientAddress(ip("203.0.113.5"))
        );
        assert_eq!(client("fd00::1", &["203.0.113.5"]), ClientAddress(ip("203.0.113.5")));
    }

    #[test]
    fn a_proxy_that_names_nobody_speaks_for_many() {
        let alone = |peer: &str, line: &'static str| {
            let headers = HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), line.parse().unwrap())]);
            ClientAddress::single_from_headers(ip(peer), &headers, &trusted())
        };
        assert_eq!(alone("10.0.0.1", "203.0.113.5"), Some(ClientAddress(ip("203.0.113.5"))));
        assert_eq!(alone("192.0.2.1", ""), Some(ClientAddress(ip("192.0.2.1"))));
        for (peer, line) in [
            ("10.0.0.1", ""),
            ("::ffff:10.0.0.1", "10.1.1.1"),
            ("fd00::1", "nonsense"),
        ] {
            assert_eq!(alone(peer, line), None, "{peer} {line}");
        }
    }

    #[test]
    fn an_ipv6_network_is_one_client_and_a_mapped_address_is_ipv4() {
        assert_eq!(client("2001:db8:1:2:3::4", &[]), client("2001:db8:1:2:ffff::", &[]));
        assert_ne!(client("2001:db8:1:2::", &[]), client("2001:db8:1:3::", &[]));
        assert_eq!(client("::ffff:192.0.2.1", &[]), client("192.0.2.1", &[]));
        assert_ne!(client("::ffff:192.0.2.1", &[]), client("::ffff:192.0.2.2", &[]));
    }
}
