//! Events for billing systems: rows are posted as CloudEvents, signed, to one receiver. Each at least once: a receiver that
//! has taken a batch without weir hearing of it gets it again, and knows its events by their ids.

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
        keys::{secret::Secret, webhook_signature::Signer},
        ledger::NodeId,
    },
    edges::{
        clock,
        roots::RootsError,
        web_client::{WebClient, WebLimits},
    },
    sinks::{
        batching::{Batching, Linger},
        events::progress::Progress,
        sink::{Batch, Sink, SinkError},
    },
};

/// The name of the sink.
pub(crate) const NAME: &str = "events";
/// The media type of a batch: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>, section 4. It has
/// no parameter: JSON is UTF-8, and receivers compare the whole value.
const CONTENT_TYPE: &str = "application/cloudevents-batch+json";
const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
/// Nothing of an answer's body is of use; one that has more than this is cut off.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long rows are gathered.
const LINGER: Linger = Linger::For(Duration::from_secs(1));

/// `[log.events]`, with secrets and files read.
#[derive(Clone, Debug)]
pub(crate) struct EventsSettings {
    /// Where events are posted to.
    pub url: Uri,
    /// What they are signed with.
    pub secret: Secret,
    /// The value of the `authorization` header, if the receiver wants one.
    pub authorization: Option<Secret>,
    /// The events' `source`.
    pub source: String,
    /// Authorities trusted in place of the platform's, PEM.
    pub ca: Option<Vec<u8>>,
    /// The most events of one request.
    pub batch_rows: usize,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for an answer.
    pub answer: Duration,
    /// The folder with the files that say how far the receiver is.
    pub folder: PathBuf,
}

/// Posts rows to a receiver.
pub(crate) struct Events {
    client: WebClient,
    authorization: Option<HeaderValue>,
    signer: Signer,
    progress: Progress,
    settings: EventsSettings,
}

/// Why events cannot be posted. The texts have nothing of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventsError {
    /// There is nobody to trust.
    #[error("[log.events] ca_file: {0}")]
    Roots(#[from] RootsError),
    /// It is none to sign with.
    #[error("[log.events] secret: {0}")]
    Secret(String),
    /// The text is no header's value.
    #[error("[log.events] authorization: what it names cannot be the value of a header")]
    Authorization,
}

impl Events {
    /// Connects nowhere yet.
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
            signer: Signer::new(&settings.secret).map_err(EventsError::Secret)?,
            progress: Progress::new(settings.folder.clone()),
            settings,
        })
    }

    async fn post(&self, batch: &Batch) -> Result<(), SinkError> {
        let body = cloud_event::batch(&self.settings.source, &batch.node, &batch.rows);
        let body = Bytes::from(body.map_err(|error| SinkError::Unavailable(format!("a row is no JSON: {error}")))?);
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
            ": name the address that it points to, redirects are not followed"
        } else {
            ""
        };
        Err(refused(&format!("it answers {}{what}", status.as_u16())))
    }
}

fn refused(why: &str) -> SinkError {
    SinkError::Unavailable(format!("the receiver of [log.events] has no events: {why}"))
}

#[async_trait]
impl Sink for Events {
    fn name(&self) -> &'static str {
        NAME
    }

    fn batching(&self) -> Batching {
        Batching {
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
