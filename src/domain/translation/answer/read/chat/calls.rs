//! Assembles the calls of a `chat/completions` answer from their pieces.

use std::borrow::Cow;

use crate::domain::{
    translation::answer::{
        AnswerEvent, AnswerFault, WAITING_BYTES_MAX,
        read::{Emit, chat::chunk::ChatCallPiece},
    },
    wire::json_scan::{JsonEnd, JsonEndProgress},
};

/// The size of a call without its strings, in bytes, for the memory limit.
const CALL_BYTES: usize = 64;

/// The calls of one answer.
#[derive(Debug, Default)]
pub(super) struct ChatAnswerCalls {
    /// The calls, in the order of their indexes.
    calls: Vec<PiecedCall>,
    /// The total size of the calls for the memory limit, in bytes: all ids and names, the arguments of calls that have no name
    /// yet, and [`CALL_BYTES`] for each call.
    bytes: usize,
}

/// A call that is assembled from its pieces.
#[derive(Debug)]
struct PiecedCall {
    call_index: u32,
    /// The call's `index` in the provider's pieces; `None` if the pieces have no `index`.
    index: Option<u64>,
    id: String,
    name: String,
    /// Whether the call has been emitted. Before that, its name may be incomplete, or its arguments are retained because the name
    /// is missing.
    has_begun: bool,
    waiting: String,
    has_arguments: bool,
    arguments: JsonEnd,
    is_complete: bool,
}

impl ChatAnswerCalls {
    /// Whether the answer has no calls, not even a call without a name.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Whether there is a call with a name.
    pub(super) fn has_named(&self) -> bool {
        self.calls.iter().any(|call| !call.name.is_empty())
    }

    /// Whether every call has complete arguments.
    pub(super) fn are_complete(&self) -> bool {
        self.calls.iter().all(|call| call.is_complete)
    }

    /// Whether every call has complete arguments or no arguments.
    pub(super) fn are_complete_or_empty(&self) -> bool {
        self.calls.iter().all(|call| call.is_complete || !call.has_arguments)
    }

    /// Adds a piece of a call, and emits everything that can no longer change.
    ///
    /// # Errors
    /// More than [`WAITING_BYTES_MAX`] bytes are collected, the piece cannot be read, or `emit` fails.
    pub(super) fn push(&mut self, piece: &ChatCallPiece<'_>, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        let arguments = piece.arguments()?;
        let position = match self.position(piece, &arguments) {
            Some(position) => position,
            None => {
                self.begin_named(emit)?;
                self.add(piece.index)?
            }
        };
        let Some(call) = self.calls.get_mut(position) else {
            return Ok(());
        };
        self.bytes += call.add_head(piece.id(), piece.name());
        if call.name.is_empty() {
            self.bytes += arguments.len();
        }
        if self.bytes > WAITING_BYTES_MAX {
            return Err(AnswerFault::CallsTooLarge);
        }
        call.add_arguments(&arguments, emit)
    }

    /// Returns the position of the call that a piece belongs to; `None` if the piece begins another call.
    fn position(&self, piece: &ChatCallPiece<'_>, arguments: &str) -> Option<usize> {
        let (id, name) = (piece.id(), piece.name());
        let position = match piece.index {
            Some(_) => self.calls.iter().rposition(|call| call.index == piece.index),
            None if !id.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None if name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        }?;
        let call = self.calls.get(position)?;
        // Some hosts give all calls the same index.
        let is_other = id != call.id && !name.is_empty() && !(id.is_empty() && arguments.is_empty());
        (!(call.is_complete && is_other)).then_some(position)
    }

    /// Adds a call without content; returns its position.
    fn add(&mut self, index: Option<u64>) -> Result<usize, AnswerFault> {
        let position = self.calls.len();
        self.bytes += CALL_BYTES;
        self.calls.push(PiecedCall {
            call_index: u32::try_from(position).map_err(|_| AnswerFault::CallsTooLarge)?,
            index,
            id: String::new(),
            name: String::new(),
            has_begun: false,
            waiting: String::new(),
            has_arguments: false,
            arguments: JsonEnd::new(),
            is_complete: false,
        });
        Ok(position)
    }

    /// Emits the calls that have a name. The names are complete, because other content follows.
    ///
    /// # Errors
    /// `emit` fails.
    pub(super) fn begin_named(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        self.calls.iter_mut().try_for_each(|call| call.begin(emit))
    }

    /// Emits, at the answer's end, everything about the calls that has not been emitted yet. If `are_wanted` is true, the model
    /// waits for the results of the calls, so a call without arguments gets an empty object as its arguments.
    ///
    /// # Errors
    /// `emit` fails.
    pub(super) fn finish(&mut self, are_wanted: bool, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        for call in &mut self.calls {
            if call.name.is_empty() {
                emit(AnswerEvent::Lost("call_without_name"))?;
                continue;
            }
            call.begin(emit)?;
            if are_wanted && !call.has_arguments {
                call.add_arguments("{}", emit)?;
            }
            if call.is_complete {
                emit(AnswerEvent::CallEnd {
                    call_index: call.call_index,
                })?;
            }
        }
        Ok(())
    }
}

impl PiecedCall {
    /// Adds the id and a piece of the name; returns by how many bytes the call has grown.
    fn add_head(&mut self, id: &str, name: &str) -> usize {
        let before = self.id.len() + self.name.len();
        if self.has_begun {
            return 0;
        }
        if self.id.is_empty() {
            self.id.push_str(id);
        }
        match name.strip_prefix(self.name.as_str()) {
            // The host sends the same name again, or the name so far with more of it.
            Some(more) => self.name.push_str(more),
            None => self.name.push_str(name),
        }
        self.id.len() + self.name.len() - before
    }

    /// Emits the call if it has a name.
    fn begin(&mut self, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if self.name.is_empty() || std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let call_index = self.call_index;
        emit(AnswerEvent::Call {
            call_index,
            id: Cow::Borrowed(&self.id),
            name: Cow::Borrowed(&self.name),
        })?;
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let json = Cow::Owned(waiting);
        emit(AnswerEvent::Arguments { call_index, json })
    }

    /// Adds a piece of the arguments. Bytes after the end of the arguments' JSON text are ignored.
    fn add_arguments(&mut self, piece: &str, emit: &mut Emit<'_>) -> Result<(), AnswerFault> {
        if piece.is_empty() || self.is_complete {
            return Ok(());
        }
        self.has_arguments = true;
        let piece = match self.arguments.push(piece.as_bytes()) {
            JsonEndProgress::More => piece,
            JsonEndProgress::CompleteAt(end) => {
                self.is_complete = true;
                piece.get(..end).unwrap_or(piece)
            }
        };
        if self.name.is_empty() {
            self.waiting.push_str(piece);
            return Ok(());
        }
        self.begin(emit)?;
        let (call_index, json) = (self.call_index, Cow::Borrowed(piece));
        emit(AnswerEvent::Arguments { call_index, json })
    }
}
