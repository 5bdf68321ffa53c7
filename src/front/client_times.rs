//! How long a client may take for the body of its request and for the answer.

use crate::{
    config::GatewayConfig,
    domain::faults::pace::{BodyTimeLimit, MinimumSpeed},
};

/// How long a client may take for a request's body and for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimes {
    /// For sending the body of a request, its trailers included.
    pub body: BodyTimeLimit,
    /// For receiving an answer.
    pub answer: MinimumSpeed,
}

impl ClientTimes {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        Self {
            body: config.bodies.time(),
            answer: config.answer_pace(),
        }
    }
}
