//! The head of a success whose body has not begun.
//!
//! As long as the client has nothing of an answer, the attempt can fail and be repeated. So the head waits until the body
//! begins, but for `[upstream] head_wait_seconds` at most: then the client's connection ([`super::client_stream`],
//! [`super::client_h2`]) sends it, because Pingora is waiting for the provider. Over HTTP/1.1 Pingora's session learns of
//! that later, when [`HeldHead::release`] has it write the head again and the connection discards those bytes.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::Instant,
};

use bytes::{BufMut, BytesMut};
use futures_util::FutureExt;
use http::header;
use parking_lot::Mutex;
use pingora::{
    Error, ErrorType, Result,
    http::ResponseHeader,
    protocols::http::{ServerSession, date},
};

/// Holds the head of one answer.
#[derive(Debug, Default)]
pub(crate) struct HeldHead {
    /// A [`Stage`], read at each poll of the client's connection.
    stage: AtomicU8,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    head: Box<ResponseHeader>,
    due: Instant,
    keeps_alive: bool,
}

/// Where the head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// No head is held.
    None = 0,
    /// It waits for the body.
    Waiting = 1,
    /// The client's connection has sent it. Pingora's session does not know.
    Sent = 2,
    /// Pingora's session is writing it; the connection keeps the bytes for the body that follows in the same call.
    Writing = 3,
    /// Pingora's session is writing it, and the client has it already.
    WritingAgain = 4,
}

/// What the client's connection does with bytes that Pingora writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It sends them.
    Send,
    /// It takes them at once, and sends them with the next ones.
    Keep,
    /// It drops them: the client has them.
    Discard,
}

impl HeldHead {
    /// Holds a head until the body begins or `due` has passed. `keeps_alive`: the connection carries further requests.
    pub(crate) fn hold(&self, head: Box<ResponseHeader>, due: Instant, keeps_alive: bool) {
        *self.held.lock() = Some(Held { head, due, keeps_alive });
        self.set(Stage::Waiting);
    }

    /// Whether the client has nothing of the answer yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stage() == Stage::Waiting
    }

    /// When the head must be sent; `None` unless it waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        if !self.is_waiting() {
            return None;
        }
        self.held.lock().as_ref().map(|held| held.due)
    }

    /// Takes the head out: it is not sent. `None` if the client has it, or none is held.
    pub(crate) fn take(&self) -> Option<Box<ResponseHeader>> {
        if !self.is_waiting() {
            return None;
        }
        self.set(Stage::None);
        self.held.lock().take().map(|held| held.head)
    }

    /// Changes the head that waits.
    ///
    /// # Errors
    /// Those of `change`.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut ResponseHeader) -> Result<()>) -> Result<()> {
        match &mut *self.held.lock() {
            Some(held) => change(&mut held.head),
            None => Ok(()),
        }
    }

    /// For an HTTP/1.1 connection when the head is due: its bytes, which the connection must send.
    pub(crate) fn send(&self) -> Option<BytesMut> {
        if !self.is_waiting() {
            return None;
        }
        let bytes = self.held.lock().as_ref().map(rendered)?;
        self.set(Stage::Sent);
        Some(bytes)
    }

    /// Has Pingora's session write the head, unless that is done. Does not wait: the client's connection takes the bytes at
    /// once.
    ///
    /// # Errors
    /// The session could not write the head.
    pub(crate) fn release(&self, session: &mut ServerSession) -> Result<()> {
        let writing = match self.stage() {
            Stage::Waiting => Stage::Writing,
            Stage::Sent => Stage::WritingAgain,
            Stage::None | Stage::Writing | Stage::WritingAgain => return Ok(()),
        };
        let Some(held) = self.held.lock().take() else {
            return Ok(());
        };
        self.set(writing);
        let written = session.write_response_header(held.head).now_or_never();
        self.set(Stage::None);
        let late = || Err(Error::explain(ErrorType::InternalError, "the client's connection took no head").into_down());
        written.unwrap_or_else(late)
    }

    /// What the client's connection does with bytes that Pingora writes now.
    pub(crate) fn written(&self) -> Written {
        match self.stage() {
            Stage::Writing => Written::Keep,
            Stage::WritingAgain => Written::Discard,
            Stage::None | Stage::Waiting | Stage::Sent => Written::Send,
        }
    }

    fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            stage if stage == Stage::Waiting as u8 => Stage::Waiting,
            stage if stage == Stage::Sent as u8 => Stage::Sent,
            stage if stage == Stage::Writing as u8 => Stage::Writing,
            stage if stage == Stage::WritingAgain as u8 => Stage::WritingAgain,
            _ => Stage::None,
        }
    }

    fn set(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }
}

/// The head as Pingora's session would write it over HTTP/1.1.
fn rendered(held: &Held) -> BytesMut {
    let Held { head, keeps_alive, .. } = held;
    let mut bytes = BytesMut::new();
    bytes.put_slice(b"HTTP/1.1 ");
    bytes.put_slice(head.status.as_str().as_bytes());
    bytes.put_u8(b' ');
    bytes.put_slice(head.status.canonical_reason().unwrap_or_default().as_bytes());
    bytes.put_slice(b"\r\n");
    let mut put = |name: &str, value: &[u8]| {
        bytes.put_slice(name.as_bytes());
        bytes.put_slice(b": ");
        bytes.put_slice(value);
        bytes.put_slice(b"\r\n");
    };
    for (name, value) in &head.headers {
        if *name != header::DATE && *name != header::CONNECTION {
            put(name.as_str(), value.as_bytes());
        }
    }
    put("date", date::get_cached_date().as_bytes());
    put("connection", if *keeps_alive { b"keep-alive" } else { b"close" });
    bytes.put_slice(b"\r\n");
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::edges::clock;

    fn waiting() -> HeldHead {
        let mut head = ResponseHeader::build(200, None).unwrap();
        head.insert_header("content-type", "text/event-stream").unwrap();
        head.insert_header("date", "then").unwrap();
        let held = HeldHead::default();
        held.hold(Box::new(head), clock::instant() + Duration::from_secs(5), true);
        held
    }

    #[test]
    fn a_head_that_waits_can_be_taken_back_or_sent_but_not_both() {
        let held = waiting();
        assert!(held.is_waiting() && held.due().is_some());
        assert_eq!(held.take().map(|head| head.status.as_u16()), Some(200));
        assert_eq!((held.is_waiting(), held.due(), held.send()), (false, None, None));
        let held = waiting();
        let bytes = held.send().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        assert!(held.take().is_none() && held.send().is_none() && !held.is_waiting());
        let text = bytes.unwrap_or_default();
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ndate: "),
            "{text}"
        );
        assert!(text.ends_with(" GMT\r\nconnection: keep-alive\r\n\r\n"), "{text}");
    }

    #[test]
    fn bytes_are_sent_unless_the_session_writes_the_head() {
        let held = waiting();
        assert_eq!(held.written(), Written::Send);
        held.set(Stage::Writing);
        assert_eq!(held.written(), Written::Keep);
        held.set(Stage::WritingAgain);
        assert_eq!(held.written(), Written::Discard);
    }
}
