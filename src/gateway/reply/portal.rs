//! Serves the owners' portal on the gateway's port.

use pingora_proxy::Session;

use crate::{
    console::{self, portal::Portal},
    stability::public::PublicResponse,
};

/// The portal's answer and the operation's name in the log, if the path belongs to the portal. Boxed, so that the futures of
/// other requests do not have the room for it.
pub(crate) async fn find_portal_response(
    portal: &Portal,
    session: &mut Session,
) -> Option<(&'static str, PublicResponse)> {
    let operation = portal.route_name(session.req_header().uri.path())?;
    Some((operation, Box::pin(portal_response(portal, session)).await))
}

async fn portal_response(portal: &Portal, session: &mut Session) -> PublicResponse {
    let answer = match console::read(session.as_downstream_mut(), &portal.entrance).await {
        Ok(ask) => portal.answer(&ask).await,
        Err(answer) => *answer,
    };
    answer.into_response()
}
