//! The client of a forwarded request: its connection, its disconnect, its write gate, and the slots held until the request ends.

use std::{sync::Arc, time::Duration};

use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;
use tokio::sync::Semaphore;

use crate::{
    domain::{
        keys::key::KeyRecord,
        rules::{ClientGoneAction, Provider},
        wire::session_hint,
    },
    front::ClientTimes,
    gateway::{
        attempt::attempts::AttemptPlan,
        client_h2::ClientH2,
        client_stream::ClientStream,
        meter::AnswerMeter,
        parts::KeySlot,
        presence::{DetachLimits, Presence},
        provider_state::{StateRecorder, WriteGate},
        request::Request,
    },
    providers::sessions::StateRegistry,
    telemetry::metrics::{GaugeGuard, Metrics},
};

/// The client of one request.
#[derive(Debug)]
pub(crate) struct Client {
    /// Set if the answer may outlive its client; tracks whether the client has disconnected.
    pub presence: Option<Arc<Presence>>,
    /// Delays the answer's last bytes until the state that it has created is recorded.
    pub write_gate: Arc<WriteGate>,
    /// Records the account that owns the state which the answer creates; taken out once all of it is recorded.
    recorder: Option<StateRecorder>,
    /// Counts an open stream, until dropped.
    #[expect(dead_code, reason = "held until the request ends")]
    stream_gauge: Option<GaugeGuard>,
    /// The key's slot for counting tokens.
    #[expect(dead_code, reason = "held until the request ends")]
    count_slot: Option<KeySlot>,
}

impl Client {
    /// The client of a request. [`Client::connect`] connects its connection later.
    pub(crate) fn new(
        metrics: &Metrics,
        session: &Session,
        request: &Request,
        key: Arc<KeyRecord>,
        count_slot: Option<KeySlot>,
    ) -> Self {
        let is_kept = session_hint::is_answer_kept(request.operation.protocol(), &request.scan);
        // Over HTTP/2 each request has a gate of its own.
        let gate = stream(session).map(|stream| Arc::clone(stream.gate()));
        Self {
            write_gate: gate.unwrap_or_default(),
            presence: None,
            recorder: Some(StateRecorder::new(key, is_kept)),
            stream_gauge: request.stream.then(|| metrics.requests.streams_open.guard()),
            count_slot,
        }
    }

    /// Connects the client's connection to its request. The file of `provider`, the first one, decides whether the request may
    /// outlive the client. `finishing` limits the detached answers.
    pub(crate) fn connect(
        &mut self,
        session: &mut Session,
        (finishing, metrics): (&Arc<Semaphore>, &Arc<Metrics>),
        request: &Request,
        provider: &Provider,
    ) {
        self.presence = presence(finishing, metrics, request, provider);
        if session.is_http2() {
            let nobody = ServerSession::new_custom(Box::new(()));
            *session.downstream_session = match std::mem::replace(&mut *session.downstream_session, nobody) {
                ServerSession::H2(h2) => {
                    let (presence, gate) = (self.presence.clone(), Arc::clone(&self.write_gate));
                    let times = ClientTimes::new(&request.live.config.gateway);
                    ServerSession::new_custom(Box::new(ClientH2::new(h2, presence, gate, times)))
                }
                other => other,
            };
        } else if let (Some(stream), Some(presence)) = (stream(session), &self.presence) {
            stream.watch(presence);
        }
    }

    /// Whether the client has disconnected and the answer is detached.
    pub(crate) fn has_left(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// Ends the request. `whole` says whether its answer was read to its end.
    pub(crate) fn close(&self, whole: bool) {
        if let Some(presence) = &self.presence {
            presence.close(whole);
        }
    }

    /// Records the state that the answer has created so far.
    pub(crate) fn record_state(&mut self, sessions: &StateRegistry, attempts: &AttemptPlan, meter: &AnswerMeter) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(sessions, attempts, meter);
        }
    }

    /// Called before the last bytes of the answer go to the client: records the state that it has created, and shuts the gate
    /// until that is written, because the client's next request may follow those bytes at once. Never waits itself.
    pub(crate) fn record_last(
        &mut self,
        sessions: &StateRegistry,
        attempts: &AttemptPlan,
        meter: &AnswerMeter,
        write_limit: Duration,
    ) {
        if let Some(mut recorder) = self.recorder.take() {
            recorder.record(sessions, attempts, meter);
            recorder.delay_end(sessions, &self.write_gate, write_limit);
        }
    }

    /// Records the remaining state when the exchange ends before the answer was read to its end.
    pub(crate) fn record_rest(&mut self, sessions: &StateRegistry, attempts: &AttemptPlan, meter: &AnswerMeter) {
        if let Some(mut recorder) = self.recorder.take() {
            recorder.record(sessions, attempts, meter);
        }
    }
}

/// Lets the request outlive its client, if the provider's file says so or the model requires it. A token count never does: it is
/// free and creates no state.
fn presence(
    finishing: &Arc<Semaphore>,
    metrics: &Arc<Metrics>,
    request: &Request,
    provider: &Provider,
) -> Option<Arc<Presence>> {
    let action = provider
        .on_client_gone
        .action(request.stream, request.model.hidden_reasoning);
    if request.operation.is_token_count() || action == ClientGoneAction::Abort {
        return None;
    }
    let terms = DetachLimits {
        stream: request.stream,
        finish: request.live.config.upstream.client_gone_finish,
    };
    Some(Presence::new(terms, Arc::clone(finishing), Arc::clone(metrics)))
}

/// The client's connection over HTTP/1.1.
fn stream(session: &Session) -> Option<&ClientStream> {
    let stream = session.downstream_session.stream()?;
    (**stream).as_any().downcast_ref()
}
