//! Decides by the browser's headers whether a form comes from a page of the same site.

use http::{
    HeaderMap, Uri, header,
    uri::{Authority, Scheme},
};

/// The parts of a request that tell where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestOrigin<'a> {
    /// The request's headers.
    pub(super) headers: &'a HeaderMap,
    /// The host that was addressed, with its port.
    pub(super) host: &'a str,
    /// Whether the connection is known to be encrypted: without a configured address, a proxy may not say so.
    pub(super) encrypted: bool,
}

impl RequestOrigin<'_> {
    /// Whether the browser says that a page of the same site sends this request. Browsers say it by `Sec-Fetch-Site` (Fetch
    /// Metadata) on encrypted and local sites, and by `Origin` (RFC 6454) on all; each header that is present must agree. A
    /// request with neither is not a browser's form. An unencrypted page of the same host is not part of an encrypted site: an
    /// attacker on the network may have written it.
    pub(super) fn is_same_origin(&self) -> bool {
        let text = |name: &str| self.headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let site = text("sec-fetch-site").map(|site| site == "same-origin");
        let origin = text(header::ORIGIN.as_str()).map(|origin| self.is_host(origin));
        match (site, origin) {
            (None, None) => false,
            (site, origin) => site != Some(false) && origin != Some(false),
        }
    }

    fn is_host(&self, origin: &str) -> bool {
        let Ok(origin) = origin.parse::<Uri>() else {
            return false;
        };
        let is_encrypted = origin.scheme() == Some(&Scheme::HTTPS);
        let authority = origin.authority().map(Authority::as_str);
        (is_encrypted || !self.encrypted) && authority.is_some_and(|host| host.eq_ignore_ascii_case(self.host))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn is_own(lines: &[(&'static str, &str)]) -> bool {
        is_own_over(false, lines)
    }

    fn is_own_over(encrypted: bool, lines: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let host = "127.0.0.1:8082";
        RequestOrigin {
            headers: &headers,
            host,
            encrypted,
        }
        .is_same_origin()
    }

    #[test]
    fn only_a_form_of_the_same_site_is_its_own() {
        let (own, same) = (("origin", "http://127.0.0.1:8082"), ("sec-fetch-site", "same-origin"));
        assert!(is_own(&[own, same]) && is_own(&[own]) && is_own(&[same]));
        for forged in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:8083")],
            &[("origin", "http://evil.example")],
            &[("origin", "http://127.0.0.1:8082.evil.example")],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "same-site")],
            &[own, ("sec-fetch-site", "none")],
            &[same, ("origin", "http://evil.example")],
        ] {
            assert!(!is_own(forged), "{forged:?}");
        }
    }

    #[test]
    fn an_unencrypted_page_of_the_same_host_is_not_the_encrypted_sites() {
        let (plain, safe) = (
            ("origin", "http://127.0.0.1:8082"),
            ("origin", "https://127.0.0.1:8082"),
        );
        assert!(is_own_over(true, &[safe]) && !is_own_over(true, &[plain]));
        assert!(!is_own_over(true, &[plain, ("sec-fetch-site", "same-origin")]));
        assert!(
            is_own_over(false, &[safe]),
            "a proxy in front may not say that it has TLS"
        );
    }
}
