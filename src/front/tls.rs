//! TLS on weir's own listeners: chooses the certificate for each client, decides which clients are accepted, and replaces
//! certificates at run time.
//!
//! This module reads no files. `wiring::tls` reads them and passes their contents to [`Certificate::read`](Certificate::read).

#[cfg(test)]
pub(crate) mod tests;

use std::{cmp::Reverse, fmt, net::IpAddr, sync::Arc};

use arc_swap::ArcSwap;
use pingora::{
    listeners::tls::Acceptor,
    protocols::{IO, tls::TlsStream},
};
use rustls::{
    CipherSuite, Error, RootCertStore, ServerConfig, SignatureAlgorithm, SignatureScheme, SupportedCipherSuite,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{
        ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert, WebPkiClientVerifier,
        danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use sha2::{Digest, Sha256};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

/// Chooses the certificate for a client. Of the certificates that match the requested name and that the client can verify, the
/// client gets the best match. If several match equally well, it gets the first of them in the configured order. If the client
/// requests no name or an unknown name, it gets the first configured certificate that it can verify.
#[derive(Debug)]
struct CertificateResolver {
    certificates: Vec<Certificate>,
    suites: Vec<SupportedCipherSuite>,
}

impl CertificateResolver {
    fn new(certificates: Vec<Certificate>, crypto: &CryptoProvider) -> Self {
        Self {
            certificates,
            suites: crypto.cipher_suites.clone(),
        }
    }

    fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// Returns the certificate for a client that requests `name` and supports `schemes` and `suites`; `None` if the client can
    /// verify none.
    fn choose(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
        suites: &[CipherSuite],
    ) -> Option<&Arc<CertifiedKey>> {
        self.by_preference(name)
            .map(Certificate::certified_key)
            .find(|certified| self.can_verify(certified, schemes, suites))
    }

    fn by_preference(&self, name: Option<&str>) -> impl Iterator<Item = &Certificate> {
        let covering = |one| Some((name.and_then(|name| Certificate::names(one).covers(name))?, one));
        let mut found: Vec<(NameMatch, &Certificate)> = self.certificates.iter().filter_map(covering).collect();
        found.sort_by_key(|(matched, _)| Reverse(*matched));
        let others = if found.is_empty() {
            self.certificates.as_slice()
        } else {
            &[]
        };
        found.into_iter().map(|(_, one)| one).chain(others)
    }

    /// Whether the client can verify a certificate. In TLS 1.2, the cipher suite determines the kind of key, whatever `schemes`
    /// lists.
    fn can_verify(&self, certified: &CertifiedKey, schemes: &[SignatureScheme], suites: &[CipherSuite]) -> bool {
        let kind = certified.key.algorithm();
        let mut shared = self.suites.iter().filter(|suite| suites.contains(&suite.suite()));
        certified.key.choose_scheme(schemes).is_some() && shared.any(|suite| suite.usable_for_signature_algorithm(kind))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.choose(hello.server_name(), hello.signature_schemes(), hello.cipher_suites());
        chosen.cloned()
    }
}

/// The DNS names and addresses in a certificate's subjectAltName. The certificate's common name is ignored (RFC 9525 section 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateNames {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

/// The way in which a certificate matches a name. A better match has a greater value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameMatch {
    /// The certificate has a wildcard (`*.`) instead of the name's first label.
    Wildcard,
    /// The certificate contains the name itself.
    Exact,
}

impl CertificateNames {
    /// Reads the names of a certificate. The result is empty if the certificate has no readable name.
    pub(crate) fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        let mut names = Self::default();
        let found = certificate.subject_alternative_name().ok().flatten();
        for name in found.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        names
    }

    /// Returns all names, DNS names first.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        self.dns
            .iter()
            .cloned()
            .chain(self.addresses.iter().map(ToString::to_string))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.addresses.is_empty()
    }

    /// Returns how the names match a host; `None` if no name matches. `host` is a DNS name in any case, or an address without
    /// brackets.
    pub(crate) fn covers(&self, host: &str) -> Option<NameMatch> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address).then_some(NameMatch::Exact);
        }
        let is = |name: &&String| name.eq_ignore_ascii_case(host);
        // A wildcard represents exactly one label (RFC 9525 section 6.3).
        let parent = host.split_once('.').map(|(_, parent)| parent);
        let is_wildcard = |name: &&String| match (name.strip_prefix("*."), parent) {
            (Some(rest), Some(parent)) => rest.eq_ignore_ascii_case(parent),
            _ => false,
        };
        let exact = self.dns.iter().find(is).map(|_| NameMatch::Exact);
        exact.or_else(|| self.dns.iter().find(is_wildcard).map(|_| NameMatch::Wildcard))
    }

    /// The name that identifies the certificate in logs and metrics.
    pub(crate) fn first(&self) -> String {
        self.all().next().unwrap_or_default()
    }
}

impl fmt::Display for CertificateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.all().collect::<Vec<_>>().join(", "))
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// The reason why a certificate cannot be used. The error contains no part of a private key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateError {
    /// The chain's file contains no certificate.
    #[error("the chain contains no certificate in PEM format")]
    NoCertificate,
    /// A certificate of the chain is not X.509 in DER. The number is its position, counted from 1.
    #[error("certificate {0} of the chain is damaged")]
    Damaged(usize),
    /// The certificate names no host, so no client would accept it.
    #[error(
        "the certificate names no host in its subjectAltName, the only field that clients check; use a certificate that names the host in this field"
    )]
    NoName,
    /// The key's file contains no private key, or the private key is encrypted.
    #[error("the key file contains no private key: use an unencrypted key in PEM format (PKCS #8, PKCS #1 or SEC 1)")]
    NoKey,
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the first certificate of the chain")]
    OtherKey,
    /// The private key's kind or size is not supported.
    #[error(
        "the private key has an unsupported type or size: use RSA with 2048 to 8192 bits, ECDSA with P-256 or P-384, or Ed25519"
    )]
    UnusableKey,
}

/// A certificate chain with its private key. It is valid for the names in its first certificate.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    names: CertificateNames,
    from: i64,
    until: i64,
    in_order: bool,
    certified: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads a certificate chain, with the leaf first, and the leaf's private key, both in PEM. Ignores all other content of the
    /// files.
    pub(crate) fn read(chain: &[u8], key: &[u8], crypto: &CryptoProvider) -> Result<Self, CertificateError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .enumerate()
            .map(|(index, one)| one.map_err(|_| CertificateError::Damaged(index + 1)))
            .collect::<Result<_, _>>()?;
        let parsed = chain
            .iter()
            .enumerate()
            .map(|(index, der)| match X509Certificate::from_der(der) {
                Ok(([], parsed)) => Ok(parsed),
                _ => Err(CertificateError::Damaged(index + 1)),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let names = parsed
            .first()
            .map(CertificateNames::from_certificate)
            .ok_or(CertificateError::NoCertificate)?;
        if names.is_empty() {
            return Err(CertificateError::NoName);
        }
        // A chain is valid while all of its certificates are valid.
        let validities = || parsed.iter().map(|one| one.validity());
        let from = validities().map(|one| one.not_before.timestamp()).max();
        let until = validities().map(|one| one.not_after.timestamp()).min();
        let mut pairs = parsed.iter().zip(parsed.iter().skip(1));
        let in_order = pairs.all(|(one, issuer)| one.issuer().as_raw() == issuer.subject().as_raw());
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::NoKey)?;
        let (from, until) = (from.unwrap_or_default(), until.unwrap_or_default());
        let certified = CertifiedKey::from_der(chain, key, crypto).map_err(|error| match error {
            Error::InconsistentKeys(_) => CertificateError::OtherKey,
            _ => CertificateError::UnusableKey,
        })?;
        Ok(Self {
            names,
            from,
            until,
            in_order,
            certified: Arc::new(certified),
        })
    }

    /// The names for which the certificate is valid.
    pub(crate) fn names(&self) -> &CertificateNames {
        &self.names
    }

    /// The first second in which the entire chain is valid, in seconds since the Unix epoch.
    pub(crate) fn valid_from(&self) -> i64 {
        self.from
    }

    /// The last second in which the entire chain is valid, in seconds since the Unix epoch.
    pub(crate) fn valid_until(&self) -> i64 {
        self.until
    }

    /// Whether each certificate of the chain is followed by the certificate of its issuer. Some clients refuse any other order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// The kind of the certificate's key, for logs and metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self.certified.key.algorithm() {
            SignatureAlgorithm::RSA => "RSA",
            SignatureAlgorithm::ECDSA => "ECDSA",
            _ => "Ed25519",
        }
    }

    /// The chain and the key in rustls' form.
    fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// Describes a certificate by its subject and its SHA-256 digest, which distinguishes certificates of the same subject. Returns
/// `None` if the certificate is not X.509.
pub(crate) fn describe_holder(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{} sha256:{digest}", certificate.subject()))
}

/// The ALPN names of the protocols over TLS, with the preferred one first.
const HTTP_2_AND_1: &[&[u8]] = &[b"h2", b"http/1.1"];
const HTTP_1: &[&[u8]] = &[b"http/1.1"];

/// The clients that are allowed to connect.
#[derive(Clone, Debug, Default)]
pub(crate) enum AcceptedClients {
    /// All clients.
    #[default]
    All,
    /// The clients that present a certificate issued by one of these CAs.
    Certified(Arc<dyn ClientCertVerifier>),
}

/// The error for a CA file that cannot be used to verify clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file has no CA certificate in PEM format, or one of its certificates is invalid")]
pub(crate) struct NoAuthority;

impl AcceptedClients {
    /// Accepts the clients with a certificate issued by one of the CAs in this PEM file.
    pub(crate) fn from_authorities(authorities: &[u8]) -> Result<Self, NoAuthority> {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(authorities) {
            one.ok().and_then(|one| roots.add(one).ok()).ok_or(NoAuthority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto()).build();
        verifier.map(Self::Certified).map_err(|_| NoAuthority)
    }
}

/// The certificates and the accepted clients of a listener, which are always replaced together.
#[derive(Clone, Debug)]
pub(crate) struct TlsIdentity {
    /// The certificates in order of preference; never empty.
    pub certificates: Vec<Certificate>,
    pub clients: AcceptedClients,
}

/// The HTTP versions that a listener offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersions {
    /// HTTP/2 and HTTP/1.1.
    Http2,
    /// HTTP/1.1 only.
    Http1,
}

/// TLS 1.2 and 1.3 on one of weir's listeners.
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
    /// Creates a listener with this identity.
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

    /// Uses `identity` for all handshakes from now on. Running handshakes, connections and session tickets are not affected.
    ///
    /// # Errors
    /// The errors of [`TlsListener::new`].
    pub(crate) fn set_identity(&self, identity: TlsIdentity) -> Result<(), Error> {
        self.version
            .store(Arc::new(snapshot(self.speaks, &self.tickets, identity)?));
        Ok(())
    }

    /// Performs the TLS handshake. The caller limits the time.
    ///
    /// # Errors
    /// The handshake failed. The cause is converted to Pingora's error type.
    pub(crate) async fn accept<S: IO + 'static>(&self, stream: S) -> Result<TlsStream<S>, Box<pingora::Error>> {
        let config = Arc::clone(&self.version.load().config);
        Acceptor::from_server_config(config).tls_handshake(stream).await
    }

    /// Whether one of the certificates is valid for this host.
    pub(crate) fn covers(&self, host: &str) -> bool {
        let version = self.version.load();
        version
            .choice
            .certificates()
            .iter()
            .any(|one| one.names().covers(host).is_some())
    }

    /// Returns the certificates that are in use.
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
        // Without session tickets, so that each connection presents the client's certificate.
        AcceptedClients::Certified(verifier) => {
            let mut config = builder
                .with_client_cert_verifier(verifier)
                .with_cert_resolver(Arc::clone(&choice) as _);
            config.send_tls13_tickets = 0;
            config
        }
    };
    // Sessions are resumed by tickets only, because clients could fill a session storage.
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

/// Returns the cryptography library of all listeners. It is ring, which connections to providers use as well.
pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

impl fmt::Debug for TlsListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsListener")
            .field("speaks", &self.speaks)
            .finish_non_exhaustive()
    }
}
