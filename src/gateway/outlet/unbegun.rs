//! A success that has not begun: the client has nothing of it yet.

use bytes::{Bytes, BytesMut};

use crate::domain::wire::protocol::Framing;

/// The most bytes that are held until they are known to be an answer. A longer body passes, for errors are short.
pub(crate) const HELD_BYTES_MAX: usize = 64 * 1024;

/// A success whose head is held.
#[derive(Debug)]
pub(crate) struct Unbegun {
    /// The framing that its head announces.
    pub announced: Framing,
    held: BytesMut,
}

impl Unbegun {
    /// For a success of which only the head has arrived.
    pub(crate) fn new(announced: Framing) -> Self {
        Self {
            announced,
            held: BytesMut::new(),
        }
    }

    /// What has arrived of its body.
    pub(crate) fn held(&self) -> &[u8] {
        &self.held
    }

    /// Keeps a piece of its body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// Its body so far, with the newest piece.
    pub(crate) fn into_body(mut self, piece: Option<Bytes>) -> Option<Bytes> {
        if self.held.is_empty() {
            return piece;
        }
        self.held.extend_from_slice(&piece.unwrap_or_default());
        Some(self.held.freeze())
    }
}
