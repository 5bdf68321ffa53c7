//! The certificate authorities that weir trusts for its own connections: those of the platform or of a file.

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Why there are no certificate authorities to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RootsError {
    /// The file has no PEM certificate, or one that is not usable.
    #[error("holds no PEM certificate of an authority")]
    NoAuthority,
    /// The platform has no certificate authorities.
    #[error(
        "this machine has no certificate authorities: install them (Debian: ca-certificates), or name a file with some"
    )]
    Nobody,
}

/// The authorities in the PEM text, or those of the platform without one.
pub(crate) fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, RootsError> {
    match pem {
        Some(pem) => with_pem(RootCertStore::empty(), pem),
        None => check_non_empty(platform()),
    }
}

/// The authorities of the platform, and those in the PEM text in addition.
pub(crate) fn roots_with_platform(pem: Option<&[u8]>) -> Result<RootCertStore, RootsError> {
    match pem {
        Some(pem) => with_pem(platform(), pem),
        None => check_non_empty(platform()),
    }
}

fn platform() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Unusable certificates of the platform are ignored, as long as one can be used.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn check_non_empty(roots: RootCertStore) -> Result<RootCertStore, RootsError> {
    if roots.is_empty() {
        return Err(RootsError::Nobody);
    }
    Ok(roots)
}

/// Adds the authorities in the PEM text, all of which have to be valid.
fn with_pem(mut roots: RootCertStore, pem: &[u8]) -> Result<RootCertStore, RootsError> {
    let before = roots.len();
    for one in CertificateDer::pem_slice_iter(pem) {
        let added = one.ok().and_then(|one| roots.add(one).ok());
        added.ok_or(RootsError::NoAuthority)?;
    }
    if roots.len() == before {
        return Err(RootsError::NoAuthority);
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_authority_is_told() {
        for wrong in [
            "",
            "no certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            for made in [roots, roots_with_platform] {
                let told = made(Some(wrong.as_bytes())).err();
                assert_eq!(told, Some(RootsError::NoAuthority), "{wrong}");
            }
        }
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let own = own.cert.pem();
        assert_eq!(roots(Some(own.as_bytes())).unwrap().len(), 1);
        let both = roots_with_platform(Some(own.as_bytes())).unwrap();
        assert_eq!(both.len(), platform().len() + 1);
    }
}
