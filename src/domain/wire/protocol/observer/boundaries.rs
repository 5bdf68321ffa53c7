//! Where the messages of an answer begin and end in the bytes that were read last.

/// How a piece of an answer divides into messages: events of a stream, elements of an array, or a body in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boundaries {
    /// Where the first message begins that is an error. What comes behind an error is taken for a part of it. `Some(0)` also
    /// where it began in an earlier piece.
    pub error_from: Option<usize>,
    /// Where the message in progress begins, of which it is not known yet whether it is an error: 0 where it began in an earlier
    /// piece, the piece's end where there is none.
    pub open_from: usize,
}

impl Boundaries {
    /// The same behind bytes of earlier pieces that have not been let out, in which no message ended.
    pub(crate) fn behind(self, bytes: usize) -> Self {
        let moved = |at: usize| if at == 0 { 0 } else { at + bytes };
        Self {
            error_from: self.error_from.map(moved),
            open_from: moved(self.open_from),
        }
    }

    /// For a piece that continues an answer of which an error was seen, or not.
    pub(super) fn within(has_failed: bool) -> Self {
        Self {
            error_from: has_failed.then_some(0),
            open_from: 0,
        }
    }

    /// A message has ended at this place.
    pub(super) fn end_message(&mut self, at: usize, is_error: bool) {
        if is_error && self.error_from.is_none() {
            self.error_from = Some(self.open_from);
        }
        self.open_from = at;
    }
}
