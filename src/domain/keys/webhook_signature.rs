//! Signatures of the webhooks that weir sends, by the Standard Webhooks specification (<https://www.standardwebhooks.com>):
//! HMAC-SHA256 over a message's id, time and body, so that the receiver knows who sent it and when.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::domain::keys::secret::Secret;

/// The prefix of a secret in base64.
const ENCODED: &str = "whsec_";

/// Signs webhook messages.
#[derive(Clone)]
pub(crate) struct WebhookSigner(Hmac<Sha256>);

impl std::fmt::Debug for WebhookSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Signer(..)")
    }
}

impl WebhookSigner {
    /// Uses this secret: base64 if it begins with `whsec_`, else the bytes of its text.
    ///
    /// # Errors
    /// The text after `whsec_` is not base64. The error does not repeat the secret.
    pub(crate) fn new(secret: &Secret) -> Result<Self, String> {
        let bytes = match secret.expose().strip_prefix(ENCODED) {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| format!("the text after `{ENCODED}` is not base64"))?,
            None => secret.expose().as_bytes().to_vec(),
        };
        // HMAC takes a key of any length, so this does not fail.
        Hmac::new_from_slice(&bytes)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// The headers of a message. `time` is in seconds since the Unix epoch.
    pub(crate) fn headers(&self, id: &str, time: i64, body: &[u8]) -> [(&'static str, String); 3] {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{time}.").as_bytes());
        mac.update(body);
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", time.to_string()),
            ("webhook-signature", signature),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(secret: &str, id: &str, time: i64, body: &str) -> String {
        let signer = WebhookSigner::new(&Secret::new(secret)).unwrap();
        let [_, _, (_, signature)] = signer.headers(id, time, body.as_bytes());
        signature
    }

    #[test]
    fn a_signature_is_that_of_the_standards_own_example() {
        // https://github.com/standard-webhooks/standard-webhooks, the test of its libraries.
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signature = signature(secret, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secret_id_time_and_body_all_count() {
        let first = signature("a", "1", 1, "x");
        assert_eq!(first, signature("a", "1", 1, "x"));
        for other in [
            signature("b", "1", 1, "x"),
            signature("a", "2", 1, "x"),
            signature("a", "1", 2, "x"),
            signature("a", "1", 1, "y"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn a_secret_is_text_or_base64() {
        assert_eq!(
            signature("plain", "a", 1, "b"),
            signature("whsec_cGxhaW4=", "a", 1, "b")
        );
        let wrong = WebhookSigner::new(&Secret::new("whsec_?")).unwrap_err();
        assert!(wrong.contains("not base64") && !wrong.contains('?'), "{wrong}");
    }
}
