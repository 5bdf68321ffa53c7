//! The certificate authorities trusted for providers: the platform's, and those of `[upstream] ca_file`.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// The platforms' PEM files with trusted roots; `SSL_CERT_FILE` precedes them.
const PLATFORM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Joins the certificate authorities trusted for providers in one file: the platform's, and those of `[upstream] ca_file`, since
/// Pingora reads either the platform's or one file. The file must exist until the server is built.
pub(crate) fn joined_bundle(ca_file: &Path) -> Result<NamedTempFile, String> {
    let own = fs::read_to_string(ca_file).map_err(|error| {
        format!(
            "[upstream] ca_file {}: {error}; name a readable PEM file",
            ca_file.display()
        )
    })?;
    if !own.contains("-----BEGIN CERTIFICATE-----") {
        return Err(format!(
            "[upstream] ca_file {}: contains no PEM certificate",
            ca_file.display()
        ));
    }
    let mut joined = NamedTempFile::with_prefix("weir-roots-").map_err(|error| format!("temporary file: {error}"))?;
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
    written.map_err(|error| format!("temporary file: {error}"))?;
    Ok(joined)
}

fn platform_bundle() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named
        .into_iter()
        .chain(PLATFORM_BUNDLES.iter().map(PathBuf::from))
        .find(|path| path.is_file())
}
