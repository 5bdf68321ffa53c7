//! The address at which browsers reach the console or the portal: the configured one, or else that of each request.

use std::net::IpAddr;

use http::{
    HeaderMap, Uri, header,
    uri::{Authority, Scheme},
};
use ipnet::IpNet;
use pingora::http::RequestHeader;

use super::ask;

/// How browsers reach the console or the portal.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The configured address, if any.
    configured: Option<SiteAddress>,
    /// Whether the listener speaks TLS.
    tls: bool,
    /// The proxies that are trusted to tell their clients' addresses and whether their connections are encrypted.
    pub(super) trusted: Vec<IpNet>,
}

/// An address, as in a browser's origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SiteAddress {
    /// The host, with the port unless it is the scheme's default.
    pub(super) host: String,
    /// Whether its scheme is `https`.
    pub(super) encrypted: bool,
}

impl Site {
    /// `tls`: whether the listener speaks TLS. `url`: the configured address, already checked. It wins over whatever proxies in
    /// front write into a request's head.
    pub(crate) fn new(tls: bool, trusted: Vec<IpNet>, url: Option<&str>) -> Self {
        let configured = url.and_then(|url| SiteAddress::from_url(&url.parse().ok()?));
        Self {
            configured,
            tls,
            trusted,
        }
    }

    /// The URL at which a request's client reaches the site; `None` if the request names no host.
    pub(crate) fn base(&self, head: &RequestHeader, peer: IpAddr) -> Option<String> {
        let SiteAddress { host, encrypted } = self.address_for(head, peer)?;
        Some(ask::base(encrypted, &host))
    }

    pub(super) fn address_for(&self, head: &RequestHeader, peer: IpAddr) -> Option<SiteAddress> {
        let (host, encrypted) = match &self.configured {
            Some(address) => (address.host.clone(), address.encrypted),
            None => {
                let encrypted = is_forwarded_encrypted(peer, &head.headers, &self.trusted);
                (host(head)?.as_str().to_owned(), encrypted)
            }
        };
        Some(SiteAddress {
            host,
            encrypted: encrypted || self.tls,
        })
    }
}

impl SiteAddress {
    fn from_url(url: &Uri) -> Option<Self> {
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

/// Whether a trusted proxy says that its client's connection is encrypted. The last of several fields is from the nearest proxy.
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
