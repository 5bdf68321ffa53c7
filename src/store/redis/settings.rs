//! Where the Redis is and how to talk to it.

use std::path::PathBuf;
use std::time::Duration;

use ::redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, TlsCertificates};

use crate::domain::secret::Secret;
use crate::store::OpenError;

/// The `[store.redis]` settings, with secrets resolved.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// `host:port` of the server. One for now: a list is what Sentinel and Cluster will need.
    pub nodes: Vec<String>,
    /// The ACL user; `None` is Redis' default user.
    pub username: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The database number, 0 by default.
    pub database: i64,
    /// Whether to speak TLS.
    pub tls: bool,
    /// The certificate authorities to trust, as PEM; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// What the names of all keys begin with, so that installations can share a server. 1 to 64 of `a-zA-Z0-9_.-`.
    pub namespace: String,
    /// What one read on the request path may take in all, reconnecting included.
    pub budget: Duration,
}

const NAMESPACE_CHARS_MAX: usize = 64;

impl RedisSettings {
    /// A client for one protocol version. It connects nowhere yet; it reads the CA file.
    pub(super) fn client(&self, protocol: ProtocolVersion) -> Result<Client, OpenError> {
        let settings = |text: String| OpenError::Settings(format!("store.redis: {text}"));
        let (host, port) = self.node()?;
        let address = if self.tls {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        let mut login = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_protocol(protocol);
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password.expose());
        }
        let info = address
            .into_connection_info()
            .map_err(|error| settings(error.to_string()))?
            .set_redis_settings(login);
        if !self.tls {
            return Client::open(info).map_err(|error| settings(error.to_string()));
        }
        let root_cert = match &self.ca_file {
            None => None,
            Some(path) => Some(
                std::fs::read(path)
                    .map_err(|error| settings(format!("ca_file {} cannot be read: {error}", path.display())))?,
            ),
        };
        Client::build_with_tls(
            info,
            TlsCertificates {
                client_tls: None,
                root_cert,
            },
        )
        .map_err(|error| settings(format!("the TLS settings do not work: {error}")))
    }

    /// The name of one of the store's keys. The braces make all of them live in one slot of a cluster.
    pub(super) fn key(&self, name: &str) -> Result<String, OpenError> {
        let fits = (1..=NAMESPACE_CHARS_MAX).contains(&self.namespace.len());
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if fits && self.namespace.bytes().all(plain) {
            Ok(format!("{{{}:keys}}:{name}", self.namespace))
        } else {
            let rule = format!("give 1 to {NAMESPACE_CHARS_MAX} of a-z, A-Z, 0-9, `_`, `.` and `-`");
            Err(OpenError::Settings(format!(
                "store.redis.namespace {:?} is not usable, {rule}",
                self.namespace
            )))
        }
    }

    fn node(&self) -> Result<(String, u16), OpenError> {
        let [node] = self.nodes.as_slice() else {
            let count = self.nodes.len();
            let text =
                format!("store.redis.nodes has {count} entries, this version takes exactly one standalone server");
            return Err(OpenError::Settings(text));
        };
        // A URL may hold a password, so the text is only repeated when it cannot be one.
        if node.contains('@') || node.contains("://") {
            let text = "store.redis.nodes takes host:port; username, password, database and tls are keys of their own";
            return Err(OpenError::Settings(text.to_owned()));
        }
        let fault = || OpenError::Settings(format!("store.redis.nodes: {node:?} is not host:port"));
        let (host, port) = node.rsplit_once(':').ok_or_else(fault)?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = port.parse().map_err(|_| fault())?;
        if host.is_empty() {
            Err(fault())
        } else {
            Ok((host.to_owned(), port))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn settings(node: &str) -> RedisSettings {
        RedisSettings {
            nodes: vec![node.to_owned()],
            username: None,
            password: Some(Secret::new("hunter2")),
            database: 0,
            tls: false,
            ca_file: None,
            namespace: "weir".to_owned(),
            budget: Duration::from_millis(100),
        }
    }

    #[test]
    fn nodes_are_host_and_port() {
        for good in ["127.0.0.1:6379", "[::1]:6379", "redis.internal:1"] {
            assert!(settings(good).client(ProtocolVersion::RESP2).is_ok(), "{good}");
        }
        for bad in ["", "redis", ":6379", "redis:x", "redis:70000"] {
            assert!(settings(bad).client(ProtocolVersion::RESP2).is_err(), "{bad}");
        }
    }

    #[test]
    fn passwords_are_not_repeated() {
        let url = settings("redis://:hunter2@host:1")
            .client(ProtocolVersion::RESP2)
            .unwrap_err()
            .to_string();
        let client = settings("host:1").client(ProtocolVersion::RESP2).unwrap();
        assert!(!format!("{url} {client:?} {:?}", settings("host:1")).contains("hunter2"));
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
}
