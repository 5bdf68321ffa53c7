//! `[gateway.tls]`, `[stability.tls]`, `[console.tls]` and `[admin.tls]`: what the listeners show and demand.

use std::{net::SocketAddr, path::PathBuf};

use super::kinds::{address, path};
use crate::domain::{
    catalogue::{SecretRef, secret},
    settings::{Section, flat, settings, tables},
};

settings! {
    /// The certificates of a listener, in the order of preference; without any it speaks no TLS.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct TlsConfig {
        /// With a certificate the listener speaks TLS 1.2 and 1.3, and HTTP/2 or HTTP/1.1; without one it is plain. Give several for
        /// several names, or for one name with keys of different kinds (ECDSA, RSA, Ed25519): a client gets one for the name that it asks
        /// for and that it can verify, the first such; for a name that none is good for, the first of all. The same files may stand at
        /// several listeners. They are loaded anew when they change; while what is new cannot be used the old ones stay, as with the
        /// whole configuration. `weir check` tells what each is good for, and until when.
        certificates("certificate"): Vec<CertificateConfig> = tables().restart_by(|certificates| certificates.is_empty()),
    }
}

settings! {
    /// Where a certificate is found.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct CertificateConfig {
        /// The certificate, then those between it and its authority's root, PEM.
        chain: PathBuf = path().example("tls/weir.example.com.pem"),
        /// Where its private key is found, PEM, not encrypted.
        key: SecretRef = secret().example("file:tls/weir.example.com.key"),
    }
}

settings! {
    /// `[gateway.tls]`
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct GatewayTlsConfig {
        /// A further, plain listener, IP:PORT, whose every answer sends the client to the one with TLS (308). Off without it.
        redirect_listen: Option<SocketAddr> = address().optional("127.0.0.1:8082").restart(),
        /// What the listener shows.
        tls: TlsConfig = flat(),
    } checked by redirects_somewhere
}

settings! {
    /// `[admin.tls]`
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct AdminTlsConfig {
        /// The authorities of those that may connect, PEM. Anybody with a certificate of theirs may do everything, so use an
        /// authority of its own.
        client_ca_file: Option<PathBuf> = path().optional("tls/operators-ca.pem"),
        /// What the listener shows.
        tls: TlsConfig = flat(),
    }
}

impl TlsConfig {
    /// Whether the listener speaks TLS.
    pub(crate) fn is_on(&self) -> bool {
        !self.certificates.is_empty()
    }
}

fn redirects_somewhere(read: GatewayTlsConfig, from: &Section<'_>) -> GatewayTlsConfig {
    if read.redirect_listen.is_some() && !read.tls.is_on() {
        let message = "there is nothing to send clients to, add a [[gateway.tls.certificate]]";
        from.wrong("redirect_listen", &["certificate"], message);
    }
    read
}
