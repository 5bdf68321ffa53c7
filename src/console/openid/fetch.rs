//! Requests JSON from the provider, within limits. Redirects are not followed.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;

use crate::{
    domain::sign_in::endpoint::SecureUrl,
    edges::{
        roots::{RootsError, roots_with_platform},
        web_client::{WebClient, WebLimits},
    },
};

/// The limits of a request: the total time includes name resolution. Key sets of large providers have about ten thousand bytes.
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(5),
    total: Some(Duration::from_secs(5)),
    answer_bytes_max: 256 * 1024,
    idle_max: 0,
};

/// Sends requests to the provider. Certificates are always verified.
pub(super) struct OpenIdClient {
    client: WebClient,
}

/// Why a request to the provider failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenIdRequestError {
    /// The provider's error code (RFC 6749, section 5.2), if it sent one.
    pub(super) error: Option<String>,
    /// What happened, for operators. Contains nothing that was sent.
    pub(super) message: String,
}

impl OpenIdRequestError {
    fn because(message: impl Into<String>) -> Self {
        Self {
            error: None,
            message: message.into(),
        }
    }
}

impl OpenIdClient {
    /// Trusts the platform's certificate authorities and those in `ca`, the content of a PEM file.
    ///
    /// # Errors
    /// No certificate authority is usable.
    pub(super) fn new(ca: Option<&[u8]>) -> Result<Self, RootsError> {
        let client = WebClient::with_roots(roots_with_platform(ca)?, LIMITS)?;
        Ok(Self { client })
    }

    pub(super) async fn get(&self, from: &SecureUrl, authorization: Option<&str>) -> Result<Value, OpenIdRequestError> {
        self.send(Method::GET, from, authorization, None).await
    }

    /// Sends a form.
    pub(super) async fn post(
        &self,
        to: &SecureUrl,
        form: &str,
        authorization: Option<&str>,
    ) -> Result<Value, OpenIdRequestError> {
        self.send(Method::POST, to, authorization, Some(form)).await
    }

    async fn send(
        &self,
        method: Method,
        at: &SecureUrl,
        authorization: Option<&str>,
        form: Option<&str>,
    ) -> Result<Value, OpenIdRequestError> {
        let place = at.with_query("");
        let about = |why: OpenIdRequestError| OpenIdRequestError {
            message: format!("{place}: {}", why.message),
            ..why
        };
        let request = build_request((method, &place), authorization, form)
            .map_err(|error| OpenIdRequestError::because(error.to_string()))
            .map_err(about)?;
        let answer = self.client.send(request).await;
        let answer = answer
            .map_err(|error| OpenIdRequestError::because(error.to_string()))
            .map_err(about)?;
        read_response(answer.status(), answer.body()).map_err(about)
    }
}

fn build_request(
    (method, at): (Method, &str),
    authorization: Option<&str>,
    form: Option<&str>,
) -> http::Result<Request<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(at)
        .header(header::ACCEPT, "application/json");
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    if form.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    }
    request.body(Bytes::copy_from_slice(form.unwrap_or_default().as_bytes()))
}

fn read_response(status: StatusCode, body: &[u8]) -> Result<Value, OpenIdRequestError> {
    let json = serde_json::from_slice::<Value>(body).ok();
    if status != StatusCode::OK {
        let error = json.as_ref().and_then(|json| json.get("error")?.as_str());
        // Only error codes of the protocol: other text may quote what was sent.
        let error = error
            .filter(|error| error.len() <= 64 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        let said = error.map(|error| format!(" and the error {error}")).unwrap_or_default();
        return Err(OpenIdRequestError {
            error: error.map(str::to_owned),
            message: format!("it responded with status {}{said}", status.as_u16()),
        });
    }
    json.ok_or_else(|| OpenIdRequestError::because("its response is not JSON"))
}

/// The `Basic` credentials of a client. Both parts are form-encoded first (RFC 6749, section 2.3.1).
pub(super) fn basic_credentials(id: &str, secret: &str) -> String {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    format!(
        "Basic {}",
        STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_protocol_alone() {
        let refused = |body: &str| read_response(StatusCode::BAD_REQUEST, body.as_bytes()).unwrap_err();
        let told = refused(r#"{"error":"invalid_grant","error_description":"canary"}"#);
        assert_eq!(told.error.as_deref(), Some("invalid_grant"));
        assert_eq!(told.message, "it responded with status 400 and the error invalid_grant");
        for body in ["canary", r#"{"error":"Canary!"}"#, r#"{"error":7}"#] {
            assert_eq!(
                (refused(body).error, refused(body).message.as_str()),
                (None, "it responded with status 400")
            );
        }
        assert!(read_response(StatusCode::FOUND, b"{}").is_err() && read_response(StatusCode::OK, b"canary").is_err());
    }

    #[test]
    fn a_client_is_encoded_as_in_a_form() {
        assert_eq!(
            basic_credentials("a b", "c:d"),
            format!("Basic {}", STANDARD.encode("a+b:c%3Ad"))
        );
    }
}
