//! Connections to the database, with a timeout for each wait.

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Config, NoTls,
    config::{SslMode, TargetSessionAttrs},
};

use crate::{
    config::log_postgres::PostgresTls,
    sinks::postgres::{error::PostgresError, settings::PostgresSettings, tls::DatabaseTls},
};

/// The application name that the server shows.
const APPLICATION: &str = "weir";
/// A connection is lost if the peer acknowledges nothing for this long.
const SILENCE: Duration = Duration::from_secs(30);

/// Opens connections to the database.
pub(super) struct PostgresDialer {
    config: Config,
    tls: Option<DatabaseTls>,
    limit: Duration,
}

/// A connection and the task that drives it.
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    driver: JoinHandle<()>,
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl PostgresDialer {
    /// Creates the dialer without connecting.
    ///
    /// # Errors
    /// The connection string or the authorities cannot be used. The text does not quote them.
    pub(super) fn new(settings: &PostgresSettings) -> Result<Self, PostgresError> {
        let parsed = settings.url.expose().parse::<Config>();
        let mut config = parsed.map_err(|_| {
            let form = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            PostgresError::Settings(format!("url: the value is not a connection string, use {form}"))
        })?;
        let tls = match settings.tls {
            PostgresTls::Disable => None,
            demand => Some(DatabaseTls::new(demand, settings.ca.as_deref())?),
        };
        // A unix socket has no TLS and needs none. If there are hosts of both kinds, all must use TLS.
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

    /// Opens a connection to the primary server, with `statement` as the timeout of each statement. Rows are read from the
    /// primary, too: a replica may lack rows that have been acknowledged.
    pub(super) async fn connect(&self, statement: Duration) -> Result<PostgresConnection, PostgresError> {
        with_timeout(self.limit, self.dial(statement)).await
    }

    async fn dial(&self, statement: Duration) -> Result<PostgresConnection, PostgresError> {
        let (client, driver) = match &self.tls {
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                (client, tokio::spawn(drive(connection)))
            }
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                (client, tokio::spawn(drive(connection)))
            }
        };
        let connection = PostgresConnection { client, driver };
        // Set by statements, because poolers refuse connection options. With these limits the server ends statements that this
        // process has given up: otherwise the transaction of a lost connection could keep its locks.
        let limit = statement.as_millis();
        let settings = format!(
            "SET statement_timeout = {limit}; SET lock_timeout = {limit}; \
             SET idle_in_transaction_session_timeout = {limit}; SET timezone = 'UTC'"
        );
        connection.client.batch_execute(&settings).await?;
        Ok(connection)
    }
}

/// Runs until the connection ends. Its users see the error; nothing is reported here.
async fn drive<C: Future<Output = Result<(), tokio_postgres::Error>>>(connection: C) {
    if let Err(error) = connection.await {
        tracing::debug!(error = %PostgresError::from(error), "a connection to postgres has ended");
    }
}

/// The result of `work`; [`PostgresError::Late`] after `limit`.
pub(super) async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or(Err(PostgresError::Timeout(limit)))
}
