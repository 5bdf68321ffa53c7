//! Sends notices to one address over HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Uri, header};
use pingora::{
    connectors::http::Connector, http::RequestHeader, protocols::http::client::HttpSession, upstreams::peer::HttpPeer,
};

use super::signature::Signer;
use crate::{domain::keys::secret::Secret, edges::clock};

/// A receiver.
pub(crate) struct Webhook {
    url: Uri,
    signer: Signer,
    timeout: Duration,
    connector: Connector,
}

/// Why a notice was not taken. What the receiver says is not repeated.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSent {
    /// It did not answer in time.
    #[error("the receiver did not answer within {0:?}")]
    Late(Duration),
    /// It cannot be reached, or the connection broke.
    #[error("the receiver cannot be reached: {0}")]
    Away(String),
    /// It answered that it does not take it.
    #[error("the receiver answered with status {0}")]
    Refused(u16),
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The path may be a secret.
        out.debug_struct("Webhook")
            .field("host", &self.url.host())
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// A receiver at `http://` or `https://` with a host. An attempt takes at most `timeout`.
    ///
    /// # Errors
    /// The secret is none to sign with.
    pub(crate) fn new(url: Uri, secret: &Secret, timeout: Duration) -> Result<Self, String> {
        Ok(Self {
            url,
            signer: Signer::new(secret)?,
            timeout,
            connector: Connector::new(None),
        })
    }

    /// Whether a secret is one to sign with.
    ///
    /// # Errors
    /// What is wrong with it, without it.
    pub(crate) fn check(secret: &Secret) -> Result<(), String> {
        Signer::new(secret).map(drop)
    }

    /// Sends a message. It is taken when the receiver has answered with 2xx; redirects are not followed.
    pub(super) async fn post(&self, id: &str, body: String) -> Result<(), NotSent> {
        let sent = tokio::time::timeout(self.timeout, self.exchange(id, body)).await;
        match sent {
            Err(_) => Err(NotSent::Late(self.timeout)),
            Ok(Err(away)) => Err(NotSent::Away(away)),
            Ok(Ok(status)) if (200..300).contains(&status) => Ok(()),
            Ok(Ok(status)) => Err(NotSent::Refused(status)),
        }
    }

    /// One exchange on a connection of its own; the answer's status.
    async fn exchange(&self, id: &str, body: String) -> Result<u16, String> {
        let is_https = self.url.scheme_str() == Some("https");
        let host = self.url.host().unwrap_or_default();
        let port = self.url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let bare = host.trim_matches(['[', ']']);
        let found = tokio::net::lookup_host((bare, port))
            .await
            .map_err(|error| error.to_string())?;
        let head = self.head(id, &body).map_err(|error| error.to_string())?;
        let mut failed = "its name has no address".to_owned();
        for address in found {
            let peer = HttpPeer::new(address, is_https, bare.to_owned());
            match self.connector.get_http_session(&peer).await {
                Ok((mut session, _)) => {
                    let status = ask(&mut session, head, body)
                        .await
                        .map_err(|error| error.etype().as_str().to_owned());
                    session.shutdown().await;
                    return status;
                }
                Err(error) => error.etype().as_str().clone_into(&mut failed),
            }
        }
        Err(failed)
    }

    fn head(&self, id: &str, body: &str) -> pingora::Result<RequestHeader> {
        let time = clock::unix_seconds();
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let mut head = RequestHeader::build(Method::POST, path.as_bytes(), Some(8))?;
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        head.insert_header(header::HOST, authority)?;
        head.insert_header(header::CONTENT_TYPE, "application/json")?;
        head.insert_header(header::CONTENT_LENGTH, body.len().to_string())?;
        head.insert_header(header::CONNECTION, "close")?;
        head.insert_header("webhook-id", id)?;
        head.insert_header("webhook-timestamp", time.to_string())?;
        head.insert_header("webhook-signature", self.signer.sign(id, time, body))?;
        Ok(head)
    }
}

async fn ask(session: &mut HttpSession, head: RequestHeader, body: String) -> pingora::Result<u16> {
    session.write_request_header(Box::new(head)).await?;
    session.write_request_body(Bytes::from(body), true).await?;
    session.finish_request_body().await?;
    session.read_response_header().await?;
    Ok(session.response_header().map_or(0, |head| head.status.as_u16()))
}
