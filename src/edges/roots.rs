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
    let mut roots = RootCertStore::empty();
    let Some(pem) = pem else {
        // Some of a platform's certificates may be odd; what counts is that any can be used.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if roots.is_empty() {
            Err(RootsError::Nobody)
        } else {
            Ok(roots)
        };
    };
    for one in CertificateDer::pem_slice_iter(pem) {
        let added = one.ok().and_then(|one| roots.add(one).ok());
        added.ok_or(RootsError::NoAuthority)?;
    }
    if roots.is_empty() {
        Err(RootsError::NoAuthority)
    } else {
        Ok(roots)
    }
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
            assert_eq!(
                roots(Some(wrong.as_bytes())).err(),
                Some(RootsError::NoAuthority),
                "{wrong}"
            );
        }
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        assert_eq!(roots(Some(own.cert.pem().as_bytes())).unwrap().len(), 1);
    }
}
