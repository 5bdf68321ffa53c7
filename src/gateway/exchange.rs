//! One request and its answer: the state that Pingora carries from hook to hook. It only moves forward.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::{
    domain::{operation::Operation, protocol::Protocol, refusal::Refusal, route::Route},
    gateway::{
        body::GatheredBody, deadline::Watch, drain::InFlight, entry::Entry, error_body::ErrorBody, intake::QueryKeys,
        key_slots::KeySlot, ticket::Ticket,
    },
    metrics::GaugeGuard,
};

/// The state of one request.
#[derive(Debug)]
pub struct Exchange {
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
    /// To whom it goes.
    pub route: Route,
    /// The client's query without its key.
    pub query: Option<String>,
    /// The body; given up when the answer has begun.
    pub body: Option<GatheredBody>,
    /// Attempts so far.
    pub attempts: usize,
    /// Bytes of the next piece of the body that Pingora repeats from its buffer.
    pub replay_bytes: usize,
    /// The time limits of the running attempt.
    pub watch: Option<Watch>,
    /// Whether the answer's head has come.
    pub head_seen: bool,
    /// An error answer is held until its end, so that credentials in it can be masked.
    pub error_body: Option<ErrorBody>,
    /// A refusal decided in a hook that can only return Pingora's error type.
    pub refusal: Option<Refusal>,
    /// Counts an open stream while it lives.
    pub stream_gauge: Option<GaugeGuard>,
    /// Held while the answer is to be read to its end although the client has left.
    pub finish_permit: Option<OwnedSemaphorePermit>,
    /// Held while tokens are counted.
    pub count_slot: Option<KeySlot>,
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
