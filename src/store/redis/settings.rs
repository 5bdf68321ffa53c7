//! The settings of the connections to Redis.

use std::{fmt, path::PathBuf, time::Duration};

use crate::{domain::keys::secret::Secret, store::StoreOpenError};

/// The settings of `[store.redis]`, with secrets resolved.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// The kind of deployment: a single server, a master with sentinels, or a cluster.
    pub mode: RedisMode,
    /// The `host:port` of the server, of the sentinels, or of some nodes of the cluster.
    pub nodes: Vec<String>,
    /// The ACL user; `None` for Redis' default user.
    pub username: Option<String>,
    /// The password of the ACL user; `None` if it needs none.
    pub password: Option<Secret>,
    /// The number of the database; 0 by default, and always in a cluster.
    pub database: i64,
    /// Whether connections use TLS.
    pub tls: bool,
    /// The file with the CA certificates to trust, as PEM; `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// The prefix of all Redis keys, so that several installations can share a server. 1 to 64 characters of `a-zA-Z0-9_.-`.
    pub namespace: String,
    /// The maximum time for which Redis may be silent before a call on the request path fails, including the time for
    /// reconnects.
    pub budget: Duration,
    /// The total timeout of a call. It applies even while Redis answers other calls that were sent earlier.
    pub queue: Duration,
}

/// The kinds of deployment of Redis servers.
#[derive(Clone, Debug)]
pub enum RedisMode {
    /// A single server.
    Standalone,
    /// A master and its replicas, watched by sentinels.
    Sentinel {
        /// The name by which the sentinels know the master.
        master_name: String,
        /// The ACL user for the sentinels; `None` for the default user.
        username: Option<String>,
        /// The password of the ACL user for the sentinels; `None` if they require none.
        password: Option<Secret>,
    },
    /// A cluster: masters that share the hash slots.
    Cluster,
}

const NAMESPACE_CHARS_MAX: usize = 64;

impl RedisSettings {
    /// Returns the name of one of the store's Redis keys. The braces put all of them into one hash slot of a cluster.
    pub(super) fn key(&self, name: &str) -> Result<String, StoreOpenError> {
        let fits = (1..=NAMESPACE_CHARS_MAX).contains(&self.namespace.len());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if fits && self.namespace.bytes().all(plain) {
            Ok(format!("{{{}:keys}}:{name}", self.namespace))
        } else {
            let rule = format!("give 1 to {NAMESPACE_CHARS_MAX} characters from a-z, A-Z, 0-9, `_`, `.` and `-`");
            Err(StoreOpenError::Settings(format!(
                "store.redis.namespace {:?} cannot be used: {rule}",
                self.namespace
            )))
        }
    }

    /// Returns the addresses of the nodes: exactly one for a standalone server, at least one otherwise.
    pub(super) fn addresses(&self) -> Result<Vec<RedisAddress>, StoreOpenError> {
        let count = self.nodes.len();
        if count == 0 {
            return Err(StoreOpenError::Settings(
                "store.redis.nodes is empty: give host:port".into(),
            ));
        }
        if matches!(self.mode, RedisMode::Standalone) && count != 1 {
            return Err(StoreOpenError::Settings(format!(
                "store.redis.nodes has {count} entries, but mode standalone has one server; set store.redis.mode to sentinel or cluster"
            )));
        }
        if matches!(self.mode, RedisMode::Cluster) && self.database != 0 {
            let text = "store.redis.database: a cluster has only database 0; remove this setting";
            return Err(StoreOpenError::Settings(text.to_owned()));
        }
        self.nodes.iter().map(|node| address(node)).collect()
    }
}

fn address(node: &str) -> Result<RedisAddress, StoreOpenError> {
    // A URL may contain a password, so the message quotes `node` only if it cannot be a URL.
    if node.contains('@') || node.contains("://") {
        let text =
            "store.redis.nodes takes only host:port; give username, password, database and tls as separate settings";
        return Err(StoreOpenError::Settings(text.to_owned()));
    }
    RedisAddress::parse(node)
        .ok_or_else(|| StoreOpenError::Settings(format!("store.redis.nodes: {node:?} is not host:port")))
}

/// A host name or IP address with a port, written `host:port`. An IPv6 address is in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RedisAddress {
    /// The host name or IP address; never empty. An IPv6 address is without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl RedisAddress {
    /// Parses `host:port`. The host can be an IPv6 address with or without brackets, because Redis writes no brackets.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Self::new(host, port.parse().ok()?)
    }

    /// Returns the address; `None` if the host is empty.
    pub(super) fn new(host: &str, port: u16) -> Option<Self> {
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Parses the address of a node as the cluster node `asked` reports it. If the text has no host, the host is that of `asked`.
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
