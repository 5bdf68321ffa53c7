//! The weir that is measured, with or without TLS.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    fleet::{EMBEDDED, Proxy},
    node::Weir,
    row::Subject,
};

/// The memory for all bodies, and for those of one key, in bytes.
pub(crate) const BODY_BUDGET: usize = 64 << 20;

/// The name in the certificate.
const NAME: &str = "gateway.test";

/// What parts of the bench want of weir.
pub(crate) struct GatewaySettings<'a> {
    /// The certificate of the listener; `None` for a listener without TLS.
    pub(crate) certificate: Option<&'a Certificate>,
    /// How often idle sockets are pinged, in seconds.
    pub(crate) ping_seconds: u64,
    /// The memory for conversations, in bytes.
    pub(crate) state_bytes: usize,
}

impl Default for GatewaySettings<'_> {
    fn default() -> Self {
        Self {
            certificate: None,
            ping_seconds: 600,
            state_bytes: 256 << 20,
        }
    }
}

/// A running weir with its files.
pub(crate) struct Gateway {
    pub(crate) proxy: Proxy,
    _folder: TempDir,
}

impl Gateway {
    /// Starts a weir in front of a host.
    pub(crate) fn start(host: SocketAddr, settings: &GatewaySettings<'_>) -> Self {
        let folder = TempDir::with_prefix("weir-sockets-").expect("a temporary folder");
        let tls = settings.certificate.map_or_else(String::new, Certificate::setting);
        let GatewaySettings {
            ping_seconds,
            state_bytes,
            ..
        } = settings;
        let more = format!(
            "[connections]\nmax = 30000\nrunning_max = 30000\nper_address_max = 15000\nrequests_max = 1000000\n\
             [sockets]\nper_key_max = 65536\nidle_seconds = 86400\nlifetime_seconds = 86400\nping_seconds = {ping_seconds}\n\
             state_bytes_max = {state_bytes}\n{tls}"
        );
        let weir = Weir {
            more: &more,
            ..Weir::of(Subject::Embedded, EMBEDDED)
        };
        Self {
            proxy: weir.start(host, folder.path(), with_budget),
            _folder: folder,
        }
    }

    /// The resident memory, in bytes.
    pub(crate) fn resident(&self) -> f64 {
        self.proxy.process.memory().resident
    }
}

/// Sets the limits of bodies in the configuration of a node. Its only key may use all of the threads' time, because otherwise the
/// bench would measure the delay beyond the key's share of it.
fn with_budget(program: &Path, home: &Path) -> Command {
    let conf = home.join("etc/weir.toml");
    let text = fs::read_to_string(&conf).expect("the configuration of the node");
    let limits = format!(
        "[gateway]\nbody_work_key_percent = 100\nbody_budget_bytes = {BODY_BUDGET}\nbody_key_bytes = {BODY_BUDGET}\n\
         body_address_bytes = {BODY_BUDGET}\n"
    );
    assert!(
        text.contains("[gateway]\n"),
        "the configuration of a node has another form"
    );
    fs::write(&conf, text.replacen("[gateway]\n", &limits, 1)).expect("the configuration can be written");
    Command::new(program)
}

/// A certificate of a CA of its own, in files.
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    client: Arc<ClientConfig>,
    _folder: TempDir,
}

/// A client that trusts a certificate.
pub(crate) struct TlsClient(TlsConnector);

impl Certificate {
    /// Creates a CA and a certificate.
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("weir-sockets-").expect("a temporary folder");
        let mut ca = CertificateParams::new(Vec::<String>::new()).expect("no names");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate().expect("a key")).expect("a CA");
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).expect("a name");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let own = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&own, &issuer).expect("a certificate");
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        fs::write(&chain, certificate.pem()).expect("a file in the temporary folder");
        fs::write(&key, own.serialize_pem()).expect("a file in the temporary folder");
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).expect("a CA certificate");
        let mut client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the versions of the provider")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self {
            chain,
            key,
            client: Arc::new(client),
            _folder: folder,
        }
    }

    /// Returns a client that trusts this certificate.
    pub(crate) fn client(&self) -> TlsClient {
        TlsClient(TlsConnector::from(Arc::clone(&self.client)))
    }

    fn setting(&self) -> String {
        format!(
            "[[gateway.tls.certificate]]\nchain = \"{}\"\nkey = \"file:{}\"\n",
            self.chain.display(),
            self.key.display()
        )
    }
}

impl TlsClient {
    /// Begins TLS on a connection.
    pub(crate) async fn connect(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(NAME).expect("a name");
        self.0.connect(name, stream).await
    }
}
