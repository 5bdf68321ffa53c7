//! The beginning of a success. Nothing of it reaches the client until the first event of a stream, or a body in one piece, is
//! known to be an answer, so a provider that breaks off, says nothing or says an error before is one that has failed: the
//! attempt is repeated, or the client gets an error status.

use bytes::Bytes;
use pingora::{Error, Result, http::ResponseHeader};
use pingora_proxy::Session;
use smallvec::SmallVec;

use crate::{
    domain::wire::protocol::{Framing, Observed},
    edges::clock,
    gateway::{
        answer::{error, interim, shape},
        coding,
        forward::Forward,
        meter::Meter,
        outlet::{
            Outlet,
            unbegun::{HELD_BYTES_MAX, Unbegun},
            withheld_error::{Judged, WithheldError},
        },
        upstream::verdict::{self, Event},
    },
    telemetry::metrics::Metrics,
};

/// The status that stands for a success without an answer.
const NO_ANSWER: u16 = 502;

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// They do not tell.
    Nothing,
    /// An answer.
    Answer,
    /// An error in the provider's words, for which this status stands.
    Error(u16),
    /// No answer, and none can follow.
    NoAnswer,
}

/// Holds the head of a success, which is ready for the client, until the body begins. Pingora gets a head instead that the
/// client never sees.
pub(crate) fn hold(
    session: &Session,
    forward: &mut Forward,
    head: &mut ResponseHeader,
    announced: Framing,
) -> Result<()> {
    let due = clock::instant() + forward.request.live.config.upstream.head_wait;
    let held = std::mem::replace(head, interim::head()?);
    let keeps_alive = session.get_keepalive().is_some();
    forward.client.write_gate.head.hold(Box::new(held), due, keeps_alive);
    forward.unbegun = Some(Box::new(Unbegun::new(announced)));
    Ok(())
}

/// Takes a piece of the body, or its end, which the meter has seen. Returns true if the answer has begun; `piece` is what
/// can go to the client then. An error return ends the attempt.
pub(crate) fn take(
    metrics: &Metrics,
    session: &mut Session,
    forward: &mut Forward,
    piece: &mut Option<Bytes>,
    end: bool,
) -> Result<bool> {
    let Some(unbegun) = &mut forward.unbegun else {
        return Ok(true);
    };
    let meter = &forward.meter;
    let counts_tokens = forward.request.operation.counts_tokens();
    let seen = seen(unbegun.held(), piece.as_deref(), meter, end, counts_tokens);
    let is_sent = !forward.client.write_gate.head.is_waiting();
    if seen == Seen::Answer || is_sent {
        let status = match seen {
            Seen::Nothing | Seen::Answer => meter.status(),
            Seen::Error(status) => status,
            Seen::NoAnswer => NO_ANSWER,
        };
        verdict::next(metrics, forward, true, Event::Begun { status });
        begin(session, forward, piece)?;
        return Ok(true);
    }
    let is_stream = forward.meter.framing() != Some(Framing::Json);
    match seen {
        Seen::Error(status) if is_stream => {
            let credential_refused = forward.provider().refuses_credential(status, None);
            let event = Event::NeverBegan {
                status,
                credential_refused,
            };
            verdict::after_answer(metrics, forward, event)?;
            // No other attempt follows, so the client gets the provider's words.
            begin(session, forward, piece)?;
            Ok(true)
        }
        Seen::NoAnswer => Err(no_answer(metrics, forward)),
        Seen::Error(status) if end => {
            answer_with_error(metrics, forward, status, piece.take())?;
            Ok(false)
        }
        Seen::Nothing | Seen::Error(_) | Seen::Answer => {
            if let Some(bytes) = piece.take() {
                unbegun.push(&bytes);
            }
            Ok(false)
        }
    }
}

fn seen(held: &[u8], piece: Option<&[u8]>, meter: &Meter, end: bool, counts_tokens: bool) -> Seen {
    let piece = piece.unwrap_or_default();
    let is_long = held.len() + piece.len() > HELD_BYTES_MAX;
    if is_long || meter.is_undecodable() {
        return Seen::Answer;
    }
    let unfinished = if end { Seen::NoAnswer } else { Seen::Nothing };
    if !meter.is_framing_known() {
        return unfinished;
    }
    match meter.framing() {
        None | Some(Framing::Opaque) => Seen::NoAnswer,
        Some(Framing::Json) if !meter.is_complete() => unfinished,
        Some(framing) => match meter.observed() {
            Some(observed) => match &observed.in_band_error {
                Some(error) => Seen::Error(error.status()),
                None if framing == Framing::Json => match counts_tokens {
                    true if is_empty_value(held, piece) => Seen::NoAnswer,
                    false if !is_answer(&observed, meter) => Seen::NoAnswer,
                    _ => Seen::Answer,
                },
                None if meter.has_begun() => Seen::Answer,
                None => unfinished,
            },
            None => unfinished,
        },
    }
}

/// Whether a body in one piece has something of an answer.
fn is_answer(observed: &Observed, meter: &Meter) -> bool {
    observed.usage.is_some()
        || observed.finish_reason.is_some()
        || observed.model.is_some()
        || observed.answer_id.is_some()
        || meter.first_content.is_some()
}

/// Whether a body is an empty value. A compressed one never looks so.
fn is_empty_value(held: &[u8], piece: &[u8]) -> bool {
    let bytes = held.iter().chain(piece).filter(|byte| !byte.is_ascii_whitespace());
    let first: SmallVec<[u8; 8]> = bytes.copied().take(5).collect();
    matches!(first.as_slice(), b"{}" | b"[]" | b"null")
}

/// Has the head and what was held go to the client before anything else.
fn begin(session: &mut Session, forward: &mut Forward, piece: &mut Option<Bytes>) -> Result<()> {
    let Some(unbegun) = forward.unbegun.take() else {
        return Ok(());
    };
    let announced = unbegun.announced;
    *piece = unbegun.into_body(piece.take());
    shape::release(session, forward, announced)
}

/// Tells Pingora's session of a head that the client's connection has sent, because it waited for too long.
///
/// # Errors
/// The session could not take it.
pub(crate) fn catch_up(session: &mut Session, forward: &Forward) -> Result<()> {
    let head = &forward.client.write_gate.head;
    match head.is_waiting() {
        true => Ok(()),
        false => head.release(&mut session.downstream_session),
    }
}

/// The error that ends an attempt whose success has no answer in it.
pub(crate) fn no_answer(metrics: &Metrics, forward: &mut Forward) -> Box<Error> {
    let event = Event::NeverBegan {
        status: NO_ANSWER,
        credential_refused: false,
    };
    let repeated = verdict::after_answer(metrics, forward, event);
    forward.abandon_answer();
    match repeated {
        Err(error) => error,
        Ok(()) => forward.refuse_answer(),
    }
}

/// Turns a success that is an error into an error answer with this status.
fn answer_with_error(metrics: &Metrics, forward: &mut Forward, status: u16, piece: Option<Bytes>) -> Result<()> {
    let (Some(unbegun), Some(mut head)) = (forward.unbegun.take(), forward.client.write_gate.head.take()) else {
        return Err(forward.refuse_answer());
    };
    head.set_status(status)?;
    let coded = coding::of_answer(&head.headers);
    let mut withheld = WithheldError::new(*head, coded, Judged::NotInSuccess);
    withheld.push(&unbegun.into_body(piece).unwrap_or_default());
    forward.meter.replaced_by(status);
    forward.outlet = Outlet::WholeError(Box::new(error::finish(withheld, metrics, forward)?));
    Ok(())
}
