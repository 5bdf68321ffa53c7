//! Reading a request's body, whole, whatever its size and framing.
//!
//! Pingora replays a body that a filter has read only through a buffer of 64 KiB, and drops that buffer when it
//! overflows. So weir keeps the body itself and arranges that Pingora calls `request_body_filter` at every attempt,
//! where the stored body is put in place of whatever Pingora holds:
//! - with a declared length, buffering starts when at most 64 KiB are left, so the buffer always holds the tail;
//! - without one, reading stops when the JSON value is complete, and Pingora's own loop reads the end of the body.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pingora::ErrorType;
use pingora_proxy::Session;

use crate::{
    body_budget::{BodyBudget, BodyLease},
    domain::{
        json_scan::{JsonEnd, Progress},
        refusal::Refusal,
    },
    gateway::intake::{Expectation, content_length},
};

/// What Pingora's replay buffer holds (`BODY_BUF_LIMIT` in its source).
const REPLAY_BYTES_MAX: u64 = 64 * 1024;

/// The most that is allocated for a body before its bytes have come.
const FIRST_ALLOCATION_BYTES_MAX: u64 = 1024 * 1024;

/// A body in memory, with its share of the process-wide budget.
#[derive(Debug)]
pub struct GatheredBody {
    /// The text as the client sent it, or as edited since.
    pub bytes: Bytes,
    /// How it came.
    pub form: BodyForm,
    /// How many bytes the client sent, before edits.
    pub received: usize,
    /// Gives the bytes back to the budget when dropped.
    pub lease: BodyLease,
}

/// How the end of the body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// By a declared length; all of it has been read.
    Sized,
    /// By the framing; the JSON value is complete, its end mark may still be to come.
    Open {
        /// Whether Pingora can replay its part, so that a second attempt after a sent body is possible.
        replayable: bool,
    },
}

/// Why there is no body.
#[derive(Debug)]
pub enum GatherError {
    /// To be answered with this.
    Refused(Refusal),
    /// The client went away or broke the framing: nobody to answer.
    ClientGone,
}

impl From<Refusal> for GatherError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Reads the body. `read_wait` bounds each wait for more bytes, `bytes_max` the whole.
pub async fn gather(
    session: &mut Session,
    expectation: Expectation,
    bytes_max: usize,
    read_wait: Duration,
    budget: &BodyBudget,
) -> Result<GatheredBody, GatherError> {
    let declared = content_length(&session.req_header().headers);
    let lease = budget
        .try_reserve(declared.unwrap_or(0))
        .ok_or(Refusal::BodyBudgetExhausted)?;
    session.set_read_timeout(Some(read_wait));
    if expectation == Expectation::Continue {
        session
            .write_continue_response()
            .await
            .map_err(|_| GatherError::ClientGone)?;
    }
    match declared {
        Some(length) => sized(session, length, lease).await,
        None => open(session, bytes_max, lease).await,
    }
}

async fn sized(session: &mut Session, length: u64, lease: BodyLease) -> Result<GatheredBody, GatherError> {
    let mut body = BytesMut::with_capacity(allocation(length));
    loop {
        let left = length.saturating_sub(body.len() as u64);
        if left <= REPLAY_BYTES_MAX {
            session.enable_retry_buffering();
        }
        match read(session).await? {
            Some(piece) => body.extend_from_slice(&piece),
            None => break,
        }
        if session.is_body_done() {
            break;
        }
    }
    let received = body.len();
    Ok(GatheredBody {
        bytes: body.freeze(),
        form: BodyForm::Sized,
        received,
        lease,
    })
}

async fn open(session: &mut Session, bytes_max: usize, mut lease: BodyLease) -> Result<GatheredBody, GatherError> {
    session.enable_retry_buffering();
    let mut body = BytesMut::new();
    let mut end = JsonEnd::new();
    while let Some(piece) = read(session).await? {
        if body.len() + piece.len() > bytes_max {
            return Err(Refusal::BodyTooLarge {
                limit_bytes: bytes_max as u64,
            }
            .into());
        }
        if !lease.grow(piece.len() as u64) {
            return Err(Refusal::BodyBudgetExhausted.into());
        }
        body.extend_from_slice(&piece);
        if let Progress::CompleteAt(_) = end.push(&piece) {
            break;
        }
    }
    let replayable = body.len() as u64 <= REPLAY_BYTES_MAX;
    if session.is_body_done() && !replayable {
        // The last data came together with the end of the body (an HTTP/2 client may do so): nothing is left that
        // would make Pingora ask for the body.
        return Err(Refusal::LengthRequired.into());
    }
    let received = body.len();
    Ok(GatheredBody {
        bytes: body.freeze(),
        form: BodyForm::Open { replayable },
        received,
        lease,
    })
}

async fn read(session: &mut Session) -> Result<Option<Bytes>, GatherError> {
    session.read_request_body().await.map_err(|error| match error.etype() {
        ErrorType::ReadTimedout => GatherError::Refused(Refusal::BodyTimeout),
        _ => GatherError::ClientGone,
    })
}

fn allocation(length: u64) -> usize {
    usize::try_from(length.min(FIRST_ALLOCATION_BYTES_MAX)).unwrap_or(0)
}
