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
    body_budget::{BodyBudget, BodyLease},
    clock,
    domain::{
        json_scan::{JsonEnd, Progress},
        pace::{Pace, PaceLimit},
        refusal::Refusal,
    },
    gateway::{
        coding::Coding,
        intake::{BodyHead, Expectation, content_length},
        unpacked::Unpacked,
    },
    pools::Probing,
};

/// The size of Pingora's replay buffer (`BODY_BUF_LIMIT` in its source).
const REPLAY_BYTES_MAX: u64 = 64 * 1024;

/// The most that is allocated for a body before any of its bytes have arrived.
const FIRST_ALLOCATION_BYTES_MAX: u64 = 1024 * 1024;

/// A body in memory, with its share of the process-wide budget.
#[derive(Debug)]
pub struct GatheredBody {
    /// The body to send: decoded, and edited for the current provider.
    pub bytes: Bytes,
    /// The body before any edit, kept while another provider may need it.
    pub original: Option<Bytes>,
    /// How the end of the body is delimited.
    pub form: BodyForm,
    /// Bytes received from the client, before decoding and edits.
    pub received: usize,
    /// The content coding that the body arrived in.
    pub coding: Option<Coding>,
    /// The body's share of the budget; returned on drop.
    pub lease: BodyLease,
}

impl GatheredBody {
    /// Whether the body can be sent again after it was sent once.
    pub fn can_resend(&self) -> bool {
        self.form != BodyForm::Open { replayable: false }
    }

    /// Whether a request with this body may probe a failing provider. It may if a failed probe does not lose it.
    pub fn probing(&self) -> Probing {
        match self.can_resend() {
            true => Probing::Allowed,
            false => Probing::Never,
        }
    }

    /// The refusal if `rest` may not follow what was gathered. Only white space may follow a JSON value, nothing may
    /// follow a compressed stream.
    pub fn refusal_of_rest(&self, rest: &[u8]) -> Option<Refusal> {
        match self.coding {
            None => (!rest.iter().all(u8::is_ascii_whitespace)).then(|| Refusal::BodyInvalid {
                reason: "data follows the JSON value".to_owned(),
            }),
            Some(coding) => (!rest.is_empty()).then(|| Refusal::BodyEncodingInvalid {
                encoding: coding.as_str(),
            }),
        }
    }
}

/// How the end of the body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// By a declared length; all of it has been read.
    Sized,
    /// By the framing. The JSON value is complete, but the end of the body may still be to come.
    Open {
        /// Pingora can replay its part, so the body can be sent a second time.
        replayable: bool,
    },
}

/// Why the body could not be read.
#[derive(Debug)]
pub enum GatherError {
    /// The request is to be answered with this refusal.
    Refused(Refusal),
    /// The client disconnected or broke the framing; there is nobody to answer.
    ClientGone,
}

impl From<Refusal> for GatherError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Reads the body. `pace` limits the waiting for bytes; `bytes_max` limits the whole body, both as received and
/// decoded.
pub async fn gather(
    session: &mut Session,
    head: BodyHead,
    bytes_max: usize,
    pace: PaceLimit,
    budget: &BodyBudget,
) -> Result<GatheredBody, GatherError> {
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
            .map_err(|_| GatherError::ClientGone)?;
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
    Coded(Box<Unpacked>),
}

impl Text {
    fn new(coding: Option<Coding>, announced: u64, bytes_max: usize) -> Result<Self, Refusal> {
        Ok(match coding {
            None => Self::Plain(BytesMut::with_capacity(allocation(announced))),
            Some(coding) => Self::Coded(Box::new(Unpacked::new(coding, bytes_max)?)),
        })
    }
}

impl Gathering {
    fn finish(self, form: BodyForm) -> Result<GatheredBody, GatherError> {
        Ok(GatheredBody {
            bytes: match self.text {
                Text::Plain(text) => text.freeze(),
                Text::Coded(unpacked) => unpacked.finish()?,
            },
            original: None,
            form,
            received: self.received,
            coding: self.coding,
            lease: self.lease,
        })
    }
}

async fn sized(session: &mut Session, length: u64, mut body: Gathering) -> Result<GatheredBody, GatherError> {
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
            Text::Coded(unpacked) => {
                unpacked.push(&piece, &mut body.lease).await?;
            }
        }
        if session.is_body_done() {
            break;
        }
    }
    body.finish(BodyForm::Sized)
}

async fn open(session: &mut Session, mut body: Gathering) -> Result<GatheredBody, GatherError> {
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
            Text::Coded(unpacked) => unpacked.push(&piece, &mut body.lease).await?,
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
async fn read(session: &mut Session, pace: &mut Pace) -> Result<Option<Bytes>, GatherError> {
    let due = pace.wait(clock::instant());
    let reading = tokio::time::timeout_at(due.into(), session.read_request_body());
    let late = |_| GatherError::Refused(Refusal::BodyTimeout);
    let piece = reading.await.map_err(late)?.map_err(|error| match error.etype() {
        ErrorType::ReadTimedout => GatherError::Refused(Refusal::BodyTimeout),
        _ if is_malformed(&error) => GatherError::Refused(Refusal::BodyFramingInvalid),
        _ => GatherError::ClientGone,
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
