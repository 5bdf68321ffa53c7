//! The state of one request, which Pingora carries from hook to hook.

use std::sync::Arc;

use pingora::{Error, ErrorType, Result};
use rand::RngExt;
use smol_str::SmolStr;

use crate::{
    domain::wire::protocol::Protocol,
    edges::clock,
    gateway::{
        drain::InFlight,
        forward::{Forward, end_of_dropped},
        log_entry::{self, LogEntry, RequestReporters},
        request::head::QueryKeys,
    },
    providers::ConfigSnapshot,
};

/// The data of one request and its answer: Pingora's per-request context.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The config snapshot that the request uses to its end.
    pub live: Arc<ConfigSnapshot>,
    /// The protocol in whose form the client gets errors.
    pub protocol: Protocol,
    /// weir's request id, in the header `x-weir-request-id` and in the logs.
    pub request_id: Arc<str>,
    /// The request's line in the access log.
    pub log: Box<LogEntry>,
    /// The stage that the request has reached.
    pub stage: RequestStage,
    /// Whether the connection can carry further requests after this request has failed. It can if the client got a complete
    /// answer (`client_stream::park_connection`).
    pub park: bool,
    /// Counts the request as running, so that the process waits for its end.
    #[expect(dead_code, reason = "held until the request ends")]
    pub in_flight: InFlight,
}

/// The stages of a request.
#[derive(Debug)]
pub(crate) enum RequestStage {
    /// The request is being read and checked, and must not be forwarded yet. Until authentication, the value contains the keys
    /// from the query.
    Arrived(QueryKeys),
    /// The request is admitted and on its way to a provider.
    Forwarding(Box<Forward>),
    /// The request has been answered or abandoned.
    Ended,
}

impl Exchange {
    /// Creates the state of a request that has just arrived.
    pub(crate) fn begin(live: Arc<ConfigSnapshot>, sinks: &Arc<RequestReporters>, in_flight: InFlight) -> Self {
        let request_id = new_request_id();
        let log = LogEntry::open(
            Arc::clone(sinks),
            SmolStr::from(Arc::clone(&request_id)),
            clock::instant(),
            clock::unix_millis(),
        );
        Self {
            live,
            protocol: Protocol::Responses,
            request_id,
            log: Box::new(log),
            stage: RequestStage::Arrived(QueryKeys::default()),
            park: false,
            in_flight,
        }
    }

    /// Takes the request's stage and leaves [`RequestStage::Ended`] in its place.
    pub(crate) fn take_stage(&mut self) -> RequestStage {
        std::mem::replace(&mut self.stage, RequestStage::Ended)
    }

    /// Returns the admitted request.
    ///
    /// # Errors
    /// The request is in another stage. The order of Pingora's hooks rules this out.
    pub(crate) fn forward(&mut self) -> Result<&mut Forward> {
        match &mut self.stage {
            RequestStage::Forwarding(forward) => Ok(forward),
            RequestStage::Arrived(_) | RequestStage::Ended => {
                Error::e_explain(ErrorType::InternalError, "the request was not admitted")
            }
        }
    }
}

impl Drop for Exchange {
    /// Settles the request and closes its line in the access log, unless that has been done. It has not been done if a hook
    /// panicked, or if the stopping process dropped the request.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.log.cause = Some(log_entry::PANICKED);
        }
        if let RequestStage::Forwarding(forward) = &mut self.stage {
            forward.decide(end_of_dropped());
            forward.close(&mut self.log);
        }
        self.log.close(&end_of_dropped());
    }
}

const ALPHANUMERIC: [u8; 62] = *b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Creates a request id: `req_` and 24 random alphanumeric characters. Some characters are about a thousandth more likely than
/// others, which is harmless, because an id is not a secret.
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
