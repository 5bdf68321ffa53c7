//! A provider that answers with a redirect. It is never followed: where a credential goes is the operator's configuration
//! alone.

use pingora::{Error, ErrorType, http::ResponseHeader};

use crate::{domain::refusal::Refusal, gateway::exchange::Forward};

/// Refuses it, and tells the operator. Where it points is told to nobody, for that may carry anything.
pub fn refuse(forward: &mut Forward, head: &ResponseHeader) -> Box<Error> {
    let status = head.status.as_u16();
    tracing::error!(
        request_id = forward.ticket.request_id(),
        provider = %forward.provider().name,
        status,
        "the provider answered with a redirect, which is never followed: if it has moved, set its `base_url` in weir.toml, or the \
         URLs in its file, to its new address"
    );
    forward.refusal = Some(Refusal::ProviderRedirected { status });
    Error::explain(ErrorType::InvalidHTTPHeader, "a redirect from the provider").into_up()
}
