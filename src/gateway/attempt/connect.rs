//! Begins an attempt: waits for its pause, chooses its place, edits the body for its provider, and connects.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pingora::{
    Error, ErrorType, Result,
    protocols::{ALPN, Digest},
    upstreams::peer::{HttpPeer, PeerOptions},
};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    domain::faults::refusal::Refusal,
    edges::clock,
    gateway::{
        attempt::{
            Attempt,
            attempts::Connection,
            connector::Connector,
            deadline::{self, Limits, Watch},
            dispatch::Dispatch,
            interruption::Interruption,
        },
        drain::Drain,
        failure_log,
        parts::Gateway,
        presence::Presence,
        request::body::BodyForm,
        ticket::Ticket,
    },
};

/// How much of an answer over HTTP/2 may wait for a slow client; Pingora's default is 8 MiB. It is enough for 20 Mbit/s over
/// a round trip of 100 ms, more than any model writes.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1024;

/// Waits for the pause before this attempt, or until the process has no more time.
pub(crate) async fn pause(dispatch: &mut Dispatch, drain: &Drain) {
    let pause = dispatch.attempts.take_pause();
    if !pause.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = drain.out_of_time() => {}
        }
    }
}

/// The peer that Pingora connects to in this attempt.
pub(crate) fn peer(
    gateway: &Gateway,
    session: &Session,
    dispatch: &mut Dispatch,
    ticket: &mut Ticket,
) -> Result<Box<HttpPeer>> {
    dispatch.attempt = Attempt::default();
    if gateway.drain.is_cut() {
        let stopping = Interruption::Refused(Refusal::Stopping);
        return Err(stopping.error(ErrorType::Custom("stopping"), "no attempt is begun any more"));
    }
    let place = dispatch
        .attempts
        .next_place(rand::rng().random(), clock::instant())
        .cloned();
    let leg = dispatch.attempts.leg();
    ticket.attempt(leg);
    if let Some(reason) = dispatch.attempts.take_reason() {
        gateway.metrics().upstream_retried(&dispatch.provider().name, reason);
    }
    let Some(place) = place else {
        let unreachable = Interruption::Refused(Refusal::ProviderUnreachable);
        return Err(unreachable
            .error(ErrorType::ConnectNoRoute, "the provider's name is not resolved")
            .into_up());
    };
    dispatch.edit_body(&session.req_header().headers).map_err(|refusal| {
        let context = "the provider cannot take the body";
        Interruption::Refused(refusal).error(ErrorType::InternalError, context)
    })?;
    let timeouts = &dispatch.request.live.config.upstream;
    let connect = dispatch.provider().timeouts.connect.unwrap_or(timeouts.connect);
    let mut peer = HttpPeer::new(place.first, place.origin.https, place.origin.host.clone());
    let connection = dispatch.attempts.take_connection();
    if timeouts.http2 && place.origin.https && connection != Connection::NewOverHttp1 {
        speak_http2(&mut peer.options);
    } else {
        peer.options.alpn = ALPN::H1;
    }
    let places = Arc::clone(dispatch.attempts.places());
    peer.options.custom_l4 = Some(Arc::new(Connector::new(connect, place, places, gateway.drain.clone())));
    peer.options.total_connection_timeout = Some(connect);
    // The watch limits reading; Pingora's own timeout would register a timer for every chunk.
    peer.options.write_timeout = Some(limits(dispatch).idle);
    peer.options.idle_timeout = Some(timeouts.pool_idle);
    if connection != Connection::Any || !dispatch.can_resend() {
        // A stale pooled connection would lose the request for good, so this attempt opens a new one.
        static OWN_GROUP: AtomicU64 = AtomicU64::new(1);
        peer.group_key = OWN_GROUP.fetch_add(1, Ordering::Relaxed);
        peer.options.idle_timeout = Some(Duration::ZERO);
    }
    Ok(Box::new(peer))
}

/// Offers HTTP/2. A connection carries one request at a time: a time limit shuts the connection's socket ([`deadline`]),
/// and must not end another request with it.
fn speak_http2(options: &mut PeerOptions) {
    options.alpn = ALPN::H2H1;
    options.max_h2_streams = 1;
    options.h2_stream_window_size = Some(HTTP2_WINDOW_BYTES);
    options.h2_connection_window_size = Some(HTTP2_WINDOW_BYTES);
}

fn limits(dispatch: &Dispatch) -> Limits {
    let general = &dispatch.request.live.config.upstream;
    let own = &dispatch.provider().timeouts;
    let first_byte = if dispatch.request.stream {
        own.first_byte.unwrap_or(general.first_byte)
    } else {
        own.first_byte_unary.unwrap_or(general.first_byte_unary)
    };
    Limits {
        first_byte,
        idle: own.idle.unwrap_or(general.idle),
        total: own.total.unwrap_or(general.total),
        error_body: general.error_body,
    }
}

/// The connection is established: starts the time limits, including that of `presence`.
pub(crate) fn connected(
    session: &Session,
    dispatch: &mut Dispatch,
    presence: Option<Arc<Presence>>,
    digest: Option<&Digest>,
    drain: &Drain,
) {
    dispatch.attempts.connected();
    let replay_bytes = match &dispatch.body {
        Some(body) if body.form != BodyForm::Sized && session.get_retry_buffer().is_some() => body.received,
        _ => 0,
    };
    let limits = limits(dispatch);
    let watch = deadline::handle_of(digest)
        .map(|handle| Watch::start(handle, limits, presence, drain.clone(), clock::instant()));
    dispatch.attempt.connected(watch, replay_bytes);
}

/// Pingora could not connect. Decides whether another attempt follows; none does once the client has left.
pub(crate) fn failed(
    dispatch: &mut Dispatch,
    request_id: &str,
    has_left: bool,
    mut error: Box<Error>,
    drain: &Drain,
) -> Box<Error> {
    if drain.is_cut() {
        error.set_cause(Interruption::Refused(Refusal::Stopping));
        error.set_retry(false);
        return error;
    }
    let place = dispatch.attempts.place().map(|place| place.address);
    let provider = dispatch.provider().name.clone();
    let retries_max = dispatch.request.live.config.upstream.connect_retries;
    let again = dispatch
        .attempts
        .connect_failed(retries_max, rand::rng().random(), clock::instant());
    let again = again && !has_left;
    if again {
        let cause = error.etype().as_str();
        failure_log::of_connect(request_id, &provider, place, cause);
    }
    error.set_retry(again);
    error
}
