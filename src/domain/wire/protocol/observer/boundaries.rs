//! The boundaries of messages in a piece of an answer.

/// The boundaries of messages in a piece of an answer: events of a stream, elements of an array, or a body that is not a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageBoundaries {
    /// The offset of the first message that is an error, with everything after it; 0 if it began in an earlier piece.
    pub error_from: Option<usize>,
    /// The offset of the message in progress, if it may still be an error: 0 if it began in an earlier piece, the piece's end
    /// without such a message.
    pub open_from: usize,
}

impl MessageBoundaries {
    /// The same boundaries, shifted by `bytes` of earlier pieces that were held back and in which no message ended.
    pub(crate) fn shifted_by(self, bytes: usize) -> Self {
        let moved = |at: usize| if at == 0 { 0 } else { at + bytes };
        Self {
            error_from: self.error_from.map(moved),
            open_from: moved(self.open_from),
        }
    }

    /// The boundaries at the start of a piece; `has_failed`: an earlier message was an error.
    pub(super) fn at_piece_start(has_failed: bool) -> Self {
        Self {
            error_from: has_failed.then_some(0),
            open_from: 0,
        }
    }

    /// Records the end of a message at offset `at`.
    pub(super) fn end_message(&mut self, at: usize, is_error: bool) {
        if is_error && self.error_from.is_none() {
            self.error_from = Some(self.open_from);
        }
        self.open_from = at;
    }
}
