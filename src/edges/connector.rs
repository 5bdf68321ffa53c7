//! Connections of weir's own to web servers, with TLS where the address says so.

use std::{io, sync::Arc, time::Duration};

use http::{Uri, uri::Scheme};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::edges::roots::RootsError;

/// How many addresses of a name are tried, one after the other.
const ADDRESSES_MAX: usize = 4;
/// How long one of them may take: a machine whose IPv6 leads nowhere has the other family too.
const ADDRESS_WAIT: Duration = Duration::from_secs(2);

/// What is spoken over: TCP, or TLS over it.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    /// The address is none of a web server.
    #[error("the address is not http://HOST or https://HOST")]
    Address,
    /// What the name server, the network or the certificate made of it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Makes connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    tls: TlsConnector,
}

impl Connector {
    /// One that trusts these authorities.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, RootsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        // This provider has what these versions need.
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|_| RootsError::Nobody)?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// A connection to the server that an address names.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<Box<dyn Transport>, ConnectError> {
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri.host().ok_or(ConnectError::Address)?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let stream = connect_to(host, port).await?;
        if !is_https {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ConnectError::Address)?;
        Ok(Box::new(self.tls.connect(name, stream).await?))
    }
}

async fn connect_to(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in lookup_host((host, port)).await?.take(ADDRESSES_MAX) {
        match timeout(ADDRESS_WAIT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
