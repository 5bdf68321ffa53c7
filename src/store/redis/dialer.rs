//! Creates clients for Redis servers, with login, protocol and TLS.

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, Pipeline, ProtocolVersion, PushInfo, PushKind,
    RedisConnectionInfo, RedisError, RedisResult, TlsCertificates,
};

use super::rights::{MissingUserRights, RequiredRights};
use super::settings::{RedisMode, RedisSettings};
use crate::domain::keys::secret::Secret;
use crate::store::StoreOpenError;
use crate::store::redis::settings::RedisAddress;

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

    /// Returns a client that checks rights at a server that holds data. The client selects no database, because selecting one may
    /// need a right.
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

/// Opens a connection without timeouts. Calls `on_push` with the kind of each push message from the server, and also when the
/// connection is closed.
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
