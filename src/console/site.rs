//! Where browsers reach a door: as the configuration says, or else as each request does.

use std::net::IpAddr;

use http::{
    HeaderMap, Uri, header,
    uri::{Authority, Scheme},
};
use ipnet::IpNet;
use pingora::http::RequestHeader;

use super::ask;

/// The address of a door.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// What the configuration says of it.
    configured: Option<Address>,
    /// Whether the listener speaks TLS.
    tls: bool,
    /// Proxies that may say that their clients' connections are encrypted, and for whom they speak.
    pub(super) trusted: Vec<IpNet>,
}

/// An address as browsers have it in an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The host, with the port unless that is the scheme's own.
    pub(super) host: String,
    /// Whether its scheme is `https`.
    pub(super) encrypted: bool,
}

impl Site {
    /// Of a listener that speaks TLS or not. `url` is what the configuration has checked: it decides, whatever proxies in front
    /// make of a request's head.
    pub(crate) fn new(tls: bool, trusted: Vec<IpNet>, url: Option<&str>) -> Self {
        let configured = url.and_then(|url| Address::of(&url.parse().ok()?));
        Self {
            configured,
            tls,
            trusted,
        }
    }

    /// The address at which the client of a request reaches it; `None`: the request names no host.
    pub(crate) fn base(&self, head: &RequestHeader, peer: IpAddr) -> Option<String> {
        let Address { host, encrypted } = self.reached(head, peer)?;
        Some(ask::base(encrypted, &host))
    }

    pub(super) fn reached(&self, head: &RequestHeader, peer: IpAddr) -> Option<Address> {
        let (host, encrypted) = match &self.configured {
            Some(address) => (address.host.clone(), address.encrypted),
            None => {
                let encrypted = is_forwarded_encrypted(peer, &head.headers, &self.trusted);
                (host(head)?.as_str().to_owned(), encrypted)
            }
        };
        Some(Address {
            host,
            encrypted: encrypted || self.tls,
        })
    }
}

impl Address {
    fn of(url: &Uri) -> Option<Self> {
        let authority = url.authority()?;
        let encrypted = url.scheme() == Some(&Scheme::HTTPS);
        let usual = if encrypted { 443 } else { 80 };
        let is_usual = authority.port_u16().is_none_or(|port| port == usual);
        let host = if is_usual { authority.host() } else { authority.as_str() };
        Some(Self {
            host: host.to_owned(),
            encrypted,
        })
    }
}

fn host(head: &RequestHeader) -> Option<Authority> {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = head.uri.authority().cloned();
    authority.or_else(|| named?.parse().ok())
}

/// Whether a proxy that is trusted says that its client's connection is encrypted. Of several such fields the last one is the
/// nearest proxy's.
fn is_forwarded_encrypted(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    let said = headers.get_all("x-forwarded-proto").iter().next_back();
    trusted.iter().any(|network| network.contains(&peer)) && said.is_some_and(|said| said == "https")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const PROXY: &str = "10.1.2.3";

    fn trusted() -> Vec<IpNet> {
        vec!["10.0.0.0/8".parse().unwrap()]
    }

    #[test]
    fn only_a_trusted_proxy_says_that_a_connection_is_encrypted() {
        let trusted = trusted();
        let (proxy, other) = (PROXY.parse().unwrap(), "192.0.2.1".parse().unwrap());
        let mut headers = HeaderMap::new();
        assert!(!is_forwarded_encrypted(proxy, &headers, &trusted));
        headers.append("x-forwarded-proto", HeaderValue::from_static("https"));
        assert!(is_forwarded_encrypted(proxy, &headers, &trusted));
        assert!(!is_forwarded_encrypted(other, &headers, &trusted));
        headers.append("x-forwarded-proto", HeaderValue::from_static("http"));
        assert!(!is_forwarded_encrypted(proxy, &headers, &trusted));
    }

    #[test]
    fn the_configured_address_decides_and_else_the_request() {
        let mut head = RequestHeader::build("GET", b"/portal", None).unwrap();
        head.insert_header("host", "127.0.0.1:8080").unwrap();
        let proxy = PROXY.parse().unwrap();
        let base = |tls, url: Option<&str>, head: &RequestHeader| Site::new(tls, trusted(), url).base(head, proxy);
        assert_eq!(base(false, None, &head).unwrap(), "http://127.0.0.1:8080");
        assert_eq!(base(true, None, &head).unwrap(), "https://127.0.0.1:8080");
        for (url, reached) in [
            ("https://weir.example", "https://weir.example"),
            ("https://weir.example:443", "https://weir.example"),
            ("http://weir.example:80", "http://weir.example"),
            ("http://weir.example:443", "http://weir.example:443"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ] {
            assert_eq!(base(false, Some(url), &head).unwrap(), reached, "{url}");
        }
        assert_eq!(
            base(true, Some("http://weir.example"), &head).unwrap(),
            "https://weir.example",
            "what speaks TLS sets no cookie without it"
        );
        head.insert_header("x-forwarded-proto", "https").unwrap();
        assert_eq!(base(false, None, &head).unwrap(), "https://127.0.0.1:8080");
        let url = Some("http://weir.example");
        assert_eq!(base(false, url, &head).unwrap(), "http://weir.example");
        head.remove_header("host");
        assert_eq!(base(false, url, &head).unwrap(), "http://weir.example");
        assert_eq!(base(false, None, &head), None);
    }
}
