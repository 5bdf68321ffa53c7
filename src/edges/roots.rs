//! The certificate authorities that weir's own connections trust: the platform's, or those of a file.

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Why there is nobody to trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RootsError {
    /// The file has nothing that can be trusted.
    #[error("holds no PEM certificate of an authority")]
    NoAuthority,
    /// The platform has none.
    #[error("this machine has no certificate authorities (Debian: ca-certificates), name a file with some")]
    Nobody,
}

/// The authorities in a PEM file's content, or else the platform's.
pub(crate) fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, RootsError> {
    match pem {
        Some(pem) => extended(RootCertStore::empty(), pem),
        None => some(platform()),
    }
}

/// The platform's authorities, and those in a PEM file's content besides.
pub(crate) fn roots_besides_platform(pem: Option<&[u8]>) -> Result<RootCertStore, RootsError> {
    match pem {
        Some(pem) => extended(platform(), pem),
        None => some(platform()),
    }
}

fn platform() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Some of a platform's certificates may be odd; what counts is that any can be used.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn some(roots: RootCertStore) -> Result<RootCertStore, RootsError> {
    if roots.is_empty() {
        return Err(RootsError::Nobody);
    }
    Ok(roots)
}

/// The same with those in a PEM file's content, each of which has to be one.
fn extended(mut roots: RootCertStore, pem: &[u8]) -> Result<RootCertStore, RootsError> {
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
            for made in [roots, roots_besides_platform] {
                let told = made(Some(wrong.as_bytes())).err();
                assert_eq!(told, Some(RootsError::NoAuthority), "{wrong}");
            }
        }
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let own = own.cert.pem();
        assert_eq!(roots(Some(own.as_bytes())).unwrap().len(), 1);
        let both = roots_besides_platform(Some(own.as_bytes())).unwrap();
        assert_eq!(both.len(), platform().len() + 1);
    }
}
