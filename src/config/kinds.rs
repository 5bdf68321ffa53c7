//! The kinds of settings that only weir.toml has: addresses, paths, networks and amounts.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use http::Uri;
use ipnet::IpNet;

use super::host_port::HostPort;
use crate::domain::{
    money::NanoUsd,
    settings::{Kind, list_of, text},
};

/// `IP:PORT`, to listen on.
pub(super) fn address() -> Kind<SocketAddr> {
    const HINT: &str = "not an address to listen on, give IP:PORT, such as 127.0.0.1:8080 or [::]:8080";
    text().then(|text| text.parse().map_err(|_| HINT.to_owned()))
}

/// A path, made absolute with the file's folder.
pub(super) fn path() -> Kind<PathBuf> {
    Kind::of(|given| given.path())
}

/// Networks: `ADDRESS/BITS` each, or an address alone. There are none unless they are given.
pub(super) fn networks() -> Kind<Vec<IpNet>> {
    const HINT: &str = "no network stands there, give ADDRESS/BITS or an address, such as 10.0.0.0/8 or ::1";
    let network = text().then(|text| {
        let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(alone);
        network.map(|network| network.trunc()).ok_or_else(|| HINT.to_owned())
    });
    list_of(network).or(Vec::<String>::new())
}

/// An amount of USD that is not negative.
pub(super) fn usd() -> Kind<NanoUsd> {
    text().then(|text| match NanoUsd::parse_usd(&text) {
        Ok(amount) if amount >= NanoUsd::ZERO => Ok(amount),
        Ok(_) => Err("give an amount of zero or more".to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

/// An address in the web, without a user.
pub(super) fn web_address(refusal: &'static str) -> Kind<Uri> {
    text().then(move |text| {
        let url = text.parse::<Uri>().ok().filter(|url| is_web(url) && !names_user(url));
        url.ok_or_else(|| refusal.to_owned())
    })
}

/// `http` or `https`, and a host.
pub(super) fn is_web(url: &Uri) -> bool {
    matches!(url.scheme_str(), Some("http" | "https")) && url.authority().is_some()
}

/// Whether a user, and maybe a password, stands before the host.
pub(super) fn names_user(url: &Uri) -> bool {
    url.authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
}

/// Whether what is sent there can be read on its way to another machine.
pub(super) fn is_open(url: &Uri) -> bool {
    url.scheme_str() == Some("http") && !matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// `HOST:PORT`, an IPv6 address in brackets.
pub(super) fn host_port() -> Kind<HostPort> {
    const HINT: &str = "not a server's place, give HOST:PORT, such as 127.0.0.1:6379 or redis.example:6379";
    text().then(|text| HostPort::parse(&text).ok_or_else(|| HINT.to_owned()))
}
