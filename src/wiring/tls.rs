//! Reads the listeners' certificates, checks them, and exchanges them while connections come in.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    config::{
        AdminTcpConfig, Config, secret_source,
        tls::{CertificateConfig, TlsConfig},
    },
    domain::strict_toml::FileError,
    edges::clock,
    front::tls::{
        certificate::Certificate,
        listener::{Clients, Identity, Listener, Speaks, crypto},
    },
    telemetry::metrics::{CertificateEnd, Metrics},
    wiring::{StartError, catalogue},
};

/// The largest file that is read for a listener: a chain, a key, or authorities.
const FILE_BYTES_MAX: usize = 256 * 1024;
/// How long before its end a certificate is to be replaced, in seconds: two weeks. The alert of conf/prometheus has the same.
const RENEWED_BEFORE: i64 = 14 * 86_400;

/// One value for each listener that may speak TLS.
#[derive(Debug)]
pub(crate) struct ByListener<T> {
    /// `[gateway]`
    pub gateway: Option<T>,
    /// `[stability]`
    pub stability: Option<T>,
    /// `[console]`
    pub console: Option<T>,
    /// `[admin]` over TCP.
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
    /// The values there are, with their sections' names.
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

/// TLS of the listeners that have it.
pub(crate) type Listeners = ByListener<Arc<Listener>>;

/// What the files of a configuration hold for each listener.
pub(crate) type Identities = ByListener<Identity>;

/// Every file that is read, whether or not it is there.
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
        files.extend(secret_source::path(&certificate.key));
    }
    files
}

/// Reads what the listeners show.
///
/// # Errors
/// Every certificate that cannot be used, with its line.
pub(crate) fn read(config: &Config) -> Result<Identities, Vec<FileError>> {
    let mut errors = Vec::new();
    let mut shown = |section, tls: &TlsConfig| {
        tls.is_on().then(|| Identity {
            certificates: certificates(config, section, tls, &mut errors),
            clients: Clients::All,
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

fn admin(config: &Config, tcp: AdminTcpConfig<'_>, errors: &mut Vec<FileError>) -> Identity {
    let clients = bounded(tcp.client_ca_file).and_then(|pem| Clients::of(&pem).map_err(|error| error.to_string()));
    let clients = clients.unwrap_or_else(|why| {
        let path = tcp.client_ca_file.display();
        errors.push(fault(config, "admin.tls.client_ca_file", &format!("{path}: {why}")));
        Clients::All
    });
    Identity {
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
    let key = match secret_source::content(&of.key, FILE_BYTES_MAX) {
        Ok(Some(key)) => key,
        Ok(None) => return Err(format!("key {}: is not there", of.key)),
        Err(why) => return Err(format!("key {}: {why}", of.key)),
    };
    Certificate::read(&chain, &key, &crypto()).map_err(|error| format!("chain {path}, key {}: {error}", of.key))
}

fn bounded(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(format!("cannot be read: {error}")),
        Ok(count) if count > FILE_BYTES_MAX => Err(format!("has more than {FILE_BYTES_MAX} bytes")),
        Ok(_) => Ok(bytes),
    }
}

fn fault(config: &Config, key: &str, why: &str) -> FileError {
    config.catalogue.places.fault(key, format!("key `{key}`: {why}"))
}

/// What an operator should know of certificates that can be used.
pub(crate) fn warnings(identities: &Identities, now: i64) -> Vec<String> {
    let mut warnings = Vec::new();
    for (section, identity) in identities.iter() {
        for one in &identity.certificates {
            let what = format!("[{section}] certificate for {}", one.names());
            let until = day(one.valid_until());
            if one.valid_until() < now {
                warnings.push(format!("{what}: ended at {until}, clients refuse it: replace it"));
            } else if one.valid_until() - now < RENEWED_BEFORE {
                warnings.push(format!("{what}: ends at {until}, replace it before"));
            }
            if one.valid_from() > now {
                let from = day(one.valid_from());
                warnings.push(format!("{what}: begins at {from} only, clients refuse it until then"));
            }
            if !one.is_in_order() {
                warnings.push(format!(
                    "{what}: the chain is not in order, some clients refuse it: put each certificate before its issuer"
                ));
            }
        }
    }
    warnings
}

/// Tells the log what an operator should know of them.
pub(crate) fn warn(identities: &Identities) {
    for warning in warnings(identities, clock::unix_seconds()) {
        tracing::warn!("{warning}");
    }
}

/// A time for people.
pub(crate) fn day(unix_seconds: i64) -> String {
    Timestamp::from_second(unix_seconds).map_or_else(|_| unix_seconds.to_string(), |time| time.to_string())
}

/// The listeners that have something to show, with their certificates read.
pub(crate) fn build(config: &Config) -> Result<Listeners, StartError> {
    let identities = read(config).map_err(|errors| catalogue::refused(&errors))?;
    warn(&identities);
    let made = |speaks, identity: Option<Identity>| {
        let listener = identity.map(|identity| Listener::new(speaks, identity).map(Arc::new));
        listener.transpose().map_err(|error| StartError::failed("TLS", error))
    };
    Ok(ByListener {
        gateway: made(Speaks::Http2, identities.gateway)?,
        stability: made(Speaks::Http2, identities.stability)?,
        console: made(Speaks::Http2, identities.console)?,
        admin: made(Speaks::Http1, identities.admin)?,
    })
}

impl Listeners {
    /// Shows these from the next handshake on. Whether a listener speaks TLS at all does not change.
    pub(crate) fn show(&self, identities: Identities) {
        let pairs = [
            (&self.gateway, identities.gateway),
            (&self.stability, identities.stability),
            (&self.console, identities.console),
            (&self.admin, identities.admin),
        ];
        for (listener, identity) in pairs {
            if let (Some(listener), Some(identity)) = (listener, identity)
                && let Err(error) = listener.show(identity)
            {
                tracing::error!(%error, "the certificates were not exchanged: the ones in use stay");
            }
        }
    }

    /// Has the ends of the certificates in use read when somebody scrapes.
    pub(crate) fn observe(self: &Arc<Self>, metrics: &Metrics) {
        let listeners = Arc::clone(self);
        metrics.sample(move |metrics| metrics.connections.show_certificates(listeners.ends()));
    }

    /// The end of each certificate in use.
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

#[cfg(test)]
mod tests;
