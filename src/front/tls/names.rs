//! The names that a certificate is valid for.

use std::{fmt, net::IpAddr};

use x509_parser::{certificate::X509Certificate, extensions::GeneralName};

/// The DNS names and addresses of a certificate's subjectAltName. Its common name is ignored (RFC 9525 section 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateNames {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

/// How a certificate matches a name; the better match is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NameMatch {
    /// By `*.` instead of the name's first label.
    Wildcard,
    /// The name itself is in the certificate.
    Exact,
}

impl CertificateNames {
    /// The names of a certificate; empty if it has none, or none that can be read.
    pub(crate) fn from_certificate(certificate: &X509Certificate<'_>) -> Self {
        let mut names = Self::default();
        let found = certificate.subject_alternative_name().ok().flatten();
        for name in found.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        names
    }

    /// All names, DNS names first.
    pub(crate) fn all(&self) -> impl Iterator<Item = String> {
        self.dns
            .iter()
            .cloned()
            .chain(self.addresses.iter().map(ToString::to_string))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.addresses.is_empty()
    }

    /// How the names match a host, which is a DNS name in any case or an address without brackets; `None` if they do not.
    pub(crate) fn covers(&self, host: &str) -> Option<NameMatch> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address).then_some(NameMatch::Exact);
        }
        let is = |name: &&String| name.eq_ignore_ascii_case(host);
        // A wildcard stands for one whole label (RFC 9525 section 6.3).
        let parent = host.split_once('.').map(|(_, parent)| parent);
        let is_wildcard = |name: &&String| match (name.strip_prefix("*."), parent) {
            (Some(rest), Some(parent)) => rest.eq_ignore_ascii_case(parent),
            _ => false,
        };
        let exact = self.dns.iter().find(is).map(|_| NameMatch::Exact);
        exact.or_else(|| self.dns.iter().find(is_wildcard).map(|_| NameMatch::Wildcard))
    }

    /// The name that stands for the certificate in logs.
    pub(crate) fn first(&self) -> String {
        self.all().next().unwrap_or_default()
    }
}

impl fmt::Display for CertificateNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.all().collect::<Vec<_>>().join(", "))
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dns: &[&str], addresses: &[&str]) -> CertificateNames {
        CertificateNames {
            dns: dns.iter().map(|name| (*name).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let names = names(&["*.example.com", "example.com"], &[]);
        assert_eq!(names.covers("API.example.com"), Some(NameMatch::Wildcard));
        assert_eq!(names.covers("Example.Com"), Some(NameMatch::Exact));
        for other in [
            "a.b.example.com",
            "example.org",
            "",
            "com",
            ".com",
            "*.com",
            "example.com.evil.test",
        ] {
            assert_eq!(names.covers(other), None, "{other}");
        }
    }

    #[test]
    fn an_address_is_compared_as_such() {
        let names = names(&["10.0.0.1"], &["2001:db8::1", "192.0.2.7"]);
        assert_eq!(names.covers("2001:db8:0::1"), Some(NameMatch::Exact));
        assert_eq!(names.covers("192.0.2.7"), Some(NameMatch::Exact));
        assert_eq!(
            names.covers("10.0.0.1"),
            None,
            "a DNS name in the form of an address is no address"
        );
        assert_eq!(names.to_string(), "10.0.0.1, 2001:db8::1, 192.0.2.7");
    }
}
