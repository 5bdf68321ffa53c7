//! Chooses the certificate for a handshake.

use std::{cmp::Reverse, sync::Arc};

use rustls::{
    CipherSuite, SignatureScheme, SupportedCipherSuite,
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::front::tls::{certificate::Certificate, names::NameMatch};

/// Chooses by the name that a client asks for, and then takes the first certificate, in the order given, that the client can
/// verify. A client that asks for no name, or an unknown one, gets the first of all that it can verify.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    certificates: Vec<Certificate>,
    suites: Vec<SupportedCipherSuite>,
}

impl CertificateResolver {
    pub(super) fn new(certificates: Vec<Certificate>, crypto: &CryptoProvider) -> Self {
        Self {
            certificates,
            suites: crypto.cipher_suites.clone(),
        }
    }

    pub(super) fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// The certificate for a client that asks for `name` and offers `schemes` and `suites`; `None` if it can verify none.
    fn choose(
        &self,
        name: Option<&str>,
        schemes: &[SignatureScheme],
        suites: &[CipherSuite],
    ) -> Option<&Arc<CertifiedKey>> {
        self.by_preference(name)
            .map(Certificate::certified_key)
            .find(|certified| self.can_verify(certified, schemes, suites))
    }

    fn by_preference(&self, name: Option<&str>) -> impl Iterator<Item = &Certificate> {
        let covering = |one| Some((name.and_then(|name| Certificate::names(one).covers(name))?, one));
        let mut found: Vec<(NameMatch, &Certificate)> = self.certificates.iter().filter_map(covering).collect();
        found.sort_by_key(|(matched, _)| Reverse(*matched));
        let others = if found.is_empty() {
            self.certificates.as_slice()
        } else {
            &[]
        };
        found.into_iter().map(|(_, one)| one).chain(others)
    }

    /// Whether the client can verify a certificate. In TLS 1.2 the cipher suite fixes the kind of key, whatever `schemes` lists.
    fn can_verify(&self, certified: &CertifiedKey, schemes: &[SignatureScheme], suites: &[CipherSuite]) -> bool {
        let kind = certified.key.algorithm();
        let mut shared = self.suites.iter().filter(|suite| suites.contains(&suite.suite()));
        certified.key.choose_scheme(schemes).is_some() && shared.any(|suite| suite.usable_for_signature_algorithm(kind))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.choose(hello.server_name(), hello.signature_schemes(), hello.cipher_suites());
        chosen.cloned()
    }
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring;

    use super::*;
    use crate::front::tls::certificate::tests::{Kind, certificate};

    const BOTH: [SignatureScheme; 2] = [SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::RSA_PSS_SHA256];

    fn choice(of: &[(&[&str], Kind)]) -> CertificateResolver {
        let crypto = ring::default_provider();
        CertificateResolver::new(
            of.iter().map(|(names, kind)| certificate(names, *kind)).collect(),
            &crypto,
        )
    }

    #[track_caller]
    fn chosen(
        choice: &CertificateResolver,
        name: Option<&str>,
        schemes: &[SignatureScheme],
        suites: &[CipherSuite],
    ) -> Option<usize> {
        let certified = choice.choose(name, schemes, suites)?;
        choice
            .certificates
            .iter()
            .position(|one| Arc::ptr_eq(one.certified_key(), certified))
    }

    #[test]
    fn the_name_decides_and_the_exact_one_goes_before_a_wildcard() {
        let choice = choice(&[
            (&["*.example.com"], Kind::Ecdsa),
            (&["api.example.com"], Kind::Ecdsa),
            (&["other.test", "third.test"], Kind::Ecdsa),
        ]);
        let suites = [CipherSuite::TLS13_AES_128_GCM_SHA256];
        for (name, place) in [
            (Some("api.example.com"), 1),
            (Some("API.Example.com"), 1),
            (Some("www.example.com"), 0),
            (Some("third.test"), 2),
            (Some("unknown.test"), 0),
            (None, 0),
        ] {
            assert_eq!(chosen(&choice, name, &BOTH, &suites), Some(place), "{name:?}");
        }
    }

    #[test]
    fn among_those_of_a_name_the_client_gets_one_it_can_verify() {
        let choice = choice(&[(&["a.test"], Kind::Ecdsa), (&["a.test"], Kind::Rsa)]);
        let tls13 = [CipherSuite::TLS13_AES_128_GCM_SHA256];
        let rsa12 = [CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
        assert_eq!(chosen(&choice, Some("a.test"), &BOTH, &tls13), Some(0));
        assert_eq!(chosen(&choice, Some("a.test"), &BOTH[1..], &tls13), Some(1));
        assert_eq!(
            chosen(&choice, Some("a.test"), &BOTH, &rsa12),
            Some(1),
            "the suite decides in TLS 1.2"
        );
        assert_eq!(chosen(&choice, None, &BOTH[1..], &tls13), Some(1), "without a name too");
        assert_eq!(
            chosen(&choice, Some("a.test"), &[SignatureScheme::ED25519], &tls13),
            None
        );
    }
}
