//! Log lines about failed requests.

use std::net::SocketAddr;

use crate::{
    domain::{
        faults::{end::End, refusal::Refusal},
        wire::protocol::Break,
    },
    telemetry::access_log::RequestRecord,
};

/// The cause of a request that ended in a panic. The panic hook has logged the panic and its location.
pub(crate) const PANICKED: &str = "panicked";

/// Logs the end of a failed request in one line of weir's own words, without any byte that a client or provider sent. Pingora's
/// own lines are off, because they quote both and report a disconnected client as an error. `cause` is from a closed set.
///
/// Warnings and errors are for events that an operator must act on. A provider that now and then breaks off or times out is not
/// one; `weir_requests_total` counts it. Refusals, disconnected clients and error answers of the provider are in the access log
/// only.
pub(crate) fn log_failed_request(record: &RequestRecord, end: &End, cause: Option<&'static str>) {
    let request_id = record.request_id.as_str();
    let provider = record.provider.as_deref().unwrap_or("none");
    let cause = cause.unwrap_or("none");
    match end {
        End::Broken(Break::Internal) | End::Refused(Refusal::Internal) if cause == PANICKED => {}
        End::Broken(Break::Internal) | End::Refused(Refusal::Internal) => {
            tracing::error!(request_id, provider, cause, "weir failed a request: report it");
        }
        End::Refused(Refusal::ProviderUnreachable) => {
            tracing::warn!(
                request_id,
                provider,
                cause,
                attempts = record.attempts,
                "cannot connect to the provider"
            );
        }
        End::Broken(Break::ProviderTimeout) | End::Refused(Refusal::ProviderTimeout) => {
            tracing::info!(request_id, provider, cause, "the provider did not answer in time");
        }
        End::Broken(Break::ProviderCut | Break::ProviderEnded) | End::Refused(Refusal::ProviderBroken) => {
            tracing::info!(
                request_id,
                provider,
                cause,
                "the provider's answer cannot be used, or broke off"
            );
        }
        End::Complete
        | End::ProviderError
        | End::InBandError
        | End::ClientLeft
        | End::Broken(Break::LimitReached | Break::Stopped)
        | End::Refused(_) => {}
    }
}

/// Logs a failed connection to a backend; another attempt follows.
pub(crate) fn log_failed_connect(request_id: &str, provider: &str, place: Option<SocketAddr>, cause: &'static str) {
    let place = place.map(tracing::field::display);
    tracing::warn!(
        request_id,
        provider,
        place,
        cause,
        "cannot connect to a backend of the provider: another attempt follows"
    );
}
