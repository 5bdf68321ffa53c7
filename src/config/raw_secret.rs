//! A reference to a secret, as it stands in the file.

use serde::{Deserialize, de::IgnoredAny};

/// Text where a reference to a secret belongs. It may be a secret typed by mistake, so it has no `Debug` of its content,
/// and a value of another type is swallowed here rather than quoted in the parser's message.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum RawSecret {
    Text(String),
    Other(IgnoredAny),
}

impl std::fmt::Debug for RawSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RawSecret(..)")
    }
}
