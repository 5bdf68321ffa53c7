//! Handles a provider's error answer. weir withholds the head and the body of the answer until its end. Then weir decodes the
//! answer, determines its meaning from the provider's file, masks the credential in it, and sends it to the client in the form
//! that the client expects. The client gets nothing of the answer if another attempt follows or the provider refused the
//! credential.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Version, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};

use crate::{
    domain::{
        faults::{retry_after, retry_delay},
        rules::ErrorShape,
        wire::protocol::{
            framing_from_content_type,
            provider_error::{redact, reshape_error},
        },
    },
    edges::clock,
    gateway::{
        answer::fields,
        attempt::deadline::Fate,
        coding,
        forward::Forward,
        outlet::{ErrorJudgement, ErrorReply, Outlet, WithheldError},
        upstream::verdict::{self, AttemptEvent},
    },
    telemetry::metrics::Metrics,
};

/// Withholds an error answer whose head has arrived. Replaces `head` with an interim head for Pingora, which the client never gets.
/// An `Err` result ends the attempt.
pub(crate) fn withhold(
    metrics: &Metrics,
    forward: &mut Forward,
    head: &mut ResponseHeader,
    judged: ErrorJudgement,
) -> Result<()> {
    let withheld = std::mem::replace(head, fields::interim_head()?);
    let content_type = withheld.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let operation = forward.request.operation;
    let framing = framing_from_content_type(operation, content_type);
    let coded = coding::of_answer(&withheld.headers);
    let (status, protocol) = (withheld.status.as_u16(), operation.protocol());
    forward.meter.on_head(status, protocol, framing, &coded);
    let attempt = &forward.attempt;
    attempt.on_error_head(clock::instant());
    let is_empty = attempt.is_bodiless() || fields::announces_no_body(&withheld);
    forward.outlet = Outlet::Withheld(Box::new(WithheldError::new(withheld, coded, judged)));
    match is_empty {
        // No body follows, so the answer's end is handled at once.
        true => buffer_piece(metrics, forward, &mut None, true),
        false => Ok(()),
    }
}

/// Buffers a piece of a withheld error answer, or handles the answer's end. The client gets nothing yet. An `Err` result ends the
/// attempt.
pub(crate) fn buffer_piece(
    metrics: &Metrics,
    forward: &mut Forward,
    piece: &mut Option<Bytes>,
    end: bool,
) -> Result<()> {
    let taken = piece.take();
    if let (Outlet::Withheld(error), Some(bytes)) = (&mut forward.outlet, taken) {
        error.push(&bytes);
    }
    if end && forward.attempt.fate() == Fate::Stopped {
        // If only the end of the connection delimits the answer, an expired time limit looks like a proper end, because it closes
        // the connection.
        let context = "the error answer was not complete in time";
        return Err(Error::explain(ErrorType::ConnectionClosed, context).into_up());
    }
    match end {
        true => conclude(metrics, forward),
        false => Ok(()),
    }
}

/// Ends a withheld error answer whose body broke off or was late. Uses the part of the body that has arrived, because the
/// answer's status tells the client more than an error about the broken body would. An `Err` result ends the attempt.
pub(crate) fn conclude(metrics: &Metrics, forward: &mut Forward) -> Result<()> {
    if let Outlet::Withheld(error) = std::mem::take(&mut forward.outlet) {
        forward.attempt.on_end();
        forward.outlet = Outlet::ErrorReply(Box::new(finish(*error, metrics, forward)?));
        forward.meter.on_end();
    }
    Ok(())
}

/// Determines the meaning of a complete error answer, and prepares the answer for the client. An `Err` result ends the attempt.
pub(crate) fn finish(mut error: WithheldError, metrics: &Metrics, forward: &mut Forward) -> Result<ErrorReply> {
    let text = error.take_text();
    let WithheldError {
        mut head,
        judgement: judged,
        ..
    } = error;
    let status = head.status.as_u16();
    let wait = text.as_deref().filter(|_| status == 429).and_then(retry_delay);
    let refused = || forward.provider().refuses_credential(status, text.as_deref());
    match judged {
        ErrorJudgement::ByStatus => {
            if let Some(wait) = wait {
                forward.attempts.credential().cool_down(wait, clock::instant());
            }
        }
        ErrorJudgement::Not => {
            let event = AttemptEvent::Answered {
                status,
                credential_refused: refused(),
                pause: wait.or_else(|| asked_pause(&head)),
            };
            verdict::decide_after_answer(metrics, forward, event)?;
        }
        ErrorJudgement::NotInSuccess => {
            let event = AttemptEvent::NeverBegan {
                status,
                credential_refused: refused(),
            };
            verdict::decide_after_answer(metrics, forward, event)?;
        }
    }
    let form = forward.error_form();
    let masked = text.map(|text| redact(&text, forward.attempts.secret()).map_or(text, Bytes::from));
    let is_native_form = forward.provider().errors == ErrorShape::Native && !forward.is_translated();
    let fits = |body: &Bytes| is_native_form && form.is_form_of(body);
    let is_native = masked.as_ref().is_some_and(fits);
    let body = match masked {
        Some(body) if is_native => body,
        other => reshape_error(form, status, &other.unwrap_or_default(), &forward.ticket.request_id).into(),
    };
    fields::adapt(forward, &mut head)?;
    let losses = forward.translation().map(|translation| translation.header());
    fields::set_translation(losses, &mut head)?;
    describe(&mut head, body.len(), is_native)?;
    Ok(ErrorReply { head, body })
}

/// Returns the pause that the head of an error answer requests; `None` if it requests none.
pub(crate) fn asked_pause(head: &ResponseHeader) -> Option<Duration> {
    let header = |name: &str| head.headers.get(name)?.to_str().ok();
    retry_after(header, clock::unix_millis())
}

/// Adapts the head to the body that the client gets, which is always uncompressed JSON. `is_native` says whether the client gets
/// the provider's own body. If so, and if the content type of this body is JSON, the content type is not changed.
fn describe(head: &mut ResponseHeader, length: usize, is_native: bool) -> Result<()> {
    head.set_version(Version::HTTP_11);
    head.remove_header(&header::CONTENT_ENCODING);
    head.remove_header(&header::TRANSFER_ENCODING);
    head.insert_header(header::CONTENT_LENGTH, length)?;
    let named = head.headers.get(header::CONTENT_TYPE);
    let is_named = named.is_some_and(|value| is_json(value.as_bytes()));
    if !is_native || !is_named {
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))?;
    }
    Ok(())
}

fn is_json(content_type: &[u8]) -> bool {
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
}
