//! The alerts of Prometheus. All viewers of a moment share one answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, StatusCode, Uri, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::edges::{
    roots::{RootsError, roots_besides_platform},
    web_client::{WebClient, WebLimits},
};

/// How long an answer may take, and how large it may be.
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(2),
    total: Some(Duration::from_secs(2)),
    answer_bytes_max: 1024 * 1024,
    idle_max: 0,
};
/// How long an answer or its failure is shared after it was asked for: longer than either takes, so that not every viewer waits for
/// a Prometheus that is away.
const SHARED_FOR: Duration = Duration::from_secs(3);

/// Prometheus, to be asked for its alerts.
pub(crate) struct Alerts {
    client: WebClient,
    address: String,
    last: Mutex<Option<(Instant, AlertsReply)>>,
}

/// The alerts, the gravest first, or why they are not known; once Prometheus has answered or its time is over.
pub(crate) type AlertsReply = Shared<BoxFuture<'static, Arc<Result<Vec<Alert>, String>>>>;

/// An alert that is pending or firing.
#[derive(Debug, Deserialize)]
pub(crate) struct Alert {
    pub(super) labels: Labels,
    #[serde(default)]
    pub(super) annotations: Annotations,
    pub(super) state: AlertState,
    /// Since when its condition has held.
    #[serde(rename = "activeAt")]
    pub(super) since: Timestamp,
}

/// The labels that the rules give to each alert.
#[derive(Debug, Deserialize)]
pub(super) struct Labels {
    pub(super) alertname: String,
    #[serde(default)]
    severity: String,
}

/// The words of the rules for an alert.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Annotations {
    #[serde(default)]
    pub(super) summary: String,
}

/// Whether a condition has lasted for the time that its rule waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AlertState {
    Firing,
    Pending,
    #[serde(other)]
    Inactive,
}

#[derive(Deserialize)]
struct Reply {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    alerts: Vec<Alert>,
}

impl Alerts {
    /// The alerts of the Prometheus at this address, trusting the platform's authorities and those in a PEM file's content.
    ///
    /// # Errors
    /// There is nobody to trust.
    pub(crate) fn new(prometheus: &Uri, ca: Option<&[u8]>) -> Result<Self, RootsError> {
        Ok(Self {
            client: WebClient::trusting(roots_besides_platform(ca)?, LIMITS)?,
            address: format!("{}/api/v1/alerts", prometheus.to_string().trim_end_matches('/')),
            last: Mutex::default(),
        })
    }

    /// The alerts of this moment.
    pub(crate) fn read(&self, now: Instant) -> AlertsReply {
        let mut last = self.last.lock();
        if let Some((asked, reply)) = &*last
            && now.saturating_duration_since(*asked) < SHARED_FOR
        {
            return reply.clone();
        }
        let reply = fetch(self.client.clone(), self.address.clone());
        let reply = reply.map(Arc::new).boxed().shared();
        *last = Some((now, reply.clone()));
        reply
    }
}

async fn fetch(client: WebClient, address: String) -> Result<Vec<Alert>, String> {
    let request = Request::get(address).header(header::ACCEPT, "application/json");
    let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    parse(answer.status(), answer.body())
}

fn parse(status: StatusCode, body: &[u8]) -> Result<Vec<Alert>, String> {
    if status != StatusCode::OK {
        return Err(format!("it answers {}", status.as_u16()));
    }
    let reply: Result<Reply, _> = serde_json::from_slice(body);
    let mut alerts = reply
        .map_err(|_| "its answer is not a list of alerts".to_owned())?
        .data
        .alerts;
    alerts.retain(|alert| alert.state != AlertState::Inactive);
    alerts.sort_by_cached_key(|alert| {
        let is_lesser = alert.labels.severity != "critical";
        (alert.state, is_lesser, alert.labels.alertname.clone(), alert.since)
    });
    Ok(alerts)
}

#[cfg(test)]
mod tests;
