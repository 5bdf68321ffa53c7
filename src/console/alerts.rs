//! Fetches the alerts of Prometheus. All users who view them at about the same time share one response.

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

use crate::edges::web_client::{RootsError, WebClient, WebLimits, roots_with_platform};

/// The limits of a request to Prometheus.
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(2),
    total: Some(Duration::from_secs(2)),
    answer_bytes_max: 1024 * 1024,
    idle_max: 0,
};
/// How long a response or a failure is shared, from the time of the request. This is longer than either takes, so that not every
/// user waits for an unreachable Prometheus.
const SHARED_FOR: Duration = Duration::from_secs(3);

/// A client of Prometheus that fetches its alerts.
pub(crate) struct Alerts {
    client: WebClient,
    address: String,
    last: Mutex<Option<(Instant, AlertsReply)>>,
}

/// Resolves to the alerts, the most severe first, or to the reason why they are not known. It takes at most the timeout of a
/// request.
pub(crate) type AlertsReply = Shared<BoxFuture<'static, Arc<Result<Vec<Alert>, String>>>>;

/// An alert whose condition holds.
#[derive(Debug, Deserialize)]
pub(crate) struct Alert {
    pub(super) labels: AlertLabels,
    #[serde(default)]
    pub(super) annotations: AlertAnnotations,
    pub(super) state: AlertState,
    /// The time since which the alert's condition has held.
    #[serde(rename = "activeAt")]
    pub(super) since: Timestamp,
}

/// The labels of an alert that weir uses. The alerting rules set them.
#[derive(Debug, Deserialize)]
pub(super) struct AlertLabels {
    pub(super) alertname: String,
    #[serde(default)]
    severity: String,
}

/// The texts of an alert that weir uses. The alerting rules set them.
#[derive(Debug, Default, Deserialize)]
pub(super) struct AlertAnnotations {
    #[serde(default)]
    pub(super) summary: String,
}

/// Whether an alert's condition has held for as long as its rule requires (firing) or not yet (pending).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AlertState {
    Firing,
    Pending,
    #[serde(other)]
    Inactive,
}

#[derive(Deserialize)]
struct PrometheusAlerts {
    data: PrometheusAlertData,
}

#[derive(Deserialize)]
struct PrometheusAlertData {
    alerts: Vec<Alert>,
}

impl Alerts {
    /// Creates a client of the Prometheus at this URL. Trusts the platform's CA certificates and those in `ca`, the content of a
    /// PEM file.
    ///
    /// # Errors
    /// There are no usable CA certificates.
    pub(crate) fn new(prometheus: &Uri, ca: Option<&[u8]>) -> Result<Self, RootsError> {
        Ok(Self {
            client: WebClient::with_roots(roots_with_platform(ca)?, LIMITS)?,
            address: format!("{}/api/v1/alerts", prometheus.to_string().trim_end_matches('/')),
            last: Mutex::default(),
        })
    }

    /// Returns a future that resolves to the current alerts.
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
        return Err(format!("it responded with status {}", status.as_u16()));
    }
    let reply: Result<PrometheusAlerts, _> = serde_json::from_slice(body);
    let mut alerts = reply
        .map_err(|_| "its response is not a list of alerts".to_owned())?
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
