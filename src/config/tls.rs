//! `[gateway.tls]`, `[stability.tls]`, `[console.tls]` and `[admin.tls]`: what the listeners show and demand.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::raw_secret::RawSecret;
use super::values::Values;
use crate::domain::catalogue::SecretRef;

/// A section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTls {
    certificate: Vec<RawCertificate>,
}

/// `[gateway.tls]` as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawGatewayTls {
    redirect_listen: Option<String>,
    certificate: Vec<RawCertificate>,
}

/// `[admin.tls]` as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAdminTls {
    client_ca_file: Option<String>,
    certificate: Vec<RawCertificate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawCertificate {
    chain: Option<String>,
    key: Option<RawSecret>,
}

/// The certificates of a listener, in the order of preference; without any it speaks no TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsConfig {
    /// One for each name or kind of key.
    pub certificates: Vec<CertificateConfig>,
}

/// Where a certificate is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateConfig {
    /// The certificate and those between it and its authority's root, PEM.
    pub chain: PathBuf,
    /// Its private key, PEM.
    pub key: SecretRef,
}

/// `[gateway.tls]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GatewayTlsConfig {
    /// What the listener shows.
    pub tls: TlsConfig,
    /// A plain listener whose every answer sends the client to the one with TLS; port 0 takes a free one.
    pub redirect_listen: Option<SocketAddr>,
}

/// The admin API over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminTcpConfig {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What it shows; never empty.
    pub tls: TlsConfig,
    /// The authorities of those that may connect, PEM.
    pub client_ca_file: PathBuf,
}

impl TlsConfig {
    /// Whether the listener speaks TLS.
    pub(crate) fn is_on(&self) -> bool {
        !self.certificates.is_empty()
    }
}

/// The certificates of `section`; one without a chain or key is told and left out.
pub(super) fn resolve(values: &mut Values<'_>, section: &str, raw: &RawTls) -> TlsConfig {
    certificates(values, section, &raw.certificate)
}

pub(super) fn gateway(values: &mut Values<'_>, raw: &RawGatewayTls) -> GatewayTlsConfig {
    let at = ["gateway", "tls", "redirect_listen"];
    let redirect_listen = values.optional_address(&at, raw.redirect_listen.as_deref());
    if redirect_listen.is_some() && raw.certificate.is_empty() {
        values.wrong(
            &at,
            "there is nothing to send clients to, add a [[gateway.tls.certificate]]",
        );
    }
    GatewayTlsConfig {
        tls: certificates(values, "gateway", &raw.certificate),
        redirect_listen,
    }
}

/// `None`: the admin API has its unix socket alone.
pub(super) fn admin(values: &mut Values<'_>, listen: Option<&str>, raw: &RawAdminTls) -> Option<AdminTcpConfig> {
    let tls = certificates(values, "admin", &raw.certificate);
    let client_ca_file = raw.client_ca_file.as_deref();
    let client_ca_file = client_ca_file.map(|path| values.path(&["admin", "tls", "client_ca_file"], path));
    let Some(listen) = values.optional_address(&["admin", "listen"], listen) else {
        if tls.is_on() || client_ca_file.is_some() {
            values.wrong(&["admin", "tls"], "has no listener, set [admin] listen or take it out");
        }
        return None;
    };
    // Whoever reaches this listener can do anything with money: it never takes clients without a certificate.
    match (raw.certificate.is_empty(), client_ca_file) {
        (false, Some(client_ca_file)) => {
            return Some(AdminTcpConfig {
                listen,
                tls,
                client_ca_file,
            });
        }
        (true, _) => values.wrong(&["admin", "listen"], "needs TLS, add an [[admin.tls.certificate]]"),
        (false, None) => values.wrong(
            &["admin", "listen"],
            "takes clients with a certificate only, name their authority as [admin.tls] client_ca_file",
        ),
    }
    None
}

fn certificates(values: &mut Values<'_>, section: &str, raw: &[RawCertificate]) -> TlsConfig {
    let mut certificates = Vec::new();
    for (number, raw) in (1_usize..).zip(raw) {
        let number = number.to_string();
        let at = [section, "tls", "certificate", &number];
        let (Some(chain), Some(key)) = (&raw.chain, &raw.key) else {
            values.wrong(&at, "give a certificate its `chain` and its `key`");
            continue;
        };
        let chain = values.path(&[section, "tls", "certificate", &number, "chain"], chain);
        if let Some(key) = values.secret(&[section, "tls", "certificate", &number, "key"], Some(key)) {
            certificates.push(CertificateConfig { chain, key });
        }
    }
    TlsConfig { certificates }
}
