//! Serves the owners' portal on the gateway's port.

use pingora_proxy::Session;

use crate::{
    console::{self, portal::Portal},
    gateway::parts::Gateway,
    stability::public::PublicResponse,
};

/// The portal's answer, if there is one and the path is one of its own.
pub(crate) async fn find(gateway: &Gateway, session: &mut Session) -> Option<PublicResponse> {
    let portal = gateway.pages.portal.as_ref()?;
    if !Portal::has(session.req_header().uri.path()) {
        return None;
    }
    let answer = match console::read(session.as_downstream_mut(), &portal.entrance).await {
        Ok(ask) => portal.answer(&ask).await,
        Err(answer) => *answer,
    };
    Some(answer.into_response())
}
