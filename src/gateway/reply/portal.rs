//! Serves the owners' portal on the gateway's port.

use pingora_proxy::Session;

use crate::{
    console::{self, portal::Portal},
    stability::public::PublicResponse,
};

/// The portal's answer, if the path is one of its own, with the name that the log has. Boxed, so that requests to providers do
/// not carry its state.
pub(crate) async fn find(portal: &Portal, session: &mut Session) -> Option<(&'static str, PublicResponse)> {
    let operation = portal.has(session.req_header().uri.path())?;
    Some((operation, Box::pin(answer(portal, session)).await))
}

async fn answer(portal: &Portal, session: &mut Session) -> PublicResponse {
    let answer = match console::read(session.as_downstream_mut(), &portal.entrance).await {
        Ok(ask) => portal.answer(&ask).await,
        Err(answer) => *answer,
    };
    answer.into_response()
}
