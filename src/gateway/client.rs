//! The client of a forwarded request: its connection, its disconnect, its write gate, and the slots that it occupies until the
//! request ends.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
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
        meter::AnswerMeter,
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
    /// Tracks whether the client has disconnected; `None` if the answer cannot outlive the client.
    pub presence: Option<Arc<Presence>>,
    /// Delays the answer's last bytes until the state that the answer has created is recorded.
    pub write_gate: Arc<WriteGate>,
    /// Records the account that owns the state which the answer creates; `None` once all of that state is recorded.
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
        let gate = stream(session).map(|stream| Arc::clone(stream.gate()));
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
        } else if let (Some(stream), Some(presence)) = (stream(session), &self.presence) {
            stream.watch(presence);
        }
    }

    /// Whether the client has disconnected and the answer is detached.
    pub(crate) fn has_left(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// Records the end of the request. `whole` says whether the answer was read to its end.
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
    /// write gate until the state is stored, because the client's next request may follow the last bytes at once. Never waits
    /// itself.
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

    /// Records the state that is not recorded yet, when the exchange ends before the answer was read to its end.
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

/// Returns the client's connection over HTTP/1.1; `None` over HTTP/2.
fn stream(session: &Session) -> Option<&ClientStream> {
    let stream = session.downstream_session.stream()?;
    (**stream).as_any().downcast_ref()
}

/// Counts the concurrent requests of each key, for one kind of request. A key has an entry only while one of its requests runs,
/// so the number of running requests bounds the memory. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeySlots {
    taken: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// A key's slot for one request; returned on drop.
#[derive(Debug)]
#[must_use = "the slot is returned as soon as it is dropped"]
pub(crate) struct KeySlot {
    slots: KeySlots,
    key: Arc<str>,
}

impl KeySlots {
    /// Acquires one of the key's `max` slots; returns `None` if all are in use. Never waits.
    pub(crate) fn acquire(&self, key: &str, max: usize) -> Option<KeySlot> {
        let mut taken = self.taken.lock();
        let key = match taken.get_key_value(key) {
            Some((_, count)) if *count >= max => return None,
            Some((key, _)) => Arc::clone(key),
            None if max == 0 => return None,
            None => Arc::from(key),
        };
        *taken.entry(Arc::clone(&key)).or_default() += 1;
        drop(taken);
        Some(KeySlot {
            slots: self.clone(),
            key,
        })
    }

    /// The number of keys of which a slot is in use.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.taken.lock().len()
    }
}

impl Drop for KeySlot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        if let Some(count) = taken.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_limit_and_it_is_exact() {
        let slots = KeySlots::default();
        let held: Vec<KeySlot> = (0..3).map(|_| slots.acquire("a", 3).unwrap()).collect();
        assert!(slots.acquire("a", 3).is_none());
        assert!(slots.acquire("b", 3).is_some());
        assert!(
            slots.acquire("a", 4).is_some(),
            "the limit may change while places are taken"
        );
        assert!(slots.acquire("c", 0).is_none());
        drop(held);
        assert!(slots.acquire("a", 1).is_some());
    }

    #[test]
    fn nothing_is_left_of_a_key_that_is_idle() {
        let slots = KeySlots::default();
        let held: Vec<KeySlot> = (0..100)
            .filter_map(|key| slots.acquire(&format!("key{key}"), 1))
            .collect();
        assert_eq!(slots.keys(), 100);
        drop(held);
        assert_eq!(slots.keys(), 0);
    }

    #[test]
    fn threads_together_never_take_more_than_there_are() {
        let slots = KeySlots::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _held = slots.acquire("a", 2);
                        let count = slots.taken.lock().get("a").copied().unwrap_or(0);
                        assert!(count <= 2);
                    }
                });
            }
        });
        assert_eq!(slots.keys(), 0);
    }
}
