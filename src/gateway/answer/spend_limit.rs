//! Response headers that tell a Messages client about its key's quota.

use http::HeaderName;
use pingora::{Result, http::ResponseHeader};
use smallvec::SmallVec;

use crate::{
    domain::{ledger::spend_limit, wire::protocol::Protocol},
    gateway::forward::Forward,
};

/// Adds headers that tell a Messages client about its key's quota, in place of the provider's about the operator's account. Only
/// for successes and keys with a quota: an error keeps the provider's headers, which say when to try again.
pub(crate) fn add_spend_limit(forward: &Forward, head: &mut ResponseHeader) -> Result<()> {
    let Some(standing) = forward.ticket.quota() else {
        return Ok(());
    };
    if forward.request.operation.protocol() != Protocol::Messages || !head.status.is_success() {
        return Ok(());
    }
    let is_the_operators = |name: &&HeaderName| name.as_str().starts_with(spend_limit::PREFIX);
    let names: SmallVec<[HeaderName; 8]> = head.headers.keys().filter(is_the_operators).cloned().collect();
    for name in names {
        head.remove_header(&name);
    }
    for (name, value) in spend_limit::success_headers(&standing) {
        head.insert_header(name, value)?;
    }
    Ok(())
}
