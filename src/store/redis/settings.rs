//! The addresses of Redis and how to connect to it.

use std::{fmt, path::PathBuf, time::Duration};

use crate::{domain::keys::secret::Secret, store::StoreOpenError};

/// The `[store.redis]` settings, with secrets resolved.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// How the servers are organised.
    pub mode: RedisMode,
    /// `host:port` of the server, of the sentinels, or of some nodes of the cluster.
    pub nodes: Vec<String>,
    /// The ACL user; `None` for Redis' default user.
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The database number, 0 by default and in every cluster.
    pub database: i64,
    /// Whether to use TLS.
    pub tls: bool,
    /// The certificate authorities to trust, as PEM; `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// The prefix of all key names, so that installations can share a server. 1 to 64 of `a-zA-Z0-9_.-`.
    pub namespace: String,
    /// How long Redis may be silent before a call on the request path is given up, including reconnects.
    pub budget: Duration,
    /// The timeout of a call in all: the maximum wait behind other calls that are answered.
    pub queue: Duration,
}

/// How the servers are organised.
#[derive(Clone, Debug)]
pub enum RedisMode {
    /// A single server.
    Standalone,
    /// A master and its replicas, watched by sentinels.
    Sentinel {
        /// The sentinels' name for the master.
        master_name: String,
        /// The ACL user at the sentinels.
        username: Option<String>,
        /// That user's password; `None` if the sentinels require none.
        password: Option<Secret>,
    },
    /// Masters that share the slots.
    Cluster,
}

const NAMESPACE_CHARS_MAX: usize = 64;

impl RedisSettings {
    /// The name of one of the store's keys. The braces put all of them into one slot of a cluster.
    pub(super) fn key(&self, name: &str) -> Result<String, StoreOpenError> {
        let fits = (1..=NAMESPACE_CHARS_MAX).contains(&self.namespace.len());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if fits && self.namespace.bytes().all(plain) {
            Ok(format!("{{{}:keys}}:{name}", self.namespace))
        } else {
            let rule = format!("give 1 to {NAMESPACE_CHARS_MAX} of a-z, A-Z, 0-9, `_`, `.` and `-`");
            Err(StoreOpenError::Settings(format!(
                "store.redis.namespace {:?} is not usable: {rule}",
                self.namespace
            )))
        }
    }

    /// The nodes: exactly one for a standalone server, at least one otherwise.
    pub(super) fn addresses(&self) -> Result<Vec<RedisAddress>, StoreOpenError> {
        let count = self.nodes.len();
        if count == 0 {
            return Err(StoreOpenError::Settings(
                "store.redis.nodes is empty: give host:port".into(),
            ));
        }
        if matches!(self.mode, RedisMode::Standalone) && count != 1 {
            return Err(StoreOpenError::Settings(format!(
                "store.redis.nodes has {count} entries, but a standalone server is one; set store.redis.mode for sentinel or cluster"
            )));
        }
        if matches!(self.mode, RedisMode::Cluster) && self.database != 0 {
            let text = "store.redis.database: a cluster has database 0 only";
            return Err(StoreOpenError::Settings(text.to_owned()));
        }
        self.nodes.iter().map(|node| address(node)).collect()
    }
}

fn address(node: &str) -> Result<RedisAddress, StoreOpenError> {
    // A URL may contain a password, so the text is repeated only if it cannot be one.
    if node.contains('@') || node.contains("://") {
        let text = "store.redis.nodes takes host:port; username, password, database and tls are keys of their own";
        return Err(StoreOpenError::Settings(text.to_owned()));
    }
    RedisAddress::parse(node)
        .ok_or_else(|| StoreOpenError::Settings(format!("store.redis.nodes: {node:?} is not host:port")))
}

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
    use crate::store::redis::dialer::RedisDialer;

    fn settings(node: &str) -> RedisSettings {
        RedisSettings {
            mode: RedisMode::Standalone,
            nodes: vec![node.to_owned()],
            username: None,
            password: Some(Secret::new("hunter2")),
            database: 0,
            tls: false,
            ca_file: None,
            namespace: "weir".to_owned(),
            budget: Duration::from_millis(100),
            queue: Duration::from_secs(5),
        }
    }

    #[test]
    fn a_standalone_server_is_one_and_the_others_are_some() {
        let two = |mode| RedisSettings {
            mode,
            nodes: vec!["a:1".to_owned(), "b:1".to_owned()],
            ..settings("")
        };
        assert!(two(RedisMode::Standalone).addresses().is_err());
        assert_eq!(two(RedisMode::Cluster).addresses().unwrap().len(), 2);
        let none = RedisSettings {
            nodes: vec![],
            ..two(RedisMode::Cluster)
        };
        assert!(none.addresses().is_err());
        let numbered = RedisSettings {
            database: 1,
            ..two(RedisMode::Cluster)
        };
        assert!(numbered.addresses().is_err());
    }

    #[test]
    fn passwords_are_not_repeated() {
        let url = settings("redis://:hunter2@host:1").addresses().unwrap_err().to_string();
        let settings = settings("host:1");
        let dialer = RedisDialer::new(&settings, ::redis::pipe()).unwrap();
        let client = dialer.data_client(&settings.addresses().unwrap()[0]).unwrap();
        assert!(!format!("{url} {client:?} {settings:?}").contains("hunter2"));
    }

    #[test]
    fn namespaces_are_plain() {
        assert_eq!(settings("h:1").key("version").unwrap(), "{weir:keys}:version");
        for bad in ["", "a{b", "a b", "é"] {
            assert!(
                RedisSettings {
                    namespace: bad.to_owned(),
                    ..settings("h:1")
                }
                .key("version")
                .is_err()
            );
        }
    }

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
