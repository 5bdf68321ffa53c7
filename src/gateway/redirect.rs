//! A provider that answers with a redirect. It is never followed: where a credential goes is the operator's configuration
//! alone.

use http::{Uri, header};
use pingora::{Error, ErrorType, http::ResponseHeader};

use crate::{
    domain::{protocol::provider_error::redact, refusal::Refusal},
    gateway::exchange::Forward,
};

/// The longest name of a host (RFC 1035 section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// Refuses it, and tells the operator. The client hears nothing of where it points, for that may carry anything.
pub fn refuse(forward: &mut Forward, head: &ResponseHeader) -> Box<Error> {
    let status = head.status.as_u16();
    let location = head.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let credential = forward.attempts.credential().credential.secret.expose();
    let to = location
        .and_then(host)
        .filter(|host| redact(host.as_bytes(), credential).is_none());
    tracing::error!(
        provider = %forward.provider().name,
        status,
        to = to.as_deref().unwrap_or("its own host, or none that can be named"),
        "the provider answered with a redirect, which is never followed: if it has moved, set its `base_url` in weir.toml, or the \
         URLs in its file, to its new address"
    );
    forward.refusal = Some(Refusal::ProviderRedirected { status });
    Error::explain(ErrorType::InvalidHTTPHeader, "a redirect from the provider").into_up()
}

/// The host that a location names: not its user and password, nor its path and query.
fn host(location: &str) -> Option<String> {
    let uri: Uri = location.parse().ok()?;
    let host = uri.host()?;
    (host.len() <= HOST_BYTES_MAX).then(|| host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_location_only_its_host_is_named() {
        for (location, named) in [
            ("https://new.example/v1/messages?key=secret#there", Some("new.example")),
            ("https://user:secret@new.example:8443/", Some("new.example")),
            ("/v1/messages?key=secret", None),
            ("not a location", None),
            ("", None),
        ] {
            assert_eq!(host(location).as_deref(), named, "{location}");
        }
        assert_eq!(host(&format!("https://{}/", "a".repeat(254))), None);
    }
}
