//! The state of one request that Pingora carries from hook to hook.

use std::sync::Arc;

use rand::RngExt;

use crate::{
    domain::{
        catalogue::Model,
        json_scan::Scan,
        operation::Operation,
        protocol::Protocol,
        refusal::Refusal,
        rules::{Provider, ResponseRewriter},
        secret::ServiceKey,
    },
    gateway::{
        admission::key_slots::KeySlot,
        answer::owner::Owner,
        answer::possible_error::Doubtful,
        answer::withheld_error::{ErrorAnswer, WholeError},
        attempt::attempts::Attempts,
        attempt::deadline::Watch,
        drain::InFlight,
        entry::Entry,
        gate::Gate,
        presence::Presence,
        request::gather::GatheredBody,
        request::head::QueryKeys,
        ticket::Ticket,
    },
    live::Live,
    metrics::GaugeGuard,
    sessions::Sessions,
};

/// One request and its answer: Pingora's per-request context.
#[derive(Debug)]
pub struct Exchange {
    /// The configuration that holds for this request from start to end.
    pub live: Arc<Live>,
    /// The protocol whose error form the client gets.
    pub shape: Protocol,
    /// weir's request id (`x-weir-request-id`, and in the logs).
    pub request_id: Arc<str>,
    /// Keys taken out of the query, until authentication reads them.
    pub query_keys: QueryKeys,
    /// How far the request has come. Stages only move forward.
    pub stage: Stage,
    /// The request has failed, but its client got a complete answer, so the connection can carry further requests.
    pub answered_whole: bool,
    /// Keeps the process running while the request runs.
    pub in_flight: InFlight,
}

impl Exchange {
    /// A context for a connection that has just been read from. Nothing is known of the request yet.
    pub fn begin(live: Arc<Live>, in_flight: InFlight) -> Self {
        Self {
            live,
            shape: Protocol::Responses,
            request_id: new_request_id(),
            query_keys: QueryKeys::default(),
            stage: Stage::New,
            answered_whole: false,
            in_flight,
        }
    }
}

/// A new request id: `req_` and 24 random alphanumeric characters.
fn new_request_id() -> Arc<str> {
    let random: String = rand::rng()
        .sample_iter(rand::distr::Alphanumeric)
        .take(24)
        .map(char::from)
        .collect();
    Arc::from(format!("req_{random}"))
}

/// The stages of a request.
#[derive(Debug)]
pub enum Stage {
    /// The head has not been read.
    New,
    /// Being read and checked. Nothing may be forwarded.
    Arrived(Box<Entry>),
    /// Admitted: on its way to a provider.
    Forwarding(Box<Forward>),
    /// Answered by weir itself.
    Answered,
}

/// An admitted request, with everything its attempts and its answer need. Made by admission.
#[derive(Debug)]
pub struct Forward {
    /// The right to forward and the duty to account.
    pub ticket: Ticket,
    /// The requested operation, which implies the protocol.
    pub operation: Operation,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// The configuration that holds for this request from start to end.
    pub live: Arc<Live>,
    /// The model's name as the client gave it.
    pub asked: String,
    /// The client's key; headers and queries that contain it are not forwarded.
    pub presented: ServiceKey,
    /// Records which account owns the state that the answer creates; taken once all of it is recorded.
    pub owner: Option<Owner>,
    /// Delays the answer's last bytes until that record is written.
    pub gate: Arc<Gate>,
    /// The catalogue's model for `asked`.
    pub model: Arc<Model>,
    /// Chooses provider, credential and place.
    pub attempts: Attempts,
    /// The facts read from the body, for another provider's edits.
    pub scan: Scan,
    /// The provider that the body was edited for, as an index into the route.
    pub edited_for: usize,
    /// The client's query without its key.
    pub query: Option<String>,
    /// The body. `None` once no attempt can follow.
    pub body: Option<GatheredBody>,
    /// How many bytes of the next body piece are a replay from Pingora's buffer.
    pub replay_bytes: usize,
    /// The running attempt's time limits.
    pub watch: Option<Watch>,
    /// The running attempt's answer has a head.
    pub head_seen: bool,
    /// The failed attempt is followed by another.
    pub again: bool,
    /// Edits the answer, if the provider's file says so.
    pub rewriter: Option<ResponseRewriter>,
    /// Buffers a success that may be an error in the provider's own shape.
    pub doubtful: Option<Doubtful>,
    /// An error answer being withheld until its end.
    pub error_answer: Option<ErrorAnswer>,
    /// A complete error answer, sent to the client once Pingora is done with the provider.
    pub whole_error: Option<WholeError>,
    /// A refusal decided in a hook that can only return Pingora's error type.
    pub refusal: Option<Refusal>,
    /// Counts an open stream, until dropped.
    pub stream_gauge: Option<GaugeGuard>,
    /// Set if the answer may outlive its client; knows whether the client has disconnected.
    pub presence: Option<Arc<Presence>>,
    /// The key's slot for counting tokens.
    pub count_slot: Option<KeySlot>,
}

impl Forward {
    /// The current provider.
    pub fn provider(&self) -> &Provider {
        &self.attempts.leg().provider
    }

    /// Whether the client has disconnected and the answer is read without it.
    pub fn is_unattended(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// Called before a piece of the answer, or its end, goes to the client. Records the state that the answer has
    /// created, and shuts the gate before the last bytes until that is written, because the client's next request may
    /// come as soon as it has them. Never waits itself.
    pub fn remember(&mut self, sessions: &Sessions, end: bool) {
        let (attempts, meter) = (&self.attempts, &self.ticket.meter);
        if !end && !meter.has_named_all() {
            if let Some(owner) = &mut self.owner {
                owner.look(sessions, attempts, meter);
            }
        } else if let Some(mut owner) = self.owner.take() {
            owner.remember(sessions, attempts, meter);
            owner.keep_back(sessions, &self.gate, self.live.config.gateway.write);
        }
    }

    /// Records the rest when the exchange ends before the answer was read to its end.
    pub fn remember_rest(&mut self, sessions: &Sessions) {
        if let Some(mut owner) = self.owner.take() {
            owner.remember(sessions, &self.attempts, &self.ticket.meter);
        }
    }
}

impl Exchange {
    /// The admitted request; `None` in any other stage.
    pub fn forward(&mut self) -> Option<&mut Forward> {
        match &mut self.stage {
            Stage::Forwarding(forward) => Some(forward),
            Stage::New | Stage::Arrived(_) | Stage::Answered => None,
        }
    }
}
