//! `[console]`: the operators' console, its listener, and the owners' portal on the gateway.

use std::net::SocketAddr;

use http::Uri;

use super::{
    kinds::{address, is_web_url, web_address},
    openid::OpenIdConfig,
    tls::TlsConfig,
};
use crate::domain::settings::{Section, SettingKind, flag, optional_table, settings, table, text};

settings! {
    /// `[console]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct ConsoleConfig {
        /// The address of the console for operators' browsers, IP:PORT; `weir console open` prints a link that opens a session.
        /// Off by default. Without a certificate, only on loopback. See docs/console.md.
        listen: Option<SocketAddr> = address().optional("127.0.0.1:8083"),
        /// The console's URL for browsers, SCHEME://HOST[:PORT], if it is behind a proxy: the origin of its forms, the start of
        /// its links, and whether its cookies are for TLS only. [console.openid] needs it beyond loopback. Default: as each
        /// request says, and for links the listener's own address. See docs/proxies.md.
        url: Option<String> = origin().optional("https://console.example.com"),
        /// The same for the gateway, for its portal and for the examples that a new key is shown with. Default: as each request
        /// says, and for examples the gateway's own address.
        gateway_url: Option<String> = origin().optional("https://api.example.com"),
        /// Whether the gateway's port has /portal, where the owner of a key signs in with it and sees its usage.
        portal: bool = flag(true),
        /// The URL of Prometheus, SCHEME://HOST[:PORT] and maybe a path. The overview then lists its alerts, which cover all
        /// nodes and rates. Without it, the overview shows what this node knows about itself. See docs/console.md.
        prometheus_url: Option<Uri> = prometheus().optional("http://127.0.0.1:9090"),
        /// The OpenID provider that operators sign in with, in addition to links. The console is a client there, with the
        /// redirect address `url`/openid/return. See docs/console.md.
        openid: Option<OpenIdConfig> = optional_table(),
        /// The listener's certificates.
        tls: TlsConfig = table(),
    } checked by is_reached_safely
}

/// `https://host[:port]`, without a path.
fn origin() -> SettingKind<String> {
    const HINT: &str = "not an address, give SCHEME://HOST[:PORT] without a path, such as https://console.example.com";
    text()
        .map(|text| text.trim_end_matches('/').to_owned())
        .fits(HINT, |text| {
            let url = text.parse::<Uri>();
            let names_no_user = |url: &Uri| url.authority().is_some_and(|host| !host.as_str().contains('@'));
            url.is_ok_and(|url| is_web_url(&url) && names_no_user(&url) && url.path() == "/" && url.query().is_none())
        })
}

/// `https://host[:port][/path]`, without a user or a query.
fn prometheus() -> SettingKind<Uri> {
    const HINT: &str = "not an address, give SCHEME://HOST[:PORT], without a user, such as http://127.0.0.1:9090";
    web_address(HINT).fits(HINT, |url| url.query().is_none())
}

fn is_reached_safely(read: ConsoleConfig, from: &Section<'_>) -> ConsoleConfig {
    const NO_LISTENER: &str = "has no listener, set [console] listen or remove this";
    let is_here = read.listen.is_some_and(|listen| listen.ip().is_loopback());
    match read.listen {
        None if read.tls.is_on() => from.report_fault("tls", &["listen"], NO_LISTENER),
        Some(_) if !read.tls.is_on() && !is_here => from.report_fault(
            "listen",
            &["tls.certificate"],
            "without TLS, sessions could be read on the network: listen on loopback (behind a proxy with TLS if necessary), or add a \
             [[console.tls.certificate]]",
        ),
        Some(_) | None => {}
    }
    match read.listen {
        _ if read.openid.is_none() => {}
        None => from.report_fault("openid", &["listen"], NO_LISTENER),
        Some(_) if read.url.is_none() && !is_here => from.report_fault(
            "openid",
            &["url"],
            "the provider sends browsers back to the console: set [console] url to its address, such as https://console.example.com",
        ),
        Some(_) => {}
    }
    read
}
