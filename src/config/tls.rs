//! `[gateway.tls]`, `[stability.tls]`, `[console.tls]` and `[admin.tls]`: the certificates of listeners, and of the admin API's
//! clients.

use std::{net::SocketAddr, path::PathBuf};

use super::kinds::{address, path};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, flat, settings, tables},
};

settings! {
    /// The certificates of a listener, in order of preference; without any it does not use TLS.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TlsConfig {
        /// With a certificate, the listener uses TLS 1.2 and 1.3, with HTTP/2 or HTTP/1.1; without one it is plain. Give several
        /// for several names, or for one name with keys of different kinds (ECDSA, RSA, Ed25519): a client gets the first one
        /// that is valid for the requested name and that it can verify, or the first of all if none is valid for that name.
        /// Several listeners may use the same files. They are reloaded when they change; while new ones cannot be used, the old
        /// ones stay, as with the whole configuration. `weir check` shows the names of each, and when it ends.
        certificates("certificate"): Vec<CertificateConfig> = tables().restart_by(|certificates| certificates.is_empty()),
    }
}

settings! {
    /// A certificate and its key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct CertificateConfig {
        /// The certificate, followed by the intermediate ones up to its authority's root, PEM.
        chain: PathBuf = path().example("tls/weir.example.com.pem"),
        /// Its private key, PEM, not encrypted.
        key: SecretRef = secret().example("file:tls/weir.example.com.key"),
    }
}

settings! {
    /// `[gateway.tls]`
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct GatewayTlsConfig {
        /// The address of a plain listener, IP:PORT, that redirects every request to the listener with TLS (308). Off by default.
        redirect_listen: Option<SocketAddr> = address().optional("127.0.0.1:8082").restart(),
        /// The listener's certificates.
        tls: TlsConfig = flat(),
    } checked by redirects_somewhere
}

settings! {
    /// `[admin.tls]`
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct AdminTlsConfig {
        /// The authorities of clients' certificates, PEM. A certificate from them grants full control: use a dedicated
        /// authority.
        client_ca_file: Option<PathBuf> = path().optional("tls/operators-ca.pem"),
        /// The listener's certificates.
        tls: TlsConfig = flat(),
    }
}

impl TlsConfig {
    /// Whether the listener uses TLS.
    pub(crate) fn is_on(&self) -> bool {
        !self.certificates.is_empty()
    }
}

fn redirects_somewhere(read: GatewayTlsConfig, from: &Section<'_>) -> GatewayTlsConfig {
    if read.redirect_listen.is_some() && !read.tls.is_on() {
        let message = "needs a listener with TLS to redirect to: add a [[gateway.tls.certificate]]";
        from.report_fault("redirect_listen", &["certificate"], message);
    }
    read
}
