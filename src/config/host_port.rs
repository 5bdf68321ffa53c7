//! A host with its port.

use std::net::Ipv6Addr;

/// A host name or address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// A DNS name or an IP address (IPv6 without brackets); never empty.
    pub host: String,
    /// The TCP port, never 0.
    pub port: u16,
}

impl HostPort {
    /// Parses `HOST:PORT`, with an IPv6 address in brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|host| host.parse::<Ipv6Addr>().is_ok())?,
            None => Some(host).filter(|host| {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                !host.is_empty() && host.len() <= 253 && host.bytes().all(plain)
            })?,
        };
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
