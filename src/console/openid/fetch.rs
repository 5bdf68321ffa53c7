//! Asks the provider for JSON, within limits. Redirects are not followed.

use std::{net::SocketAddr, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, header};
use pingora::{
    connectors::{ConnectorOptions, http::Connector},
    http::RequestHeader,
    protocols::http::client::HttpSession,
    upstreams::peer::HttpPeer,
};
use serde_json::Value;

use super::endpoint::Endpoint;

/// How long an answer may take, from the look-up of the name to its last byte.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long one address may take to connect.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// How many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;
/// The longest answer. Sets of keys of large providers have some ten thousand bytes.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// The way to the provider. Certificates are verified, always.
pub(super) struct Fetch {
    connector: Connector,
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
    /// Trusts the certificate authorities of this PEM file, or the platform's. The file is read now.
    pub(super) fn new(ca_file: Option<String>) -> Self {
        let mut options = ConnectorOptions::new(1);
        options.ca_file = ca_file;
        Self {
            connector: Connector::new(Some(options)),
        }
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
        let head = head(method, at, authorization, form)
            .map_err(|error| NoAnswer::because(error.etype().as_str()))
            .map_err(about)?;
        let answer = async {
            let session = self.connect(at).await?;
            exchange(session, head, form).await
        };
        let late = || NoAnswer::because(format!("no whole answer within {} seconds", ANSWER_WAIT.as_secs()));
        let answer = tokio::time::timeout(ANSWER_WAIT, answer).await;
        let (status, body) = answer.map_err(|_| late()).and_then(|answer| answer).map_err(about)?;
        read(status, &body).map_err(about)
    }

    async fn connect(&self, at: &Endpoint) -> Result<HttpSession, NoAnswer> {
        let addresses = tokio::net::lookup_host((at.host.as_str(), at.port)).await;
        let addresses = addresses.map_err(|error| NoAnswer::because(format!("its name is not found: {error}")))?;
        let mut last = NoAnswer::because("its name has no address");
        for address in addresses.take(ADDRESSES_MAX) {
            match self.connector.get_http_session(&peer(at, address)).await {
                Ok((session, _)) => return Ok(session),
                Err(error) => {
                    last = NoAnswer::because(format!("no connection to {address}: {}", error.etype().as_str()))
                }
            }
        }
        Err(last)
    }
}

fn peer(at: &Endpoint, address: SocketAddr) -> HttpPeer {
    let mut peer = HttpPeer::new(address, at.https, at.host.clone());
    peer.options.set_http_version(1, 1);
    peer.options.total_connection_timeout = Some(CONNECT_WAIT);
    peer
}

fn head(
    method: Method,
    at: &Endpoint,
    authorization: Option<&str>,
    form: Option<&str>,
) -> pingora::Result<RequestHeader> {
    let mut head = RequestHeader::build(method, at.path.as_bytes(), Some(6))?;
    head.insert_header(header::HOST, &at.authority)?;
    head.insert_header(header::ACCEPT, "application/json")?;
    head.insert_header(header::CONNECTION, "close")?;
    if let Some(authorization) = authorization {
        head.insert_header(header::AUTHORIZATION, authorization)?;
    }
    if let Some(form) = form {
        head.insert_header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")?;
        head.insert_header(header::CONTENT_LENGTH, form.len().to_string())?;
    }
    Ok(head)
}

async fn exchange(
    mut session: HttpSession,
    head: RequestHeader,
    form: Option<&str>,
) -> Result<(StatusCode, Bytes), NoAnswer> {
    let broken =
        |error: Box<pingora::Error>| NoAnswer::because(format!("the connection broke: {}", error.etype().as_str()));
    session.write_request_header(Box::new(head)).await.map_err(broken)?;
    if let Some(form) = form {
        let form = Bytes::copy_from_slice(form.as_bytes());
        session.write_request_body(form, true).await.map_err(broken)?;
    }
    session.finish_request_body().await.map_err(broken)?;
    session.read_response_header().await.map_err(broken)?;
    let status = session.response_header().map(|head| head.status).unwrap_or_default();
    let mut body = BytesMut::new();
    while let Some(bytes) = session.read_response_body().await.map_err(broken)? {
        if body.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(NoAnswer::because(format!(
                "its answer has more than {ANSWER_BYTES_MAX} bytes"
            )));
        }
        body.extend_from_slice(&bytes);
    }
    Ok((status, body.freeze()))
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
