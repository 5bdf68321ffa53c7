//! Refuses redirects from providers. Only the operator's configuration decides where a credential goes, so none is
//! followed.

use pingora::{Error, ErrorType, http::ResponseHeader};

use crate::{
    domain::faults::refusal::Refusal,
    gateway::{attempt::interruption::Interruption, forward::Forward},
};

/// The error that ends the attempt. Logs an error for the operator. The redirect's target is neither logged nor returned, since it
/// may contain anything.
pub(crate) fn refuse(forward: &Forward, head: &ResponseHeader) -> Box<Error> {
    let status = head.status.as_u16();
    tracing::error!(
        request_id = forward.ticket.request_id(),
        provider = %forward.dispatch.provider().name,
        status,
        "the provider answered with a redirect, which is never followed: if it has moved, set its `base_url` in weir.toml, or the \
         URLs in its file, to its new address"
    );
    let refusal = Interruption::Refused(Refusal::ProviderRedirected { status });
    refusal
        .error(ErrorType::InvalidHTTPHeader, "a redirect from the provider")
        .into_up()
}
