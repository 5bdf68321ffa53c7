//! Reads a request's whole body, whatever its size and framing.
//!
//! Pingora replays a body that a filter has read only from a buffer of 64 KiB, and drops that buffer when it overflows.
//! So weir keeps the body itself and arranges that Pingora calls `request_body_filter` at every attempt. That hook
//! replaces whatever Pingora holds with the stored body:
//! - With a declared length, buffering starts when at most 64 KiB are left, so the buffer always holds the tail.
//! - Without one, reading stops when the JSON value (or the compressed stream) is complete, and Pingora's own loop
//!   reads the end of the body.

use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::{
            pace::{Pace, PaceLimit},
            refusal::Refusal,
        },
        wire::json_scan::{JsonEnd, Progress},
    },
    edges::{
        body_budget::{BodyBudget, BodyLease},
        clock,
    },
    gateway::{
        coding::Coding,
        request::{
            Rejection,
            body::{BodyForm, RequestBody},
            compressed_body::CompressedBody,
            head::{BodyHead, Expectation, content_length},
        },
    },
};

/// The size of Pingora's replay buffer (`BODY_BUF_LIMIT` in its source).
const REPLAY_BYTES_MAX: u64 = 64 * 1024;

/// The most that is allocated for a body before any of its bytes have arrived.
const FIRST_ALLOCATION_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the body. `pace` limits the waiting for bytes; `bytes_max` limits the whole body, both as received and
/// decoded.
pub(crate) async fn gather(
    session: &mut Session,
    head: BodyHead,
    bytes_max: usize,
    pace: PaceLimit,
    budget: &BodyBudget,
) -> Result<RequestBody, Rejection> {
    let declared = content_length(&session.req_header().headers);
    // A compressed body is not stored as received: its decoded size counts.
    let announced = declared.filter(|_| head.coding.is_none()).unwrap_or(0);
    let lease = budget.try_reserve(announced).ok_or(Refusal::BodyBudgetExhausted)?;
    let gathering = Gathering {
        text: Text::new(head.coding, announced, bytes_max)?,
        received: 0,
        coding: head.coding,
        bytes_max,
        lease,
        pace: Pace::new(pace),
    };
    session.set_read_timeout(Some(pace.wait_max));
    if head.expectation == Expectation::Continue {
        session
            .write_continue_response()
            .await
            .map_err(|_| Rejection::ClientGone)?;
    }
    match declared {
        Some(length) => sized(session, length, gathering).await,
        None => open(session, gathering).await,
    }
}

/// A body being read.
struct Gathering {
    text: Text,
    received: usize,
    coding: Option<Coding>,
    bytes_max: usize,
    lease: BodyLease,
    pace: Pace,
}

enum Text {
    Plain(BytesMut),
    Coded(Box<CompressedBody>),
}

impl Text {
    fn new(coding: Option<Coding>, announced: u64, bytes_max: usize) -> Result<Self, Refusal> {
        Ok(match coding {
            None => Self::Plain(BytesMut::with_capacity(allocation(announced))),
            Some(coding) => Self::Coded(Box::new(CompressedBody::new(coding, bytes_max)?)),
        })
    }
}

impl Gathering {
    fn finish(self, form: BodyForm) -> Result<RequestBody, Rejection> {
        let bytes = match self.text {
            Text::Plain(text) => text.freeze(),
            Text::Coded(compressed) => compressed.finish()?,
        };
        Ok(RequestBody::new(bytes, form, self.received, self.coding, self.lease))
    }
}

async fn sized(session: &mut Session, length: u64, mut body: Gathering) -> Result<RequestBody, Rejection> {
    loop {
        let left = length.saturating_sub(body.received as u64);
        if left <= REPLAY_BYTES_MAX {
            session.enable_retry_buffering();
        }
        let Some(piece) = read(session, &mut body.pace).await? else {
            break;
        };
        body.received += piece.len();
        match &mut body.text {
            Text::Plain(text) => text.extend_from_slice(&piece),
            Text::Coded(compressed) => {
                compressed.push(&piece, &mut body.lease).await?;
            }
        }
        if session.is_body_done() {
            break;
        }
    }
    body.finish(BodyForm::Sized)
}

async fn open(session: &mut Session, mut body: Gathering) -> Result<RequestBody, Rejection> {
    session.enable_retry_buffering();
    let mut end = JsonEnd::new();
    while let Some(piece) = read(session, &mut body.pace).await? {
        body.received += piece.len();
        if body.received > body.bytes_max {
            return Err(Refusal::BodyTooLarge {
                limit_bytes: body.bytes_max as u64,
            }
            .into());
        }
        let complete = match &mut body.text {
            Text::Plain(text) => {
                if !body.lease.grow(piece.len() as u64) {
                    return Err(Refusal::BodyBudgetExhausted.into());
                }
                text.extend_from_slice(&piece);
                matches!(end.push(&piece), Progress::CompleteAt(_))
            }
            Text::Coded(compressed) => compressed.push(&piece, &mut body.lease).await?,
        };
        if complete {
            break;
        }
    }
    let replayable = body.received as u64 <= REPLAY_BYTES_MAX;
    if session.is_body_done() && !replayable {
        // The last data arrived together with the end of the body, as an HTTP/2 client may send it. Nothing is left
        // that would make Pingora ask for the body.
        return Err(Refusal::LengthRequired.into());
    }
    body.finish(BodyForm::Open { replayable })
}

/// Reads a piece. Pingora's own time limit does nothing over HTTP/2.
async fn read(session: &mut Session, pace: &mut Pace) -> Result<Option<Bytes>, Rejection> {
    let due = pace.wait(clock::instant());
    let reading = tokio::time::timeout_at(due.into(), session.read_request_body());
    let late = |_| Rejection::Refused(Refusal::BodyTimeout);
    let piece = reading.await.map_err(late)?.map_err(|error| match error.etype() {
        ErrorType::ReadTimedout => Rejection::Refused(Refusal::BodyTimeout),
        _ if is_malformed(&error) => Rejection::Refused(Refusal::BodyFramingInvalid),
        _ => Rejection::ClientGone,
    })?;
    pace.moved(piece.as_ref().map_or(0, Bytes::len), clock::instant);
    Ok(piece)
}

/// Whether the front has refused the chunks (`front/guarded.rs`).
fn is_malformed(error: &Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::InvalidData)
}

fn allocation(length: u64) -> usize {
    usize::try_from(length.min(FIRST_ALLOCATION_BYTES_MAX)).unwrap_or(0)
}
