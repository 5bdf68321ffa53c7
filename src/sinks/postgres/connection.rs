//! A connection to the database, with a limit on each wait.

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Config, NoTls,
    config::{SslMode, TargetSessionAttrs},
};

use crate::{
    config::log_postgres::PostgresTls,
    sinks::postgres::{error::PostgresError, settings::PostgresSettings, tls::Tls},
};

/// What the server shows as the application of a connection.
const APPLICATION: &str = "weir";
/// A peer that acknowledges nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(30);

/// Makes connections.
pub(super) struct Dialer {
    config: Config,
    tls: Option<Tls>,
    limit: Duration,
}

/// A connection and the task that drives it.
pub(super) struct Connection {
    pub(super) client: Client,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Dialer {
    /// Connects nowhere yet.
    ///
    /// # Errors
    /// The connection string or the authorities cannot be used. The text repeats nothing of them.
    pub(super) fn new(settings: &PostgresSettings) -> Result<Self, PostgresError> {
        let parsed = settings.url.expose().parse::<Config>();
        let mut config = parsed.map_err(|_| {
            let form = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            PostgresError::Settings(format!("url: what it names is no connection string, give {form}"))
        })?;
        let tls = match settings.tls {
            PostgresTls::Disable => None,
            demand => Some(Tls::new(demand, settings.ca.as_deref())?),
        };
        // A unix socket has no TLS, and nobody on its way. Where there are hosts of both kinds, TLS is demanded of all.
        let sockets_only = config.get_hostaddrs().is_empty()
            && !config.get_hosts().is_empty()
            && config
                .get_hosts()
                .iter()
                .all(|host| matches!(host, tokio_postgres::config::Host::Unix(_)));
        let tls = tls.filter(|_| !sockets_only);
        config
            .ssl_mode(if tls.is_some() {
                SslMode::Require
            } else {
                SslMode::Disable
            })
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .application_name(APPLICATION)
            .tcp_user_timeout(SILENCE)
            .connect_timeout(settings.connect);
        Ok(Self {
            config,
            tls,
            limit: settings.connect,
        })
    }

    /// A connection whose statements take at most `statement` each, to the server that takes changes. That one is also read: others
    /// may not have rows yet that have been acknowledged.
    pub(super) async fn connect(&self, statement: Duration) -> Result<Connection, PostgresError> {
        within(self.limit, self.dial(statement)).await
    }

    async fn dial(&self, statement: Duration) -> Result<Connection, PostgresError> {
        let (client, driver) = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                (client, tokio::spawn(driven(connection)))
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                (client, tokio::spawn(driven(connection)))
            }
        };
        let connection = Connection { client, driver };
        // By statements and not as options of the connection, which poolers refuse. The server ends what this process has
        // given up: otherwise a transaction of a connection that is gone could keep its locks.
        let limit = statement.as_millis();
        let settings = format!(
            "SET statement_timeout = {limit}; SET lock_timeout = {limit}; \
             SET idle_in_transaction_session_timeout = {limit}; SET timezone = 'UTC'"
        );
        connection.client.batch_execute(&settings).await?;
        Ok(connection)
    }
}

/// Runs until the connection ends. Whoever uses it is told; nobody needs to be told here.
async fn driven<C: Future<Output = Result<(), tokio_postgres::Error>>>(connection: C) {
    if let Err(error) = connection.await {
        tracing::debug!(error = %PostgresError::from(error), "a connection to postgres has ended");
    }
}

/// The work's result, or [`PostgresError::Late`].
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or(Err(PostgresError::Late(limit)))
}
