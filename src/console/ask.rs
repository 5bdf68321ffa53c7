//! A request to one of the doors, read whole.

use std::{net::IpAddr, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use super::{cookie::Way, fields::Fields, origin::Origin};

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// The request's method; HEAD is asked as GET.
    pub(crate) method: Method,
    /// Its path, still percent-encoded.
    pub(crate) path: String,
    /// The query, without `?`.
    pub(crate) query: Option<String>,
    /// The host that browsers have asked, with its port.
    pub(crate) host: String,
    /// The request's headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// Whether the client's connection is encrypted, to the listener or to a proxy in front of it.
    pub(crate) encrypted: bool,
    /// The time by the monotonic clock.
    pub(crate) now: Instant,
}

/// The address of a host, by an encrypted connection or another.
pub(super) fn base(encrypted: bool, host: &str) -> String {
    let scheme = if encrypted { "https" } else { "http" };
    format!("{scheme}://{host}")
}

impl Ask {
    /// The path's segments below `root`, decoded; `None` if it is not below.
    pub(super) fn segments(&self, root: &str) -> Option<Vec<String>> {
        let rest = self.path.strip_prefix(root)?;
        if !(rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        let decoded = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        Some(rest.split('/').filter(|one| !one.is_empty()).map(decoded).collect())
    }

    pub(super) fn way(&self) -> Way {
        if self.encrypted { Way::Encrypted } else { Way::Plain }
    }

    /// The address at which the client reaches this listener.
    pub(super) fn base(&self) -> String {
        base(self.encrypted, &self.host)
    }

    pub(super) fn is_own(&self) -> bool {
        let (headers, host) = (&self.headers, self.host.as_str());
        let encrypted = self.encrypted;
        let origin = Origin {
            headers,
            host,
            encrypted,
        };
        origin.is_own()
    }

    /// The query's fields.
    pub(super) fn query(&self) -> Fields {
        Fields::read(self.query.as_deref().unwrap_or_default().as_bytes())
    }

    /// The form's fields.
    pub(super) fn form(&self) -> Fields {
        Fields::read(&self.body)
    }
}
