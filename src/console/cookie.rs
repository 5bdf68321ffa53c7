//! The cookie of a session.
//!
//! With TLS it is `__Host-` and Secure (RFC 6265bis, section 4.1.3): it is sent to this host alone, and no other host and no
//! plain connection can have set it. Browsers refuse such a cookie over plain HTTP, where it has another name without that
//! prefix; the console listens there on loopback only.

use http::{HeaderMap, HeaderValue, header};

/// What one door calls its cookie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    /// Its name where the connection is encrypted, with the prefix.
    secure: &'static str,
    /// Its name elsewhere.
    plain: &'static str,
}

/// The cookie of the operators' console.
pub(super) const CONSOLE: Cookie = Cookie {
    secure: "__Host-weir-console",
    plain: "weir-console",
};

/// The cookie of a sign-in that is under way at the OpenID provider.
pub(super) const OPENID: Cookie = Cookie {
    secure: "__Host-weir-openid",
    plain: "weir-openid",
};

/// The same for somebody who comes to the portal.
pub(super) const PORTAL_OPENID: Cookie = Cookie {
    secure: "__Host-weir-portal-openid",
    plain: "weir-portal-openid",
};

/// The cookie of the owners' portal.
pub(super) const PORTAL: Cookie = Cookie {
    secure: "__Host-weir-portal",
    plain: "weir-portal",
};

/// How the client is connected, to weir or to a trusted proxy in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// By TLS.
    Encrypted,
    /// By plain HTTP.
    Plain,
}

impl Cookie {
    /// The session's text that a request carries.
    pub(super) fn read<'a>(&self, headers: &'a HeaderMap, way: Way) -> Option<&'a str> {
        let wanted = self.name(way);
        let lines = headers.get_all(header::COOKIE).iter();
        let mut pairs = lines
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'));
        pairs.find_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            (name == wanted).then_some(value)
        })
    }

    /// Sets it, until the browser ends or the session does.
    pub(super) fn set(&self, id: &str, way: Way) -> HeaderValue {
        self.line(id, way, "")
    }

    /// Takes it away.
    pub(super) fn clear(&self, way: Way) -> HeaderValue {
        self.line("", way, "; Max-Age=0")
    }

    fn name(&self, way: Way) -> &'static str {
        match way {
            Way::Encrypted => self.secure,
            Way::Plain => self.plain,
        }
    }

    fn line(&self, value: &str, way: Way, more: &str) -> HeaderValue {
        let secure = if way == Way::Encrypted { "; Secure" } else { "" };
        let line = format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}",
            self.name(way)
        );
        // The value is drawn from letters and digits.
        HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_the_hosts_own_and_out_of_reach_of_scripts() {
        let set = CONSOLE.set("abc", Way::Encrypted);
        assert_eq!(
            set,
            "__Host-weir-console=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        let set = PORTAL.set("abc", Way::Plain);
        assert_eq!(set, "weir-portal=abc; Path=/; HttpOnly; SameSite=Strict");
        let clear = PORTAL.clear(Way::Plain);
        assert_eq!(clear, "weir-portal=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }

    #[test]
    fn a_cookie_that_a_plain_site_may_have_set_is_not_taken_for_the_encrypted_one() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; weir-console=plain"));
        headers.append(header::COOKIE, HeaderValue::from_static("x; __Host-weir-console=safe"));
        assert_eq!(CONSOLE.read(&headers, Way::Encrypted), Some("safe"));
        assert_eq!(CONSOLE.read(&headers, Way::Plain), Some("plain"));
        assert_eq!(PORTAL.read(&headers, Way::Plain), None);
    }
}
