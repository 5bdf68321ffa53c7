//! What operators' machines ask: `/metrics`, `/livez`, `/readyz`. Bound to loopback by default, without credentials.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::metrics::{self, Metrics};

/// What the endpoints show.
#[derive(Clone)]
pub struct OpsState {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// For `/readyz`; called per request, must not wait.
    pub ready: Arc<dyn Fn() -> Readiness + Send + Sync>,
}

/// What must hold for new requests to be sent here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// The store answers: keys can be checked.
    pub store_reachable: bool,
    /// How many providers have a credential and are enabled; 0 means that every request would be refused.
    pub providers_on: usize,
    /// The process is about to end and finishes what it has.
    pub draining: bool,
}

impl Readiness {
    /// Why no new requests should come; empty when all is well. The words are stable, for scripts.
    pub fn reasons(&self) -> Vec<&'static str> {
        let checks = [
            (!self.store_reachable, "store_unreachable"),
            (self.providers_on == 0, "no_provider_on"),
            (self.draining, "draining"),
        ];
        checks
            .into_iter()
            .filter_map(|(holds, reason)| holds.then_some(reason))
            .collect()
    }
}

#[derive(Serialize)]
struct ReadyReply {
    ready: bool,
    reasons: Vec<&'static str>,
}

/// The three endpoints.
pub fn router(state: OpsState) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(readiness))
        .with_state(state)
}

async fn scrape(State(state): State<OpsState>) -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], state.metrics.render()).into_response()
}

async fn readiness(State(state): State<OpsState>) -> Response {
    let reasons = (state.ready)().reasons();
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(ReadyReply { ready, reasons })).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Readiness = Readiness {
        store_reachable: true,
        providers_on: 1,
        draining: false,
    };

    fn state(ready: Readiness) -> State<OpsState> {
        State(OpsState {
            metrics: Arc::new(Metrics::new(&[], &[]).expect("the definitions are right")),
            ready: Arc::new(move || ready),
        })
    }

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .expect("a body");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn ready_when_everything_holds() {
        let response = readiness(state(WELL)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(text(response).await, r#"{"ready":true,"reasons":[]}"#);
    }

    #[tokio::test]
    async fn every_reason_against_is_named() {
        let nothing = Readiness {
            store_reachable: false,
            providers_on: 0,
            draining: true,
        };
        let response = readiness(state(nothing)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let expected = r#"{"ready":false,"reasons":["store_unreachable","no_provider_on","draining"]}"#;
        assert_eq!(text(response).await, expected);
    }

    #[tokio::test]
    async fn metrics_have_the_type_that_prometheus_asks_for() {
        let response = scrape(state(WELL)).await;
        let kind = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(text(response).await.contains("weir_build_info"));
    }
}
