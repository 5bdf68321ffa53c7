//! The address of a Redis server.

use std::fmt;

/// A host name or IP address with a port, written `host:port`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RedisAddress {
    /// Never empty; an IPv6 address without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl RedisAddress {
    /// Reads `host:port`. The host may be an IPv6 address, in brackets or, as Redis writes it, without.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Self::new(host, port.parse().ok()?)
    }

    /// `None` without a host.
    pub(super) fn new(host: &str, port: u16) -> Option<Self> {
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Reads the address of a node as a cluster reports it: without a host, it is that of the node that reports it.
    pub(super) fn from_report(text: &str, asked: &Self) -> Option<Self> {
        match text.rsplit_once(':')? {
            ("" | "?", port) => Self::new(&asked.host, port.parse().ok()?),
            _ => Self::parse(text),
        }
    }
}

impl fmt::Display for RedisAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_host_and_port() {
        for good in ["127.0.0.1:6379", "[::1]:6379", "redis.internal:1"] {
            assert_eq!(RedisAddress::parse(good).unwrap().to_string(), good);
        }
        for bad in ["", "redis", ":6379", "redis:x", "redis:70000", "[]:1"] {
            assert_eq!(RedisAddress::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_node_without_a_host_is_where_the_one_is_that_named_it() {
        let asked = RedisAddress::parse("10.0.0.1:7000").unwrap();
        let named = |text| RedisAddress::from_report(text, &asked).unwrap().to_string();
        assert_eq!(named(":7001"), "10.0.0.1:7001");
        assert_eq!(named("?:7001"), "10.0.0.1:7001");
        assert_eq!(named("10.0.0.2:7001"), "10.0.0.2:7001");
        assert_eq!(named("::1:7001"), "[::1]:7001");
    }
}
