//! Opens connections to Postgres. Each wait has a timeout.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::JoinHandle,
};
use tokio_postgres::{
    Client, Config, NoTls,
    config::{SslMode, TargetSessionAttrs},
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tokio_rustls::{TlsConnector, client};

use crate::{
    config::log::PostgresTls,
    edges::web_client::roots,
    sinks::postgres::{PostgresError, PostgresSettings},
};

/// The application name that the server displays for weir's connections.
const APPLICATION: &str = "weir";
/// If weir has sent data and the server does not acknowledge it for this long, the connection counts as lost.
const SILENCE: Duration = Duration::from_secs(30);

/// Opens connections to the database.
pub(super) struct PostgresDialer {
    config: Config,
    tls: Option<DatabaseTls>,
    limit: Duration,
}

/// A connection to the database, with the task that drives it. Dropping this value ends the connection and the task.
pub(super) struct PostgresConnection {
    pub(super) client: Client,
    driver: JoinHandle<()>,
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl PostgresSettings {
    /// Returns the servers and the database in the connection string, without user and password. Empty if it cannot be parsed.
    pub(crate) fn address(&self) -> String {
        let Ok(config) = self.url.expose().parse::<Config>() else {
            return String::new();
        };
        let database = config.get_dbname().or(config.get_user());
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        format!("{hosts:?} {addresses:?} {:?} {database:?}", config.get_ports())
    }
}

impl PostgresDialer {
    /// Creates the dialer without connecting.
    ///
    /// # Errors
    /// The connection string or the CA certificates cannot be used. The message does not quote them.
    pub(super) fn new(settings: &PostgresSettings) -> Result<Self, PostgresError> {
        let parsed = settings.url.expose().parse::<Config>();
        let mut config = parsed.map_err(|_| {
            let form = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";
            PostgresError::Settings(format!(
                "url cannot be used: the value is not a connection string; use {form}"
            ))
        })?;
        let tls = match settings.tls {
            PostgresTls::Disable => None,
            demand => Some(DatabaseTls::new(demand, settings.ca.as_deref())?),
        };
        // A Unix socket has no TLS and needs none. If there are hosts in addition to Unix sockets, all connections must use
        // TLS.
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

    /// Opens a connection to the primary server. `statement` is the timeout of each statement. Rows are also read from the
    /// primary, because a replica may lack rows that have been acknowledged.
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
        // These limits are set by statements, because poolers refuse connection options. With them, the server ends statements
        // that this process has given up. Otherwise the transaction of a lost connection could keep its locks.
        let limit = statement.as_millis();
        let settings = format!(
            "SET statement_timeout = {limit}; SET lock_timeout = {limit}; \
             SET idle_in_transaction_session_timeout = {limit}; SET timezone = 'UTC'"
        );
        connection.client.batch_execute(&settings).await?;
        Ok(connection)
    }
}

/// Drives a connection until it ends. The calls that use the connection return its error, so the error is only logged for
/// debugging.
async fn drive<C: Future<Output = Result<(), tokio_postgres::Error>>>(connection: C) {
    if let Err(error) = connection.await {
        tracing::debug!(error = %PostgresError::from(error), "a connection to postgres has ended");
    }
}

/// Returns the result of `work`, or [`PostgresError::Timeout`] after `limit`.
pub(super) async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PostgresError>>,
) -> Result<T, PostgresError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or(Err(PostgresError::Timeout(limit)))
}

/// The TLS configuration of connections to the database. Clones share it.
#[derive(Clone)]
pub(super) struct DatabaseTls(Arc<ClientConfig>);

impl DatabaseTls {
    /// Creates the configuration. `demand` determines what is verified. `ca` contains the trusted CA certificates in PEM;
    /// `None` for the platform's.
    pub(super) fn new(demand: PostgresTls, ca: Option<&[u8]>) -> Result<Self, PostgresError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| setup_error(&error))?;
        let verifier: Arc<dyn ServerCertVerifier> = match demand {
            PostgresTls::Require | PostgresTls::Disable => Arc::new(AnyServer(provider)),
            PostgresTls::VerifyFull => verifier(ca, provider)?,
            PostgresTls::VerifyCa => Arc::new(AnyServerName(verifier(ca, provider)?)),
        };
        // The modes that check less than rustls does, `require` and `verify-ca` as in libpq, need a custom verifier.
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        Ok(Self(Arc::new(builder.with_no_client_auth())))
    }
}

fn setup_error(error: &dyn std::fmt::Display) -> PostgresError {
    PostgresError::Settings(format!("cannot set up TLS: {error}"))
}

fn verifier(ca: Option<&[u8]>, provider: Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, PostgresError> {
    let roots = roots(ca).map_err(|error| match ca {
        Some(_) => PostgresError::Settings(format!("ca_file cannot be used: {error}")),
        None => setup_error(&error),
    })?;
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|error| setup_error(&error))
}

/// Accepts a certificate that is signed by a trusted CA, for any server name.
#[derive(Debug)]
struct AnyServerName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyServerName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = (self.0).verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is checked last. If only the name is wrong, everything else is valid.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts any certificate.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for DatabaseTls {
    type Stream = DatabaseTlsStream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, io::Error> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake {
            connector: TlsConnector::from(Arc::clone(&self.0)),
            name,
        })
    }
}

/// Starts the TLS handshake with the server that has the name `name`.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = DatabaseTlsStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<DatabaseTlsStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.name, stream).await.map(DatabaseTlsStream) })
    }
}

/// A TLS connection to the database.
pub(super) struct DatabaseTlsStream<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for DatabaseTlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for DatabaseTlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for DatabaseTlsStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
