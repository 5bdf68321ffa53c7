//! URLs that secrets may be sent to.

use http::Uri;

/// A URL that secrets may be sent to: `https://host[:port]/path[?query]`, or `http://` for this machine only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecureUrl {
    text: String,
    pub(crate) https: bool,
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `host[:port]` as written.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl SecureUrl {
    /// Parses a URL; `None` if it is not an HTTP URL, has user information, or would carry secrets unencrypted over a network.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if authority.as_str().contains('@') || !(https || is_here) {
            return None;
        }
        Some(Self {
            text: text.to_owned(),
            https,
            host,
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// `https://host[:port]`.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// The URL with this query, such as `?a=b`, appended to its own.
    pub(crate) fn with_query(&self, query: &str) -> String {
        let text = self.text.split('#').next().unwrap_or_default();
        match (text.contains('?'), query.strip_prefix('?')) {
            (true, Some(more)) => format!("{text}&{more}"),
            _ => format!("{text}{query}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_tls_or_is_on_this_machine() {
        let endpoint = SecureUrl::parse("https://login.example/a/b?c=d").unwrap();
        assert_eq!(
            (endpoint.host.as_str(), endpoint.port, endpoint.https),
            ("login.example", 443, true)
        );
        assert_eq!(
            (endpoint.path.as_str(), endpoint.origin().as_str()),
            ("/a/b?c=d", "https://login.example")
        );
        assert_eq!(endpoint.with_query("?e=f"), "https://login.example/a/b?c=d&e=f");
        let here = SecureUrl::parse("http://[::1]:9000/x").unwrap();
        assert_eq!(
            (here.host.as_str(), here.port, here.authority.as_str()),
            ("::1", 9000, "[::1]:9000")
        );
        assert_eq!(here.with_query("?e=f"), "http://[::1]:9000/x?e=f");
        assert_eq!(here.origin(), "http://[::1]:9000");
        for wrong in [
            "",
            "/x",
            "http://login.example/",
            "http://127.0.0.1.example/",
            "ftp://127.0.0.1/",
            "https://a@login.example/",
            "javascript:alert(1)",
        ] {
            assert_eq!(SecureUrl::parse(wrong), None, "{wrong}");
        }
    }
}
