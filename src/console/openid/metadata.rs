//! What the provider says of itself (OpenID Connect Discovery 1.0, section 3).

use serde_json::Value;

use crate::domain::sign_in::endpoint::Endpoint;

/// Where it says so, below the issuer.
const DOCUMENT: &str = "/.well-known/openid-configuration";

/// What weir needs of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) authorization_endpoint: Endpoint,
    pub(super) token_endpoint: Endpoint,
    pub(super) jwks_uri: Endpoint,
    pub(super) userinfo_endpoint: Option<Endpoint>,
    pub(super) end_session_endpoint: Option<Endpoint>,
    /// Whether the secret goes as HTTP's own credentials, which is so unless the provider lists other ways only.
    pub(super) takes_basic: bool,
    /// Whether it says who it is with every answer (RFC 9207).
    pub(super) iss_in_answers: bool,
}

/// The address of an issuer's document.
pub(super) fn address(issuer: &str) -> String {
    format!("{}{DOCUMENT}", issuer.trim_end_matches('/'))
}

impl Metadata {
    /// Reads the document of an issuer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(document: &Value, issuer: &str) -> Result<Self, String> {
        if document.get("issuer").and_then(Value::as_str) != Some(issuer) {
            return Err("its document is another issuer's: `issuer` of [console.openid] must be what the document says, to the last character".to_owned());
        }
        let optional = |name: &str| Endpoint::parse(document.get(name)?.as_str()?);
        let endpoint = |name: &str| {
            optional(name).ok_or_else(|| format!("its document has no usable {name}: an address with https is needed"))
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
            takes_basic: takes("client_secret_basic"),
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
            address(issuer),
            "https://login.example/realm/.well-known/openid-configuration"
        );
        assert_eq!(address("https://a/"), "https://a/.well-known/openid-configuration");
        let document = json!({
            "issuer": issuer,
            "authorization_endpoint": "https://login.example/auth",
            "token_endpoint": "https://login.example/token",
            "jwks_uri": "https://login.example/keys",
        });
        let read = |document: &Value| Metadata::read(document, issuer);
        let metadata = read(&document).unwrap();
        assert!(metadata.takes_basic && !metadata.iss_in_answers && metadata.userinfo_endpoint.is_none());
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
        assert!(!read(&post).unwrap().takes_basic);
    }
}
