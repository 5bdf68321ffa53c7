//! A success that has not begun: the client has got nothing of it.

use bytes::{Bytes, BytesMut};

use crate::domain::wire::protocol::AnswerFraming;

/// The most bytes that are held until they are known to be an answer. A longer body passes, because errors are short.
pub(crate) const UNBEGUN_BYTES_MAX: usize = 64 * 1024;

/// A success whose head is held: the client has got nothing of it.
#[derive(Debug)]
pub(crate) struct UnbegunAnswer {
    /// The framing that its head announces.
    pub announced: AnswerFraming,
    held: BytesMut,
}

impl UnbegunAnswer {
    /// Starts a success of which only the head has arrived.
    pub(crate) fn new(announced: AnswerFraming) -> Self {
        Self {
            announced,
            held: BytesMut::new(),
        }
    }

    /// The part of its body that has arrived.
    pub(crate) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Keeps a piece of its body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// Its body so far, with `piece` at the end.
    pub(crate) fn into_body(mut self, piece: Option<Bytes>) -> Option<Bytes> {
        if self.held.is_empty() {
            return piece;
        }
        self.held.extend_from_slice(&piece.unwrap_or_default());
        Some(self.held.freeze())
    }
}
