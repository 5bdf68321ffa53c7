//! The listeners other than the gateway's: the operators' endpoints, the public stability service, the redirect to HTTPS and the
//! admin API. This file has the handlers of the operators' endpoints and the public stability service.

pub(crate) mod admin;
pub(crate) mod connection;
pub(crate) mod service;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use async_trait::async_trait;
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{Method, header};
use pingora::{
    Result,
    apps::{HttpServerApp, ReusedHttpStream},
    http::ResponseHeader,
    protocols::http::{HttpTask, ServerSession},
    server::ShutdownWatch,
};
use serde::Serialize;

use crate::{
    edges::clock,
    front::Handler,
    journal::JournalUnavailable,
    stability::public::{PublicRequest, PublicResponse, PublicService},
    store::{
        StoreTrouble,
        time::{self, StoreTime},
    },
    telemetry::metrics::{self, Metrics},
};

/// Serves connections to the listener of the public stability service. An unknown path gets status 404 in the service's format.
pub(crate) struct PublicHandler {
    app: Arc<PublicApp>,
}

impl PublicHandler {
    /// Creates the handler of the service `public`. All listeners of the service use this handler.
    pub(crate) fn new(public: Arc<PublicService>, time: Arc<StoreTime>) -> Self {
        Self {
            app: Arc::new(PublicApp { public, time }),
        }
    }
}

impl Handler for PublicHandler {
    type App = PublicApp;
    type Visit = ();

    fn app(&self) -> &Arc<PublicApp> {
        &self.app
    }

    fn on_connection(&self) {}
}

/// Answers the requests that Pingora has read.
pub(crate) struct PublicApp {
    public: Arc<PublicService>,
    time: Arc<StoreTime>,
}

#[async_trait]
impl HttpServerApp for PublicApp {
    // Errors of a connection are ignored, because the client notices them and they are not weir's faults.
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        if *shutdown.borrow() {
            session.set_keepalive(None);
        }
        let answer = self.answer(&session);
        write_response(&mut session, answer).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}

impl PublicApp {
    fn answer(&self, session: &ServerSession) -> PublicResponse {
        let (now, head) = (clock::instant(), session.req_header());
        let peer = session.client_addr().and_then(|address| address.as_inet());
        let ask = PublicRequest {
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query(),
            headers: &head.headers,
            peer: peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip()),
            now_ms: self.time.now_ms(now),
            now,
        };
        self.public.answer(&ask).unwrap_or_else(PublicService::not_found)
    }
}

/// Writes an answer. For a HEAD request, the body is left out, but the header still has the body's length.
pub(crate) async fn write_response(session: &mut ServerSession, answer: PublicResponse) -> Result<()> {
    let mut head = ResponseHeader::build(answer.status, Some(answer.headers.len() + 2))?;
    for (name, value) in &answer.headers {
        head.append_header(name, value)?;
    }
    if answer.has_body() {
        head.insert_header(header::CONTENT_LENGTH, answer.body.len())?;
    }
    let is_bare = !answer.has_body() || answer.body.is_empty() || session.req_header().method == Method::HEAD;
    let mut tasks = vec![HttpTask::Header(Box::new(head), is_bare)];
    if !is_bare {
        tasks.push(HttpTask::Body(Some(answer.body), true));
    }
    session.response_duplex_vec(tasks).await?;
    Ok(())
}

/// The sources of the data that the operators' endpoints return.
#[derive(Clone)]
pub(crate) struct OpsState {
    /// The metrics that `/metrics` returns.
    pub metrics: Arc<Metrics>,
    /// The source of the readiness that `/readyz` returns. It is called for each request.
    pub ready: ReadinessSource,
}

/// A function that returns the current readiness of this node. It must not block.
pub(crate) type ReadinessSource = Arc<dyn Fn() -> Readiness + Send + Sync>;

/// The facts that decide whether new requests should be sent to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// Whether the store answers, so that keys can be verified.
    pub store_reachable: bool,
    /// The problems that limit what the store can do.
    pub store_trouble: StoreTrouble,
    /// Whether weir's user in the store lacks rights that weir needs.
    pub store_rights_missing: bool,
    /// Whether the store has evicted data.
    pub store_evicted: bool,
    /// Whether this node admits recently used keys by grace while the store is unreachable or refuses calls.
    pub serves_on_grace: bool,
    /// The reason why the journal cannot be written. `None` if the journal can be written.
    pub journal: Option<JournalUnavailable>,
    /// Whether the admin socket accepts connections.
    pub admin_listening: bool,
    /// The number of enabled providers that have a credential. If it is 0, every request is refused.
    pub providers_on: usize,
    /// Whether the process is draining: it finishes its requests and ends.
    pub draining: bool,
    /// The time by which this node's clock is ahead of the store's clock, in milliseconds. `None` if it is not known.
    pub clock_offset_ms: Option<i64>,
}

impl Readiness {
    /// Returns the names of the reasons why no new requests should be sent to this node. Empty if this node is ready. The names
    /// are stable, because scripts depend on them.
    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        let journal = self.journal.as_ref().map(|shut| match shut {
            JournalUnavailable::Full(_) => "journal_full",
            JournalUnavailable::Failed => "journal_failed",
            JournalUnavailable::Gone(_) => "journal_gone",
        });
        let checks = [
            (!self.store_reachable && !self.serves_on_grace, "store_unreachable"),
            (self.store_trouble.refused && !self.serves_on_grace, "store_refused"),
            (!self.admin_listening, "admin_not_listening"),
            (self.providers_on == 0, "no_provider_on"),
            (self.draining, "draining"),
        ];
        let holding = checks.into_iter().filter_map(|(holds, reason)| holds.then_some(reason));
        holding.chain(journal).collect()
    }

    /// Returns the names of problems that an operator should fix although requests are served. The names are stable, because
    /// scripts depend on them.
    pub(crate) fn warnings(&self) -> Vec<&'static str> {
        let checks = [
            (
                !self.store_reachable && self.serves_on_grace,
                "store_unreachable_on_grace",
            ),
            (
                self.store_trouble.refused && self.serves_on_grace,
                "store_refused_on_grace",
            ),
            (self.clock_offset_ms.is_some_and(time::is_off), "clock_off"),
            (self.store_rights_missing, "store_rights_missing"),
            (self.store_evicted, "store_evicted"),
        ];
        checks
            .into_iter()
            .filter_map(|(holds, warning)| holds.then_some(warning))
            .collect()
    }

    /// Returns a sentence for each problem. The sentence describes the problem. It also says where the problem is and what to do,
    /// if this is known.
    pub(crate) fn details(&self) -> Vec<String> {
        let of_store = self.store_trouble.details.iter().cloned();
        let is_unexplained = !self.store_reachable && self.store_trouble.details.is_empty();
        let unexplained = is_unexplained.then(|| NO_ANSWER.to_owned());
        of_store
            .chain(unexplained)
            .chain(self.journal.as_ref().map(ToString::to_string))
            .collect()
    }
}

/// The text in `details` if the store is connected but keys cannot be looked up in it.
const NO_ANSWER: &str =
    "no key can be looked up in the store: run `weir store init` if it is a new Redis, otherwise see weir's log";

#[derive(Serialize)]
struct ReadyReply {
    ready: bool,
    reasons: Vec<&'static str>,
    warnings: Vec<&'static str>,
    /// One sentence for each problem. The sentence describes the problem. It also says where the problem is and what to do, if
    /// this is known.
    details: Vec<String>,
    /// The time by which this node's clock is ahead of the store's clock, in seconds; `null` if it is not known.
    clock_offset_seconds: Option<i64>,
}

/// The body of the answer for an unknown path.
const UNKNOWN_PATH: &str = "There is nothing at this path. The paths are /metrics, /livez and /readyz.\n";

/// Creates the router of the operators' endpoints `/metrics`, `/livez` and `/readyz`. The endpoints have no authentication; by
/// default, their listener is bound to the loopback address.
pub(crate) fn ops_router(state: OpsState) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(readiness))
        .fallback(async || (StatusCode::NOT_FOUND, UNKNOWN_PATH))
        .with_state(state)
}

async fn scrape(State(state): State<OpsState>) -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], state.metrics.render()).into_response()
}

async fn readiness(State(state): State<OpsState>) -> Response {
    let readiness = (state.ready)();
    let reasons = readiness.reasons();
    let ready = reasons.is_empty();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let reply = ReadyReply {
        ready,
        reasons,
        warnings: readiness.warnings(),
        details: readiness.details(),
        clock_offset_seconds: readiness.clock_offset_ms.map(|offset| offset / 1000),
    };
    (status, Json(reply)).into_response()
}

#[cfg(test)]
mod tests {
    use tower_service::Service;

    use super::*;

    const WELL: Readiness = Readiness {
        store_reachable: true,
        store_trouble: StoreTrouble {
            refused: false,
            details: Vec::new(),
        },
        store_rights_missing: false,
        store_evicted: false,
        serves_on_grace: false,
        journal: None,
        admin_listening: true,
        providers_on: 1,
        draining: false,
        clock_offset_ms: Some(-1_200),
    };

    fn state(ready: Readiness) -> State<OpsState> {
        State(OpsState {
            metrics: Arc::new(Metrics::new(&[], &[]).expect("the definitions are right")),
            ready: Arc::new(move || ready.clone()),
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
        let expected = r#"{"ready":true,"reasons":[],"warnings":[],"details":[],"clock_offset_seconds":-1}"#;
        assert_eq!(text(response).await, expected);
    }

    #[tokio::test]
    async fn a_clock_that_is_off_is_told_and_keeps_nobody_away() {
        let ahead = Readiness {
            clock_offset_ms: Some(86_400_000),
            ..WELL
        };
        let response = readiness(state(ahead)).await;
        assert_eq!(response.status(), StatusCode::OK);
        let expected =
            r#"{"ready":true,"reasons":[],"warnings":["clock_off"],"details":[],"clock_offset_seconds":86400}"#;
        assert_eq!(text(response).await, expected);
    }

    #[tokio::test]
    async fn a_node_that_serves_on_grace_is_ready_and_says_so() {
        let alone = Readiness {
            store_reachable: false,
            serves_on_grace: true,
            ..WELL
        };
        let response = readiness(state(alone)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert!(
            text(response)
                .await
                .contains(r#""warnings":["store_unreachable_on_grace"]"#)
        );
    }

    #[test]
    fn each_trouble_of_the_journal_has_its_word() {
        let reasons = |shut| {
            let journal = Some(shut);
            Readiness { journal, ..WELL }.reasons()
        };
        assert_eq!(reasons(JournalUnavailable::Failed), ["journal_failed"]);
        assert_eq!(reasons(JournalUnavailable::Gone("/journal".into())), ["journal_gone"]);
    }

    #[tokio::test]
    async fn every_reason_against_is_named() {
        let nothing = Readiness {
            store_reachable: false,
            store_trouble: StoreTrouble {
                refused: true,
                details: vec!["redis at h:1: user \"weir\" may not run \"get\": grant +get".to_owned()],
            },
            store_rights_missing: true,
            store_evicted: true,
            serves_on_grace: false,
            journal: Some(JournalUnavailable::Full("the disk is full".to_owned())),
            admin_listening: false,
            providers_on: 0,
            draining: true,
            clock_offset_ms: None,
        };
        let response = readiness(state(nothing)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let expected = concat!(
            r#"{"ready":false,"reasons":["store_unreachable","store_refused","admin_not_listening","no_provider_on","#,
            r#""draining","journal_full"],"warnings":["store_rights_missing","store_evicted"],"#,
            r#""details":["redis at h:1: user \"weir\" may not run \"get\": grant +get","#,
            r#""the journal has no room: the disk is full; no request is served until the journal has room again, so free some space on its disk"],"#,
            r#""clock_offset_seconds":null}"#
        );
        assert_eq!(text(response).await, expected);
    }

    #[tokio::test]
    async fn another_path_is_answered_with_the_three_that_exist() {
        let State(ops) = state(WELL);
        let request = http::Request::get("/").body(axum::body::Body::empty());
        let response = ops_router(ops).call(request.expect("a request")).await;
        let response = response.expect("the router always answers");
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let said = text(response).await;
        for path in ["/metrics", "/livez", "/readyz"] {
            assert!(said.contains(path), "{said}");
        }
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
