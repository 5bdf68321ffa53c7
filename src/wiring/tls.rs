//! Reads and checks the certificates of the listeners, and replaces them while the listeners are open. Also writes one file with
//! all CA certificates that are trusted for providers.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use tempfile::NamedTempFile;

use crate::{
    config::{
        AdminTcpConfig, Config,
        gateway::{CertificateConfig, TlsConfig},
        secret_source,
    },
    domain::strict_toml::FileError,
    edges::clock,
    front::tls::{AcceptedClients, Certificate, HttpVersions, TlsIdentity, TlsListener, crypto},
    telemetry::metrics::{CertificateEnd, Metrics},
    wiring::{StartError, catalogue},
};

/// The maximum size of a file with certificates or a key, in bytes.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// The remaining lifetime below which a certificate should be replaced, in seconds: two weeks, as in the alert in
/// conf/prometheus.
const RENEWED_BEFORE: i64 = 14 * 86_400;

/// A value for each listener that can use TLS.
#[derive(Debug)]
pub(crate) struct ByListener<T> {
    /// The value of the listener of `[gateway]`.
    pub gateway: Option<T>,
    /// The value of the listener of `[stability]`.
    pub stability: Option<T>,
    /// The value of the listener of `[console]`.
    pub console: Option<T>,
    /// The value of the listener of `[admin]` over TCP.
    pub admin: Option<T>,
}

impl<T> Default for ByListener<T> {
    fn default() -> Self {
        Self {
            gateway: None,
            stability: None,
            console: None,
            admin: None,
        }
    }
}

impl<T> ByListener<T> {
    /// Returns the values that exist, each with the name of its section.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &T)> {
        let all = [
            ("gateway", &self.gateway),
            ("stability", &self.stability),
            ("console", &self.console),
            ("admin", &self.admin),
        ];
        all.into_iter()
            .filter_map(|(section, one)| Some((section, one.as_ref()?)))
    }
}

/// The TLS configuration of each listener that uses TLS.
pub(crate) type TlsListeners = ByListener<Arc<TlsListener>>;

/// The certificates of each listener, as read from their files.
pub(crate) type Identities = ByListener<TlsIdentity>;

/// Returns the paths of all files that are read for the listeners, whether they exist or not.
pub(crate) fn files(config: &Config) -> Vec<PathBuf> {
    let tcp = config.admin.tcp();
    let all = [
        Some(&config.gateway.tls.tls),
        Some(&config.stability.tls),
        Some(&config.console.tls),
        tcp.map(|tcp| tcp.tls),
    ];
    let certificates = all.into_iter().flatten().flat_map(|tls| &tls.certificates);
    let mut files: Vec<PathBuf> = tcp.map(|tcp| tcp.client_ca_file.clone()).into_iter().collect();
    for certificate in certificates {
        files.push(certificate.chain.clone());
        files.extend(secret_source::secret_path(&certificate.key));
    }
    files
}

/// Reads the certificates of all listeners.
///
/// # Errors
/// An error for each certificate that cannot be used, with the line of its setting in the configuration.
pub(crate) fn read(config: &Config) -> Result<Identities, Vec<FileError>> {
    let mut errors = Vec::new();
    let mut shown = |section, tls: &TlsConfig| {
        tls.is_on().then(|| TlsIdentity {
            certificates: certificates(config, section, tls, &mut errors),
            clients: AcceptedClients::All,
        })
    };
    let gateway = shown("gateway", &config.gateway.tls.tls);
    let stability = shown("stability", &config.stability.tls);
    let console = shown("console", &config.console.tls);
    let admin = config.admin.tcp().map(|tcp| admin(config, tcp, &mut errors));
    match errors.is_empty() {
        true => Ok(ByListener {
            gateway,
            stability,
            console,
            admin,
        }),
        false => Err(errors),
    }
}

fn admin(config: &Config, tcp: AdminTcpConfig<'_>, errors: &mut Vec<FileError>) -> TlsIdentity {
    let clients = bounded(tcp.client_ca_file)
        .and_then(|pem| AcceptedClients::from_authorities(&pem).map_err(|error| error.to_string()));
    let clients = clients.unwrap_or_else(|why| {
        let path = tcp.client_ca_file.display();
        errors.push(fault(config, "admin.tls.client_ca_file", &format!("{path}: {why}")));
        AcceptedClients::All
    });
    TlsIdentity {
        certificates: certificates(config, "admin", tcp.tls, errors),
        clients,
    }
}

fn certificates(config: &Config, section: &str, tls: &TlsConfig, errors: &mut Vec<FileError>) -> Vec<Certificate> {
    let mut certificates = Vec::new();
    for (number, one) in (1_usize..).zip(&tls.certificates) {
        match certificate(one) {
            Ok(certificate) => certificates.push(certificate),
            Err(why) => errors.push(fault(config, &format!("{section}.tls.certificate.{number}"), &why)),
        }
    }
    certificates
}

fn certificate(of: &CertificateConfig) -> Result<Certificate, String> {
    let path = of.chain.display();
    let chain = bounded(&of.chain).map_err(|why| format!("chain {path}: {why}"))?;
    let key = match secret_source::read_bytes(&of.key, FILE_BYTES_MAX) {
        Ok(Some(key)) => key,
        Ok(None) => return Err(format!("key {}", secret_source::missing(&of.key))),
        Err(why) => return Err(format!("key {}: {why}", of.key)),
    };
    Certificate::read(&chain, &key, &crypto())
        .map_err(|error| format!("cannot use chain {path} with key {}: {error}", of.key))
}

fn bounded(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("the file cannot be read: {error}")),
        Ok(count) if count > FILE_BYTES_MAX => Err(format!("the file has more than {FILE_BYTES_MAX} bytes")),
        Ok(_) => Ok(bytes),
    }
}

fn fault(config: &Config, key: &str, why: &str) -> FileError {
    config.catalogue.places.fault(key, format!("key `{key}`: {why}"))
}

/// Returns warnings about certificates that are valid but need attention. `now` is in seconds since the Unix epoch.
pub(crate) fn warnings(identities: &Identities, now: i64) -> Vec<String> {
    let mut warnings = Vec::new();
    for (section, identity) in identities.iter() {
        for one in &identity.certificates {
            let what = format!("[{section}] certificate for {}", one.names());
            let until = day(one.valid_until());
            if one.valid_until() < now {
                warnings.push(format!(
                    "{what} expired at {until}, so clients refuse it: replace the certificate"
                ));
            } else if one.valid_until() - now < RENEWED_BEFORE {
                warnings.push(format!(
                    "{what} expires at {until}: replace the certificate before then"
                ));
            }
            if one.valid_from() > now {
                let from = day(one.valid_from());
                warnings.push(format!(
                    "{what} is valid only from {from} on: clients refuse it until then"
                ));
            }
            if !one.is_in_order() {
                warnings.push(format!(
                    "{what}: its chain is not in order, so some clients refuse it: put each certificate before its issuer's"
                ));
            }
        }
    }
    warnings
}

/// Logs the warnings about certificates.
pub(crate) fn log_warnings(identities: &Identities) {
    for warning in warnings(identities, clock::unix_seconds()) {
        tracing::warn!("{warning}");
    }
}

/// Formats a time as in RFC 3339. `unix_seconds` is in seconds since the Unix epoch.
pub(crate) fn day(unix_seconds: i64) -> String {
    Timestamp::from_second(unix_seconds).map_or_else(|_| unix_seconds.to_string(), |time| time.to_string())
}

/// Creates the TLS configuration of each listener that uses TLS.
pub(crate) fn build(config: &Config) -> Result<TlsListeners, StartError> {
    let identities = read(config).map_err(|errors| catalogue::config_error(&errors))?;
    log_warnings(&identities);
    let made = |speaks, identity: Option<TlsIdentity>| {
        let listener = identity.map(|identity| TlsListener::new(speaks, identity).map(Arc::new));
        listener
            .transpose()
            .map_err(|error| StartError::failed("cannot set up TLS", error))
    };
    Ok(ByListener {
        gateway: made(HttpVersions::Http2, identities.gateway)?,
        stability: made(HttpVersions::Http2, identities.stability)?,
        console: made(HttpVersions::Http2, identities.console)?,
        admin: made(HttpVersions::Http1, identities.admin)?,
    })
}

impl TlsListeners {
    /// Replaces the certificates from the next handshake on. Whether a listener uses TLS does not change.
    pub(crate) fn replace_certificates(&self, identities: Identities) {
        let pairs = [
            (&self.gateway, identities.gateway),
            (&self.stability, identities.stability),
            (&self.console, identities.console),
            (&self.admin, identities.admin),
        ];
        for (listener, identity) in pairs {
            if let (Some(listener), Some(identity)) = (listener, identity)
                && let Err(error) = listener.set_identity(identity)
            {
                tracing::error!(%error, "cannot replace the certificates; the current certificates remain in use");
            }
        }
    }

    /// Adds a sampler that copies the expiry of each certificate in use to the metrics.
    pub(crate) fn observe(self: &Arc<Self>, metrics: &Metrics) {
        let listeners = Arc::clone(self);
        metrics.add_sampler(move |metrics| metrics.connections.set_certificate_ends(listeners.ends()));
    }

    /// Returns the expiry of each certificate in use.
    fn ends(&self) -> impl Iterator<Item = CertificateEnd> {
        self.iter().flat_map(|(listener, one)| {
            let end = move |certificate: &Certificate| CertificateEnd {
                listener,
                name: certificate.names().first(),
                key: certificate.kind(),
                until: certificate.valid_until(),
            };
            one.certificates().iter().map(end).collect::<Vec<_>>()
        })
    }
}

/// The paths of PEM files with trusted CA certificates on several platforms. `SSL_CERT_FILE` takes precedence over them.
const PLATFORM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Writes one file with all CA certificates that are trusted for providers: the platform's and those of `[upstream] ca_file`. One
/// file is needed because Pingora reads either the platform's certificates or one other file. The file must exist until the
/// server is built.
pub(crate) fn joined_bundle(ca_file: &Path) -> Result<NamedTempFile, String> {
    let own = fs::read_to_string(ca_file).map_err(|error| {
        format!(
            "[upstream] ca_file: cannot read {}: {error}; name a readable PEM file",
            ca_file.display()
        )
    })?;
    if !own.contains("-----BEGIN CERTIFICATE-----") {
        return Err(format!(
            "[upstream] ca_file: {} contains no PEM certificate",
            ca_file.display()
        ));
    }
    let mut joined = NamedTempFile::with_prefix("weir-roots-")
        .map_err(|error| format!("cannot create a temporary file: {error}"))?;
    let platform = platform_bundle()
        .and_then(|path| fs::read(path).ok())
        .unwrap_or_default();
    let written = joined
        .write_all(&platform)
        .and_then(|()| joined.write_all(b"\n"))
        .and_then(|()| {
            joined.write_all(own.as_bytes())?;
            joined.flush()
        });
    written.map_err(|error| format!("cannot create a temporary file: {error}"))?;
    Ok(joined)
}

fn platform_bundle() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named
        .into_iter()
        .chain(PLATFORM_BUNDLES.iter().map(PathBuf::from))
        .find(|path| path.is_file())
}
