//! Builds the request that the provider gets: head and body.

pub(crate) mod connect;
pub(crate) mod line_peer;
pub(crate) mod verdict;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use pingora::{ErrorType, OrErr, Result, http::RequestHeader};
use pingora_proxy::Session;
use smallvec::SmallVec;

use crate::{
    domain::{
        keys::forwarding::{self, PresentedKey},
        rules::{EditableHead, edit_head, edit_query},
        wire::UpstreamProtocol,
    },
    gateway::{forward::Forward, reply, request::body::BodyFraming},
};

/// Turns the client's head into the head for the provider. Removes the headers that must not be forwarded and applies the rules
/// of the provider's file. Sets target, framing and credential last, so that no rule can change them.
pub(crate) fn head(forward: &Forward, head: &mut RequestHeader) -> Result<()> {
    let provider = forward.provider();
    let endpoint = forward.attempts.endpoint();
    for name in withheld_headers(&head.headers, &PresentedKey::new(&forward.request.presented)) {
        head.remove_header(&name);
    }
    let own_query = match &endpoint.translation {
        None => forward.request.query.as_deref(),
        Some(_) => {
            remove_headers_of_protocol(head)?;
            // The query belongs to the client's protocol, so the provider's endpoint gets its own usual query.
            (endpoint.operation.protocol() == UpstreamProtocol::Gemini).then_some("alt=sse")
        }
    };
    edit_head(&provider.headers, &mut UpstreamHead(head));
    let query = edit_query(&provider.query, own_query);
    let target = endpoint.target.with_query(query.as_deref());
    head.set_uri(target.or_err(ErrorType::InvalidHTTPHeader, "the provider's target is not valid")?);
    if let Some(place) = forward.attempts.backend() {
        head.insert_header(header::HOST, place.origin.host_header().clone())?;
    }
    head.insert_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))?;
    head.remove_header(&header::TRANSFER_ENCODING);
    let length = forward.body.as_ref().map_or(0, |body| body.bytes.len());
    head.insert_header(header::CONTENT_LENGTH, length)?;
    let credential = &forward.attempts.credential().credential;
    head.insert_header(provider.auth.header.clone(), credential.header.clone())?;
    Ok(())
}

/// Removes the headers of the client's protocol from a request that is translated. Keeps only `user-agent` and `accept`.
fn remove_headers_of_protocol(head: &mut RequestHeader) -> Result<()> {
    let is_general = |name: &HeaderName| matches!(*name, header::USER_AGENT | header::ACCEPT);
    let of_protocol: Vec<HeaderName> = head.headers.keys().filter(|name| !is_general(name)).cloned().collect();
    for name in of_protocol {
        head.remove_header(&name);
    }
    head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
}

/// Returns the names of the headers that are not forwarded, because of their name or because they contain the client's key.
fn withheld_headers(headers: &HeaderMap, key: &PresentedKey<'_>) -> SmallVec<[HeaderName; 4]> {
    let stays = |name: &HeaderName, value: &HeaderValue| {
        let text = name.as_str();
        forwarding::is_withheld_header(text) || key.is_in_name(text) || key.is_in(value.as_bytes())
    };
    // A header with several values is listed several times; its first removal removes all values.
    let found = headers.iter().filter(|(name, value)| stays(name, value));
    found.map(|(name, _)| name.clone()).collect()
}

/// Pingora's head in the form that the rules of a provider's file edit.
struct UpstreamHead<'a>(&'a mut RequestHeader);

impl EditableHead for UpstreamHead<'_> {
    fn values(&self, name: &HeaderName) -> Vec<HeaderValue> {
        self.0.headers.get_all(name).iter().cloned().collect()
    }

    fn remove(&mut self, name: &HeaderName) {
        self.0.remove_header(name);
    }

    fn append(&mut self, name: &HeaderName, value: &HeaderValue) {
        // Fails only beyond 32,768 values, far more than the limit on headers allows.
        let _ = self.0.append_header(name.clone(), value.clone());
    }
}

/// Replaces the bytes from Pingora with the stored body, which is sent as one piece at the end.
pub(crate) fn body(session: &Session, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    let replayed = forward.attempt.take_replay_bytes();
    let Some(body) = &mut forward.body else {
        return Ok(());
    };
    if let (BodyFraming::Open, Some(piece)) = (body.form, piece.as_deref()) {
        let rest = piece.get(replayed.min(piece.len())..).unwrap_or_default();
        let bytes_max = forward.request.live.config.gateway.bodies.bytes_max;
        if let Err(refusal) = body.accept_rest(rest, bytes_max) {
            let context = "the bytes after the request body";
            let error = forward.refuse(refusal, ErrorType::InvalidHTTPHeader, context);
            return Err(error.into_down());
        }
    }
    if let (true, Some(presence)) = (end, forward.client.presence.as_deref()) {
        presence.on_request_read();
    }
    // An empty piece keeps the body open; `None` would end it.
    *piece = Some(if end { body.bytes.clone() } else { Bytes::new() });
    if end && reply::has_begun(session) {
        // The provider has answered before the end of the client's body.
        forward.free_body();
    }
    Ok(())
}
