//! Reads a request's complete body, whatever its size and framing, and scans it.
//!
//! Pingora can replay a body that a filter has read, but only from a buffer of 64 KiB, which it drops on overflow. So weir stores
//! the body itself, and the hook `request_body_filter` replaces the bytes from Pingora with the stored body. At a further
//! attempt, Pingora calls this hook only if its buffer has not overflowed. The body's framing determines how much weir reads, and
//! what the buffer holds:
//! - If the body has a declared length, weir enables Pingora's buffer when at most 64 KiB remain to be read, so the buffer always
//!   holds the remainder. Such a body is complete when it has that length; weir waits for no other end, such as trailers over
//!   HTTP/2.
//! - If the body has no declared length, weir stops reading an uncompressed body when its JSON value is complete, and a
//!   compressed body when its compressed stream is complete. Pingora's own loop then reads the end of the body, within the same
//!   time limit (`front/unread.rs`, `gateway/client_h2.rs`). However, weir reads a compressed body that fits into Pingora's buffer
//!   to its end, because another compressed stream may follow.

use std::io::ErrorKind;

use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType};
use pingora_proxy::Session;

use crate::{
    config::limits::BodiesConfig,
    domain::{
        faults::{BodyTime, End, refusal::Refusal},
        wire::{
            json_scan::{JsonEnd, JsonEndProgress, Scan, ScanError, ScanLimits, ScanProgress, Scanner},
            protocol::Protocol,
        },
    },
    edges::{body_budget::BodyReservation, clock},
    gateway::{
        coding::Coding,
        request::{
            body::{self, BodyFraming, REPLAY_BYTES_MAX, RequestBody},
            body_work::{FREE_BYTES_MAX, KeyWork},
            compressed_body::{AT_ONCE_DECODED_BYTES_MAX, CompressedBody},
            head::{BodyHead, Expectation},
        },
    },
};

/// The maximum size in bytes of the first allocation for a body.
const SMALL_BYTES_MAX: usize = 64 * 1024;
/// The minimum size in bytes of the second allocation: large enough that the allocator returns the memory to the system once it
/// is free.
const LARGE_BYTES_MIN: usize = 1024 * 1024;

/// Reads the body. `limits` restrict its size before and after decoding, the wait for the next bytes, and the total time. `lease`
/// reserves memory for the bytes that have arrived, not for the announced length.
pub(crate) async fn read_body(
    session: &mut Session,
    head: BodyHead,
    limits: &BodiesConfig,
    lease: BodyReservation,
    work: &KeyWork,
) -> Result<RequestBody, End> {
    let mut gathering = BodyReader {
        text: BodyText::new(head, limits.bytes_max, lease)?,
        received: 0,
        coding: head.coding,
        bytes_max: limits.bytes_max,
        work,
        time: BodyTime::new(limits.time(), clock::instant()),
    };
    session.set_read_timeout(Some(limits.read));
    if head.expectation == Expectation::Continue {
        session.write_continue_response().await.map_err(|_| End::ClientLeft)?;
    }
    let form = match head.length {
        Some(length) => read_sized(session, length, &mut gathering).await?,
        None => read_open(session, &mut gathering).await?,
    };
    let body = gathering.finish(form)?;
    if session.is_body_done() && !body.can_resend() {
        // The end of the body arrived together with the last data, as an HTTP/2 client can send them. So no data remains for
        // which Pingora would call the body's hook.
        return Err(Refusal::LengthRequired.into());
    }
    Ok(body)
}

/// A request body that is being read.
struct BodyReader<'a> {
    text: BodyText,
    received: usize,
    coding: Option<Coding>,
    bytes_max: usize,
    work: &'a KeyWork,
    time: BodyTime,
}

/// The bytes that have arrived, with the reservation of their memory.
enum BodyText {
    Plain(BytesMut, BodyReservation),
    Coded(CompressedBody),
}

impl BodyText {
    fn new(head: BodyHead, bytes_max: usize, lease: BodyReservation) -> Result<Self, Refusal> {
        Ok(match head.coding {
            None => Self::Plain(BytesMut::new(), lease),
            Some(coding) => Self::Coded(CompressedBody::new(coding, bytes_max, lease)?),
        })
    }
}

/// Appends a piece to a body's `text`. The capacity grows to about twice the bytes that have arrived, but not beyond the declared
/// `length`.
pub(crate) fn extend(text: &mut BytesMut, piece: &[u8], length: Option<u64>) {
    let whole = text.len() + piece.len();
    if text.capacity() < whole {
        let end = usize::try_from(length.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let room = match text.capacity() {
            0 => SMALL_BYTES_MAX,
            capacity => (2 * capacity).max(LARGE_BYTES_MIN),
        };
        let room = room.min(end).max(whole);
        if text.capacity() <= SMALL_BYTES_MAX {
            let small = std::mem::replace(text, BytesMut::with_capacity(room));
            text.extend_from_slice(&small);
        } else {
            text.reserve(room - text.len());
        }
    }
    text.extend_from_slice(piece);
}

impl BodyReader<'_> {
    /// Adds bytes that have arrived. Returns true if the body is compressed and may end here.
    async fn push(&mut self, piece: Bytes, length: Option<u64>) -> Result<bool, Refusal> {
        self.received += piece.len();
        if self.received > self.bytes_max {
            return Err(Refusal::BodyTooLarge {
                limit_bytes: self.bytes_max as u64,
            });
        }
        match &mut self.text {
            BodyText::Plain(text, lease) => {
                body::grow_lease(lease, piece.len())?;
                extend(text, &piece, length);
                Ok(false)
            }
            // Boxed: otherwise the futures of requests with uncompressed bodies would reserve memory for this future, too.
            BodyText::Coded(compressed) => Box::pin(compressed.push(piece, self.work)).await,
        }
    }

    fn finish(self, form: BodyFraming) -> Result<RequestBody, End> {
        let (bytes, lease) = match self.text {
            BodyText::Plain(text, lease) => (text.freeze(), lease),
            BodyText::Coded(compressed) => compressed.finish()?,
        };
        Ok(RequestBody::new(bytes, form, self.received, self.coding, lease))
    }
}

async fn read_sized(session: &mut Session, length: u64, body: &mut BodyReader<'_>) -> Result<BodyFraming, End> {
    loop {
        let left = length.saturating_sub(body.received as u64);
        if left <= REPLAY_BYTES_MAX as u64 {
            session.enable_retry_buffering();
        }
        if left == 0 {
            break;
        }
        let Some(piece) = read_piece(session, body).await? else {
            break;
        };
        body.push(piece, Some(length)).await?;
    }
    Ok(BodyFraming::Sized)
}

async fn read_open(session: &mut Session, body: &mut BodyReader<'_>) -> Result<BodyFraming, End> {
    session.enable_retry_buffering();
    let mut end = JsonEnd::new();
    while let Some(piece) = read_piece(session, body).await? {
        let may_end = body.push(piece.clone(), None).await?;
        let is_complete = match body.coding {
            None => matches!(end.push(&piece), JsonEndProgress::CompleteAt(_)),
            Some(_) => may_end && body.received > REPLAY_BYTES_MAX,
        };
        if is_complete {
            break;
        }
    }
    Ok(BodyFraming::Open)
}

/// Reads a piece of the body within the time limit; returns `None` at the body's end. Pingora's own read timeout has no effect
/// over HTTP/2.
async fn read_piece(session: &mut Session, body: &mut BodyReader<'_>) -> Result<Option<Bytes>, End> {
    let due = body.time.begin_wait(clock::instant());
    let reading = tokio::time::timeout_at(due.into(), session.read_request_body());
    let late = |_| End::Refused(Refusal::BodyTimeout);
    let gone = |error: Box<Error>| refusal_of(&error).map_or(End::ClientLeft, End::Refused);
    let piece = reading.await.map_err(late)?.map_err(gone)?;
    body.time.on_moved(piece.as_ref().map_or(0, Bytes::len), clock::instant);
    Ok(piece)
}

/// Returns the refusal for a body that could not be read; `None` if the client has disconnected.
pub(crate) fn refusal_of(error: &Error) -> Option<Refusal> {
    if *error.etype() == ErrorType::ReadTimedout {
        return Some(Refusal::BodyTimeout);
    }
    // The front reports a faulty body by these kinds of I/O errors (`ClientConnection`).
    match error.root_cause().downcast_ref::<std::io::Error>()?.kind() {
        ErrorKind::TimedOut => Some(Refusal::BodyTimeout),
        ErrorKind::InvalidData => Some(Refusal::BodyFramingInvalid),
        _ => None,
    }
}

/// The maximum size in bytes of a body that is scanned on the request's own thread. If the body consists of long strings, as most
/// do, its scan takes a few tenths of a millisecond.
pub(crate) const AT_ONCE_BYTES_MAX: usize = 512 * 1024;

/// The maximum number of tokens of a body that are scanned on the request's own thread. They take about 0.05 ms.
pub(crate) const AT_ONCE_TOKENS_MAX: usize = 8 * 1024;

/// The maximum number of backslashes in a body that is scanned on the request's own thread. The escapes take about 0.1 ms.
const AT_ONCE_BACKSLASHES_MAX: usize = 32 * 1024;

/// Whether the scan of `text` may begin on the request's own thread. The scan cannot be suspended inside a string, so the number
/// of escapes must be known before.
pub(crate) fn can_begin_at_once(text: &[u8]) -> bool {
    text.len() <= AT_ONCE_BYTES_MAX && memchr::memchr_iter(b'\\', text).count() <= AT_ONCE_BACKSLASHES_MAX
}

/// Whether the scan of `body` may begin on the request's own thread. The limit is lower for a body that arrived compressed,
/// because its decoding has already taken time on that thread.
pub(crate) fn can_scan_at_once(body: &RequestBody) -> bool {
    match body.is_coded() {
        true => body.bytes.len() <= AT_ONCE_DECODED_BYTES_MAX,
        false => can_begin_at_once(&body.bytes),
    }
}

/// Scans the body. A body of at most [`FREE_BYTES_MAX`] bytes is scanned on this thread, and its key is not charged. For larger
/// bodies, the processor time of the scan is added to the key's debt. The first [`AT_ONCE_TOKENS_MAX`] tokens of such a body are
/// scanned on this thread, if the body is not too large, has few escapes, and the key's debt is low. Everything else is scanned
/// on a thread of low priority, when it is this body's turn among the key's bodies. The result is boxed, because it is moved
/// often and lives until the request ends.
///
/// # Errors
/// [`Refusal::BodyInvalid`] if the body is not one strict JSON object; [`Refusal::BodyWorkLimited`] if too many large bodies of
/// the key wait.
pub(crate) async fn scan(
    body: &RequestBody,
    protocol: Protocol,
    limits: ScanLimits,
    work: &KeyWork,
) -> Result<Box<Scan>, Refusal> {
    let begin = |bytes: &[u8], tokens| Scanner::new(bytes, protocol, &limits)?.advance(bytes, tokens);
    let progress = match body.bytes.len() {
        0..=FREE_BYTES_MAX => begin(&body.bytes, usize::MAX),
        _ if work.can_run_now() && can_scan_at_once(body) => {
            work.run_charged(|| begin(&body.bytes, AT_ONCE_TOKENS_MAX))
        }
        _ => {
            let bytes = body.bytes.clone();
            let rest = move || scan_rest(Scanner::new(&bytes, protocol, &limits)?, &bytes);
            work.run_in_turn(rest).await?.map(ScanProgress::Complete)
        }
    };
    match progress.map_err(invalid)? {
        ScanProgress::Complete(scan) => Ok(scan),
        ScanProgress::Suspended(scanner) => {
            let bytes = body.bytes.clone();
            let scanned = work.run_in_turn(move || scan_rest(*scanner, &bytes)).await?;
            scanned.map_err(invalid)
        }
    }
}

/// Scans the rest of a body on a thread of low priority. The thread yields its processor after every [`AT_ONCE_TOKENS_MAX`]
/// tokens. Otherwise, the kernel may let it run to the end of its time slice of some milliseconds, although a thread of higher
/// priority is ready.
fn scan_rest(mut scanner: Scanner, bytes: &[u8]) -> Result<Box<Scan>, ScanError> {
    loop {
        match scanner.advance(bytes, AT_ONCE_TOKENS_MAX)? {
            ScanProgress::Complete(scan) => return Ok(scan),
            ScanProgress::Suspended(suspended) => scanner = *suspended,
        }
        std::thread::yield_now();
    }
}

fn invalid(error: ScanError) -> Refusal {
    Refusal::BodyInvalid {
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::keys::secret::KeyDigest,
        edges::body_budget::{BodyBudget, BodyHolder, BodyLimits},
        gateway::request::body_work::{BodyWork, TURN_WAIT_MAX, WorkShare},
    };

    /// The body `{"model":"m","a":[1,1,…]}`, which has `tokens` tokens.
    fn body_of(tokens: usize) -> RequestBody {
        body(&"1,".repeat(tokens - 8), "1")
    }

    /// The body `{"model":"m","a":["\n\n…"]}`, which has `backslashes` backslashes in one string.
    fn body_with_escapes(backslashes: usize) -> RequestBody {
        body("", &format!("\"{}\"", "\\n".repeat(backslashes)))
    }

    /// A body with these elements in an array.
    fn body(elements: &str, last: &str) -> RequestBody {
        let text = Bytes::from(format!(r#"{{"model":"m","a":[{elements}{last}]}}"#));
        let budget = BodyBudget::new(BodyLimits {
            bytes_max: 1 << 20,
            key_bytes_max: 1 << 20,
            address_bytes_max: 1 << 20,
        });
        let lease = budget.reservation(BodyHolder {
            key: [1; 32],
            address: None,
        });
        let length = text.len();
        RequestBody::new(text, BodyFraming::Sized, length, None, lease)
    }

    #[tokio::test]
    async fn a_body_of_many_tokens_or_escapes_is_not_scanned_to_its_end_on_the_requests_own_thread() {
        let limits = ScanLimits {
            depth_max: 8,
            references_max: 8,
        };
        let work = BodyWork::new(WorkShare::new(1, 50), TURN_WAIT_MAX);
        let key = work.for_key(KeyDigest::from_bytes([1; 32]));
        // The only other thread is busy until the end.
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let other = work.for_key(KeyDigest::from_bytes([2; 32]));
        let busy = tokio::spawn(async move { other.run_offloaded(move || wait.recv()).await });
        tokio::task::yield_now().await;
        for small in [
            body_of(AT_ONCE_TOKENS_MAX - 1),
            body_with_escapes(AT_ONCE_BACKSLASHES_MAX),
        ] {
            assert!(small.bytes.len() > FREE_BYTES_MAX);
            let scanned = tokio::select! {
                biased;
                scanned = scan(&small, Protocol::Messages, limits, &key) => scanned.unwrap(),
                () = tokio::task::yield_now() => panic!("it waits"),
            };
            assert_eq!(scanned.model.map(|model| model.text).as_deref(), Some("m"));
        }
        let large = [
            body_of(AT_ONCE_TOKENS_MAX),
            body_with_escapes(AT_ONCE_BACKSLASHES_MAX + 1),
        ];
        let mut scans = large
            .each_ref()
            .map(|body| Box::pin(scan(body, Protocol::Messages, limits, &key)));
        for scan in &mut scans {
            tokio::select! {
                biased;
                _ = scan => panic!("it does not wait"),
                () = tokio::task::yield_now() => {}
            }
        }
        go.send(()).unwrap();
        for scan in scans {
            assert_eq!(scan.await.unwrap().model.map(|model| model.text).as_deref(), Some("m"));
        }
        assert!(busy.await.unwrap().is_ok());
    }

    #[test]
    fn a_text_has_room_for_what_has_arrived_and_not_for_what_is_announced() {
        let mut text = BytesMut::new();
        extend(&mut text, b"{", Some(32 << 20));
        assert!(text.capacity() <= SMALL_BYTES_MAX, "{}", text.capacity());
        let mut most = 0;
        while text.len() < 8 << 20 {
            extend(&mut text, &[b' '; 10_000], Some(32 << 20));
            most = most.max(text.capacity());
            assert!(most <= (2 * text.len()).max(SMALL_BYTES_MAX).max(LARGE_BYTES_MIN));
        }
        for size in [1, 1000, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, 3_000_000] {
            let (mut text, piece) = (BytesMut::new(), vec![b'x'; size / 3 + 1]);
            for piece in piece
                .iter()
                .cycle()
                .take(size)
                .copied()
                .collect::<Vec<u8>>()
                .chunks(10_000)
            {
                extend(&mut text, piece, Some(size as u64));
            }
            assert_eq!(text.len(), size);
            let most = if size < LARGE_BYTES_MIN { size.max(64) } else { 2 * size };
            assert!(text.capacity() <= most, "{size}: {}", text.capacity());
        }
        let mut unknown = BytesMut::new();
        extend(&mut unknown, &[b'x'; 3_000_000], None);
        extend(&mut unknown, b"y", None);
        assert_eq!((unknown.len(), unknown[3_000_000]), (3_000_001, b'y'));
    }
}
