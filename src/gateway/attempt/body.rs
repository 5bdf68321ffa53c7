//! The request's body on its way to a provider.

use bytes::Bytes;
use pingora::{ErrorType, Result};
use pingora_proxy::Session;

use crate::gateway::{attempt::interruption::Interruption, forward::Forward, reply, request::body::BodyForm};

/// Replaces the body that Pingora holds by the stored one, sent as a whole at the end.
pub fn send(session: &Session, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    let replayed = forward.attempt.take_replay_bytes();
    let Some(body) = &forward.body else {
        return Ok(());
    };
    if let (BodyForm::Open { .. }, Some(piece)) = (body.form, piece.as_deref()) {
        let rest = piece.get(replayed.min(piece.len())..).unwrap_or_default();
        if let Some(refusal) = body.refusal_of_rest(rest) {
            let refusal = Interruption::Refused(refusal);
            return Err(refusal
                .error(ErrorType::InvalidHTTPHeader, "data follows the request body")
                .into_down());
        }
    }
    if end {
        forward.recipient.asked();
    }
    // An empty piece keeps the body open; `None` would end it.
    *piece = Some(if end { body.bytes.clone() } else { Bytes::new() });
    if end && reply::has_begun(session) {
        // The provider has answered before the end of the client's body: no attempt can follow.
        forward.body = None;
    }
    Ok(())
}
