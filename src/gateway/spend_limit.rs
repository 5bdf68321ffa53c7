//! What a Messages client reads in the answer's head of its key's quota.

use http::HeaderName;
use pingora::{Result, http::ResponseHeader};
use smallvec::SmallVec;

use crate::{
    domain::{protocol::Protocol, spend_limit},
    gateway::exchange::Forward,
};

/// Puts the key's own standing in the place of what the provider says of the operator's account. Only on a success, and only
/// for a key with a quota; whatever else fails tells when to come back in the provider's words.
pub fn tell(forward: &Forward, head: &mut ResponseHeader) -> Result<()> {
    let Some(standing) = forward.ticket.quota() else {
        return Ok(());
    };
    if forward.operation.protocol() != Protocol::Messages || !head.status.is_success() {
        return Ok(());
    }
    let is_the_operators = |name: &&HeaderName| name.as_str().starts_with(spend_limit::PREFIX);
    let names: SmallVec<[HeaderName; 8]> = head.headers.keys().filter(is_the_operators).cloned().collect();
    for name in names {
        head.remove_header(&name);
    }
    for (name, value) in spend_limit::of_success(&standing) {
        head.insert_header(name, value)?;
    }
    Ok(())
}
