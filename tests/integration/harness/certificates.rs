//! A certificate authority for one test, and server certificates of every kind a client has to refuse.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// What is wrong with a certificate, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    Expired,
    WrongName,
}

impl Authority {
    /// A new authority with a key of its own.
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    /// The authority's certificate, for `ca_file`.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A TLS server for `localhost` with a certificate of this authority.
    pub(crate) fn server(&self, flaw: Flaw) -> Arc<ServerConfig> {
        let name = if flaw == Flaw::WrongName {
            "elsewhere.test"
        } else {
            "localhost"
        };
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if flaw == Flaw::Expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        Arc::new(config)
    }
}
