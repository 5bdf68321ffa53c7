//! The settings that an operator provides to all signed-in agents, in the form that Claude Code expects from its own gateway,
//! which describes it at `GET /protocol` (<https://code.claude.com/docs/en/claude-apps-gateway>).

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::domain::keys::secret::KeyDigest;

/// Settings, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedSettings {
    /// The body of the answer.
    pub body: String,
    /// The entity tag of the body, with quotes.
    pub etag: String,
}

impl ManagedSettings {
    /// Renders the settings in this JSON object.
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

/// The value with the members of all objects sorted by name, which is the form that the client hashes.
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

/// A UUID made from these bytes (RFC 9562, version 8), so that equal settings have equal UUIDs.
fn uuid(digest: &[u8; 32]) -> String {
    let mut bits = u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default());
    bits = bits & !(0xf << 76) | 8 << 76;
    bits = bits & !(0x3 << 62) | 2 << 62;
    let hex = format!("{bits:032x}");
    let part = |range: std::ops::Range<usize>| hex.get(range).unwrap_or_default().to_owned();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

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
