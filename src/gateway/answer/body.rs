//! Passes the answer's body to the client as it arrives, while an observer reads it.

use bytes::Bytes;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::outcome::Outcome,
        wire::protocol::{Boundaries, FailureKind, Framing, MidStreamFailure},
    },
    edges::clock,
    gateway::{
        answer::{beginning, broken_off, error},
        attempt::deadline::Fate,
        forward::Forward,
        outlet::{Outlet, append, masking::CannotMask, rewrite},
        ticket::Cause,
    },
    telemetry::metrics::Metrics,
};

/// Passes a piece of the answer's body, or its end. An error return breaks the connection.
pub(crate) fn pass(
    metrics: &Metrics,
    session: &mut Session,
    forward: &mut Forward,
    piece: &mut Option<Bytes>,
    end: bool,
) -> Result<()> {
    fail::fail_point!("response_body");
    forward.note_client();
    if let Some(bytes) = piece.as_deref() {
        let now = clock::instant();
        forward.dispatch.attempt.byte_seen(now);
        let (masking, secret) = (&mut forward.masking, forward.dispatch.secret());
        let decoded = |text: &[u8], boundaries| masking.see_decoded(text, boundaries, secret);
        forward.ticket.meter.body_seen(bytes, now, decoded);
        // The charge follows the last bytes in this call, so what they make of the cost is computed there alone.
        if !end && !forward.ticket.meter.is_whole() {
            forward.ticket.look(now);
        }
    }
    if matches!(forward.outlet, Outlet::Withheld(_)) {
        return error::keep_back(metrics, forward, piece, end);
    }
    if matches!(forward.outlet, Outlet::WholeError(_)) {
        *piece = None;
        return Ok(());
    }
    if end && forward.has_not_begun() && forward.dispatch.attempt.fate() != Fate::Running {
        // If only the connection's end delimits the answer, its time limit looks like a proper end.
        return Err(Error::explain(ErrorType::ConnectionClosed, "the answer did not begin in time").into_up());
    }
    if end {
        forward.ticket.meter.body_ended();
    }
    let boundaries = boundaries(forward, piece.is_some());
    if !beginning::take(metrics, session, forward, piece, end)? {
        return Ok(());
    }
    if !end && forward.dispatch.request.stream && forward.ticket.is_cut() {
        return Err(Error::explain(
            ErrorType::Custom("limit reached"),
            "nothing is left to pay for the answer",
        )
        .into_up());
    }
    let mut fate = Fate::Running;
    if end {
        fate = forward.dispatch.attempt.ended();
    }
    if forward.ticket.meter.is_whole() {
        forward.ticket.charge(Cause::Complete);
    }
    mask(forward, boundaries, piece, end)?;
    let_out(forward, piece, end);
    if end && !forward.ticket.meter.is_complete() {
        return end_as_failure(forward, piece, fate);
    } else if end && let Some(closing) = forward.ticket.meter.closing() {
        append(piece, &closing);
    }
    Ok(())
}

/// How the next piece that leaves divides into messages: the one that has come, behind what is held of an answer that has not begun.
fn boundaries(forward: &Forward, has_come: bool) -> Boundaries {
    let held = forward.unbegun.as_ref().map_or(0, |unbegun| unbegun.held().len());
    match has_come {
        true => forward.ticket.meter.boundaries().behind(held),
        false => Boundaries::default(),
    }
}

/// Masks the credential in errors within a piece, or in what waits at the end. An error return breaks the connection, because
/// nothing can be masked in what is compressed.
fn mask(forward: &mut Forward, boundaries: Boundaries, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    let (masking, secret) = (&mut forward.masking, forward.dispatch.secret());
    if !forward.ticket.meter.is_coded() {
        masking.pass(piece, boundaries, secret);
        if end {
            masking.finish(piece, secret);
        }
        return Ok(());
    }
    if end || forward.ticket.meter.is_undecodable() {
        // The client gets the compressed bytes; nothing more is learnt of what they say.
        masking.rest(secret);
    }
    let why = "an error within the compressed answer repeats the credential";
    let is_passed = masking.pass_coded(piece);
    is_passed.map_err(|CannotMask| Error::explain(ErrorType::ConnectionClosed, why).into_up())
}

/// Sends a piece, or the end, through the outlet. Observation and billing use the provider's bytes.
fn let_out(forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) {
    match &mut forward.outlet {
        Outlet::Rewrite(rewriter) => rewrite(rewriter, piece, end),
        Outlet::PossibleError(possible) => {
            if let Some(rewriter) = &mut possible.rewriter {
                rewrite(rewriter, piece, end);
            }
            *piece = piece.take().and_then(|bytes| possible.push(bytes));
            if end && let Outlet::PossibleError(possible) = std::mem::take(&mut forward.outlet) {
                let rest = possible.finish(
                    forward.dispatch.error_form(),
                    forward.dispatch.secret(),
                    forward.ticket.request_id(),
                );
                if !rest.is_empty() {
                    append(piece, &rest);
                }
            }
        }
        Outlet::Pass | Outlet::Withheld(_) | Outlet::WholeError(_) => {}
    }
}

/// Handles an answer that the provider ended properly but incomplete. A stream gets the protocol's in-band error; if
/// the protocol has none, the connection is broken. In neither case does a client take it for a success.
fn end_as_failure(forward: &mut Forward, piece: &mut Option<Bytes>, fate: Fate) -> Result<()> {
    let (outcome, kind, message) = broken_off::ended_by(fate).unwrap_or((
        Outcome::ProviderCut,
        FailureKind::ProviderCut,
        "the provider ended the answer before it was complete; send the request again",
    ));
    let failure = MidStreamFailure {
        kind,
        message: message.to_owned(),
    };
    forward.ticket.charge(Cause::Failed(outcome));
    if let Some(tail) = forward.ticket.meter.failure_tail(&failure) {
        append(piece, &tail);
        return Ok(());
    }
    if forward.ticket.meter.framing() != Some(Framing::Json) && !forward.ticket.meter.is_coded() {
        // The body does not match its content type; the client decides.
        return Ok(());
    }
    Err(Error::explain(ErrorType::ConnectionClosed, "the answer ended before it was whole").into_up())
}

/// The bytes still missing from a complete answer whose provider connection broke. `None` if the answer is not
/// complete, or if only the connection's end delimits it.
pub(crate) fn rest_of_whole(forward: &mut Forward) -> Option<Bytes> {
    let meter = &mut forward.ticket.meter;
    let is_stream = meter.status() < 400 && matches!(meter.framing(), Some(Framing::Sse | Framing::JsonArray));
    if !is_stream || meter.is_coded() || !meter.is_complete() {
        return None;
    }
    meter.body_ended();
    let closing = meter.closing();
    let mut rest = forward.rest();
    rest.extend(closing.unwrap_or_default());
    Some(rest.into())
}
