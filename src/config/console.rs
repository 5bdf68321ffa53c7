//! `[console]`: the operators' console, its listener, and the owners' portal on the gateway.

use std::net::SocketAddr;

use http::Uri;
use serde::Deserialize;

use super::openid::{self, OpenIdConfig, RawOpenId};
use super::tls::{self, RawTls, TlsConfig};
use super::values::Values;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawConsole {
    listen: Option<String>,
    url: Option<String>,
    gateway_url: Option<String>,
    portal: Option<bool>,
    openid: Option<RawOpenId>,
    tls: RawTls,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConsoleConfig {
    /// The console's listener; `None`: there is no console.
    pub listen: Option<SocketAddr>,
    /// What links into the console begin with, without a slash at its end; `None`: the listener's own address.
    pub url: Option<String>,
    /// Where clients reach the gateway, for the examples beside a new key; `None`: the listener's own address.
    pub gateway_url: Option<String>,
    /// Whether the gateway has the portal.
    pub portal: bool,
    /// The OpenID provider that operators sign in with; `None`: by links alone.
    pub openid: Option<OpenIdConfig>,
    /// What the listener shows.
    pub tls: TlsConfig,
}

impl ConsoleConfig {
    /// What is read only at the start: all but which certificates there are.
    pub(super) fn at_start(&self) -> (bool, Self) {
        let rest = Self {
            tls: TlsConfig::default(),
            ..self.clone()
        };
        (self.tls.is_on(), rest)
    }
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawConsole) -> ConsoleConfig {
    let at = ["console", "listen"];
    let listen = values.optional_address(&at, raw.listen.as_deref());
    let tls = tls::resolve(values, "console", &raw.tls);
    match listen {
        None if tls.is_on() => values.wrong(&["console", "tls"], "has no listener, set [console] listen or take it out"),
        Some(listen) if !tls.is_on() && !listen.ip().is_loopback() => values.wrong(
            &at,
            "whoever reads a session on its way has the console: listen on loopback, behind a proxy with TLS if need be, or add a \
             [[console.tls.certificate]]",
        ),
        Some(_) | None => {}
    }
    let openid = raw.openid.as_ref().map(|raw| openid::resolve(values, raw));
    match listen {
        _ if openid.is_none() => {}
        None => values.wrong(&["console", "openid"], "has no listener, set [console] listen or take it out"),
        Some(listen) if raw.url.is_none() && !listen.ip().is_loopback() => values.wrong(
            &["console", "openid"],
            "the provider sends browsers back to the console: set [console] url to its address, such as https://console.example.com",
        ),
        Some(_) => {}
    }
    ConsoleConfig {
        listen,
        openid,
        url: url(values, "url", raw.url.as_deref()),
        gateway_url: url(values, "gateway_url", raw.gateway_url.as_deref()),
        portal: raw.portal.unwrap_or(true),
        tls,
    }
}

/// `https://host[:port]`, which has no path.
fn url(values: &mut Values<'_>, key: &str, given: Option<&str>) -> Option<String> {
    let text = given?.trim_end_matches('/');
    let is_origin = text.parse::<Uri>().is_ok_and(|uri| {
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_host = uri.authority().is_some_and(|host| !host.as_str().contains('@'));
        is_web && is_host && uri.path() == "/" && uri.query().is_none()
    });
    if !is_origin {
        values.wrong(
            &["console", key],
            "not an address, give SCHEME://HOST[:PORT] without a path, such as https://console.example.com",
        );
        return None;
    }
    Some(text.to_owned())
}
