//! Kinds of settings that only weir.toml has: addresses, paths, networks and amounts.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use http::Uri;
use ipnet::IpNet;

use super::host_port::HostPort;
use crate::domain::{
    money::NanoUsd,
    settings::{SettingKind, list_of, text},
};

/// `IP:PORT` to listen on.
pub(super) fn address() -> SettingKind<SocketAddr> {
    const HINT: &str = "not an address to listen on, give IP:PORT, such as 127.0.0.1:8080 or [::]:8080";
    text().then(|text| text.parse().map_err(|_| HINT.to_owned()))
}

/// A path, made absolute by the file's folder.
pub(super) fn path() -> SettingKind<PathBuf> {
    SettingKind::of(|given| given.path())
}

/// A list of networks, each `ADDRESS/BITS` or a single address; empty by default.
pub(super) fn networks() -> SettingKind<Vec<IpNet>> {
    const HINT: &str = "not a network, give ADDRESS/BITS or an address, such as 10.0.0.0/8 or ::1";
    let network = text().then(|text| {
        let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(alone);
        network.map(|network| network.trunc()).ok_or_else(|| HINT.to_owned())
    });
    list_of(network).or(Vec::<String>::new())
}

/// An amount in USD that is not negative.
pub(super) fn usd() -> SettingKind<NanoUsd> {
    text().then(|text| match NanoUsd::parse_usd(&text) {
        Ok(amount) if amount >= NanoUsd::ZERO => Ok(amount),
        Ok(_) => Err("give an amount of zero or more".to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

/// An `http` or `https` URL without a user.
pub(super) fn web_address(refusal: &'static str) -> SettingKind<Uri> {
    text().then(move |text| {
        let url = text
            .parse::<Uri>()
            .ok()
            .filter(|url| is_web_url(url) && !names_user(url));
        url.ok_or_else(|| refusal.to_owned())
    })
}

/// Whether this is an `http` or `https` URL with a host.
pub(super) fn is_web_url(url: &Uri) -> bool {
    matches!(url.scheme_str(), Some("http" | "https")) && url.authority().is_some()
}

/// Whether the URL contains a user, and maybe a password.
pub(super) fn names_user(url: &Uri) -> bool {
    url.authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
}

/// Whether requests to this URL go to another machine without encryption.
pub(super) fn is_unencrypted(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && !matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// `HOST:PORT`, with an IPv6 address in brackets.
pub(super) fn host_port() -> SettingKind<HostPort> {
    const HINT: &str = "not a server's address, give HOST:PORT, such as 127.0.0.1:6379 or redis.example:6379";
    text().then(|text| HostPort::parse(&text).ok_or_else(|| HINT.to_owned()))
}
