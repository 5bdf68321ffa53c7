//! Passes the body of a provider's answer to the client as it arrives, while an observer reads it.

use bytes::Bytes;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::End,
        wire::protocol::{AnswerFraming, Break, MessageBoundaries},
    },
    edges::clock,
    gateway::{
        answer::{beginning, error},
        attempt::deadline::Fate,
        forward::Forward,
        outlet::{MaskFailure, Outlet, append, rewrite},
        parts::Gateway,
    },
    telemetry::metrics::Metrics,
};

/// Passes a piece of the answer's body, or its end, to the client. Charges the request before the client gets the last bytes. An
/// `Err` result breaks the client's connection.
pub(crate) fn pass(
    gateway: &Gateway,
    session: &mut Session,
    forward: &mut Forward,
    piece: &mut Option<Bytes>,
    end: bool,
) -> Result<()> {
    fail::fail_point!("response_body");
    let is_last = relay(gateway.metrics(), session, forward, piece, end)?;
    forward.record_state(&gateway.sessions, end);
    if is_last {
        forward.settle();
    }
    Ok(())
}

/// Turns a piece of the provider's body, or its end, into the bytes for the client. Returns whether these are the client's last
/// bytes.
fn relay(
    metrics: &Metrics,
    session: &mut Session,
    forward: &mut Forward,
    piece: &mut Option<Bytes>,
    end: bool,
) -> Result<bool> {
    forward.check_client();
    if let Some(bytes) = piece.as_deref() {
        observe(forward, bytes, end);
    }
    if matches!(forward.outlet, Outlet::Withheld(_)) {
        error::buffer_piece(metrics, forward, piece, end)?;
        return Ok(end);
    }
    if matches!(forward.outlet, Outlet::ErrorReply(_)) {
        *piece = None;
        return Ok(end);
    }
    if end && forward.has_not_begun() && forward.attempt.fate() != Fate::Running {
        // If only the end of the connection delimits the answer, an expired time limit looks like a proper end, because it closes
        // the connection.
        return Err(Error::explain(ErrorType::ConnectionClosed, "the answer did not begin in time").into_up());
    }
    if end {
        forward.meter.on_end();
    }
    let boundaries = boundaries(forward, piece.is_some());
    if !beginning::on_piece(metrics, session, forward, piece, end)? {
        return Ok(end);
    }
    if forward.ticket.must_stop() && !end && forward.request.stream {
        let context = "no funds are left for the answer";
        return Err(Error::explain(ErrorType::Custom("limit reached"), context).into_up());
    }
    let fate = match end {
        true => forward.attempt.on_end(),
        false => Fate::Running,
    };
    mask(forward, boundaries, piece, end)?;
    emit(forward, piece, end)?;
    if end && !forward.has_complete_answer() {
        end_as_failure(forward, piece, fate)?;
    } else if end
        && !matches!(forward.outlet, Outlet::Translate(_))
        && let Some(closing) = forward.meter.closing()
    {
        append(piece, &closing);
    }
    Ok(end || forward.meter.is_finished())
}

/// Observes a piece of the provider's body.
fn observe(forward: &mut Forward, bytes: &[u8], end: bool) {
    let now = clock::instant();
    forward.attempt.on_byte(now);
    let (masking, attempts) = (&mut forward.masking, &forward.attempts);
    let decoded = |text: &[u8], boundaries| masking.observe_decoded(text, boundaries, attempts.secret());
    forward.meter.on_piece(bytes, now, decoded);
    // The bill is not updated for the last bytes: the charge follows in the same call and computes the cost anyway.
    if !end && !forward.meter.is_finished() {
        forward.sample(now);
    }
}

/// Returns the message boundaries in the next piece for the client. If the answer has not begun, that piece consists of the held
/// bytes and the provider's new piece. `has_come` says whether the provider has sent a new piece.
fn boundaries(forward: &Forward, has_come: bool) -> MessageBoundaries {
    let held = forward.unbegun.as_ref().map_or(0, |unbegun| unbegun.held().len());
    match has_come {
        true => forward.meter.boundaries().shifted_by(held),
        false => MessageBoundaries::default(),
    }
}

/// Masks the credential in errors within a piece. At the `end`, also masks the credential in the bytes that were held back, and
/// releases them. Returns an `Err`, which breaks the connection, if a compressed answer repeats the credential, because
/// compressed bytes cannot be masked.
fn mask(forward: &mut Forward, boundaries: MessageBoundaries, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    let (masking, attempts) = (&mut forward.masking, &forward.attempts);
    if !forward.meter.is_compressed() {
        masking.pass(piece, boundaries, || attempts.secret());
        if end {
            masking.finish(piece, attempts.secret());
        }
        return Ok(());
    }
    if end || forward.meter.is_undecodable() {
        // No more text follows, so the mask stops waiting. Its text is discarded, because the client gets the compressed bytes.
        masking.remaining(attempts.secret());
    }
    let why = "an error within the compressed answer repeats the credential";
    let is_passed = masking.pass_coded(piece);
    is_passed.map_err(|MaskFailure| Error::explain(ErrorType::ConnectionClosed, why).into_up())
}

/// Replaces a piece of the answer's body, or the body's end, with the bytes that the outlet releases to the client. Observation
/// and billing use the bytes as the provider sent them.
fn emit(forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    match &mut forward.outlet {
        Outlet::Rewrite(rewriter) => rewrite(rewriter, piece, end),
        Outlet::PossibleError(possible) => {
            if let Some(rewriter) = &mut possible.rewriter {
                rewrite(rewriter, piece, end);
            }
            *piece = piece.take().and_then(|bytes| possible.push(bytes));
            if end && let Outlet::PossibleError(possible) = std::mem::take(&mut forward.outlet) {
                let rest = possible.finish(
                    forward.error_form(),
                    forward.attempts.secret(),
                    &forward.ticket.request_id,
                );
                if !rest.is_empty() {
                    append(piece, &rest);
                }
            }
        }
        Outlet::Translate(answer) => {
            let is_last = end || forward.meter.is_finished();
            let is_complete = is_last && forward.meter.is_complete();
            let usage = is_complete.then(|| forward.ticket.billed_usage(&forward.meter));
            answer.pass(piece, end, usage).map_err(|_fault| {
                Error::explain(ErrorType::ConnectionClosed, "the answer cannot be translated").into_up()
            })?;
        }
        Outlet::Pass | Outlet::Withheld(_) | Outlet::ErrorReply(_) => {}
    }
    Ok(())
}

/// Handles an incomplete answer that the provider ended properly. A stream gets the protocol's in-band error; if the protocol has
/// none, the connection is broken. In both cases, the client cannot mistake the answer for a success.
fn end_as_failure(forward: &mut Forward, piece: &mut Option<Bytes>, fate: Fate) -> Result<()> {
    let why = fate.break_reason().unwrap_or(Break::ProviderEnded);
    forward.decide(End::Broken(why));
    if let Some(tail) = forward.failure_tail(why) {
        append(piece, &tail);
        return Ok(());
    }
    let is_translated = matches!(forward.outlet, Outlet::Translate(_));
    if !is_translated && forward.meter.framing() != Some(AnswerFraming::Json) && !forward.meter.is_compressed() {
        // The body does not match its content type, so weir cannot append an error. The client has to judge the answer itself.
        return Ok(());
    }
    Err(Error::explain(ErrorType::ConnectionClosed, "the answer ended before it was complete").into_up())
}
