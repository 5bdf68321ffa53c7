//! The provider's metadata (OpenID Connect Discovery 1.0, section 3).

use serde_json::Value;

use crate::domain::sign_in::endpoint::SecureUrl;

/// The path of the metadata document, below the issuer.
const DOCUMENT: &str = "/.well-known/openid-configuration";

/// The parts of the metadata that weir uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenIdMetadata {
    pub(super) authorization_endpoint: SecureUrl,
    pub(super) token_endpoint: SecureUrl,
    pub(super) jwks_uri: SecureUrl,
    pub(super) userinfo_endpoint: Option<SecureUrl>,
    pub(super) end_session_endpoint: Option<SecureUrl>,
    /// Whether the provider accepts the client secret by HTTP basic authentication: the default, unless it lists only other
    /// methods.
    pub(super) accepts_basic: bool,
    /// Whether it names itself in every authorization response (RFC 9207).
    pub(super) iss_in_answers: bool,
}

/// The URL of an issuer's metadata document.
pub(super) fn document_url(issuer: &str) -> String {
    format!("{}{DOCUMENT}", issuer.trim_end_matches('/'))
}

impl OpenIdMetadata {
    /// Reads the metadata document of an issuer.
    ///
    /// # Errors
    /// What is wrong with the document.
    pub(super) fn read(document: &Value, issuer: &str) -> Result<Self, String> {
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err("its document is from another issuer: `issuer` of [console.openid] must equal the document's, to the last character".to_owned());
        }
        let optional = |name: &str| SecureUrl::parse(document.get(name)?.as_str()?);
        let endpoint = |name: &str| {
            optional(name).ok_or_else(|| format!("its document has no usable {name}: it must be an https URL"))
        };
        let methods = document
            .get("token_endpoint_auth_methods_supported")
            .and_then(Value::as_array);
        let takes = |method: &str| methods.is_none_or(|methods| methods.iter().any(|one| one == method));
        Ok(Self {
            authorization_endpoint: endpoint("authorization_endpoint")?,
            token_endpoint: endpoint("token_endpoint")?,
            jwks_uri: endpoint("jwks_uri")?,
            userinfo_endpoint: optional("userinfo_endpoint"),
            end_session_endpoint: optional("end_session_endpoint"),
            accepts_basic: takes("client_secret_basic"),
            iss_in_answers: document.get("authorization_response_iss_parameter_supported") == Some(&Value::Bool(true)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_document_is_the_issuers_own_and_has_what_is_needed() {
        let issuer = "https://login.example/realm";
        assert_eq!(
            document_url(issuer),
            "https://login.example/realm/.well-known/openid-configuration"
        );
        assert_eq!(document_url("https://a/"), "https://a/.well-known/openid-configuration");
        let document = json!({
            "issuer": issuer,
            "authorization_endpoint": "https://login.example/auth",
            "token_endpoint": "https://login.example/token",
            "jwks_uri": "https://login.example/keys",
        });
        let read = |document: &Value| OpenIdMetadata::read(document, issuer);
        let metadata = read(&document).unwrap();
        assert!(metadata.accepts_basic && !metadata.iss_in_answers && metadata.userinfo_endpoint.is_none());
        for (member, value) in [
            ("issuer", json!("https://login.example/realm/")),
            ("token_endpoint", json!("http://login.example/token")),
            ("jwks_uri", json!(null)),
        ] {
            let mut wrong = document.clone();
            wrong[member] = value;
            let said = read(&wrong).unwrap_err();
            assert!(said.contains(member), "{said}");
        }
        let mut post = document;
        post["token_endpoint_auth_methods_supported"] = json!(["client_secret_post"]);
        assert!(!read(&post).unwrap().accepts_basic);
    }
}
