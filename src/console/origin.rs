//! Whether a form comes from a page of the same door, as far as the browser says.

use http::{
    HeaderMap, Uri, header,
    uri::{Authority, Scheme},
};

/// What of a request tells where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    /// The request's headers.
    pub(super) headers: &'a HeaderMap,
    /// The host that was asked, with its port.
    pub(super) host: &'a str,
    /// Whether it came over an encrypted connection, as far as is known: where no address is configured, a proxy need not say so.
    pub(super) encrypted: bool,
}

impl Origin<'_> {
    /// Whether the browser says that a page of the same site sends this. Browsers say it in two ways, and each that is there
    /// has to hold: `Sec-Fetch-Site` (Fetch Metadata) on encrypted and local sites, `Origin` (RFC 6454) on all. A request
    /// without both is no browser's form. Of an encrypted site an unencrypted page of the same host is no page: anybody in
    /// between may have written it.
    pub(super) fn is_own(&self) -> bool {
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
        Origin {
            headers: &headers,
            host,
            encrypted,
        }
        .is_own()
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
