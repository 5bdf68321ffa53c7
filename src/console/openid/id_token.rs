//! Checks ID tokens (OpenID Connect Core 1.0, section 3.1.3.7), which are signed as RFC 7515, section 3.1, says.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::keys::{IdTokenAlgorithm, IdTokenKeys};

/// The accepted difference between the provider's clock and this node's, in seconds.
const SKEW: i64 = 60;
/// The maximum age of a token, which has just been requested, in seconds.
const AGE_MAX: i64 = 600;

/// The values that a token must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedClaims<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// The time, in seconds since the Unix epoch.
    pub(super) now: i64,
}

/// Why a token is not valid.
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
    /// What is wrong with it.
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

/// The claims of a token that matches `expected` and is signed by one of `keys`.
pub(super) fn check(token: &str, keys: &IdTokenKeys, expected: &ExpectedClaims<'_>) -> Result<Value, IdTokenFault> {
    let (message, signature) = token.rsplit_once('.').ok_or(IdTokenFault::Form)?;
    let (header, payload) = message.split_once('.').ok_or(IdTokenFault::Form)?;
    let header = decode_json(header)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| IdTokenFault::Form)?;
    // It names extensions that must be understood, and weir understands none.
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
    // Times may have a fraction (RFC 7519, section 2).
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
    // Section 2: at most 255 characters.
    if !text("sub").is_some_and(|subject| (1..=255).contains(&subject.len())) {
        return Err(IdTokenFault::Subject);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
