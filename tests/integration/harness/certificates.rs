//! A certificate authority for one test: certificates for weir's listeners and for clients, and of every kind that a client has
//! to refuse.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use tempfile::TempDir;

/// An RSA key, which rcgen cannot make.
const RSA: &str = include_str!("../../../src/front/tls/certificate/rsa_for_tests.pem");
/// Both versions that weir speaks.
pub(crate) const BOTH_VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

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
    SelfSigned,
}

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ecdsa,
    Rsa,
}

/// A certificate in files: the chain, and its key.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Files {
    /// As `[[gateway.tls.certificate]]` has it.
    pub(crate) fn setting(&self) -> toml::Value {
        let mut table = toml::Table::new();
        table.insert("chain".to_owned(), self.chain.to_str().unwrap().into());
        table.insert("key".to_owned(), format!("file:{}", self.key.display()).into());
        table.into()
    }

    /// The first certificate of the chain.
    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        chain(&self.chain).remove(0)
    }

    /// Takes the place of these files' content, by renaming, the key first.
    pub(crate) fn replace_with(&self, other: &Files) {
        for (from, to) in [(&other.key, &self.key), (&other.chain, &self.chain)] {
            let fresh = to.with_extension("fresh");
            std::fs::copy(from, &fresh).unwrap();
            std::fs::rename(&fresh, to).unwrap();
        }
    }
}

/// What a TLS client offers.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) protocols: Vec<&'static str>,
    pub(crate) crypto: CryptoProvider,
    pub(crate) certificate: Option<Files>,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer {
            versions: BOTH_VERSIONS.to_vec(),
            protocols: vec!["http/1.1"],
            crypto: ring::default_provider(),
            certificate: None,
        }
    }
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
        let certificate = match flaw {
            Flaw::SelfSigned => params.self_signed(&key).unwrap(),
            _ => params.signed_by(&key, &self.issuer).unwrap(),
        };
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        Arc::new(config)
    }
    /// A certificate of this authority for `names` (the first one is also its subject's), in files of this name.
    pub(crate) fn files(&self, file: &str, names: &[&str], kind: Kind) -> Files {
        self.files_until(file, names, kind, 2040)
    }

    /// The same, valid until the first day of a year.
    pub(crate) fn files_until(&self, file: &str, names: &[&str], kind: Kind, year: i32) -> Files {
        let all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(all).unwrap();
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(year, 1, 1));
        let key = match kind {
            Kind::Ecdsa => KeyPair::generate().unwrap(),
            Kind::Rsa => KeyPair::from_pem(RSA).unwrap(),
        };
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        let files = Files {
            chain: self.folder.path().join(format!("{file}.pem")),
            key: self.folder.path().join(format!("{file}.key")),
        };
        std::fs::write(&files.chain, chain).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// A client that trusts this authority alone.
    pub(crate) fn client(&self, offer: Offer) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(offer.crypto))
            .with_protocol_versions(&offer.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &offer.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => builder
                .with_client_auth_cert(chain(&files.chain), key(&files.key))
                .unwrap(),
        };
        config.alpn_protocols = offer.protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn key(path: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(path).unwrap()
}
