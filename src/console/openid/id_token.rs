//! Verifies ID tokens (OpenID Connect Core 1.0, section 3.1.3.7), which are signed as described in RFC 7515, section 3.1.

#[cfg(test)]
mod tests;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use serde_json::Value;

use crate::domain::sign_in::Role;

/// The accepted difference between the clocks of the provider and this node, in seconds.
const SKEW: i64 = 60;
/// The maximum age of an ID token, in seconds. It can be short, because a token is verified just after it was requested.
const AGE_MAX: i64 = 600;

/// The values that the claims of an ID token must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedClaims<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// The current time, in seconds since the Unix epoch.
    pub(super) now: i64,
}

/// The reason why an ID token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdTokenFault {
    Form,
    Algorithm,
    Signature,
    Issuer,
    Audience,
    Expired,
    Issued,
    Nonce,
    Subject,
}

impl IdTokenFault {
    /// Returns a description of the fault.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Form => "it is malformed",
            Self::Algorithm => {
                "its signature algorithm is not supported: use RS, PS or ES with 256 or 384 bits, RS512, PS512 or EdDSA"
            }
            Self::Signature => "it is not signed by any of the provider's keys",
            Self::Issuer => "it is from another issuer",
            Self::Audience => "it is for another client",
            Self::Expired => "it has expired: compare the clocks of provider and weir",
            Self::Issued => "it was not issued recently: compare the clocks of provider and weir",
            Self::Nonce => "it belongs to another sign-in",
            Self::Subject => "its subject is missing or too long",
        }
    }
}

/// Verifies an ID token: it must be signed by one of `keys` and match `expected`. Returns the token's claims.
pub(super) fn check(token: &str, keys: &IdTokenKeys, expected: &ExpectedClaims<'_>) -> Result<Value, IdTokenFault> {
    let (message, signature) = token.rsplit_once('.').ok_or(IdTokenFault::Form)?;
    let (header, payload) = message.split_once('.').ok_or(IdTokenFault::Form)?;
    let header = decode_json(header)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| IdTokenFault::Form)?;
    // `crit` names extensions that must be supported, and weir supports none.
    if header.get("crit").is_some() {
        return Err(IdTokenFault::Form);
    }
    let name = header.get("alg").and_then(Value::as_str).ok_or(IdTokenFault::Form)?;
    let algorithm = IdTokenAlgorithm::named(name).ok_or(IdTokenFault::Algorithm)?;
    let id = header.get("kid").and_then(Value::as_str);
    if !keys.verify_any(message.as_bytes(), &signature, (name, algorithm, id)) {
        return Err(IdTokenFault::Signature);
    }
    let claims = decode_json(payload)?;
    check_claims(&claims, expected)?;
    Ok(claims)
}

fn decode_json(part: &str) -> Result<Value, IdTokenFault> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| IdTokenFault::Form)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| IdTokenFault::Form)?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(IdTokenFault::Form)
    }
}

fn check_claims(claims: &Value, expected: &ExpectedClaims<'_>) -> Result<(), IdTokenFault> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    // Times may have fractions of a second (RFC 7519, section 2).
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float becomes the nearest whole number that there is"
    )]
    let time = |name: &str| {
        let value = claims.get(name)?;
        value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
    };
    if text("iss") != Some(expected.issuer) {
        return Err(IdTokenFault::Issuer);
    }
    let client = expected.client_id;
    let (for_this, for_others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == client, false),
        Some(Value::Array(all)) => (all.iter().any(|one| one == client), all.len() > 1),
        _ => (false, false),
    };
    let party = text("azp");
    if !for_this || (for_others && party.is_none()) || party.is_some_and(|party| party != client) {
        return Err(IdTokenFault::Audience);
    }
    if time("exp").ok_or(IdTokenFault::Expired)? <= expected.now.saturating_sub(SKEW) {
        return Err(IdTokenFault::Expired);
    }
    let issued = time("iat").ok_or(IdTokenFault::Issued)?;
    let ahead = expected.now.saturating_add(SKEW);
    if issued > ahead || issued < expected.now.saturating_sub(AGE_MAX) || time("nbf").is_some_and(|from| from > ahead) {
        return Err(IdTokenFault::Issued);
    }
    if text("nonce") != Some(expected.nonce) {
        return Err(IdTokenFault::Nonce);
    }
    // A subject has at most 255 characters (OpenID Connect Core 1.0, section 2).
    if !text("sub").is_some_and(|subject| (1..=255).contains(&subject.len())) {
        return Err(IdTokenFault::Subject);
    }
    Ok(())
}

/// The maximum number of keys of a provider. Further keys are ignored.
const KEYS_MAX: usize = 64;

/// The algorithm of a signature.
#[derive(Clone, Copy)]
pub(super) enum IdTokenAlgorithm {
    Rsa(&'static RsaParameters),
    /// An algorithm on an elliptic curve, with the curve's name in JSON Web Keys.
    Curve(&'static str, &'static dyn VerificationAlgorithm),
}

impl IdTokenAlgorithm {
    /// Returns the algorithm with this name in JSON Web Signatures. `None` if it is not supported.
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

/// The keys with which a provider signs ID tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct IdTokenKeys(Vec<IdTokenKey>);

#[derive(Clone, Debug)]
struct IdTokenKey {
    id: Option<String>,
    /// The only algorithm with which the key can be used. `None` if the key does not name an algorithm.
    algorithm: Option<String>,
    material: KeyMaterial,
}

#[derive(Clone, Debug)]
enum KeyMaterial {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Curve { name: String, point: Vec<u8> },
}

impl IdTokenKeys {
    /// Reads the keys of a JSON Web Key Set. Leaves out entries that are not keys for signatures.
    pub(super) fn read(set: &Value) -> Self {
        let keys = set.get("keys").and_then(Value::as_array);
        let keys = keys.map(Vec::as_slice).unwrap_or_default();
        Self(keys.iter().take(KEYS_MAX).filter_map(IdTokenKey::read).collect())
    }

    /// Returns whether one of the keys has signed `message`. If the signature names a key by `id`, keys with another id are not
    /// tried.
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
                // The uncompressed form of a point (SEC 1, section 2.3.3).
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

/// The maximum length of a user's name, in characters. A longer name is truncated.
const NAME_CHARS_MAX: usize = 200;

/// A user who has signed in at the OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::console) struct Person {
    /// The provider's identifier of the user, which it never reassigns.
    pub(in crate::console) subject: String,
    /// The user's name, or the subject if the provider sends no name.
    pub(in crate::console) name: String,
    groups: Vec<String>,
}

impl Person {
    /// Returns the user that the claims describe. The value of the claim with the groups can be a string or a list.
    pub(super) fn from_claims(claims: &Value, groups_claim: &str) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        let names = ["name", "preferred_username", "email", "sub"].map(|claim| visible_name(text(claim)));
        let groups = match claims.get(groups_claim) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        Self {
            subject: text("sub").to_owned(),
            name: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            groups,
        }
    }

    /// Returns whether the user is in one of these groups. `None` accepts every user.
    pub(in crate::console) fn is_in_any(&self, groups: Option<&[String]>) -> bool {
        groups.is_none_or(|groups| groups.iter().any(|group| self.groups.contains(group)))
    }

    /// Returns the highest role of the user's groups. `None` if no group has a role.
    pub(super) fn role(&self, roles: &[(String, Role)]) -> Option<Role> {
        let theirs = roles.iter().filter(|(group, _)| self.groups.contains(group));
        theirs.map(|(_, role)| *role).max()
    }
}

/// Adds the claims of the userinfo endpoint to the claims of the ID token. `None` if the endpoint's claims are about another user
/// (OpenID Connect Core 1.0, section 5.3.2).
pub(super) fn merge_claims(mut claims: Value, told: &Value) -> Option<Value> {
    if told.get("sub")? != claims.get("sub")? {
        return None;
    }
    let known = claims.as_object_mut()?;
    for (name, value) in told.as_object()? {
        known.entry(name).or_insert_with(|| value.clone());
    }
    Some(claims)
}

fn visible_name(name: &str) -> String {
    let visible = name.chars().filter(|char| !char.is_control());
    visible.take(NAME_CHARS_MAX).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod person_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_highest_role_of_all_groups_counts_and_none_is_none() {
        let roles = [("ops".to_owned(), Role::Operator), ("all".to_owned(), Role::Viewer)];
        let role = |groups: Value| Person::from_claims(&json!({"sub": "1", "groups": groups}), "groups").role(&roles);
        assert_eq!(role(json!(["all", "ops"])), Some(Role::Operator));
        assert_eq!(role(json!("all")), Some(Role::Viewer));
        for none in [
            json!([]),
            json!(["op", "OPS", "ops "]),
            json!(null),
            json!({"ops": 1}),
            json!([["ops"]]),
        ] {
            assert_eq!(role(none.clone()), None, "{none}");
        }
        let other = Person::from_claims(&json!({"sub": "1", "groups": ["ops"]}), "teams");
        assert_eq!(other.role(&roles), None);
    }

    #[test]
    fn a_name_is_what_the_provider_calls_them_without_what_could_spoil_a_line() {
        let named = |claims: Value| Person::from_claims(&claims, "groups").name;
        assert_eq!(
            named(json!({"sub": "7", "name": " Ada\u{7}\nL ", "email": "a@b"})),
            "AdaL"
        );
        assert_eq!(named(json!({"sub": "7", "name": "", "email": "a@b"})), "a@b");
        assert_eq!(named(json!({"sub": "7"})), "7");
        assert_eq!(
            named(json!({"sub": "7", "name": "x".repeat(999)})).len(),
            NAME_CHARS_MAX
        );
    }

    #[test]
    fn what_is_told_besides_is_about_the_same_person_and_overrides_nothing() {
        let claims = json!({"sub": "1", "name": "A"});
        let told = json!({"sub": "1", "name": "B", "groups": ["ops"]});
        let both = merge_claims(claims.clone(), &told).unwrap();
        assert_eq!(both, json!({"sub": "1", "name": "A", "groups": ["ops"]}));
        assert_eq!(
            merge_claims(claims.clone(), &json!({"sub": "2", "groups": ["ops"]})),
            None
        );
        assert_eq!(merge_claims(claims, &json!({"groups": ["ops"]})), None);
    }
}
