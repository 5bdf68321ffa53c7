//! `[console]`: the operators' console, its listener, and the owners' portal on the gateway.

use std::net::SocketAddr;

use http::Uri;

use super::{
    kinds::{address, is_web, web_address},
    openid::OpenIdConfig,
    tls::TlsConfig,
};
use crate::domain::settings::{Kind, Section, flag, optional_table, settings, table, text};

settings! {
    /// `[console]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct ConsoleConfig {
        /// Where operators' browsers reach the console, IP:PORT; `weir console open` prints a link that opens a session. Off without it.
        /// Without a certificate on loopback only. docs/console.md says more.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:8083"),
        /// Where browsers reach it, SCHEME://HOST[:PORT], where a proxy is in front: the origin of its forms, whether its cookies are for TLS
        /// alone, and what links begin with; needed for [console.openid] beyond loopback. Default: as each request says, and for links the
        /// listener's own address. docs/proxies.md says more.
        url: Option<String> = origin().optional("https://console.example.com"),
        /// The same of the gateway, for its portal and for examples beside a new key. Default: as each request says, and for examples the
        /// gateway's own address.
        gateway_url: Option<String> = origin().optional("https://api.example.com"),
        /// Whether the gateway's port has /portal, where the owner of a key signs in with it and sees its use.
        portal: bool = flag(true),
        /// The address of Prometheus, SCHEME://HOST[:PORT] and maybe a path, whose alerts the overview lists: of all nodes, and those on
        /// rates. Without it the overview has what this node knows of itself. docs/console.md says more.
        prometheus_url: Option<Uri> = prometheus().optional("http://127.0.0.1:9090"),
        /// The OpenID provider that operators sign in with, beside the links. There, this console is a client with the redirect address
        /// `url`/openid/return. docs/console.md says more.
        openid: Option<OpenIdConfig> = optional_table(),
        /// What the listener shows.
        tls: TlsConfig = table(),
    } checked by is_reached_safely
}

/// `https://host[:port]`, which has no path.
fn origin() -> Kind<String> {
    const HINT: &str = "not an address, give SCHEME://HOST[:PORT] without a path, such as https://console.example.com";
    text()
        .map(|text| text.trim_end_matches('/').to_owned())
        .fits(HINT, |text| {
            let url = text.parse::<Uri>();
            let names_no_user = |url: &Uri| url.authority().is_some_and(|host| !host.as_str().contains('@'));
            url.is_ok_and(|url| is_web(&url) && names_no_user(&url) && url.path() == "/" && url.query().is_none())
        })
}

/// `https://host[:port][/path]`, without a user or a query.
fn prometheus() -> Kind<Uri> {
    const HINT: &str = "not an address, give SCHEME://HOST[:PORT], without a user, such as http://127.0.0.1:9090";
    web_address(HINT).fits(HINT, |url| url.query().is_none())
}

fn is_reached_safely(read: ConsoleConfig, from: &Section<'_>) -> ConsoleConfig {
    const NO_LISTENER: &str = "has no listener, set [console] listen or take it out";
    let is_here = read.listen.is_some_and(|listen| listen.ip().is_loopback());
    match read.listen {
        None if read.tls.is_on() => from.wrong("tls", &["listen"], NO_LISTENER),
        Some(_) if !read.tls.is_on() && !is_here => from.wrong(
            "listen",
            &["tls.certificate"],
            "whoever reads a session on its way has the console: listen on loopback, behind a proxy with TLS if need be, or add a \
             [[console.tls.certificate]]",
        ),
        Some(_) | None => {}
    }
    match read.listen {
        _ if read.openid.is_none() => {}
        None => from.wrong("openid", &["listen"], NO_LISTENER),
        Some(_) if read.url.is_none() && !is_here => from.wrong(
            "openid",
            &["url"],
            "the provider sends browsers back to the console: set [console] url to its address, such as https://console.example.com",
        ),
        Some(_) => {}
    }
    read
}
