//! Asks the provider for JSON, within limits. Redirects are not followed.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;

use crate::{
    domain::sign_in::endpoint::Endpoint,
    edges::{
        roots::{RootsError, roots_besides_platform},
        web_client::{WebClient, WebLimits},
    },
};

/// How long an answer may take, from the look-up of the name to its last byte. The longest answer: sets of keys of large
/// providers have some ten thousand bytes.
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(5),
    total: Some(Duration::from_secs(5)),
    answer_bytes_max: 256 * 1024,
    idle_max: 0,
};

/// The way to the provider. Certificates are verified, always.
pub(super) struct Fetch {
    client: WebClient,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoAnswer {
    /// The provider's own word for it (RFC 6749, section 5.2), if it has said one.
    pub(super) error: Option<String>,
    /// What happened, for operators. It has nothing that was sent.
    pub(super) message: String,
}

impl NoAnswer {
    fn because(message: impl Into<String>) -> Self {
        Self {
            error: None,
            message: message.into(),
        }
    }
}

impl Fetch {
    /// Trusts the platform's certificate authorities, and those in a PEM file's content.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub(super) fn new(ca: Option<&[u8]>) -> Result<Self, RootsError> {
        let client = WebClient::trusting(roots_besides_platform(ca)?, LIMITS)?;
        Ok(Self { client })
    }

    pub(super) async fn get(&self, from: &Endpoint, authorization: Option<&str>) -> Result<Value, NoAnswer> {
        self.ask(Method::GET, from, authorization, None).await
    }

    /// Sends a form.
    pub(super) async fn post(&self, to: &Endpoint, form: &str, authorization: Option<&str>) -> Result<Value, NoAnswer> {
        self.ask(Method::POST, to, authorization, Some(form)).await
    }

    async fn ask(
        &self,
        method: Method,
        at: &Endpoint,
        authorization: Option<&str>,
        form: Option<&str>,
    ) -> Result<Value, NoAnswer> {
        let place = at.with_query("");
        let about = |why: NoAnswer| NoAnswer {
            message: format!("{place}: {}", why.message),
            ..why
        };
        let request = request((method, &place), authorization, form)
            .map_err(|error| NoAnswer::because(error.to_string()))
            .map_err(about)?;
        let answer = self.client.send(request).await;
        let answer = answer
            .map_err(|error| NoAnswer::because(error.to_string()))
            .map_err(about)?;
        read(answer.status(), answer.body()).map_err(about)
    }
}

fn request(
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

fn read(status: StatusCode, body: &[u8]) -> Result<Value, NoAnswer> {
    let json = serde_json::from_slice::<Value>(body).ok();
    if status != StatusCode::OK {
        let error = json.as_ref().and_then(|json| json.get("error")?.as_str());
        // Only words of the protocol: it may quote what it was sent.
        let error = error
            .filter(|error| error.len() <= 64 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        let said = error.map(|error| format!(" and says {error}")).unwrap_or_default();
        return Err(NoAnswer {
            error: error.map(str::to_owned),
            message: format!("it answers {}{said}", status.as_u16()),
        });
    }
    json.ok_or_else(|| NoAnswer::because("its answer is not JSON"))
}

/// `Basic` of a client (RFC 6749, section 2.3.1: both are encoded as in a form first).
pub(super) fn basic(id: &str, secret: &str) -> String {
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
        let refused = |body: &str| read(StatusCode::BAD_REQUEST, body.as_bytes()).unwrap_err();
        let told = refused(r#"{"error":"invalid_grant","error_description":"canary"}"#);
        assert_eq!(told.error.as_deref(), Some("invalid_grant"));
        assert_eq!(told.message, "it answers 400 and says invalid_grant");
        for body in ["canary", r#"{"error":"Canary!"}"#, r#"{"error":7}"#] {
            assert_eq!(
                (refused(body).error, refused(body).message.as_str()),
                (None, "it answers 400")
            );
        }
        assert!(read(StatusCode::FOUND, b"{}").is_err() && read(StatusCode::OK, b"canary").is_err());
    }

    #[test]
    fn a_client_is_encoded_as_in_a_form() {
        assert_eq!(basic("a b", "c:d"), format!("Basic {}", STANDARD.encode("a+b:c%3Ad")));
    }
}
