//! The signature of what weir posts to others: that it is weir's, unchanged, and of when.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::domain::keys::secret::Secret;

/// The header that carries the signature: `t=UNIX,v1=HEX`.
pub(crate) const HEADER: &str = "weir-signature";

/// The header's value: the time in seconds since the Unix epoch, and in hexadecimal the HMAC-SHA256 (RFC 2104) of that time
/// in decimal, a full stop and the body. A receiver computes it again with the secret that both know, compares in constant
/// time, and refuses a time that is long ago.
pub(crate) fn sign(secret: &Secret, unix_seconds: i64, body: &[u8]) -> String {
    // HMAC takes a key of any length; this type says so by a result.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()) else {
        return String::new();
    };
    mac.update(unix_seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let hex: String = mac
        .finalize()
        .into_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("t={unix_seconds},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_others_compute() {
        // printf '1771761600.{"a":1}' | openssl dgst -sha256 -hmac whsec-test
        let value = sign(&Secret::new("whsec-test"), 1_771_761_600, br#"{"a":1}"#);
        assert_eq!(
            value,
            "t=1771761600,v1=d99e48f551d6b721d111a5c5a942cddee7de60b6f26bc046092851a8b155d3e3"
        );
    }

    #[test]
    fn secret_time_and_body_all_count() {
        let with = |secret: &str, time, body: &[u8]| sign(&Secret::new(secret), time, body);
        let first = with("a", 1, b"x");
        assert_eq!(first, with("a", 1, b"x"));
        for other in [with("b", 1, b"x"), with("a", 2, b"x"), with("a", 1, b"y")] {
            assert_ne!(first, other);
        }
        // A secret longer than SHA-256's block is hashed first.
        assert_ne!(with(&"k".repeat(65), 1, b"x"), with(&"k".repeat(64), 1, b"x"));
    }
}
