//! Accepts TLS on a listener, with what it shows and demands exchanged at run time.

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

use crate::front::tls::{certificate::Certificate, choice::Choice};

/// What weir speaks over TLS, as ALPN names it, the preferred first.
const HTTP_2_AND_1: &[&[u8]] = &[b"h2", b"http/1.1"];
const HTTP_1: &[&[u8]] = &[b"http/1.1"];

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clients {
    /// Anybody.
    #[default]
    All,
    /// Whoever shows a certificate of these authorities.
    Certified(Arc<dyn ClientCertVerifier>),
}

/// Why an authority's file cannot be used for clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holds no PEM certificate of an authority")]
pub(crate) struct NoAuthority;

impl Clients {
    /// Those that the authorities in this PEM file vouch for.
    pub(crate) fn of(authorities: &[u8]) -> Result<Self, NoAuthority> {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(authorities) {
            one.ok().and_then(|one| roots.add(one).ok()).ok_or(NoAuthority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto()).build();
        verifier.map(Self::Certified).map_err(|_| NoAuthority)
    }
}

/// What a listener shows, and demands: one version of it, exchanged as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Never empty, in the order of preference.
    pub certificates: Vec<Certificate>,
    /// Who may connect.
    pub clients: Clients,
}

/// The HTTP versions behind a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    Http2,
    /// HTTP/1.1 alone.
    Http1,
}

/// TLS 1.2 and 1.3 on a listener.
pub(crate) struct Listener {
    speaks: Speaks,
    tickets: Arc<dyn ProducesTickets>,
    version: ArcSwap<Version>,
}

struct Version {
    choice: Arc<Choice>,
    config: Arc<ServerConfig>,
}

impl Listener {
    /// A listener that shows `identity`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub(crate) fn new(speaks: Speaks, identity: Identity) -> Result<Self, Error> {
        let tickets = ring::Ticketer::new()?;
        let version = ArcSwap::from_pointee(version(speaks, &tickets, identity)?);
        Ok(Self {
            speaks,
            tickets,
            version,
        })
    }

    /// Shows `identity` from the next handshake on. Handshakes that run, connections, and the tickets of clients that come
    /// back are not touched.
    ///
    /// # Errors
    /// None that a listener that was made has not had.
    pub(crate) fn show(&self, identity: Identity) -> Result<(), Error> {
        self.version
            .store(Arc::new(version(self.speaks, &self.tickets, identity)?));
        Ok(())
    }

    /// The handshake. It has no limit of its own.
    ///
    /// # Errors
    /// The client's and rustls', as Pingora tells them.
    pub(crate) async fn accept<S: IO + 'static>(&self, stream: S) -> Result<TlsStream<S>, Box<pingora::Error>> {
        let config = Arc::clone(&self.version.load().config);
        Acceptor::from_server_config(config).tls_handshake(stream).await
    }

    /// Whether a certificate is good for this host.
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

fn version(speaks: Speaks, tickets: &Arc<dyn ProducesTickets>, identity: Identity) -> Result<Version, Error> {
    let crypto = crypto();
    let choice = Arc::new(Choice::new(identity.certificates, &crypto));
    let builder = ServerConfig::builder_with_provider(crypto).with_protocol_versions(&[&TLS13, &TLS12])?;
    let mut config = match identity.clients {
        Clients::All => {
            let mut config = builder
                .with_no_client_auth()
                .with_cert_resolver(Arc::clone(&choice) as _);
            config.ticketer = Arc::clone(tickets);
            config
        }
        // Without tickets: who was let in once shows its certificate again the next time.
        Clients::Certified(verifier) => {
            let mut config = builder
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::clone(&choice) as _);
            config.send_tls13_tickets = 0;
            config
        }
    };
    // Tickets alone: memory for sessions would be the clients' to fill.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ignore_client_order = true;
    let offered = match speaks {
        Speaks::Http2 => HTTP_2_AND_1,
        Speaks::Http1 => HTTP_1,
    };
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    Ok(Version {
        choice,
        config: Arc::new(config),
    })
}

/// The cryptography of every listener: ring, as for providers.
pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("speaks", &self.speaks)
            .finish_non_exhaustive()
    }
}
