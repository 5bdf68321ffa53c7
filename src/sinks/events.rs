//! The sink for billing systems. It posts rows as signed CloudEvents to one receiver. It posts each row at least once. If the
//! response to a batch is lost, the batch is posted again, and the receiver recognises the events by their ids.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

use crate::{
    domain::{
        keys::secret::{Secret, WebhookSigner},
        ledger::{NodeId, consumption::Row},
    },
    edges::{
        clock,
        web_client::{RootsError, WebClient, WebLimits},
    },
    journal::NumberedRow,
    sinks::{Batch, BatchLimits, Linger, Sink, SinkError},
};

/// The name of this sink in metrics and messages.
pub(crate) const NAME: &str = "events";
/// The media type of a batch of events: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md>,
/// section 4. It has no `charset` parameter, because JSON is UTF-8 and receivers compare the complete value.
const CONTENT_TYPE: &str = "application/cloudevents-batch+json";
const USER_AGENT: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
/// The maximum size of the body of the receiver's response, in bytes. The body is not used.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The time for which a batch waits for further rows.
const LINGER: Linger = Linger::For(Duration::from_secs(1));

/// The settings of `[log.events]`. The secrets and files that the configuration names have already been read.
#[derive(Clone, Debug)]
pub(crate) struct EventsSettings {
    /// The receiver's URL.
    pub url: Uri,
    /// The secret with which events are signed.
    pub secret: Secret,
    /// The value of the `authorization` header. `None` if the receiver needs none.
    pub authorization: Option<Secret>,
    /// The value of the `source` attribute of all events.
    pub source: String,
    /// CA certificates in PEM that are trusted instead of the platform's. `None` for the platform's.
    pub ca: Option<Vec<u8>>,
    /// The maximum number of events in one request.
    pub batch_rows: usize,
    /// The timeout for opening a connection.
    pub connect: Duration,
    /// The timeout for a response.
    pub answer: Duration,
    /// The folder that contains the watermark of each lane.
    pub folder: PathBuf,
}

/// The sink that posts rows to the receiver of billing events.
pub(crate) struct BillingEvents {
    client: WebClient,
    authorization: Option<HeaderValue>,
    signer: WebhookSigner,
    progress: EventWatermarks,
    settings: EventsSettings,
}

/// The reason why the settings of `[log.events]` cannot be used. The messages contain no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventsError {
    /// The CA certificates in `ca_file` cannot be used.
    #[error("[log.events] ca_file cannot be used: {0}")]
    Roots(#[from] RootsError),
    /// The secret cannot be used for signatures.
    #[error("[log.events] secret cannot be used: {0}")]
    Secret(String),
    /// The value of `authorization` is not valid in a header.
    #[error("[log.events] authorization cannot be used: the value is not valid in an HTTP header")]
    Authorization,
}

impl BillingEvents {
    /// Creates the sink without connecting to the receiver.
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
        let body = cloud_events(&self.settings.source, &batch.node, &batch.rows);
        let body = Bytes::from(
            body.map_err(|error| SinkError::Unavailable(format!("cannot encode a row as an event: {error}")))?,
        );
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
            ": redirects are not followed, so set [log.events] url to the address that it redirects to"
        } else {
            ""
        };
        Err(refused(&format!("the response has status {}{what}", status.as_u16())))
    }
}

fn refused(why: &str) -> SinkError {
    SinkError::Unavailable(format!("cannot post events to the receiver of [log.events]: {why}"))
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

/// The `type` attribute of all events.
const TYPE: &str = "weir.request.billed";

/// A row as an event in the CloudEvents 1.0 format: <https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md>.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    subject: &'a str,
    time: &'a str,
    datacontenttype: &'static str,
    data: EventRow<'a>,
}

/// The data of an event: the row in the same form as in the admin API. The end of the row's request appears twice: as a number in
/// milliseconds and as a string.
#[derive(Serialize)]
struct EventRow<'a> {
    time: &'a str,
    #[serde(flatten)]
    row: &'a Row,
}

/// Encodes rows of a lane as one JSON batch of events. The id of an event consists of the lane's name and the row's number.
fn cloud_events(source: &str, node: &NodeId, rows: &[Arc<NumberedRow>]) -> Result<Vec<u8>, serde_json::Error> {
    let event = |numbered: &'_ Arc<NumberedRow>| -> serde_json::Result<Box<serde_json::value::RawValue>> {
        let time = &*time(numbered.row.time_ms);
        let event = CloudEvent {
            specversion: "1.0",
            id: format!("{node}-{}", numbered.number),
            source,
            kind: TYPE,
            subject: &numbered.row.account,
            time,
            datacontenttype: "application/json",
            data: EventRow {
                time,
                row: &numbered.row,
            },
        };
        serde_json::value::to_raw_value(&event)
    };
    let events = rows.iter().map(event).collect::<Result<Vec<_>, _>>()?;
    serde_json::to_vec(&events)
}

/// Formats the time at which the request of a row ended. Returns the Unix epoch if the time is outside the range of the calendar.
fn time(unix_ms: i64) -> String {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The watermarks of the receiver. Their folder contains one file for each lane. A file is replaced atomically.
#[derive(Clone, Debug)]
struct EventWatermarks {
    folder: PathBuf,
}

impl EventWatermarks {
    fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Reads the receiver's watermark of a lane. Returns 0 if the file is missing or damaged. In that case, all rows in the
    /// journal are posted again.
    async fn read(&self, node: &NodeId) -> Result<u64, SinkError> {
        let path = self.folder.join(node.as_str());
        self.blocking(move || match fs::read_to_string(&path) {
            Ok(text) => Ok(number(&text).unwrap_or_else(|| {
                tracing::error!(
                    path = %path.display(),
                    "cannot read a watermark of [log.events]: the file has no valid number, so all events in the journal are posted again"
                );
                0
            })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) if error.kind() == ErrorKind::InvalidData => Ok(0),
            Err(error) => Err(error),
        })
        .await
    }

    /// Writes the receiver's watermark of a lane. Returns once it is on disk.
    async fn write(&self, node: &NodeId, upto: u64) -> Result<(), SinkError> {
        let (folder, name) = (self.folder.clone(), node.as_str().to_owned());
        self.blocking(move || replace(&folder, &name, upto)).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, SinkError> {
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|error| SinkError::Unavailable(format!("{}: {error}", self.folder.display())))
    }
}

/// Parses the content of a watermark's file. Returns `None` if the content is not a number in one complete line.
fn number(text: &str) -> Option<u64> {
    text.strip_suffix('\n')?.parse().ok()
}

fn replace(folder: &Path, name: &str, upto: u64) -> io::Result<()> {
    // Writes take turns: an abandoned write still runs to its end, and would otherwise rename the partial file of the next write.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock();
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
    let partial = folder.join(format!("{name}.partial"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(&partial)?;
    file.write_all(format!("{upto}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&partial, folder.join(name))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod cloud_event_tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::sinks::contract::{BEGIN_MS, node, row};

    #[test]
    fn a_row_is_an_event_with_an_id_of_its_own_and_all_that_the_log_shows() {
        let row = row(7, BEGIN_MS);
        let rows = [8_u64, 9].map(|number| {
            Arc::new(NumberedRow {
                number,
                row: row.clone(),
            })
        });
        let mut data = serde_json::to_value(&row).unwrap();
        data["time"] = "2026-11-01T00:00:00.000Z".into();
        let body = cloud_events("weir/eu", &node(1), &rows).unwrap();
        let events: Vec<Value> = serde_json::from_slice(&body).unwrap();
        let expected = |number: u64| {
            json!({
                "specversion": "1.0",
                "id": format!("node_0000000000000001-{number}"),
                "source": "weir/eu",
                "type": "weir.request.billed",
                "subject": row.account,
                "time": "2026-11-01T00:00:00.000Z",
                "datacontenttype": "application/json",
                "data": data,
            })
        };
        assert_eq!(events, [expected(8), expected(9)]);
        assert_eq!(events[0]["data"]["cost_nano_usd"], row.cost_nano_usd.nanos());
    }

    #[test]
    fn every_moment_that_a_clock_may_say_is_written() {
        assert_eq!(time(1), "1970-01-01T00:00:00.001Z");
        assert_eq!(time(i64::MAX), time(0));
    }
}

#[cfg(test)]
mod progress_tests {
    use super::*;
    use crate::sinks::contract::node;

    #[tokio::test]
    async fn what_was_written_last_is_read_and_damage_means_from_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let progress = EventWatermarks::new(folder.path().join("events"));
        assert_eq!(progress.read(&node(1)).await, Ok(0));
        for upto in [1, u64::MAX, 7] {
            progress.write(&node(1), upto).await.unwrap();
            assert_eq!(progress.read(&node(1)).await, Ok(upto));
        }
        assert_eq!(progress.read(&node(2)).await, Ok(0));
        let file = folder.path().join("events").join(node(1).as_str());
        for damaged in [&b""[..], b"7", b"seven\n", b"\xff\n"] {
            fs::write(&file, damaged).unwrap();
            assert_eq!(progress.read(&node(1)).await, Ok(0), "{damaged:?}");
        }
    }

    #[tokio::test]
    async fn writes_that_nobody_waits_for_do_not_disturb_the_next() {
        let folder = tempfile::tempdir().unwrap();
        for upto in 0..200 {
            let write = || EventWatermarks::new(folder.path().to_owned());
            let (first, second) = (write(), write());
            let left = tokio::spawn(async move { first.write(&node(1), upto).await });
            tokio::task::yield_now().await;
            left.abort();
            assert_eq!(second.write(&node(1), upto).await, Ok(()));
        }
        assert_eq!(
            EventWatermarks::new(folder.path().to_owned()).read(&node(1)).await,
            Ok(199)
        );
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let refused = EventWatermarks::new(file).write(&node(1), 1).await.unwrap_err();
        assert!(refused.to_string().contains("file"), "{refused}");
    }
}
