//! The ID token, checked (OpenID Connect Core 1.0, section 3.1.3.7). Its form is that of RFC 7515, section 3.1.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::keys::{Algorithm, Keys};

/// By how much the provider's clock may differ from this node's, in seconds.
const SKEW: i64 = 60;
/// How old a token may be that was asked for just now, in seconds.
const AGE_MAX: i64 = 600;

/// What a token has to say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) nonce: &'a str,
    /// Now, in seconds since the Unix epoch.
    pub(super) now: i64,
}

/// Why a token is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
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

impl Fault {
    /// What is wrong with it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Form => "it has not the form of one",
            Self::Algorithm => {
                "it is signed in a way that is not taken: RS, PS or ES with 256 or 384 bits, RS512, PS512 or EdDSA"
            }
            Self::Signature => "none of the provider's keys has signed it",
            Self::Issuer => "it is another issuer's",
            Self::Audience => "it is for another client",
            Self::Expired => "it has expired: compare the clocks of provider and weir",
            Self::Issued => "it was not issued just now: compare the clocks of provider and weir",
            Self::Nonce => "it belongs to another sign-in",
            Self::Subject => "it does not say whom it is about",
        }
    }
}

/// The claims of a token that says what is expected and is signed by one of `keys`.
pub(super) fn check(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Value, Fault> {
    let (message, signature) = token.rsplit_once('.').ok_or(Fault::Form)?;
    let (header, payload) = message.split_once('.').ok_or(Fault::Form)?;
    let header = json(header)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Fault::Form)?;
    // What has to be understood is more than is understood here.
    if header.get("crit").is_some() {
        return Err(Fault::Form);
    }
    let name = header.get("alg").and_then(Value::as_str).ok_or(Fault::Form)?;
    let algorithm = Algorithm::named(name).ok_or(Fault::Algorithm)?;
    let id = header.get("kid").and_then(Value::as_str);
    if !keys.have_signed(message.as_bytes(), &signature, (name, algorithm, id)) {
        return Err(Fault::Signature);
    }
    let claims = json(payload)?;
    agrees(&claims, expected)?;
    Ok(claims)
}

fn json(part: &str) -> Result<Value, Fault> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::Form)?;
    let value: Value = serde_json::from_slice(&bytes).map_err(|_| Fault::Form)?;
    if value.is_object() { Ok(value) } else { Err(Fault::Form) }
}

fn agrees(claims: &Value, expected: &Expected<'_>) -> Result<(), Fault> {
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
        return Err(Fault::Issuer);
    }
    let client = expected.client_id;
    let (for_this, for_others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == client, false),
        Some(Value::Array(all)) => (all.iter().any(|one| one == client), all.len() > 1),
        _ => (false, false),
    };
    let party = text("azp");
    if !for_this || (for_others && party.is_none()) || party.is_some_and(|party| party != client) {
        return Err(Fault::Audience);
    }
    if time("exp").ok_or(Fault::Expired)? <= expected.now.saturating_sub(SKEW) {
        return Err(Fault::Expired);
    }
    let issued = time("iat").ok_or(Fault::Issued)?;
    let ahead = expected.now.saturating_add(SKEW);
    if issued > ahead || issued < expected.now.saturating_sub(AGE_MAX) || time("nbf").is_some_and(|from| from > ahead) {
        return Err(Fault::Issued);
    }
    if text("nonce") != Some(expected.nonce) {
        return Err(Fault::Nonce);
    }
    // Section 2: at most 255 characters.
    if !text("sub").is_some_and(|subject| (1..=255).contains(&subject.len())) {
        return Err(Fault::Subject);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
