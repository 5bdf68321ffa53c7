//! One attempt at a provider: the address, the head, the body, and what a failure leads to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use pingora::{
    Error, ErrorSource, ErrorType, OrErr, Result, http::RequestHeader, protocols::ALPN, protocols::Digest,
    proxy::Session, upstreams::peer::HttpPeer,
};
use rand::RngExt;
use smallvec::SmallVec;

use crate::{
    clock,
    domain::{
        not_forwarded::{self, PresentedKey},
        refusal::Refusal,
        rules::{Head, edit_head as edit_headers, edit_query},
    },
    gateway::{
        Gateway, admission,
        attempt::connector::Connector,
        attempt::deadline::{self, Limits, Watch},
        drain::Drain,
        exchange::Forward,
        failure_log as complaint, reply,
        request::gather::BodyForm,
    },
};

/// How soon after a request was written to a pooled connection its end counts as a stale connection: a few round trips,
/// and what a busy machine takes to notice.
pub const STALE_WITHIN: Duration = Duration::from_secs(1);

/// Waits for the pause before this attempt, or until the process has no more time.
pub async fn pause(forward: &mut Forward, drain: &Drain) {
    let pause = forward.attempts.take_pause();
    if !pause.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = drain.out_of_time() => {}
        }
    }
}

/// The peer that Pingora connects to in this attempt.
pub fn peer(gateway: &Gateway, session: &Session, forward: &mut Forward) -> Result<Box<HttpPeer>> {
    forward.watch = None;
    forward.again = false;
    forward.head_seen = false;
    if gateway.drain.is_cut() {
        forward.refusal = Some(Refusal::Stopping);
        return Error::e_explain(ErrorType::Custom("stopping"), "no attempt is begun any more");
    }
    let place = forward
        .attempts
        .next_place(rand::rng().random(), clock::instant())
        .cloned();
    let leg = forward.attempts.leg();
    forward.ticket.attempt(&leg.provider.name);
    if let Some(reason) = forward.attempts.take_reason() {
        gateway.metrics().upstream_retried(&forward.provider().name, reason);
    }
    let Some(place) = place else {
        forward.refusal = Some(Refusal::ProviderUnreachable);
        return Err(Error::explain(ErrorType::ConnectNoRoute, "the provider's name is not resolved").into_up());
    };
    edit_for_provider(session, forward)?;
    let timeouts = &forward.live.config.upstream;
    let own = &forward.provider().timeouts;
    let connect = own.connect.unwrap_or(timeouts.connect);
    let limits = limits(forward);
    let mut peer = HttpPeer::new(place.first, place.origin.https, place.origin.host.clone());
    peer.options.alpn = ALPN::H1;
    let places = Arc::clone(forward.attempts.places());
    peer.options.custom_l4 = Some(Arc::new(Connector::new(connect, place, places, gateway.drain.clone())));
    peer.options.total_connection_timeout = Some(connect);
    // The watch limits reading; Pingora's own timeout would register a timer for every chunk.
    peer.options.write_timeout = Some(limits.idle);
    peer.options.idle_timeout = Some(timeouts.pool_idle);
    if forward.attempts.take_fresh() || !admission::can_resend(forward) {
        // A stale pooled connection would lose the request for good, so this attempt opens a new one.
        static OWN_GROUP: AtomicU64 = AtomicU64::new(1);
        peer.group_key = OWN_GROUP.fetch_add(1, Ordering::Relaxed);
        peer.options.idle_timeout = Some(Duration::ZERO);
    }
    Ok(Box::new(peer))
}

/// Makes a new body if the current one was edited for another provider.
fn edit_for_provider(session: &Session, forward: &mut Forward) -> Result<()> {
    if forward.edited_for == forward.attempts.legs_left_behind() {
        return Ok(());
    }
    let Some(body) = &mut forward.body else {
        return Error::e_explain(ErrorType::InternalError, "a further provider without a body");
    };
    let Some(original) = body.original.clone() else {
        return Error::e_explain(ErrorType::InternalError, "a further provider that was not foreseen");
    };
    body.bytes = original;
    let leg = forward.attempts.leg();
    let edited = admission::edit_body(session, forward.operation, &forward.asked, leg, &forward.scan, body);
    if let Err(refusal) = edited {
        forward.refusal = Some(refusal);
        return Error::e_explain(ErrorType::InternalError, "the further provider cannot take the body");
    }
    forward.edited_for = forward.attempts.legs_left_behind();
    Ok(())
}

fn limits(forward: &Forward) -> Limits {
    let general = &forward.live.config.upstream;
    let own = &forward.provider().timeouts;
    let first_byte = if forward.stream {
        own.first_byte.unwrap_or(general.first_byte)
    } else {
        own.first_byte_unary.unwrap_or(general.first_byte_unary)
    };
    Limits {
        first_byte,
        idle: own.idle.unwrap_or(general.idle),
        total: own.total.unwrap_or(general.total),
    }
}

/// The connection is established: starts the time limits.
pub fn connected(session: &Session, forward: &mut Forward, digest: Option<&Digest>, drain: &Drain) {
    forward.attempts.connected();
    forward.replay_bytes = match &forward.body {
        Some(body) if body.form != BodyForm::Sized && session.get_retry_buffer().is_some() => body.received,
        _ => 0,
    };
    let limits = limits(forward);
    let presence = forward.presence.clone();
    forward.watch = deadline::handle_of(digest)
        .map(|handle| Watch::start(handle, limits, presence, drain.clone(), clock::instant()));
}

/// Turns the client's head into the provider's. Removes what must not pass, applies the provider's rules, then sets
/// target, framing and credential, so that no rule can change those.
pub fn edit_head(forward: &Forward, head: &mut RequestHeader) -> Result<()> {
    let provider = forward.provider();
    for name in staying(&head.headers, &PresentedKey::new(&forward.presented)) {
        head.remove_header(&name);
    }
    edit_headers(&provider.headers, &mut UpstreamHead(head));
    let query = edit_query(&provider.query, forward.query.as_deref());
    head.set_uri(target(&forward.attempts.leg().target, query.as_deref())?);
    if let Some(place) = forward.attempts.place() {
        head.insert_header(header::HOST, place.origin.authority())?;
    }
    head.insert_header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))?;
    head.remove_header(&header::TRANSFER_ENCODING);
    let length = forward.body.as_ref().map_or(0, |body| body.bytes.len());
    head.insert_header(header::CONTENT_LENGTH, length)?;
    let secret = &forward.attempts.credential().credential.secret;
    let mut value = HeaderValue::from_str(&format!("{}{}", provider.auth.scheme, secret.expose())).or_err(
        ErrorType::InvalidHTTPHeader,
        "the provider's secret is not a header value",
    )?;
    value.set_sensitive(true);
    head.insert_header(provider.auth.header.clone(), value)?;
    Ok(())
}

/// The headers that are not forwarded: by name, or because they contain the client's key.
fn staying(headers: &HeaderMap, key: &PresentedKey<'_>) -> SmallVec<[HeaderName; 4]> {
    let stays = |name: &HeaderName, value: &HeaderValue| {
        let text = name.as_str();
        not_forwarded::header(text) || key.is_in_name(text) || key.is_in(value.as_bytes())
    };
    // A repeated header is listed repeatedly; its first removal removes all.
    let found = headers.iter().filter(|(name, value)| stays(name, value));
    found.map(|(name, _)| name.clone()).collect()
}

/// Pingora's head as the rules see it. Pingora's own methods keep the spelling of names.
struct UpstreamHead<'a>(&'a mut RequestHeader);

impl Head for UpstreamHead<'_> {
    fn values(&self, name: &HeaderName) -> Vec<HeaderValue> {
        self.0.headers.get_all(name).iter().cloned().collect()
    }

    fn remove(&mut self, name: &HeaderName) {
        self.0.remove_header(name);
    }

    fn append(&mut self, name: &HeaderName, value: &HeaderValue) {
        // Fails only beyond 32,768 values, far above the limit on headers.
        let _ = self.0.append_header(name.clone(), value.clone());
    }
}

fn target(path_and_query: &str, query: Option<&str>) -> Result<Uri> {
    let joined = match query {
        None => path_and_query.to_owned(),
        Some(query) if path_and_query.contains('?') => format!("{path_and_query}&{query}"),
        Some(query) => format!("{path_and_query}?{query}"),
    };
    joined
        .parse()
        .or_err(ErrorType::InvalidHTTPHeader, "the provider's target is not a valid one")
}

/// Replaces the body that Pingora holds by the stored one, sent as a whole at the end.
pub fn send_body(session: &Session, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    let replayed = std::mem::take(&mut forward.replay_bytes);
    let Some(body) = &forward.body else {
        return Ok(());
    };
    if let (BodyForm::Open { .. }, Some(piece)) = (body.form, piece.as_deref()) {
        let rest = piece.get(replayed.min(piece.len())..).unwrap_or_default();
        if let Some(refusal) = body.refusal_of_rest(rest) {
            forward.refusal = Some(refusal);
            return Err(Error::explain(ErrorType::InvalidHTTPHeader, "data follows the request body").into_down());
        }
    }
    if let (true, Some(presence)) = (end, &forward.presence) {
        presence.asked();
    }
    // An empty piece keeps the body open; `None` would end it.
    *piece = Some(if end { body.bytes.clone() } else { Bytes::new() });
    if end && reply::has_begun(session) {
        // The provider has answered before the end of the client's body: no attempt can follow.
        forward.body = None;
    }
    Ok(())
}

/// Pingora could not connect. Decides whether another attempt follows.
pub fn connect_failed(forward: &mut Forward, mut error: Box<Error>, drain: &Drain) -> Box<Error> {
    if drain.is_cut() {
        forward.refusal = Some(Refusal::Stopping);
        error.set_retry(false);
        return error;
    }
    let place = forward.attempts.place().map(|place| place.address);
    let provider = forward.provider().name.clone();
    let retries_max = forward.live.config.upstream.connect_retries;
    let again = forward
        .attempts
        .connect_failed(retries_max, rand::rng().random(), clock::instant());
    let again = again && !forward.is_unattended();
    if again {
        let cause = error.etype().as_str();
        complaint::of_connect(forward.ticket.request_id(), &provider, place, cause);
    }
    error.set_retry(again);
    error
}

/// An attempt failed after its connection was established. It is repeated if the answer's head asked for that (see
/// [`crate::gateway::answer::relay::accept_head`]), or if a pooled connection turns out to have been closed before the provider
/// read the request.
pub fn attempt_failed(session: &Session, forward: &mut Forward, mut error: Box<Error>, reused: bool) -> Box<Error> {
    if forward.watch.as_ref().is_some_and(Watch::stopped) {
        // The provider has not failed.
        error.set_retry(false);
        return error;
    }
    if forward.again {
        error.set_retry(!reply::has_begun(session));
        return error;
    }
    let expired = forward.watch.as_ref().is_some_and(Watch::expired);
    // A provider that has worked for a while may have served the request, and bill it.
    let is_prompt = || {
        let age = forward.watch.as_ref().map(|watch| watch.age(clock::instant()));
        age.is_some_and(|age| age <= STALE_WITHIN)
    };
    let closed_unanswered = match error.etype() {
        // The request was not even sent completely.
        ErrorType::WriteError => true,
        ErrorType::ConnectionClosed => error.to_string().contains("bytes already read: 0") && is_prompt(),
        ErrorType::ReadError => !forward.head_seen && is_prompt(),
        _ => false,
    };
    let again = reused
        && closed_unanswered
        && *error.esource() == ErrorSource::Upstream
        && !expired
        && !forward.is_unattended()
        && !forward.head_seen
        && !reply::has_begun(session)
        && admission::can_resend(forward)
        && forward.attempts.connection_was_stale();
    let again = again || go_on_unanswered(session, forward, &error);
    error.set_retry(again);
    error
}

/// Handles a provider that did not answer in time or closed the connection. Returns whether another provider is asked;
/// the operator decides that by `[retry] after_timeout`, because the first may have served the request and bill for it.
fn go_on_unanswered(session: &Session, forward: &mut Forward, error: &Error) -> bool {
    // weir itself cuts off an answer that nobody waits for.
    if forward.head_seen || *error.esource() != ErrorSource::Upstream || forward.is_unattended() {
        return false;
    }
    let may = forward.live.config.retry.after_timeout && !reply::has_begun(session) && admission::can_resend(forward);
    forward.attempts.unanswered(may, rand::rng().random(), clock::instant())
}
