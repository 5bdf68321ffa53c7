//! The provider's keys (RFC 7517), and what they have signed (RFC 7518, section 3; RFC 8037).
//!
//! Only signatures that a public key verifies are taken: none that anybody can make, `none`, and none by a shared secret.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

/// The most keys of a set that are looked at.
const KEYS_MAX: usize = 64;

/// How something is signed.
#[derive(Clone, Copy)]
pub(super) enum Algorithm {
    Rsa(&'static RsaParameters),
    /// On a curve, by the name that keys have for it.
    Curve(&'static str, &'static dyn VerificationAlgorithm),
}

impl Algorithm {
    /// The algorithm of a name.
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
pub(super) struct Keys(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    /// The one algorithm that it is for, if it says so.
    algorithm: Option<String>,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Curve { name: String, point: Vec<u8> },
}

impl Keys {
    /// Reads a set. What is no key for signatures is left out.
    pub(super) fn read(set: &Value) -> Self {
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.map(Vec::as_slice).unwrap_or_default();
        Self(keys.iter().take(KEYS_MAX).filter_map(Key::read).collect())
    }

    /// Whether one of them has signed `message`: the one of this id, if the signature names one.
    pub(super) fn have_signed(
        &self,
        message: &[u8],
        signature: &[u8],
        (name, algorithm, id): (&str, Algorithm, Option<&str>),
    ) -> bool {
        let meant = |key: &&Key| {
            id.is_none_or(|id| key.id.as_deref().is_none_or(|known| known == id))
                && key.algorithm.as_deref().is_none_or(|known| known == name)
        };
        let mut keys = self.0.iter().filter(meant);
        keys.any(|key| key.has_signed(message, signature, algorithm))
    }
}

impl Key {
    fn read(key: &Value) -> Option<Self> {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match text("kty")? {
            "RSA" => Material::Rsa {
                n: bytes("n")?,
                e: bytes("e")?,
            },
            "EC" => Material::Curve {
                name: text("crv")?.to_owned(),
                // Uncompressed (SEC 1, section 2.3.3).
                point: [vec![4], bytes("x")?, bytes("y")?].concat(),
            },
            "OKP" => Material::Curve {
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

    fn has_signed(&self, message: &[u8], signature: &[u8], algorithm: Algorithm) -> bool {
        match (&self.material, algorithm) {
            (Material::Rsa { n, e }, Algorithm::Rsa(parameters)) => RsaPublicKeyComponents { n, e }
                .verify(parameters, message, signature)
                .is_ok(),
            (Material::Curve { name, point }, Algorithm::Curve(curve, algorithm)) => {
                name == curve
                    && UnparsedPublicKey::new(algorithm, point)
                        .verify(message, signature)
                        .is_ok()
            }
            _ => false,
        }
    }
}
