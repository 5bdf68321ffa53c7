//! The provider's keys (RFC 7517), and the signatures that they verify (RFC 7518, section 3; RFC 8037).
//!
//! Only signatures by a private key are accepted: neither `none`, which anybody can make, nor those by a shared secret.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

/// The maximum number of keys of a set; further ones are ignored.
const KEYS_MAX: usize = 64;

/// A signature algorithm.
#[derive(Clone, Copy)]
pub(super) enum IdTokenAlgorithm {
    Rsa(&'static RsaParameters),
    /// On the elliptic curve with this name in keys.
    Curve(&'static str, &'static dyn VerificationAlgorithm),
}

impl IdTokenAlgorithm {
    /// The algorithm with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            "RS384" => Self::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            "RS512" => Self::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            "PS256" => Self::Rsa(&RSA_PSS_2048_8192_SHA256),
            "PS384" => Self::Rsa(&RSA_PSS_2048_8192_SHA384),
            "PS512" => Self::Rsa(&RSA_PSS_2048_8192_SHA512),
            "ES256" => Self::Curve("P-256", &ECDSA_P256_SHA256_FIXED),
            "ES384" => Self::Curve("P-384", &ECDSA_P384_SHA384_FIXED),
            "EdDSA" | "Ed25519" => Self::Curve("Ed25519", &ED25519),
            _ => return None,
        })
    }
}

/// A set of keys.
#[derive(Clone, Debug, Default)]
pub(super) struct IdTokenKeys(Vec<IdTokenKey>);

#[derive(Clone, Debug)]
struct IdTokenKey {
    id: Option<String>,
    /// The only algorithm that it is for; `None` if the key does not name one.
    algorithm: Option<String>,
    material: KeyMaterial,
}

#[derive(Clone, Debug)]
enum KeyMaterial {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Curve { name: String, point: Vec<u8> },
}

impl IdTokenKeys {
    /// Reads a set. Entries that are not keys for signatures are left out.
    pub(super) fn read(set: &Value) -> Self {
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.map(Vec::as_slice).unwrap_or_default();
        Self(keys.iter().take(KEYS_MAX).filter_map(IdTokenKey::read).collect())
    }

    /// Whether one of the keys has signed `message`: the key `id`, if the signature names one.
    pub(super) fn verify_any(
        &self,
        message: &[u8],
        signature: &[u8],
        (name, algorithm, id): (&str, IdTokenAlgorithm, Option<&str>),
    ) -> bool {
        let meant = |key: &&IdTokenKey| {
            id.is_none_or(|id| key.id.as_deref().is_none_or(|known| known == id))
                && key.algorithm.as_deref().is_none_or(|known| known == name)
        };
        let mut keys = self.0.iter().filter(meant);
        keys.any(|key| key.verify(message, signature, algorithm))
    }
}

impl IdTokenKey {
    fn read(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match text("kty")? {
            "RSA" => KeyMaterial::Rsa {
                n: bytes("n")?,
                e: bytes("e")?,
            },
            "EC" => KeyMaterial::Curve {
                name: text("crv")?.to_owned(),
                // Uncompressed (SEC 1, section 2.3.3).
                point: [vec![4], bytes("x")?, bytes("y")?].concat(),
            },
            "OKP" => KeyMaterial::Curve {
                name: text("crv")?.to_owned(),
                point: bytes("x")?,
            },
            _ => return None,
        };
        Some(Self {
            id: text("kid").map(str::to_owned),
            algorithm: text("alg").map(str::to_owned),
            material,
        })
    }

    fn verify(&self, message: &[u8], signature: &[u8], algorithm: IdTokenAlgorithm) -> bool {
        match (&self.material, algorithm) {
            (KeyMaterial::Rsa { n, e }, IdTokenAlgorithm::Rsa(parameters)) => RsaPublicKeyComponents { n, e }
                .verify(parameters, message, signature)
                .is_ok(),
            (KeyMaterial::Curve { name, point }, IdTokenAlgorithm::Curve(curve, algorithm)) => {
                name == curve
                    && UnparsedPublicKey::new(algorithm, point)
                        .verify(message, signature)
                        .is_ok()
            }
            _ => false,
        }
    }
}
