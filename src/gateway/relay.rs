//! The provider's answer on its way to the client: the bytes pass as they come, an observer looks on.

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    clock,
    domain::{
        outcome::Outcome,
        protocol::{
            FailureKind, Framing, MidStreamFailure, Protocol, framing_of,
            provider_error::{redact, reshape_error},
        },
        refusal::Refusal,
        retry::{REST_AFTER_REFUSAL, retry_after, retry_delay},
        rules::{ErrorMeaning, ErrorShape, RequestFacts, ResponseRewriter},
    },
    gateway::{admission, attempts::Answered, deadline::Watch, exchange::Forward},
    metrics::Metrics,
};

/// The largest error answer that is held for masking; a longer one is replaced.
const ERROR_BODY_BYTES_MAX: usize = 1024 * 1024;

/// Response headers that concern the provider's connection or its front, not the client.
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

/// weir's own identifier of the request, beside the provider's.
pub const REQUEST_ID: &str = "x-weir-request-id";

/// An error answer, gathered.
#[derive(Debug, Default)]
pub struct ErrorBody {
    held: BytesMut,
    too_large: bool,
}

/// The answer's head has come from the provider. An error return ends the attempt.
pub fn accept_head(metrics: &Metrics, forward: &mut Forward, head: &ResponseHeader) -> Result<()> {
    if let Some(watch) = &forward.watch {
        watch.byte_seen(clock::instant());
    }
    if head.status.is_informational() {
        return Ok(());
    }
    forward.head_seen = true;
    let refused = forward.provider().auth.refused_statuses.contains(&head.status.as_u16());
    let again = try_again(forward, head, refused);
    if refused {
        // Whatever it says, it says it of the operator's account.
        credential_refused(metrics, forward, head.status.as_u16());
    }
    if again {
        forward.again = true;
        return Err(Error::explain(ErrorType::Custom("to be tried again"), "after the provider's answer").into_up());
    }
    if refused {
        forward.refusal = Some(Refusal::ProviderCredentialRefused);
        return Err(Error::explain(ErrorType::Custom("credential refused"), "by the provider").into_up());
    }
    if head.status.is_redirection() || is_empty_stream(forward, head) {
        forward.refusal = Some(Refusal::ProviderBroken);
        return Err(Error::explain(ErrorType::InvalidHTTPHeader, "an answer that cannot be passed on").into_up());
    }
    Ok(())
}

fn try_again(forward: &mut Forward, head: &ResponseHeader, refused: bool) -> bool {
    let header = |name: &str| head.headers.get(name)?.to_str().ok();
    let status = head.status.as_u16();
    let answer = Answered {
        status,
        refused,
        asked_pause: (status >= 400)
            .then(|| retry_after(header, clock::unix_millis()))
            .flatten(),
        can_resend: admission::can_resend(forward),
    };
    forward
        .attempts
        .answered(&answer, rand::rng().random(), clock::instant())
}

fn credential_refused(metrics: &Metrics, forward: &Forward, status: u16) {
    let provider = &forward.provider().name;
    tracing::error!(
        %provider,
        credential = %forward.attempts.credential().credential.name,
        status,
        "the provider refused the credential configured for it: check the secret and the account"
    );
    metrics.provider_credential_refused(provider);
}

/// A stream without a single byte would look like a finished one.
fn is_empty_stream(forward: &Forward, head: &ResponseHeader) -> bool {
    forward.stream
        && head.status.is_success()
        && head
            .headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes() == b"0")
}

/// Makes the head fit for the client and chooses what is observed in the body.
pub fn edit_head(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    strip(forward, head);
    let protocol = forward.operation.protocol();
    let status = head.status.as_u16();
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let framing = framing_of(forward.operation, content_type);
    forward.ticket.meter.head_seen(status, protocol, framing);
    let request_id = HeaderValue::from_str(forward.ticket.request_id())
        .map_err(|_| Error::explain(ErrorType::InternalError, "the request id is not a header value"))?;
    if status >= 400 {
        forward.error_body = Some(ErrorBody::default());
    }
    if status < 400 && !head.headers.contains_key(header::CONTENT_ENCODING) {
        forward.rewriter = rewriter(session, forward, framing);
    }
    if status >= 400 || forward.rewriter.is_some() || matches!(framing, Framing::Sse | Framing::JsonArray) {
        // The end may differ from the provider's: masked, reshaped, or followed by an in-band error.
        head.remove_header(&header::CONTENT_LENGTH);
        if !session.is_http2() {
            head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
        }
    }
    let protocol_id = match protocol {
        Protocol::Messages => "request-id",
        Protocol::Responses | Protocol::Gemini => "x-request-id",
    };
    if !head.headers.contains_key(protocol_id) {
        head.insert_header(protocol_id, request_id.clone())?;
    }
    head.insert_header(REQUEST_ID, request_id)?;
    if session.is_body_done() {
        // No attempt can follow: the memory is better used elsewhere while a long stream runs.
        forward.body = None;
    }
    Ok(())
}

/// What makes the client's answer, where the provider's file edits answers.
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

/// Removes what belongs to the provider's connection (RFC 9110 section 7.6.1), to its front, and to its account.
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
    for name in NOT_RETURNED.into_iter().chain(nominated.iter().map(String::as_str)) {
        head.remove_header(name);
    }
    let credential = forward.attempts.credential().credential.secret.expose();
    // An error may quote the credential half masked; any other answer could only repeat it whole.
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

/// A piece of the answer's body passes, or its end. An error return breaks the connection.
pub fn pass(metrics: &Metrics, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) -> Result<()> {
    fail::fail_point!("response_body");
    if let Some(bytes) = piece.as_deref() {
        let now = clock::instant();
        if let Some(watch) = &forward.watch {
            watch.byte_seen(now);
        }
        forward.ticket.meter.body_seen(bytes, now);
    }
    if end {
        forward.watch = None;
        forward.ticket.meter.body_ended();
    }
    rewrite(forward, piece, end);
    if forward.error_body.is_some() {
        hold(metrics, forward, piece, end);
    } else if end && !forward.ticket.meter.is_complete() {
        return end_as_failure(forward, piece);
    }
    Ok(())
}

/// Puts the client's bytes in the place of the provider's. What is observed and billed are the provider's.
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

fn hold(metrics: &Metrics, forward: &mut Forward, piece: &mut Option<Bytes>, end: bool) {
    let Some(error) = &mut forward.error_body else {
        return;
    };
    if let Some(bytes) = piece.take() {
        if error.held.len() + bytes.len() > ERROR_BODY_BYTES_MAX {
            error.too_large = true;
        } else {
            error.held.extend_from_slice(&bytes);
        }
    }
    if end && let Some(error) = forward.error_body.take() {
        *piece = Some(finished_error(metrics, forward, error));
    }
}

/// An error answer as the client gets it: masked, and in the protocol's shape if the provider's file asks for that.
fn finished_error(metrics: &Metrics, forward: &mut Forward, error: ErrorBody) -> Bytes {
    let status = forward.ticket.meter.status();
    let held = if error.too_large {
        Bytes::new()
    } else {
        error.held.freeze()
    };
    let credential = &forward.attempts.credential().credential;
    let masked = redact(&held, credential.secret.expose()).map_or(held, Bytes::from);
    if means_refused_credential(forward, status, &masked) {
        credential_refused(metrics, forward, status);
        forward.ticket.fail(Outcome::CredentialRefused);
        forward.attempts.credential().rest(REST_AFTER_REFUSAL, clock::instant());
        let reply = Refusal::ProviderCredentialRefused.reply(forward.operation.protocol(), forward.ticket.request_id());
        return reply.body.into();
    }
    if status == 429
        && let Some(pause) = retry_delay(&masked)
    {
        forward.attempts.credential().rest(pause, clock::instant());
    }
    if error.too_large || forward.provider().errors == ErrorShape::Reshape {
        return reshape_error(
            forward.operation.protocol(),
            status,
            &masked,
            forward.ticket.request_id(),
        )
        .into();
    }
    masked
}

/// Whether the provider's file says that this error is about the credential. The status has gone to the client by then;
/// the text, which tells of the operator's account, has not.
fn means_refused_credential(forward: &Forward, status: u16, body: &[u8]) -> bool {
    forward.provider().error_rules.iter().any(|rule| {
        rule.status == status
            && rule.means == ErrorMeaning::CredentialRefused
            && memchr::memmem::find(body, rule.contains.as_bytes()).is_some()
    })
}

/// The provider ended the body properly although the answer is not whole. A stream says so in band; where the protocol
/// has no way to say it the connection is broken. Either way no client takes it for success.
fn end_as_failure(forward: &mut Forward, piece: &mut Option<Bytes>) -> Result<()> {
    let failure = MidStreamFailure {
        kind: FailureKind::ProviderCut,
        message: "the provider ended the answer before it was complete; send the request again".to_owned(),
    };
    forward.ticket.fail(Outcome::ProviderCut);
    if let Some(tail) = forward.ticket.meter.failure_tail(&failure) {
        let mut joined = BytesMut::from(piece.as_deref().unwrap_or_default());
        joined.extend_from_slice(&tail);
        *piece = Some(joined.freeze());
        return Ok(());
    }
    if forward.ticket.meter.framing() != Some(Framing::Json) {
        // Not what its content type says: passed on for the client to judge.
        return Ok(());
    }
    Err(Error::explain(ErrorType::ConnectionClosed, "the answer ended before it was whole").into_up())
}

/// What to tell the client when the answer breaks off.
pub fn failure_of(forward: &Forward, panicked: bool) -> (Outcome, MidStreamFailure) {
    let (outcome, kind, message) = if panicked {
        (
            Outcome::Internal,
            FailureKind::Internal,
            "the gateway failed while passing the answer on; send the request again",
        )
    } else if forward.watch.as_ref().is_some_and(Watch::expired) {
        (
            Outcome::ProviderTimeout,
            FailureKind::ProviderTimeout,
            "the provider was silent for too long; send the request again",
        )
    } else {
        (
            Outcome::ProviderCut,
            FailureKind::ProviderCut,
            "the provider broke the answer off; send the request again",
        )
    };
    (
        outcome,
        MidStreamFailure {
            kind,
            message: message.to_owned(),
        },
    )
}
