//! Accepts TLS on a listener. Its certificates and accepted clients can be replaced at run time.

use std::sync::Arc;

use arc_swap::ArcSwap;
use pingora::{
    listeners::tls::Acceptor,
    protocols::{IO, tls::TlsStream},
};
use rustls::{
    Error, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, pem::PemObject},
    server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};

use crate::front::tls::{certificate::Certificate, choice::CertificateResolver};

/// The ALPN names of the protocols over TLS, the preferred one first.
const HTTP_2_AND_1: &[&[u8]] = &[b"h2", b"http/1.1"];
const HTTP_1: &[&[u8]] = &[b"http/1.1"];

/// The clients that may connect.
#[derive(Clone, Debug, Default)]
pub(crate) enum AcceptedClients {
    /// All.
    #[default]
    All,
    /// Those with a certificate of these authorities.
    Certified(Arc<dyn ClientCertVerifier>),
}

/// Why an authority's file cannot be used for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds no PEM certificate of an authority")]
pub(crate) struct NoAuthority;

impl AcceptedClients {
    /// Clients with a certificate of the authorities in this PEM file.
    pub(crate) fn from_authorities(authorities: &[u8]) -> Result<Self, NoAuthority> {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(authorities) {
            one.ok().and_then(|one| roots.add(one).ok()).ok_or(NoAuthority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto()).build();
        verifier.map(Self::Certified).map_err(|_| NoAuthority)
    }
}

/// One version of a listener's certificates and accepted clients, replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct TlsIdentity {
    /// The certificates in order of preference. Never empty.
    pub certificates: Vec<Certificate>,
    pub clients: AcceptedClients,
}

/// The HTTP versions of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersions {
    /// HTTP/2 and HTTP/1.1.
    Http2,
    /// HTTP/1.1 only.
    Http1,
}

/// TLS 1.2 and 1.3 on a listener.
pub(crate) struct TlsListener {
    speaks: HttpVersions,
    tickets: Arc<dyn ProducesTickets>,
    version: ArcSwap<TlsSnapshot>,
}

struct TlsSnapshot {
    choice: Arc<CertificateResolver>,
    config: Arc<ServerConfig>,
}

impl TlsListener {
    /// A listener with this identity.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn new(speaks: HttpVersions, identity: TlsIdentity) -> Result<Self, Error> {
        let tickets = ring::Ticketer::new()?;
        let version = ArcSwap::from_pointee(snapshot(speaks, &tickets, identity)?);
        Ok(Self {
            speaks,
            tickets,
            version,
        })
    }

    /// Uses `identity` from the next handshake on. Running handshakes, connections and session tickets are not affected.
    ///
    /// # Errors
    /// Those of [`Listener::new`].
    pub(crate) fn set_identity(&self, identity: TlsIdentity) -> Result<(), Error> {
        self.version
            .store(Arc::new(snapshot(self.speaks, &self.tickets, identity)?));
        Ok(())
    }

    /// Performs the handshake. The caller limits the time.
    ///
    /// # Errors
    /// Those of the client and of rustls, in Pingora's form.
    pub(crate) async fn accept<S: IO + 'static>(&self, stream: S) -> Result<TlsStream<S>, Box<pingora::Error>> {
        let config = Arc::clone(&self.version.load().config);
        Acceptor::from_server_config(config).tls_handshake(stream).await
    }

    /// Whether a certificate is valid for this host.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let version = self.version.load();
        version
            .choice
            .certificates()
            .iter()
            .any(|one| one.names().covers(host).is_some())
    }

    /// The certificates in use.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        self.version.load().choice.certificates().to_vec()
    }
}

fn snapshot(
    speaks: HttpVersions,
    tickets: &Arc<dyn ProducesTickets>,
    identity: TlsIdentity,
) -> Result<TlsSnapshot, Error> {
    let crypto = crypto();
    let choice = Arc::new(CertificateResolver::new(identity.certificates, &crypto));
    let builder = ServerConfig::builder_with_provider(crypto).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = match identity.clients {
        AcceptedClients::All => {
            let mut config = builder
                .with_no_client_auth()
                .with_cert_resolver(Arc::clone(&choice) as _);
            config.ticketer = Arc::clone(tickets);
            config
        }
        // Without tickets, so that a client shows its certificate on each connection.
        AcceptedClients::Certified(verifier) => {
            let mut config = builder
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::clone(&choice) as _);
            config.send_tls13_tickets = 0;
            config
        }
    };
    // Tickets only: clients could fill a session storage.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ignore_client_order = true;
    let offered = match speaks {
        HttpVersions::Http2 => HTTP_2_AND_1,
        HttpVersions::Http1 => HTTP_1,
    };
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    Ok(TlsSnapshot {
        choice,
        config: Arc::new(config),
    })
}

/// The cryptography of all listeners: ring, as for providers.
pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl std::fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsListener")
            .field("speaks", &self.speaks)
            .finish_non_exhaustive()
    }
}
