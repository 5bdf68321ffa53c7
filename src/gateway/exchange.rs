//! One request and its answer: the state that Pingora carries from hook to hook. It only moves forward.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    domain::{
        catalogue::Model,
        json_scan::Scan,
        operation::Operation,
        protocol::Protocol,
        refusal::Refusal,
        rules::{Provider, ResponseRewriter},
        session_hint::{ServedBy, StateKey},
    },
    gateway::{
        attempts::Attempts, body::GatheredBody, deadline::Watch, doubtful::Doubtful, drain::InFlight, entry::Entry,
        error_body::ErrorBody, intake::QueryKeys, key_slots::KeySlot, presence::Presence, ticket::Ticket,
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
    /// Keeps the process from ending while the request runs.
    pub in_flight: InFlight,
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
    /// Whose request it is, where its answer is to be remembered: the id of the key.
    pub caller: Option<String>,
    /// The model that answers.
    pub model: Arc<Model>,
    /// To whom it goes.
    pub attempts: Attempts,
    /// What the body said, for the edits of another provider.
    pub scan: Scan,
    /// The body before any edit, kept while another provider may need it.
    pub original: Option<Bytes>,
    /// The provider for which the body was edited, by its place in the route.
    pub edited_for: usize,
    /// The client's query without its key.
    pub query: Option<String>,
    /// The body; given up when the answer has begun.
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
    /// An error answer is held until its end, so that credentials in it can be masked.
    pub error_body: Option<ErrorBody>,
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

    /// Remembers who served it, where what comes next has to go to the same.
    pub fn remember(&self, sessions: &Sessions) {
        let continued = self.attempts.state();
        let is_good = (200..300).contains(&self.ticket.meter.status());
        if !is_good || continued.is_none() && self.caller.is_none() {
            return;
        }
        let served_by = ServedBy {
            provider: self.provider().name.clone(),
            credential: self.attempts.credential().credential.name.clone(),
        };
        if let Some(continued) = continued {
            sessions.remember(continued, served_by.clone());
        }
        if let Some(caller) = &self.caller
            && let Some(answer) = self.ticket.meter.answer_id()
        {
            sessions.remember(StateKey::new(caller, &answer), served_by);
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
