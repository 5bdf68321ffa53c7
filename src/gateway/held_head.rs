//! Holds the head of a successful answer until the answer's body begins.
//!
//! A failed attempt can be repeated only if the client has received nothing of the answer. So the head waits until the body
//! begins, but at most `[upstream] head_wait_seconds`. After that time the client's connection ([`super::client_stream`],
//! [`super::client_h2`]) sends the head, because Pingora is still waiting for the provider. Over HTTP/1.1, Pingora's session
//! still has to write the head afterwards. [`HeldHead::release`] lets it do so, and the connection discards these repeated bytes.

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

/// The place where the head of one answer is held.
#[derive(Debug, Default)]
pub(crate) struct HeldHead {
    /// The current [`HeadStage`]. Each poll of the client's connection reads it.
    stage: AtomicU8,
    held: Mutex<Option<WaitingHead>>,
}

#[derive(Debug)]
struct WaitingHead {
    head: Box<ResponseHeader>,
    due: Instant,
    keeps_alive: bool,
}

/// The stage of an answer's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum HeadStage {
    /// No head is held.
    None = 0,
    /// The head waits for the body.
    Waiting = 1,
    /// The client's connection has sent the head, but Pingora's session has not written it yet.
    Sent = 2,
    /// Pingora's session is writing the head. The connection keeps the head's bytes and sends them together with the body, which
    /// Pingora writes in the same call.
    Writing = 3,
    /// Pingora's session is writing the head, and the client already has it.
    WritingAgain = 4,
}

/// The way in which the client's connection handles bytes that Pingora writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteAction {
    /// The connection sends the bytes.
    Send,
    /// The connection accepts the bytes at once, and sends them together with the next bytes.
    Keep,
    /// The connection drops the bytes, because the client already has them.
    Discard,
}

impl HeldHead {
    /// Holds a head until the body begins or `due` has passed. `keeps_alive` says whether the connection carries further
    /// requests.
    pub(crate) fn hold(&self, head: Box<ResponseHeader>, due: Instant, keeps_alive: bool) {
        *self.held.lock() = Some(WaitingHead { head, due, keeps_alive });
        self.set_stage(HeadStage::Waiting);
    }

    /// Whether the held head has not been sent, so that the client has received nothing of the answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stage() == HeadStage::Waiting
    }

    /// Returns when the head must be sent; `None` if no head waits to be sent.
    pub(crate) fn due(&self) -> Option<Instant> {
        if !self.is_waiting() {
            return None;
        }
        self.held.lock().as_ref().map(|held| held.due)
    }

    /// Takes the head, so that it is not sent. Returns `None` if the head has been sent or no head is held.
    pub(crate) fn take(&self) -> Option<Box<ResponseHeader>> {
        if !self.is_waiting() {
            return None;
        }
        self.set_stage(HeadStage::None);
        self.held.lock().take().map(|held| held.head)
    }

    /// Changes the waiting head. Does nothing if no head is held.
    ///
    /// # Errors
    /// The error that `change` returns.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut ResponseHeader) -> Result<()>) -> Result<()> {
        match &mut *self.held.lock() {
            Some(held) => change(&mut held.head),
            None => Ok(()),
        }
    }

    /// Returns the bytes of a head that is due. The HTTP/1.1 connection must send them. Returns `None` if no head waits to be
    /// sent.
    pub(crate) fn send(&self) -> Option<BytesMut> {
        if !self.is_waiting() {
            return None;
        }
        let bytes = self.held.lock().as_ref().map(rendered)?;
        self.set_stage(HeadStage::Sent);
        Some(bytes)
    }

    /// Lets Pingora's session write the head, unless the session has done that. Does not wait, because the client's connection
    /// accepts the bytes at once.
    ///
    /// # Errors
    /// The session could not write the head.
    pub(crate) fn release(&self, session: &mut ServerSession) -> Result<()> {
        let writing = match self.stage() {
            HeadStage::Waiting => HeadStage::Writing,
            HeadStage::Sent => HeadStage::WritingAgain,
            HeadStage::None | HeadStage::Writing | HeadStage::WritingAgain => return Ok(()),
        };
        let Some(held) = self.held.lock().take() else {
            return Ok(());
        };
        self.set_stage(writing);
        let written = session.write_response_header(held.head).now_or_never();
        self.set_stage(HeadStage::None);
        let late = || Err(Error::explain(ErrorType::InternalError, "the head's bytes were not accepted").into_down());
        written.unwrap_or_else(late)
    }

    /// Returns how the client's connection handles the bytes that Pingora writes now.
    pub(crate) fn write_action(&self) -> WriteAction {
        match self.stage() {
            HeadStage::Writing => WriteAction::Keep,
            HeadStage::WritingAgain => WriteAction::Discard,
            HeadStage::None | HeadStage::Waiting | HeadStage::Sent => WriteAction::Send,
        }
    }

    fn stage(&self) -> HeadStage {
        match self.stage.load(Ordering::Acquire) {
            stage if stage == HeadStage::Waiting as u8 => HeadStage::Waiting,
            stage if stage == HeadStage::Sent as u8 => HeadStage::Sent,
            stage if stage == HeadStage::Writing as u8 => HeadStage::Writing,
            stage if stage == HeadStage::WritingAgain as u8 => HeadStage::WritingAgain,
            _ => HeadStage::None,
        }
    }

    fn set_stage(&self, stage: HeadStage) {
        self.stage.store(stage as u8, Ordering::Release);
    }
}

/// Returns the bytes of the head, as Pingora's session would write them over HTTP/1.1.
fn rendered(held: &WaitingHead) -> BytesMut {
    let WaitingHead { head, keeps_alive, .. } = held;
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
        assert_eq!(held.write_action(), WriteAction::Send);
        held.set_stage(HeadStage::Writing);
        assert_eq!(held.write_action(), WriteAction::Keep);
        held.set_stage(HeadStage::WritingAgain);
        assert_eq!(held.write_action(), WriteAction::Discard);
    }
}
