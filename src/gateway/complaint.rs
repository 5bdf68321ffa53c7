//! What the log says of a request that failed: once, in weir's own words, without a byte of what a client or a provider
//! sent. Pingora's lines, which quote both and take a client that leaves for an error, are off.
//!
//! Warnings and errors are for what an operator has to see to. A provider that breaks off or is silent now and then is none
//! of that; `weir_requests_total` tells how often it is. What the access log says of a request is not repeated here: a
//! refusal, a client that left, an error that the provider itself answered with.

use std::net::SocketAddr;

use crate::{access_log::RequestRecord, domain::outcome::Outcome};

/// The cause of a request that a panic has ended. The panic itself has been told, with its place.
pub const PANICKED: &str = "panicked";

/// A request is over. `cause` is the name of what went wrong, out of a closed set.
pub fn of_request(record: &RequestRecord, outcome: Outcome, cause: Option<&'static str>) {
    let request_id = record.request_id.as_str();
    let provider = record.provider.as_deref().unwrap_or("none");
    let cause = cause.unwrap_or("none");
    match outcome {
        Outcome::Internal if cause == PANICKED => {}
        Outcome::Internal => {
            tracing::error!(request_id, provider, cause, "weir failed a request: report it");
        }
        Outcome::ProviderUnreachable => {
            tracing::warn!(
                request_id,
                provider,
                cause,
                attempts = record.attempts,
                "no connection to the provider could be made"
            );
        }
        Outcome::ProviderTimeout => {
            tracing::info!(request_id, provider, cause, "the provider did not answer in time");
        }
        Outcome::ProviderCut => {
            tracing::info!(
                request_id,
                provider,
                cause,
                "the provider's answer cannot be used, or broke off"
            );
        }
        Outcome::Ok
        | Outcome::ProviderError
        | Outcome::InBandError
        | Outcome::CredentialRefused
        | Outcome::ClientGone
        | Outcome::LimitReached
        | Outcome::Stopped
        | Outcome::Refused => {}
    }
}

/// A place of a provider could not be connected to, and another attempt follows.
pub fn of_connect(request_id: &str, provider: &str, place: Option<SocketAddr>, cause: &'static str) {
    let place = place.map(tracing::field::display);
    tracing::warn!(
        request_id,
        provider,
        place,
        cause,
        "a place of the provider cannot be connected to, another attempt follows"
    );
}
