//! The cookies of sessions and of OpenID sign-ins.
//!
//! Over TLS a cookie has the prefix `__Host-` and is Secure (RFC 6265bis, section 4.1.3): it is sent to this host only, and no
//! other host and no plain connection can set it. Browsers refuse such a cookie over plain HTTP, where its name lacks the prefix;
//! without TLS, the console listens on loopback only.

use http::{HeaderMap, HeaderValue, header};

/// The names of a cookie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cookie {
    /// The name over an encrypted connection, with the prefix.
    secure: &'static str,
    /// The name over plain HTTP.
    plain: &'static str,
}

/// The session cookie of the operators' console.
pub(super) const CONSOLE: Cookie = Cookie {
    secure: "__Host-weir-console",
    plain: "weir-console",
};

/// The console's cookie for a sign-in in progress at the OpenID provider.
pub(super) const OPENID: Cookie = Cookie {
    secure: "__Host-weir-openid",
    plain: "weir-openid",
};

/// The portal's cookie for a sign-in in progress at the OpenID provider.
pub(super) const PORTAL_OPENID: Cookie = Cookie {
    secure: "__Host-weir-portal-openid",
    plain: "weir-portal-openid",
};

/// The session cookie of the owners' portal.
pub(super) const PORTAL: Cookie = Cookie {
    secure: "__Host-weir-portal",
    plain: "weir-portal",
};

/// How the client is connected to weir, or to a trusted proxy in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionSecurity {
    /// By TLS.
    Encrypted,
    /// By plain HTTP.
    Plain,
}

impl Cookie {
    /// The value of this cookie in a request.
    pub(super) fn read<'a>(&self, headers: &'a HeaderMap, way: ConnectionSecurity) -> Option<&'a str> {
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

    /// The header that sets the cookie until the browser closes.
    pub(super) fn set(&self, id: &str, way: ConnectionSecurity) -> HeaderValue {
        self.line(id, way, "")
    }

    /// The header that removes the cookie.
    pub(super) fn clear(&self, way: ConnectionSecurity) -> HeaderValue {
        self.line("", way, "; Max-Age=0")
    }

    fn name(&self, way: ConnectionSecurity) -> &'static str {
        match way {
            ConnectionSecurity::Encrypted => self.secure,
            ConnectionSecurity::Plain => self.plain,
        }
    }

    fn line(&self, value: &str, way: ConnectionSecurity, more: &str) -> HeaderValue {
        let secure = if way == ConnectionSecurity::Encrypted {
            "; Secure"
        } else {
            ""
        };
        let line = format!(
            "{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}",
            self.name(way)
        );
        // The value has letters, digits and `.` only.
        HeaderValue::from_str(&line).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_the_hosts_own_and_out_of_reach_of_scripts() {
        let set = CONSOLE.set("abc", ConnectionSecurity::Encrypted);
        assert_eq!(
            set,
            "__Host-weir-console=abc; Path=/; HttpOnly; SameSite=Strict; Secure"
        );
        let set = PORTAL.set("abc", ConnectionSecurity::Plain);
        assert_eq!(set, "weir-portal=abc; Path=/; HttpOnly; SameSite=Strict");
        let clear = PORTAL.clear(ConnectionSecurity::Plain);
        assert_eq!(clear, "weir-portal=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    }

    #[test]
    fn a_cookie_that_a_plain_site_may_have_set_is_not_taken_for_the_encrypted_one() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("a=1; weir-console=plain"));
        headers.append(header::COOKIE, HeaderValue::from_static("x; __Host-weir-console=safe"));
        assert_eq!(CONSOLE.read(&headers, ConnectionSecurity::Encrypted), Some("safe"));
        assert_eq!(CONSOLE.read(&headers, ConnectionSecurity::Plain), Some("plain"));
        assert_eq!(PORTAL.read(&headers, ConnectionSecurity::Plain), None);
    }
}
