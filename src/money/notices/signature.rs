//! Signatures of webhooks, as Standard Webhooks has them (<https://www.standardwebhooks.com>): HMAC-SHA256 over the message's
//! id, its time and its body, so that a receiver knows who sent it and when.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

use crate::domain::keys::secret::Secret;

/// What a secret in base64 begins with.
const ENCODED: &str = "whsec_";

/// Signs messages.
#[derive(Clone)]
pub(super) struct Signer(hmac::Key);

impl std::fmt::Debug for Signer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Signer(..)")
    }
}

impl Signer {
    /// With a secret: behind `whsec_` it is base64, else it is the bytes of the text.
    ///
    /// # Errors
    /// What is behind `whsec_` is not base64. The secret is not repeated.
    pub(super) fn new(secret: &Secret) -> Result<Self, String> {
        let bytes = match secret.expose().strip_prefix(ENCODED) {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| format!("what is behind `{ENCODED}` is not base64"))?,
            None => secret.expose().as_bytes().to_vec(),
        };
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The value of `webhook-signature` for a message of this time, in seconds since the Unix epoch.
    pub(super) fn sign(&self, id: &str, time: i64, body: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{id}.{time}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_standards_own_example() {
        // https://github.com/standard-webhooks/standard-webhooks, the test of its libraries.
        let signer = Signer::new(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_text_or_base64() {
        let plain = Signer::new(&Secret::new("plain")).unwrap();
        let encoded = Signer::new(&Secret::new("whsec_cGxhaW4=")).unwrap();
        assert_eq!(plain.sign("a", 1, "b"), encoded.sign("a", 1, "b"));
        let wrong = Signer::new(&Secret::new("whsec_?")).unwrap_err();
        assert!(wrong.contains("not base64") && !wrong.contains('?'), "{wrong}");
    }
}
