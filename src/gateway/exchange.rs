//! One request and its answer: the state that Pingora carries from hook to hook. It only moves forward.

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
        attempts::Attempts,
        body::GatheredBody,
        deadline::Watch,
        doubtful::Doubtful,
        drain::InFlight,
        entry::Entry,
        error_answer::{ErrorAnswer, WholeError},
        gate::Gate,
        intake::QueryKeys,
        key_slots::KeySlot,
        owner::Owner,
        presence::Presence,
        ticket::Ticket,
    },
    live::Live,
    metrics::GaugeGuard,
    sessions::Sessions,
};

/// The state of one request.
#[derive(Debug)]
pub struct Exchange {
    /// The configuration that holds for this request from start to end.
    pub live: Arc<Live>,
    /// The protocol in whose shape the client is answered.
    pub shape: Protocol,
    /// weir's identifier of the request.
    pub request_id: Arc<str>,
    /// Keys that stood in the query, until they are read.
    pub query_keys: QueryKeys,
    /// How far the request has come.
    pub stage: Stage,
    /// The request has failed, and its client has an answer with a proper end: its connection can carry others.
    pub answered_whole: bool,
    /// Keeps the process from ending while the request runs.
    pub in_flight: InFlight,
}

impl Exchange {
    /// A connection has been read from; nothing is known of the request yet.
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

/// A request id: `req_` and 24 characters, unguessable enough to quote in a support case.
fn new_request_id() -> Arc<str> {
    let random: String = rand::rng()
        .sample_iter(rand::distr::Alphanumeric)
        .take(24)
        .map(char::from)
        .collect();
    Arc::from(format!("req_{random}"))
}

/// How far a request has come.
#[derive(Debug)]
pub enum Stage {
    /// Not even its head has been looked at.
    New,
    /// Being read and checked; nothing may be forwarded.
    Arrived(Box<Entry>),
    /// Admitted.
    Forwarding(Box<Forward>),
    /// Answered by weir itself.
    Answered,
}

/// A request on its way to a provider.
#[derive(Debug)]
pub struct Forward {
    /// The right to do so.
    pub ticket: Ticket,
    /// What is asked for.
    pub operation: Operation,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// The configuration that holds for this request from start to end.
    pub live: Arc<Live>,
    /// The model's name as the client gave it.
    pub asked: String,
    /// The key's text, as the client presented it.
    pub presented: ServiceKey,
    /// Whose is what the answer makes at the provider; taken when all of that is remembered.
    pub owner: Option<Owner>,
    /// Where the answer's last bytes wait until that is written.
    pub gate: Arc<Gate>,
    /// The model that answers.
    pub model: Arc<Model>,
    /// To whom it goes.
    pub attempts: Attempts,
    /// What the body said, for the edits of another provider.
    pub scan: Scan,
    /// The provider for which the body was edited, by its place in the route.
    pub edited_for: usize,
    /// The client's query without its key.
    pub query: Option<String>,
    /// The body; given up when no attempt can follow.
    pub body: Option<GatheredBody>,
    /// Bytes of the next piece of the body that Pingora repeats from its buffer.
    pub replay_bytes: usize,
    /// The time limits of the running attempt.
    pub watch: Option<Watch>,
    /// Whether the answer's head has come.
    pub head_seen: bool,
    /// Whether the attempt that has just failed is to be followed by another.
    pub again: bool,
    /// Makes the client's answer out of the provider's, where the provider's file edits answers.
    pub rewriter: Option<ResponseRewriter>,
    /// A success that may be an error in a shape of the provider's own.
    pub doubtful: Option<Doubtful>,
    /// An error answer is withheld until its end: its text may decide what it means, and credentials in it are masked.
    pub error_answer: Option<ErrorAnswer>,
    /// An error answer that has come to its end, and goes to the client when Pingora is through with the provider.
    pub whole_error: Option<WholeError>,
    /// A refusal decided in a hook that can only return Pingora's error type.
    pub refusal: Option<Refusal>,
    /// Counts an open stream while it lives.
    pub stream_gauge: Option<GaugeGuard>,
    /// Where the answer is to be read to its end although the client may have left: whether it has.
    pub presence: Option<Arc<Presence>>,
    /// Held while tokens are counted.
    pub count_slot: Option<KeySlot>,
}

impl Forward {
    /// The provider in turn.
    pub fn provider(&self) -> &Provider {
        &self.attempts.leg().provider
    }

    /// Whether the client has left and the answer is read without it.
    pub fn is_unattended(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.has_left())
    }

    /// A piece of the answer is about to go to the client, or its end: what it has made is remembered, and the last bytes
    /// wait until that is written, because the client's next request may come as soon as it has them. Never waits itself.
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

    /// The exchange is over: remembers what an answer has made that nobody read to its end.
    pub fn remember_rest(&mut self, sessions: &Sessions) {
        if let Some(mut owner) = self.owner.take() {
            owner.remember(sessions, &self.attempts, &self.ticket.meter);
        }
    }
}

impl Exchange {
    /// The request on its way, if it has been admitted.
    pub fn forward(&mut self) -> Option<&mut Forward> {
        match &mut self.stage {
            Stage::Forwarding(forward) => Some(forward),
            Stage::New | Stage::Arrived(_) | Stage::Answered => None,
        }
    }
}
