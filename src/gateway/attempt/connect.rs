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
    upstreams::peer::HttpPeer,
};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    clock,
    domain::refusal::Refusal,
    gateway::{
        attempt::{
            Attempt,
            connector::Connector,
            deadline::{self, Limits, Watch},
            interruption::Interruption,
        },
        drain::Drain,
        failure_log,
        forward::Forward,
        parts::Gateway,
        request::body::BodyForm,
    },
};

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
    forward.attempt = Attempt::default();
    if gateway.drain.is_cut() {
        let stopping = Interruption::Refused(Refusal::Stopping);
        return Err(stopping.error(ErrorType::Custom("stopping"), "no attempt is begun any more"));
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
        let unreachable = Interruption::Refused(Refusal::ProviderUnreachable);
        return Err(unreachable
            .error(ErrorType::ConnectNoRoute, "the provider's name is not resolved")
            .into_up());
    };
    edit_body(session, forward)?;
    let timeouts = &forward.request.live.config.upstream;
    let connect = forward.provider().timeouts.connect.unwrap_or(timeouts.connect);
    let mut peer = HttpPeer::new(place.first, place.origin.https, place.origin.host.clone());
    peer.options.alpn = ALPN::H1;
    let places = Arc::clone(forward.attempts.places());
    peer.options.custom_l4 = Some(Arc::new(Connector::new(connect, place, places, gateway.drain.clone())));
    peer.options.total_connection_timeout = Some(connect);
    // The watch limits reading; Pingora's own timeout would register a timer for every chunk.
    peer.options.write_timeout = Some(limits(forward).idle);
    peer.options.idle_timeout = Some(timeouts.pool_idle);
    if forward.attempts.take_fresh() || !forward.can_resend() {
        // A stale pooled connection would lose the request for good, so this attempt opens a new one.
        static OWN_GROUP: AtomicU64 = AtomicU64::new(1);
        peer.group_key = OWN_GROUP.fetch_add(1, Ordering::Relaxed);
        peer.options.idle_timeout = Some(Duration::ZERO);
    }
    Ok(Box::new(peer))
}

/// Edits the body for the current provider, unless admission has done it.
fn edit_body(session: &Session, forward: &mut Forward) -> Result<()> {
    let Some(body) = &mut forward.body else {
        return Error::e_explain(ErrorType::InternalError, "an attempt without a body");
    };
    let (leg, turn) = (forward.attempts.leg(), forward.attempts.legs_left_behind());
    let facts = forward.request.facts(&session.req_header().headers, leg);
    let edited = body.edit_for(turn, &leg.provider.body, &facts, &forward.request.scan);
    edited.map_err(|refusal| {
        let context = "the provider cannot take the body";
        Interruption::Refused(refusal).error(ErrorType::InternalError, context)
    })
}

fn limits(forward: &Forward) -> Limits {
    let general = &forward.request.live.config.upstream;
    let own = &forward.provider().timeouts;
    let first_byte = if forward.request.stream {
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
    let replay_bytes = match &forward.body {
        Some(body) if body.form != BodyForm::Sized && session.get_retry_buffer().is_some() => body.received,
        _ => 0,
    };
    let limits = limits(forward);
    let presence = forward.recipient.presence.clone();
    let watch = deadline::handle_of(digest)
        .map(|handle| Watch::start(handle, limits, presence, drain.clone(), clock::instant()));
    forward.attempt.connected(watch, replay_bytes);
}

/// Pingora could not connect. Decides whether another attempt follows.
pub fn failed(forward: &mut Forward, mut error: Box<Error>, drain: &Drain) -> Box<Error> {
    if drain.is_cut() {
        error.set_cause(Interruption::Refused(Refusal::Stopping));
        error.set_retry(false);
        return error;
    }
    let place = forward.attempts.place().map(|place| place.address);
    let provider = forward.provider().name.clone();
    let retries_max = forward.request.live.config.upstream.connect_retries;
    let again = forward
        .attempts
        .connect_failed(retries_max, rand::rng().random(), clock::instant());
    let again = again && !forward.recipient.has_left();
    if again {
        let cause = error.etype().as_str();
        failure_log::of_connect(forward.ticket.request_id(), &provider, place, cause);
    }
    error.set_retry(again);
    error
}
