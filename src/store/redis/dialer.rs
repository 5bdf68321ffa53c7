//! Creates clients for Redis servers, with login, protocol and TLS.

use std::{fmt, path::PathBuf, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates, aio::MultiplexedConnection, io::tcp::TcpSettings,
};

use crate::{
    domain::keys::secret::Secret,
    store::{
        StoreOpenError,
        redis::rights::{MissingUserRights, RequiredRights},
    },
};

/// Maximum number of concurrent calls to one server, including waiting ones. Further calls are refused at once.
pub(super) const CALLS_MAX: usize = 4096;

/// The login, TLS settings, scripts and required rights for all servers. The protocol is always RESP3, which reports a closed
/// connection before the next call is sent on it.
pub(super) struct RedisDialer {
    data: RedisConnectionInfo,
    sentinel: RedisConnectionInfo,
    tls: Option<TlsCertificates>,
    /// The commands that load the scripts into a server, so that each call of a script needs only one round trip, even the first.
    pub(super) scripts: Pipeline,
    pub(super) rights: RequiredRights,
}

impl RedisDialer {
    /// Creates the dialer: reads the CA file and checks the TLS settings.
    pub(super) fn new(settings: &RedisSettings, scripts: Pipeline) -> Result<Self, StoreOpenError> {
        let fault = |text: String| StoreOpenError::Settings(format!("store.redis: {text}"));
        let root_cert = match &settings.ca_file {
            Some(path) if settings.tls => Some(
                std::fs::read(path)
                    .map_err(|error| fault(format!("cannot read ca_file {}: {error}", path.display())))?,
            ),
            _ => None,
        };
        let sentinel = match &settings.mode {
            RedisMode::Sentinel { username, password, .. } => login(username.as_deref(), password.as_ref()),
            RedisMode::Standalone | RedisMode::Cluster => login(None, None),
        };
        let dialer = Self {
            data: login(settings.username.as_deref(), settings.password.as_ref()).set_db(settings.database),
            sentinel,
            tls: settings.tls.then_some(TlsCertificates {
                client_tls: None,
                root_cert,
            }),
            scripts,
            rights: RequiredRights::new(settings),
        };
        for address in settings.addresses()? {
            let tried = dialer.data_client(&address);
            tried.map_err(|error| fault(format!("cannot use the TLS settings: {error}")))?;
        }
        Ok(dialer)
    }

    /// Returns a client for a server that holds data. It does not connect yet.
    pub(super) fn data_client(&self, address: &RedisAddress) -> RedisResult<Client> {
        self.client(address, &self.data)
    }

    /// Returns a client that checks rights at such a server. It selects no database, because that may need a right.
    fn rights_client(&self, address: &RedisAddress) -> RedisResult<Client> {
        self.client(address, &self.data.clone().set_db(0))
    }

    pub(super) fn sentinel_client(&self, address: &RedisAddress) -> RedisResult<Client> {
        self.client(address, &self.sentinel)
    }

    /// Returns the rights that the user lacks at a server that holds data; `None` if the server does not answer the check.
    pub(super) async fn missing_rights(&self, address: &RedisAddress) -> Option<MissingUserRights> {
        let client = self.rights_client(address).ok()?;
        let connection = connect(&client, |_| {}).await.ok()?;
        let MissingUserRights { refusal, complaint } = self.rights.check(connection).await.ok()?;
        let at = |text: String| format!("redis at {address}: {text}");
        Some(MissingUserRights {
            refusal: refusal.map(at),
            complaint: complaint.map(at),
        })
    }

    fn client(&self, address: &RedisAddress, login: &RedisConnectionInfo) -> RedisResult<Client> {
        let RedisAddress { host, port } = address.clone();
        let place = if self.tls.is_some() {
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            }
        } else {
            ConnectionAddr::Tcp(host, port)
        };
        // Nagle's algorithm is off: a call must not wait until previous calls have been acknowledged.
        let at_once = TcpSettings::default().set_nodelay(true);
        let info = place
            .into_connection_info()?
            .set_redis_settings(login.clone())
            .set_tcp_settings(at_once);
        match &self.tls {
            None => Client::open(info),
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
        }
    }
}

/// Opens a connection without timeouts. It calls `on_push` with the kind of each push of the server, and when it is closed.
pub(super) async fn connect(
    client: &Client,
    on_push: impl Fn(PushKind) + Send + Sync + 'static,
) -> RedisResult<MultiplexedConnection> {
    let sender = move |push: PushInfo| {
        on_push(push.kind);
        Ok::<(), RedisError>(())
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(CALLS_MAX)
        .set_push_sender(sender);
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn login(username: Option<&str>, password: Option<&Secret>) -> RedisConnectionInfo {
    // The crate's name and version are not sent: older servers refuse the command, and it would need a right.
    let mut login = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        .set_skip_set_lib_name();
    if let Some(username) = username {
        login = login.set_username(username);
    }
    if let Some(password) = password {
        login = login.set_password(password.expose());
    }
    login
}

/// The settings of `[store.redis]`, with secrets resolved.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// How the servers are organised: alone, with sentinels, or as a cluster.
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
    /// How long Redis may be silent before a call on the request path fails, including the time for reconnects.
    pub budget: Duration,
    /// The timeout of a call in total, even if Redis answers other calls that were sent before it.
    pub queue: Duration,
}

/// How the Redis servers are organised.
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
            let rule = format!("give 1 to {NAMESPACE_CHARS_MAX} of a-z, A-Z, 0-9, `_`, `.` and `-`");
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
    // A URL may contain a password, so the text is repeated only if it cannot be one.
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
    /// Parses `host:port`. The host can be an IPv6 address, in brackets or, as Redis writes it, without.
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
    use std::time::Duration;

    use super::*;

    fn settings(tls: bool) -> RedisSettings {
        RedisSettings {
            mode: RedisMode::Standalone,
            nodes: vec!["127.0.0.1:6379".to_owned()],
            username: None,
            password: None,
            database: 0,
            tls,
            ca_file: None,
            namespace: "weir".to_owned(),
            budget: Duration::from_millis(100),
            queue: Duration::from_secs(5),
        }
    }

    #[test]
    fn no_connection_waits_until_what_was_sent_before_has_arrived() {
        let node = RedisAddress::new("127.0.0.1", 6379).unwrap();
        for tls in [false, true] {
            let dialer = RedisDialer::new(&settings(tls), ::redis::pipe()).unwrap();
            for client in [
                dialer.data_client(&node),
                dialer.sentinel_client(&node),
                dialer.rights_client(&node),
            ] {
                let info = client.unwrap().get_connection_info().clone();
                assert!(info.tcp_settings().nodelay(), "{info:?}");
            }
        }
    }
}

#[cfg(test)]
mod settings_tests {
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
