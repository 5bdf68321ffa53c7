//! How long a client may take for the body of its request and for the answer.

use crate::{
    config::GatewayConfig,
    domain::faults::pace::{BodyTimeLimit, PaceLimit},
};

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimes {
    /// To send the body of a request, its trailers included.
    pub body: BodyTimeLimit,
    /// To take an answer.
    pub answer: PaceLimit,
}

impl ClientTimes {
    /// As configured.
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        Self {
            body: config.bodies.time(),
            answer: config.answer_pace(),
        }
    }
}
