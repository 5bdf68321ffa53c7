//! Passes the provider's answer to the client as it arrives, while an observer reads it.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;
use smallvec::SmallVec;

use crate::{
    clock,
    domain::{
        outcome::Outcome,
        protocol::{FailureKind, Framing, MidStreamFailure, framing_of, provider_error::redact},
        refusal::Refusal,
        rules::{ErrorShape, RequestFacts, ResponseRewriter},
    },
    gateway::{
        answer::broken_off,
        answer::hidden_head as unseen,
        answer::possible_error::Doubtful,
        answer::redirect,
        answer::spend_limit,
        answer::withheld_error as error_answer,
        attempt::deadline::Fate,
        attempt::verdict,
        coding::{self, Coded},
        exchange::Forward,
    },
    metrics::Metrics,
};

/// Response headers about the provider's connection or front end, which are not for the client.
const NOT_RETURNED: [&str; 17] = [
    "alt-svc",
    "cf-cache-status",
    "cf-ray",
    "connection",
    "keep-alive",
    "nel",
    "report-to",
    "proxy-connection",
    "server",
    "set-cookie",
    "strict-transport-security",
    "trailer",
    "upgrade",
    "via",
    "x-powered-by",
    "www-authenticate",
    "proxy-authenticate",
];

/// The header with weir's request id; the provider's own id keeps its header.
pub const REQUEST_ID: &str = "x-weir-request-id";

/// The provider's answer has a head. An error return ends the attempt.
pub fn accept_head(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if let Some(watch) = &forward.watch {
        watch.byte_seen(clock::instant());
    }
    if head.status.is_informational() {
        *head = unseen::head()?;
        return Ok(());
    }
    forward.head_seen = true;
    let status = head.status.as_u16();
    if forward.provider().error_rules.concern(status) {
        return error_answer::withhold(metrics, forward, head, false);
    }
    let is_error = status >= 400;
    let refused = forward.provider().refuses_credential(status, None);
    let asked_pause = is_error.then(|| error_answer::asked_pause(head)).flatten();
    verdict::pass(metrics, forward, status, refused, asked_pause)?;
    if is_error {
        return error_answer::withhold(metrics, forward, head, true);
    }
    if head.status.is_redirection() {
        return Err(redirect::refuse(forward, head));
    }
    if is_empty_stream(forward, head) {
        forward.refusal = Some(Refusal::ProviderBroken);
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, "an answer that cannot be passed on").into_up());
    }
    Ok(())
}

/// Whether this is a stream without a single byte, which would look like a finished one.
fn is_empty_stream(forward: &Forward, head: &ResponseHeader) -> bool {
    forward.stream
        && head.status.is_success()
        && head
            .headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes() == b"0")
}

/// Prepares the head for the client and chooses the observer for the body.
pub fn edit_head(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    fit(forward, head)?;
    let protocol = forward.operation.protocol();
    let status = head.status.as_u16();
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let framing = framing_of(forward.operation, content_type);
    let coded = coding::of(&head.headers);
    forward.ticket.meter.head_seen(status, protocol, framing, &coded);
    let is_plain = coded == Coded::No;
    if is_plain {
        forward.rewriter = rewriter(session, forward, framing);
        let may_be_error = framing == Framing::Json && forward.provider().errors == ErrorShape::Reshape;
        forward.doubtful = may_be_error.then(Doubtful::default);
    }
    let is_edited = forward.rewriter.is_some() || forward.doubtful.is_some();
    if is_edited || is_plain && matches!(framing, Framing::Sse | Framing::JsonArray) {
        // The length may change: the body may be edited, reshaped, or followed by an in-band error.
        head.remove_header(&header::CONTENT_LENGTH);
        if session.req_header().version == Version::HTTP_11 {
            head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
        }
    }
    if session.req_header().version == Version::HTTP_10 {
        // HTTP/1.0 has no chunks: without a length the answer ends with the connection (RFC 9112 section 6.1).
        head.remove_header(&header::TRANSFER_ENCODING);
    }
    if session.is_body_done() {
        // No attempt can follow, so the memory is freed before a long stream runs.
        forward.body = None;
    }
    Ok(())
}

/// Removes what must not reach the client and adds the request ids.
pub(super) fn fit(forward: &Forward, head: &mut ResponseHeader) -> Result<()> {
    strip(forward, head);
    spend_limit::tell(forward, head)?;
    // The provider's reason phrase is replaced by the standard one.
    head.set_reason_phrase(None)?;
    let request_id = HeaderValue::from_str(forward.ticket.request_id())
        .map_err(|_| Error::explain(ErrorType::InternalError, "the request id is not a header value"))?;
    let protocol_id = forward.operation.protocol().request_id_header();
    if !head.headers.contains_key(protocol_id) {
        head.insert_header(protocol_id, request_id.clone())?;
    }
    head.insert_header(REQUEST_ID, request_id)?;
    Ok(())
}

/// The rewriter of the body, if the provider's file edits answers.
fn rewriter(session: &Session, forward: &Forward, framing: Framing) -> Option<ResponseRewriter> {
    let leg = forward.attempts.leg();
    let facts = RequestFacts {
        operation: forward.operation,
        model: &forward.asked,
        upstream_model: &leg.upstream_model,
        headers: &session.req_header().headers,
    };
    ResponseRewriter::new(&leg.provider.response, &facts, framing)
}

/// Removes headers about the provider's connection (RFC 9110 section 7.6.1), its front end and its account.
fn strip(forward: &Forward, head: &mut ResponseHeader) {
    let nominated: Vec<String> = head
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| name != "transfer-encoding" && name != "content-length")
        .collect();
    let is_hop = |name: &str| NOT_RETURNED.contains(&name) || nominated.iter().any(|nominated| nominated == name);
    for name in present(&head.headers, is_hop) {
        head.remove_header(&name);
    }
    let credential = forward.attempts.credential().credential.secret.expose();
    // An error may quote the credential partly masked; any other answer could only contain it whole.
    let is_error = head.status.as_u16() >= 400;
    let tells = |value: &[u8]| match is_error {
        true => redact(value, credential).is_some(),
        false => memchr::memmem::find(value, credential.as_bytes()).is_some(),
    };
    let telling: Vec<_> = head
        .headers
        .iter()
        .filter(|(_, value)| tells(value.as_bytes()))
        .map(|(name, _)| name.clone())
        .collect();
    for name in telling {
        head.remove_header(&name);
    }
}

/// The names that are present and unwanted. Looking up each unwanted name would cost many times as much.
fn present(headers: &HeaderMap, unwanted: impl Fn(&str) -> bool) -> SmallVec<[HeaderName; 4]> {
    let names = headers.keys().filter(|name| unwanted(name.as_str()));
    names.cloned().collect()
}

/// Passes a piece of the answer's body, or its end. An error return breaks the connection.
pub fn pass(metrics: &Metrics, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    fail::fail_point!("response_body");
    if let Some(bytes) = piece.as_deref() {
        let now = clock::instant();
        if let Some(watch) = &forward.watch {
            watch.byte_seen(now);
        }
        note_client(forward);
        forward.ticket.meter.body_seen(bytes, now);
        forward.ticket.look(now);
    }
    if forward.error_answer.is_some() {
        return error_answer::pass(metrics, forward, piece, end);
    }
    if !end && forward.stream && forward.ticket.is_cut() {
        return Err(Error::explain(
            ErrorType::Custom("limit reached"),
            "nothing is left to pay for the answer",
        )
        .into_up());
    }
    let mut fate = None;
    if end {
        // If only the connection's end delimits the answer, a watch that shut it down looks like a proper end.
        fate = forward.watch.take().map(|watch| watch.fate());
        forward.ticket.meter.body_ended();
    }
    forward.ticket.charge_whole();
    rewrite(forward, piece, end);
    doubt(forward, piece, end);
    if end && !forward.ticket.meter.is_complete() {
        return end_as_failure(forward, piece, fate);
    } else if end && let Some(closing) = forward.ticket.meter.closing() {
        append(piece, &closing);
    }
    Ok(())
}

/// Marks the request as abandoned if its client disconnected before the answer was complete.
pub fn note_client(forward: &mut Forward) {
    if forward.is_unattended() && !forward.ticket.meter.is_complete() {
        forward.ticket.fail(Outcome::ClientGone);
    }
}

/// Replaces the provider's bytes by the edited ones. Observation and billing use the provider's.
fn rewrite(forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) {
    let Some(rewriter) = &mut forward.rewriter else {
        return;
    };
    let mut edited = piece.take().map(|bytes| rewriter.push(&bytes)).unwrap_or_default();
    if end {
        edited.extend(rewriter.finish());
    }
    if !edited.is_empty() {
        *piece = Some(edited.into());
    }
}

/// Buffers a success that may be an error, until that is known.
fn doubt(forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) {
    let Some(doubtful) = &mut forward.doubtful else {
        return;
    };
    *piece = piece.take().and_then(|bytes| doubtful.push(bytes));
    if end && let Some(doubtful) = forward.doubtful.take() {
        let credential = forward.attempts.credential().credential.secret.expose();
        let form = forward.provider().error_form(forward.operation.protocol());
        let rest = doubtful.finish(form, credential, forward.ticket.request_id());
        if !rest.is_empty() {
            append(piece, &rest);
        }
    }
}

fn append(piece: &mut Option<Bytes>, tail: &[u8]) {
    let mut joined = BytesMut::from(piece.as_deref().unwrap_or_default());
    joined.extend_from_slice(tail);
    *piece = Some(joined.freeze());
}

/// Handles an answer that the provider ended properly but incomplete. A stream gets the protocol's in-band error; if
/// the protocol has none, the connection is broken. In neither case does a client take it for a success.
fn end_as_failure(forward: &mut Forward, piece: &mut Option<Bytes>, fate: Option<Fate>) -> Result<()> {
    let (outcome, kind, message) = fate.and_then(broken_off::ended_by).unwrap_or((
        Outcome::ProviderCut,
        FailureKind::ProviderCut,
        "the provider ended the answer before it was complete; send the request again",
    ));
    let failure = MidStreamFailure {
        kind,
        message: message.to_owned(),
    };
    forward.ticket.fail(outcome);
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
pub fn rest_of_whole(forward: &mut Forward) -> Option<Bytes> {
    let meter = &mut forward.ticket.meter;
    let is_stream = meter.status() < 400 && matches!(meter.framing(), Some(Framing::Sse | Framing::JsonArray));
    if !is_stream || meter.is_coded() || !meter.is_complete() {
        return None;
    }
    meter.body_ended();
    Some(meter.closing().unwrap_or_default().into())
}
