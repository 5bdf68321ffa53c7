//! A certificate with its chain and its private key, read and checked.

use std::sync::Arc;

use rustls::{
    Error, SignatureAlgorithm,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::front::tls::names::CertificateNames;

/// Why a certificate cannot be used. Contains nothing of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateError {
    /// The chain's file contains no certificate.
    #[error("the chain holds no PEM certificate")]
    NoCertificate,
    /// One of the chain, counted from 1, is not X.509 in DER.
    #[error("certificate {0} of the chain is damaged")]
    Damaged(usize),
    /// It names no host, so no client would accept it.
    #[error("its subjectAltName names no host, and clients check nothing else")]
    NoName,
    /// The key's file contains no key, or an encrypted one.
    #[error("the key's file holds no private key: give an unencrypted one as PEM (PKCS #8, PKCS #1 or SEC 1)")]
    NoKey,
    /// The key belongs to another certificate.
    #[error("the key is not that of the first certificate of the chain")]
    OtherKey,
    /// The key's kind or size is not supported.
    #[error("the key cannot be used: give RSA of 2048 to 8192 bits, ECDSA P-256 or P-384, or Ed25519")]
    UnusableKey,
}

/// A certificate chain with its private key, for the names in it.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    names: CertificateNames,
    from: i64,
    until: i64,
    in_order: bool,
    certified: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads PEM: the chain, leaf first, and the leaf's private key. Anything else in the files is ignored.
    pub(crate) fn read(chain: &[u8], key: &[u8], crypto: &CryptoProvider) -> Result<Self, CertificateError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .enumerate()
            .map(|(index, one)| one.map_err(|_| CertificateError::Damaged(index + 1)))
            .collect::<Result<_, _>>()?;
        let parsed = chain
            .iter()
            .enumerate()
            .map(|(index, der)| match X509Certificate::from_der(der) {
                Ok(([], parsed)) => Ok(parsed),
                _ => Err(CertificateError::Damaged(index + 1)),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let names = parsed
            .first()
            .map(CertificateNames::from_certificate)
            .ok_or(CertificateError::NoCertificate)?;
        if names.is_empty() {
            return Err(CertificateError::NoName);
        }
        // A chain is valid while all of its certificates are.
        let validities = || parsed.iter().map(|one| one.validity());
        let from = validities().map(|one| one.not_before.timestamp()).max();
        let until = validities().map(|one| one.not_after.timestamp()).min();
        let mut pairs = parsed.iter().zip(parsed.iter().skip(1));
        let in_order = pairs.all(|(one, issuer)| one.issuer().as_raw() == issuer.subject().as_raw());
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::NoKey)?;
        let (from, until) = (from.unwrap_or_default(), until.unwrap_or_default());
        let certified = CertifiedKey::from_der(chain, key, crypto).map_err(|error| match error {
            Error::InconsistentKeys(_) => CertificateError::OtherKey,
            _ => CertificateError::UnusableKey,
        })?;
        Ok(Self {
            names,
            from,
            until,
            in_order,
            certified: Arc::new(certified),
        })
    }

    /// The names that it is valid for.
    pub(crate) fn names(&self) -> &CertificateNames {
        &self.names
    }

    /// The first second of its chain's validity, since the Unix epoch.
    pub(crate) fn valid_from(&self) -> i64 {
        self.from
    }

    /// The last second of its chain's validity, since the Unix epoch.
    pub(crate) fn valid_until(&self) -> i64 {
        self.until
    }

    /// Whether each certificate of the chain is followed by its issuer. Some clients refuse any other order.
    pub(crate) fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// The kind of its key, for people.
    pub(crate) fn kind(&self) -> &'static str {
        match self.certified.key.algorithm() {
            SignatureAlgorithm::RSA => "RSA",
            SignatureAlgorithm::ECDSA => "ECDSA",
            _ => "Ed25519",
        }
    }

    /// The chain and key in rustls' form.
    pub(super) fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

/// A certificate's subject and SHA-256 digest, which distinguishes two of one subject. `None` if it is not X.509.
pub(crate) fn describe_holder(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let digest: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{} sha256:{digest}", certificate.subject()))
}

#[cfg(test)]
pub(crate) mod tests;
