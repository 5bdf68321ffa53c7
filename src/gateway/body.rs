//! Reading a request's body, whole, whatever its size and framing.
//!
//! Pingora replays a body that a filter has read only through a buffer of 64 KiB, and drops that buffer when it
//! overflows. So weir keeps the body itself and arranges that Pingora calls `request_body_filter` at every attempt,
//! where the stored body is put in place of whatever Pingora holds:
//! - with a declared length, buffering starts when at most 64 KiB are left, so the buffer always holds the tail;
//! - without one, reading stops when the JSON value is complete (or the compressed stream, where the body has a content
//!   coding), and Pingora's own loop reads the end of the body.

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
    gateway::{
        coding::Coding,
        intake::{BodyHead, Expectation, content_length},
        unpacked::Unpacked,
    },
    pools::Probing,
};

/// What Pingora's replay buffer holds (`BODY_BUF_LIMIT` in its source).
const REPLAY_BYTES_MAX: u64 = 64 * 1024;

/// The most that is allocated for a body before its bytes have come.
const FIRST_ALLOCATION_BYTES_MAX: u64 = 1024 * 1024;

/// A body in memory, with its share of the process-wide budget.
#[derive(Debug)]
pub struct GatheredBody {
    /// The text as the client sent it, decoded, or as edited since.
    pub bytes: Bytes,
    /// The text before any edit, while another provider may need it.
    pub original: Option<Bytes>,
    /// How it came.
    pub form: BodyForm,
    /// How many bytes the client sent, before decoding and edits.
    pub received: usize,
    /// The content coding that it came in.
    pub coding: Option<Coding>,
    /// Gives the bytes back to the budget when dropped.
    pub lease: BodyLease,
}

impl GatheredBody {
    /// Whether it can be sent again after it was sent once.
    pub fn can_resend(&self) -> bool {
        self.form != BodyForm::Open { replayable: false }
    }

    /// Whether a request with it may find out if something works again: it must not be lost by that.
    pub fn probing(&self) -> Probing {
        match self.can_resend() {
            true => Probing::Allowed,
            false => Probing::Never,
        }
    }

    /// Why the client may not send these bytes behind what was gathered, if it may not: behind a JSON value only white
    /// space may follow, behind a compressed stream nothing at all.
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

/// Reads the body. `read_wait` bounds each wait for more bytes, `bytes_max` the whole, both as sent and decoded.
pub async fn gather(
    session: &mut Session,
    head: BodyHead,
    bytes_max: usize,
    read_wait: Duration,
    budget: &BodyBudget,
) -> Result<GatheredBody, GatherError> {
    let declared = content_length(&session.req_header().headers);
    // A compressed body is not held as it came: what counts is what becomes of it.
    let announced = declared.filter(|_| head.coding.is_none()).unwrap_or(0);
    let lease = budget.try_reserve(announced).ok_or(Refusal::BodyBudgetExhausted)?;
    let gathering = Gathering {
        text: Text::new(head.coding, announced, bytes_max)?,
        received: 0,
        coding: head.coding,
        bytes_max,
        lease,
    };
    session.set_read_timeout(Some(read_wait));
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

/// A body of which some has come.
struct Gathering {
    text: Text,
    received: usize,
    coding: Option<Coding>,
    bytes_max: usize,
    lease: BodyLease,
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
        let Some(piece) = read(session).await? else { break };
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
    while let Some(piece) = read(session).await? {
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
        // The last data came together with the end of the body (an HTTP/2 client may do so): nothing is left that
        // would make Pingora ask for the body.
        return Err(Refusal::LengthRequired.into());
    }
    body.finish(BodyForm::Open { replayable })
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
