//! Sign-ins of agents by the OAuth device flow (RFC 8628): codes, tokens, and the documents in which they are stored.
//!
//! A document is a short text in the store. It expires after a set time, and its name is a digest. It contains only digests of
//! codes and tokens.

pub(crate) mod device_request;
pub(crate) mod sign_ins;

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::domain::keys::secret::KeyDigest;

/// Returns the name of a document: the digest of the document's kind and a text. No key begins with a kind, so documents of
/// different kinds and keys never have the same name.
fn document_name(kind: &str, text: &str) -> KeyDigest {
    KeyDigest::from_bytes(Sha256::digest(format!("{kind} {text}")).into())
}

/// A URL to which secrets are allowed to be sent: `https://host[:port]/path[?query]`, or `http://` if the host is this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecureUrl {
    text: String,
    pub(crate) https: bool,
    /// The host; an IPv6 address is without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The host, and the port if given, as written in the URL.
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl SecureUrl {
    /// Parses a URL. `None` if it is not an HTTP URL, has user information, or would carry secrets unencrypted over a network.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if authority.as_str().contains('@') || !(https || is_here) {
            return None;
        }
        Some(Self {
            text: text.to_owned(),
            https,
            host,
            port: authority.port_u16().unwrap_or(if https { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// Returns the URL's scheme, host and port, such as `https://host:8443`.
    pub(crate) fn origin(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Returns the URL with this query, such as `?a=b`, appended to its own query.
    pub(crate) fn with_query(&self, query: &str) -> String {
        let text = self.text.split('#').next().unwrap_or_default();
        match (text.contains('?'), query.strip_prefix('?')) {
            (true, Some(more)) => format!("{text}&{more}"),
            _ => format!("{text}{query}"),
        }
    }
}

/// The settings that an operator sets for agents, in the form that an agent fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedSettings {
    /// The body of the answer, in JSON.
    pub body: String,
    /// The entity tag of the body, including its quotes.
    pub etag: String,
}

impl ManagedSettings {
    /// Renders the settings in `settings`, and computes their checksum.
    pub(crate) fn new(settings: &Map<String, Value>) -> Self {
        let sorted = sorted(&Value::Object(settings.clone()));
        let digest: [u8; 32] = Sha256::digest(sorted.to_string()).into();
        let checksum = format!("sha256:{}", KeyDigest::from_bytes(digest).to_hex());
        let body = json!({ "uuid": uuid(&digest), "checksum": checksum, "settings": sorted }).to_string();
        Self {
            body,
            etag: format!("\"{checksum}\""),
        }
    }

    /// Whether a client that sends this `if-none-match` already has these settings.
    pub(crate) fn is_known(&self, if_none_match: &str) -> bool {
        if_none_match.split(',').any(|tag| tag.trim() == self.etag)
    }
}

/// Returns the value with the members of all objects sorted by name. The client computes its checksum of this form.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort_unstable();
            let pairs = names
                .into_iter()
                .filter_map(|name| Some((name.clone(), sorted(members.get(name)?))));
            Value::Object(pairs.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// Derives a UUID from these bytes (RFC 9562, version 8), so that equal settings have equal UUIDs.
fn uuid(digest: &[u8; 32]) -> String {
    let mut bits = u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
    bits = bits & !(0xf << 76) | 8 << 76;
    bits = bits & !(0x3 << 62) | 2 << 62;
    let hex = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// The role of a console session. Roles are in ascending order, and each includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Permission to read everything.
    Viewer,
    /// Permission to change keys, and to switch providers on and off.
    Operator,
    /// Permission to change accounts and their money.
    Owner,
}

impl Role {
    /// All roles, in ascending order.
    pub(crate) const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Owner];

    /// Returns the role's name.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_tls_or_is_on_this_machine() {
        let endpoint = SecureUrl::parse("https://login.example/a/b?c=d").unwrap();
        assert_eq!(
            (endpoint.host.as_str(), endpoint.port, endpoint.https),
            ("login.example", 443, true)
        );
        assert_eq!(
            (endpoint.path.as_str(), endpoint.origin().as_str()),
            ("/a/b?c=d", "https://login.example")
        );
        assert_eq!(endpoint.with_query("?e=f"), "https://login.example/a/b?c=d&e=f");
        let here = SecureUrl::parse("http://[::1]:9000/x").unwrap();
        assert_eq!(
            (here.host.as_str(), here.port, here.authority.as_str()),
            ("::1", 9000, "[::1]:9000")
        );
        assert_eq!(here.with_query("?e=f"), "http://[::1]:9000/x?e=f");
        assert_eq!(here.origin(), "http://[::1]:9000");
        for wrong in [
            "",
            "/x",
            "http://login.example/",
            "http://127.0.0.1.example/",
            "ftp://127.0.0.1/",
            "https://a@login.example/",
            "javascript:alert(1)",
        ] {
            assert_eq!(SecureUrl::parse(wrong), None, "{wrong}");
        }
    }

    fn settings(text: &str) -> ManagedSettings {
        ManagedSettings::new(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn the_checksum_is_that_of_the_sorted_text() {
        let some = settings(r#"{"b": {"d": [1, {"z": 1, "a": 2}], "c": "x"}, "a": true}"#);
        assert_eq!(some, settings(r#"{"a":true,"b":{"c":"x","d":[1,{"a":2,"z":1}]}}"#));
        let told: Value = serde_json::from_str(&some.body).unwrap();
        assert_eq!(told["settings"]["b"]["c"], "x");
        assert_eq!(some.etag, format!("\"{}\"", told["checksum"].as_str().unwrap()));
        let uuid = told["uuid"].as_str().unwrap();
        assert_eq!((uuid.len(), uuid.as_bytes()[14]), (36, b'8'), "{uuid}");
        // What Claude Code sends while it has none: the checksum of `{}`.
        let empty = "\"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\"";
        assert_eq!(settings("{}").etag, empty);
        assert!(settings("{}").is_known(empty) && !some.is_known(empty));
        assert!(some.is_known(&format!("{empty}, {}", some.etag)));
    }
}
