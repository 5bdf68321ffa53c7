//! The state of one request that Pingora carries from hook to hook.

use std::sync::Arc;

use pingora::{Error, ErrorType, Result};
use rand::RngExt;
use smol_str::SmolStr;

use crate::{
    domain::wire::protocol::Protocol,
    edges::clock,
    gateway::{
        drain::InFlight,
        entry::{Entry, Sinks},
        forward::Forward,
        request::head::QueryKeys,
    },
    providers::live::Live,
};

/// One request and its answer: Pingora's per-request context.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The configuration that holds for this request from start to end.
    pub live: Arc<Live>,
    /// The protocol whose error form the client gets.
    pub shape: Protocol,
    /// weir's request id (`x-weir-request-id`, and in the logs).
    pub request_id: Arc<str>,
    /// How far the request has come. A stage is a value that the next one consumes.
    pub stage: Stage,
    /// Keeps the process running while the request runs.
    #[expect(dead_code, reason = "held until the request ends")]
    pub in_flight: InFlight,
}

/// The stages of a request.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Being read and checked. Nothing may be forwarded.
    Arrived(Box<Arrived>),
    /// Admitted: on its way to a provider.
    Forwarding(Box<Forward>),
    /// Answered, or given up.
    Ended(Leftover),
}

/// A request whose head has been read.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// Its line in the access log.
    pub entry: Entry,
    /// Keys taken out of the query, until authentication reads them.
    pub query_keys: QueryKeys,
}

/// What an ended request leaves of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// Whatever Pingora makes of it.
    Pingoras,
    /// The request has failed, but its client got a complete answer, so the connection can carry further requests.
    Reusable,
}

impl Exchange {
    /// A request that has just arrived. Nothing is known of it yet.
    pub(crate) fn begin(live: Arc<Live>, sinks: &Arc<Sinks>, in_flight: InFlight) -> Self {
        let request_id = new_request_id();
        let entry = Entry::open(
            Arc::clone(sinks),
            SmolStr::from(Arc::clone(&request_id)),
            clock::instant(),
            clock::unix_millis(),
        );
        Self {
            live,
            shape: Protocol::Responses,
            request_id,
            stage: Stage::Arrived(Box::new(Arrived {
                entry,
                query_keys: QueryKeys::default(),
            })),
            in_flight,
        }
    }

    /// Takes the stage out. Until another one is set, the request counts as given up.
    pub(crate) fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Ended(Leftover::Pingoras))
    }

    /// The admitted request.
    ///
    /// # Errors
    /// The request is in another stage, which Pingora's order of hooks rules out.
    pub(crate) fn forward(&mut self) -> Result<&mut Forward> {
        match &mut self.stage {
            Stage::Forwarding(forward) => Ok(forward),
            Stage::Arrived(_) | Stage::Ended(_) => {
                Error::e_explain(ErrorType::InternalError, "a request that was not admitted")
            }
        }
    }
}

const ALPHANUMERIC: [u8; 62] = *b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new request id: `req_` and 24 random alphanumeric characters. Some of them are likelier than others by a thousandth,
/// which is no harm: an id is no secret.
fn new_request_id() -> Arc<str> {
    let mut random = [0_u16; 24];
    rand::rng().fill(&mut random[..]);
    let mut id = String::with_capacity(28);
    id.push_str("req_");
    id.extend(random.map(|number| {
        let place = (usize::from(number) * ALPHANUMERIC.len()) >> 16;
        ALPHANUMERIC.get(place).map_or('0', |byte| char::from(*byte))
    }));
    Arc::from(id)
}
