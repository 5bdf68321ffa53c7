//! Sends notices to one address over HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri, header};

use crate::{
    domain::keys::{secret::Secret, webhook_signature::Signer},
    edges::{
        clock,
        web_client::{WebClient, WebError, WebLimits},
    },
};

/// Nothing of an answer's body is of use; one that has more than this is cut off.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A receiver.
pub(crate) struct Webhook {
    url: Uri,
    signer: Signer,
    client: WebClient,
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
    /// The secret is none to sign with, or the platform has no authorities to trust.
    pub(crate) fn new(url: Uri, secret: &Secret, timeout: Duration) -> Result<Self, String> {
        let limits = WebLimits {
            connect: timeout,
            total: Some(timeout),
            answer_bytes_max: ANSWER_BYTES_MAX,
            idle_max: 0,
        };
        Ok(Self {
            url,
            signer: Signer::new(secret)?,
            client: WebClient::new(None, limits).map_err(|error| error.to_string())?,
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
        let body = Bytes::from(body);
        let mut request = Request::post(self.url.clone()).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in self.signer.headers(id, clock::unix_seconds(), &body) {
            request = request.header(name, value);
        }
        let request = request.body(body).map_err(|error| NotSent::Away(error.to_string()))?;
        match self.client.send(request).await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(NotSent::Refused(answer.status().as_u16())),
            Err(WebError::Late(limit)) => Err(NotSent::Late(limit)),
            Err(away) => Err(NotSent::Away(away.to_string())),
        }
    }
}
