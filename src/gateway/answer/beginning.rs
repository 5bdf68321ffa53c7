//! Handles the beginning of a successful answer. weir sends the client nothing until it knows that the body really contains an
//! answer. It knows this from the first event of a stream, or from the complete body of a non-streaming answer. If the provider
//! breaks off, stays silent or reports an error before that, the attempt has failed, and either another attempt follows or the
//! client gets an error status.

use bytes::Bytes;
use pingora::{Error, Result, http::ResponseHeader};
use pingora_proxy::Session;
use smallvec::SmallVec;

use crate::{
    domain::{
        translation::answer::ANSWER_BYTES_MAX,
        wire::protocol::{AnswerFraming, AnswerReport},
    },
    edges::clock,
    gateway::{
        answer::{self, error, fields},
        coding,
        forward::Forward,
        meter::AnswerMeter,
        outlet::{ErrorJudgement, Outlet, UNBEGUN_BYTES_MAX, UnbegunAnswer, WithheldError},
        upstream::verdict::{self, AttemptEvent},
    },
    telemetry::metrics::Metrics,
};

/// The HTTP status of the error that the client gets if the provider's status is a success, but the body contains no answer.
const NO_ANSWER: u16 = 502;

/// The content of a body, as far as the body has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyStart {
    /// Too few bytes to decide.
    Nothing,
    /// An answer.
    Answer,
    /// An error that the provider reports. The number is the corresponding HTTP status.
    Error(u16),
    /// No answer, and the rest of the body cannot contain one.
    NoAnswer,
}

/// Holds the head of a successful answer, which is already prepared for the client, until the body begins. Replaces `head` with an
/// interim head for Pingora, which the client never gets.
pub(crate) fn hold_head(
    session: &Session,
    forward: &mut Forward,
    head: &mut ResponseHeader,
    announced: AnswerFraming,
) -> Result<()> {
    let due = clock::instant() + forward.request.live.config.upstream.head_wait;
    let held = std::mem::replace(head, fields::interim_head()?);
    let keeps_alive = session.get_keepalive().is_some();
    forward.client.write_gate.head.hold(Box::new(held), due, keeps_alive);
    forward.unbegun = Some(Box::new(UnbegunAnswer::new(announced)));
    Ok(())
}

/// Handles a piece of the body, or its end, after the meter has observed it. Returns true if the answer has begun; `piece` then
/// contains the bytes for the client. An `Err` result ends the attempt.
pub(crate) fn on_piece(
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
    let counts_tokens = forward.request.operation.is_token_count();
    let seen = match &mut forward.outlet {
        // Nothing can be sent before the end, so the end can still become an error status.
        Outlet::Translate(answer) if answer.is_whole() => match end {
            false if unbegun.held().len() <= ANSWER_BYTES_MAX => BodyStart::Nothing,
            false => BodyStart::NoAnswer,
            true => match classify(unbegun.held(), piece.as_deref(), meter, end, counts_tokens) {
                BodyStart::Answer if !meter.is_complete() => BodyStart::NoAnswer,
                BodyStart::Answer if !answer.read_whole([unbegun.held(), piece.as_deref().unwrap_or_default()]) => {
                    BodyStart::NoAnswer
                }
                seen => seen,
            },
        },
        _ => classify(unbegun.held(), piece.as_deref(), meter, end, counts_tokens),
    };
    let is_sent = !forward.client.write_gate.head.is_waiting();
    if seen == BodyStart::Answer || is_sent {
        let status = match seen {
            BodyStart::Nothing | BodyStart::Answer => meter.status(),
            BodyStart::Error(status) => status,
            BodyStart::NoAnswer => NO_ANSWER,
        };
        verdict::decide(metrics, forward, true, AttemptEvent::Begun { status });
        begin(session, forward, piece)?;
        return Ok(true);
    }
    let is_stream = forward.meter.framing() != Some(AnswerFraming::Json);
    match seen {
        BodyStart::Error(status) if is_stream => {
            let credential_refused = forward.provider().refuses_credential(status, None);
            let event = AttemptEvent::NeverBegan {
                status,
                credential_refused,
            };
            verdict::decide_after_answer(metrics, forward, event)?;
            // No other attempt follows, so the client gets the provider's own error.
            begin(session, forward, piece)?;
            Ok(true)
        }
        BodyStart::NoAnswer => Err(no_answer(metrics, forward)),
        BodyStart::Error(status) if end => {
            answer_with_error(metrics, forward, status, piece.take())?;
            Ok(false)
        }
        BodyStart::Nothing | BodyStart::Error(_) | BodyStart::Answer => {
            if let Some(bytes) = piece.take() {
                unbegun.push(&bytes);
            }
            Ok(false)
        }
    }
}

fn classify(held: &[u8], piece: Option<&[u8]>, meter: &AnswerMeter, end: bool, counts_tokens: bool) -> BodyStart {
    let piece = piece.unwrap_or_default();
    let is_long = held.len() + piece.len() > UNBEGUN_BYTES_MAX;
    if is_long || meter.is_undecodable() {
        return BodyStart::Answer;
    }
    let unfinished = if end { BodyStart::NoAnswer } else { BodyStart::Nothing };
    if !meter.is_framing_known() {
        return unfinished;
    }
    match meter.framing() {
        None | Some(AnswerFraming::Opaque) => BodyStart::NoAnswer,
        Some(AnswerFraming::Json) if !meter.is_complete() => unfinished,
        Some(framing) => match meter.observed() {
            Some(observed) => match &observed.in_band_error {
                Some(error) => BodyStart::Error(error.status()),
                None if framing == AnswerFraming::Json => match counts_tokens {
                    true if is_empty_value(held, piece) => BodyStart::NoAnswer,
                    false if !is_answer(&observed, meter) => BodyStart::NoAnswer,
                    _ => BodyStart::Answer,
                },
                None if meter.has_begun() => BodyStart::Answer,
                None => unfinished,
            },
            None => unfinished,
        },
    }
}

/// Whether the body of a non-streaming answer contains any part of an answer.
fn is_answer(observed: &AnswerReport, meter: &AnswerMeter) -> bool {
    observed.usage.is_some()
        || observed.finish_reason.is_some()
        || observed.model.is_some()
        || observed.answer_id.is_some()
        || meter.first_content.is_some()
}

/// Whether a body is an empty JSON value: `{}`, `[]` or `null`. Returns false for a compressed body.
fn is_empty_value(held: &[u8], piece: &[u8]) -> bool {
    let bytes = held.iter().chain(piece).filter(|byte| !byte.is_ascii_whitespace());
    let first: SmallVec<[u8; 8]> = bytes.copied().take(5).collect();
    matches!(first.as_slice(), b"{}" | b"[]" | b"null")
}

/// Releases the held head, and the part of the body that was held with it, to the client.
fn begin(session: &mut Session, forward: &mut Forward, piece: &mut Option<Bytes>) -> Result<()> {
    let Some(unbegun) = forward.unbegun.take() else {
        return Ok(());
    };
    let announced = unbegun.announced;
    *piece = unbegun.into_body(piece.take());
    answer::release(session, forward, announced)
}

/// Lets Pingora's session write a head that the client's connection has already sent. The connection sends a held head by itself
/// if the head has waited too long for the body. The connection then discards the bytes that the session writes. Does nothing
/// while the head is still held.
///
/// # Errors
/// The session could not write the head.
pub(crate) fn write_sent_head(session: &mut Session, forward: &Forward) -> Result<()> {
    let head = &forward.client.write_gate.head;
    match head.is_waiting() {
        true => Ok(()),
        false => head.release(&mut session.downstream_session),
    }
}

/// Decides what follows an attempt if the provider's status is a success, but the body contains no answer. Returns the error that
/// ends the attempt.
pub(crate) fn no_answer(metrics: &Metrics, forward: &mut Forward) -> Box<Error> {
    let event = AttemptEvent::NeverBegan {
        status: NO_ANSWER,
        credential_refused: false,
    };
    let repeated = verdict::decide_after_answer(metrics, forward, event);
    forward.abandon_answer();
    match repeated {
        Err(error) => error,
        Ok(()) => forward.refuse_answer(),
    }
}

/// Turns an answer that has a success status, but whose body is an error, into an error answer with the HTTP status `status`.
fn answer_with_error(metrics: &Metrics, forward: &mut Forward, status: u16, piece: Option<Bytes>) -> Result<()> {
    let (Some(unbegun), Some(mut head)) = (forward.unbegun.take(), forward.client.write_gate.head.take()) else {
        return Err(forward.refuse_answer());
    };
    head.set_status(status)?;
    let coded = coding::of_answer(&head.headers);
    let mut withheld = WithheldError::new(*head, coded, ErrorJudgement::NotInSuccess);
    withheld.push(&unbegun.into_body(piece).unwrap_or_default());
    forward.meter.replace_status(status);
    forward.outlet = Outlet::ErrorReply(Box::new(error::finish(withheld, metrics, forward)?));
    Ok(())
}
