//! Events for billing systems: posts rows as signed CloudEvents to one receiver, each at least once. If the reply to a batch
//! is lost, the receiver gets the batch again and recognises its events by their ids.

mod cloud_event;
mod progress;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};

use crate::{
    domain::{
        keys::{secret::Secret, webhook_signature::WebhookSigner},
        ledger::NodeId,
    },
    edges::{
        clock,
        roots::RootsError,
        web_client::{WebClient, WebLimits},
    },
    sinks::{
        batching::{BatchLimits, Linger},
        events::progress::EventWatermarks,
        sink::{Batch, Sink, SinkError},
    },
};

/// The name of the sink.
pub(crate) const NAME: &str = "events";
/// The media type of a batch: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>, section 4.
/// It has no parameter: JSON is UTF-8, and receivers compare the whole value.
const CONTENT_TYPE: &str = "application/cloudevents-batch+json";
const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
/// The maximum size of a reply's body, which is not used.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long a batch waits for rows.
const LINGER: Linger = Linger::For(Duration::from_secs(1));

/// `[log.events]`, with secrets and files read.
#[derive(Clone, Debug)]
pub(crate) struct EventsSettings {
    /// The receiver's URL.
    pub url: Uri,
    /// The secret that events are signed with.
    pub secret: Secret,
    /// The value of the `authorization` header; `None` if the receiver needs none.
    pub authorization: Option<Secret>,
    /// The events' `source`.
    pub source: String,
    /// Authorities trusted in place of the platform's, PEM.
    pub ca: Option<Vec<u8>>,
    /// The maximum number of events in one request.
    pub batch_rows: usize,
    /// The timeout for a connection.
    pub connect: Duration,
    /// The timeout for a reply.
    pub answer: Duration,
    /// The folder with the receiver's watermarks.
    pub folder: PathBuf,
}

/// Posts rows to a receiver.
pub(crate) struct BillingEvents {
    client: WebClient,
    authorization: Option<HeaderValue>,
    signer: WebhookSigner,
    progress: EventWatermarks,
    settings: EventsSettings,
}

/// Why the settings of events cannot be used. The texts contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventsError {
    /// The trusted authorities cannot be used.
    #[error("[log.events] ca_file: {0}")]
    Roots(#[from] RootsError),
    /// The secret cannot sign.
    #[error("[log.events] secret: {0}")]
    Secret(String),
    /// The value is not valid in a header.
    #[error("[log.events] authorization: the value is not valid in a header")]
    Authorization,
}

impl BillingEvents {
    /// Creates the sink without connecting.
    pub(crate) fn new(settings: EventsSettings) -> Result<Self, EventsError> {
        let limits = WebLimits {
            connect: settings.connect,
            total: Some(settings.answer),
            answer_bytes_max: ANSWER_BYTES_MAX,
            idle_max: 0,
        };
        let authorization = settings.authorization.as_ref().map(|secret| {
            let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| EventsError::Authorization)?;
            value.set_sensitive(true);
            Ok::<_, EventsError>(value)
        });
        Ok(Self {
            client: WebClient::new(settings.ca.as_deref(), limits)?,
            authorization: authorization.transpose()?,
            signer: WebhookSigner::new(&settings.secret).map_err(EventsError::Secret)?,
            progress: EventWatermarks::new(settings.folder.clone()),
            settings,
        })
    }

    async fn post(&self, batch: &Batch) -> Result<(), SinkError> {
        let body = cloud_event::batch(&self.settings.source, &batch.node, &batch.rows);
        let body =
            Bytes::from(body.map_err(|error| SinkError::Unavailable(format!("a row cannot be encoded: {error}")))?);
        let id = format!("{}-{}-{}", batch.node, batch.after, batch.upto);
        let mut request = Request::post(self.settings.url.clone())
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::USER_AGENT, USER_AGENT);
        for (name, value) in self.signer.headers(&id, clock::unix_seconds(), &body) {
            request = request.header(name, value);
        }
        let mut request = request
            .body(body)
            .map_err(|error| SinkError::Unavailable(error.to_string()))?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
        }
        let answer = self.client.send(request).await;
        let status = answer.map_err(|error| refused(&error.to_string()))?.status();
        if status.is_success() {
            return Ok(());
        }
        let what = if status == StatusCode::PAYLOAD_TOO_LARGE {
            ": lower [log.events] batch_rows"
        } else if status.is_redirection() {
            ": set url to the address that it redirects to, redirects are not followed"
        } else {
            ""
        };
        Err(refused(&format!("it answered {}{what}", status.as_u16())))
    }
}

fn refused(why: &str) -> SinkError {
    SinkError::Unavailable(format!("the receiver of [log.events] did not take the events: {why}"))
}

#[async_trait]
impl Sink for BillingEvents {
    fn name(&self) -> &'static str {
        NAME
    }

    fn batching(&self) -> BatchLimits {
        BatchLimits {
            rows_max: self.settings.batch_rows,
            linger: LINGER,
        }
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        self.progress.read(node).await
    }

    async fn append(&self, batch: &Batch) -> Result<(), SinkError> {
        let watermark = self.progress.read(&batch.node).await?;
        if watermark >= batch.upto {
            return Ok(());
        }
        if watermark != batch.after {
            return Err(SinkError::OutOfOrder { watermark });
        }
        self.post(batch).await?;
        self.progress.write(&batch.node, batch.upto).await
    }
}
