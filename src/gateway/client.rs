//! The client of a forwarded request: its connection, its disconnect, its write gate, and the slots that it occupies until the
//! request ends.

use std::{sync::Arc, time::Duration};

use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;
use tokio::sync::Semaphore;

use crate::{
    domain::{
        keys::KeyRecord,
        rules::{ClientGoneAction, Provider},
        wire::session_hint,
    },
    front::ClientTimes,
    gateway::{
        attempt::attempts::AttemptPlan,
        client_h2::ClientH2,
        client_stream::ClientStream,
        key_slots::KeySlot,
        meter::AnswerMeter,
        presence::{DetachLimits, Presence},
        provider_state::{StateRecorder, WriteGate},
        request::Request,
        turn_link::turn_link,
    },
    providers::sessions::StateRegistry,
    telemetry::metrics::{GaugeGuard, Metrics},
};

/// The client of one request.
#[derive(Debug)]
pub(crate) struct Client {
    /// Tracks whether the client has disconnected; `None` if the answer cannot outlive the client.
    pub presence: Option<Arc<Presence>>,
    /// Delays the answer's last bytes until the state that the answer has created is recorded.
    pub write_gate: Arc<WriteGate>,
    /// Records which account owns the state that the answer creates; `None` once all of that state is recorded.
    recorder: Option<StateRecorder>,
    /// Counts the answer as an open stream until dropped; `None` for a non-streaming answer.
    #[expect(dead_code, reason = "held until the request ends")]
    stream_gauge: Option<GaugeGuard>,
    /// The key's slot for a token count; `None` for other operations.
    #[expect(dead_code, reason = "held until the request ends")]
    count_slot: Option<KeySlot>,
}

impl Client {
    /// Creates the client of a request. [`Client::connect`] adds the connection later.
    pub(crate) fn new(
        metrics: &Metrics,
        session: &Session,
        request: &Request,
        key: Arc<KeyRecord>,
        count_slot: Option<KeySlot>,
    ) -> Self {
        let is_kept = session_hint::is_answer_kept(request.operation.protocol(), &request.scan);
        // Over HTTP/2, each request has a write gate of its own.
        let of_turn = || turn_link(session).map(|link| Arc::clone(link.gate()));
        let gate = stream(session).map(|stream| Arc::clone(stream.gate())).or_else(of_turn);
        Self {
            write_gate: gate.unwrap_or_default(),
            presence: None,
            recorder: Some(StateRecorder::new(key, is_kept)),
            stream_gauge: request.stream.then(|| metrics.requests.streams_open.guard()),
            count_slot,
        }
    }

    /// Connects the request to its client's connection. The file of `provider`, which is the first provider, decides whether the
    /// request may outlive the client. `finishing` limits the number of detached answers.
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
        } else if let Some(presence) = &self.presence {
            if let Some(link) = turn_link(session) {
                link.watch(presence);
            } else if let Some(stream) = stream(session) {
                stream.watch(presence);
            }
        }
    }

    /// Whether the client has disconnected and the answer is detached.
    pub(crate) fn has_left(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// Records the end of the request. `whole` says whether the complete answer was read.
    pub(crate) fn close(&self, whole: bool) {
        if let Some(presence) = &self.presence {
            presence.close(whole);
        }
    }

    /// Records the provider state that the answer has created so far.
    pub(crate) fn record_state(&mut self, sessions: &StateRegistry, attempts: &AttemptPlan, meter: &AnswerMeter) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record(sessions, attempts, meter);
        }
    }

    /// Called before the client gets the last bytes of the answer. Records the state that the answer has created, and shuts the
    /// write gate until the state is stored, because the client's next request may follow the last bytes at once. This function
    /// itself never waits.
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

    /// Records the state that is not recorded yet. Called when the exchange ends before the complete answer was read.
    pub(crate) fn record_rest(&mut self, sessions: &StateRegistry, attempts: &AttemptPlan, meter: &AnswerMeter) {
        if let Some(mut recorder) = self.recorder.take() {
            recorder.record(sessions, attempts, meter);
        }
    }
}

/// Returns the presence that lets the request outlive its client, if the provider's file says so or the model requires it; `None`
/// otherwise. A token count never outlives its client, because it is free and creates no state.
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

/// Returns the client's connection over HTTP/1.1; `None` over HTTP/2 and on a socket.
fn stream(session: &Session) -> Option<&ClientStream> {
    let stream = session.downstream_session.stream()?;
    (**stream).as_any().downcast_ref()
}
