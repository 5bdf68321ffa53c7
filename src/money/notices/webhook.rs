//! Sends notices to one URL over HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};

use crate::{
    domain::keys::{secret::Secret, webhook_signature::WebhookSigner},
    edges::{
        clock,
        web_client::{WebClient, WebError, WebLimits},
    },
};

/// The response's body is not used; a larger one is cut off.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A receiver of notices.
pub(crate) struct Webhook {
    url: Uri,
    signer: WebhookSigner,
    client: WebClient,
}

/// Why the receiver did not accept a notice. Its own words are not repeated.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    /// It did not respond in time.
    #[error("the receiver did not respond within {0:?}")]
    Late(Duration),
    /// It is unreachable, or the connection broke.
    #[error("the receiver cannot be reached: {0}")]
    Away(String),
    /// It responded with a status other than 2xx.
    #[error("the receiver responded with status {0}")]
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
    /// A receiver at an `http://` or `https://` URL with a host. An attempt takes at most `timeout`.
    ///
    /// # Errors
    /// The secret cannot sign, or the platform has no trusted authorities.
    pub(crate) fn new(url: Uri, secret: &Secret, timeout: Duration) -> Result<Self, String> {
        let limits = WebLimits {
            connect: timeout,
            total: Some(timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
            idle_max: 0,
        };
        Ok(Self {
            url,
            signer: WebhookSigner::new(secret)?,
            client: WebClient::new(None, limits).map_err(|error| error.to_string())?,
        })
    }

    /// Checks that a secret can sign.
    ///
    /// # Errors
    /// Says what is wrong with the secret, without repeating it.
    pub(crate) fn check(secret: &Secret) -> Result<(), String> {
        WebhookSigner::new(secret).map(drop)
    }

    /// Sends a message. Only a 2xx response accepts it; redirects are not followed.
    pub(super) async fn post(&self, id: &str, body: String) -> Result<(), WebhookError> {
        let body = Bytes::from(body);
        let mut request = Request::post(self.url.clone()).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in self.signer.headers(id, clock::unix_seconds(), &body) {
            request = request.header(name, value);
        }
        let request = request
            .body(body)
            .map_err(|error| WebhookError::Away(error.to_string()))?;
        match self.client.send(request).await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(WebhookError::Refused(answer.status().as_u16())),
            Err(WebError::Late(limit)) => Err(WebhookError::Late(limit)),
            Err(away) => Err(WebhookError::Away(away.to_string())),
        }
    }
}
