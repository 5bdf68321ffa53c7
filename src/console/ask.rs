//! A complete request to the console or the portal.

use std::{net::IpAddr, time::Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use super::{cookie::ConnectionSecurity, fields::FormFields, origin::RequestOrigin};

/// A complete request to the console or the portal.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// The method; HEAD is treated as GET.
    pub(crate) method: Method,
    /// The path, still percent-encoded.
    pub(crate) path: String,
    /// The query, without `?`.
    pub(crate) query: Option<String>,
    /// The host that the browser addressed, with its port.
    pub(crate) host: String,
    /// The request's headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
    /// The other end of the connection.
    pub(crate) peer: IpAddr,
    /// Whether the client's connection is encrypted, up to the listener or a proxy in front of it.
    pub(crate) encrypted: bool,
    /// The time by the monotonic clock.
    pub(crate) now: Instant,
}

/// The URL of a host.
pub(super) fn base(encrypted: bool, host: &str) -> String {
    let scheme = if encrypted { "https" } else { "http" };
    format!("{scheme}://{host}")
}

impl PageRequest {
    /// The decoded segments of the path below `root`; `None` if the path is not below it.
    pub(super) fn segments(&self, root: &str) -> Option<Vec<String>> {
        let rest = self.path.strip_prefix(root)?;
        if !(rest.is_empty() || rest.starts_with('/')) {
            return None;
        }
        let decoded = |segment: &str| percent_decode_str(segment).decode_utf8_lossy().into_owned();
        Some(rest.split('/').filter(|one| !one.is_empty()).map(decoded).collect())
    }

    pub(super) fn connection_security(&self) -> ConnectionSecurity {
        if self.encrypted {
            ConnectionSecurity::Encrypted
        } else {
            ConnectionSecurity::Plain
        }
    }

    /// The URL at which the client reaches this listener.
    pub(super) fn base(&self) -> String {
        base(self.encrypted, &self.host)
    }

    pub(super) fn is_same_origin(&self) -> bool {
        let (headers, host) = (&self.headers, self.host.as_str());
        let encrypted = self.encrypted;
        let origin = RequestOrigin {
            headers,
            host,
            encrypted,
        };
        origin.is_same_origin()
    }

    /// The query's fields.
    pub(super) fn query(&self) -> FormFields {
        FormFields::read(self.query.as_deref().unwrap_or_default().as_bytes())
    }

    /// The form's fields.
    pub(super) fn form(&self) -> FormFields {
        FormFields::read(&self.body)
    }
}
