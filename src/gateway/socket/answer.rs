//! Turns the answer to a request on a socket into frames: one for each event of a stream, and one for an error answer.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use http::HeaderMap;
use pingora::http::ResponseHeader;

use crate::{
    domain::wire::{
        protocol::Break,
        responses_socket::server_frame::{
            CompletedResponse, EVENT_BYTES_MAX, EventCutter, ServerEventKind, SocketError, finished_item, write_event,
        },
    },
    gateway::{
        coding::{
            self, MessageCoding,
            decoding::{Decoding, Following},
        },
        turn_link::TurnLink,
    },
};

/// weir reads at most this number of bytes of an error answer.
const ERROR_BYTES_MAX: usize = 1024 * 1024;

/// The HTTP status of the error for an answer that cannot be turned into frames.
const BAD_ANSWER: u16 = 502;

/// The answer to one request, on its way to the socket.
pub(crate) struct TurnAnswer {
    link: Arc<TurnLink>,
    form: TurnAnswerForm,
    /// Whether a part of the answer could not be turned into frames.
    is_unusable: bool,
}

enum TurnAnswerForm {
    /// The head has not arrived.
    Awaited,
    Stream(Box<EventStream>),
    /// An error, which is sent when it is complete.
    Error {
        status: u16,
        headers: HeaderMap,
        body: Vec<u8>,
    },
    /// The last frame has been written.
    Over,
}

/// A stream of events that become frames.
struct EventStream {
    cutter: EventCutter,
    /// Decodes the stream; `None` if the stream has no content coding.
    decoding: Option<Decoding>,
    events: EventReader,
}

/// A reader of the decoded events, with the items that it has collected.
#[derive(Default)]
struct EventReader {
    /// Whether the first byte has arrived and shows that the body is a stream.
    has_begun: bool,
    /// The finished items for the conversation: JSON values with commas in between, without the brackets of the array.
    items: Vec<u8>,
    /// Whether items were left out because they were too long.
    lacks_items: bool,
    /// The HTTP status that corresponds to the last frame; `None` before that frame.
    end: Option<u16>,
}

/// The error of an answer that cannot be turned into frames.
struct AnswerUnusable;

impl TurnAnswer {
    /// Creates an answer that has not begun to arrive.
    pub(crate) fn new(link: Arc<TurnLink>) -> Self {
        Self {
            link,
            form: TurnAnswerForm::Awaited,
            is_unusable: false,
        }
    }

    /// Whether the last frame has been written.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.form, TurnAnswerForm::Over)
    }

    /// Whether a part of the answer could not be turned into frames. If so, the provider need not continue the answer.
    pub(crate) fn is_unusable(&self) -> bool {
        self.is_unusable
    }

    /// Handles the head of the answer. The client gets no frame for it.
    pub(crate) fn on_head(&mut self, head: &ResponseHeader) {
        let decoding = match coding::of_answer(&head.headers) {
            MessageCoding::No => Ok(None),
            MessageCoding::By(coding) => Decoding::new(coding, Following::Member, EVENT_BYTES_MAX)
                .map(Some)
                .map_err(|_| AnswerUnusable),
            MessageCoding::Otherwise(_) => Err(AnswerUnusable),
        };
        self.form = match (head.status.is_success(), decoding) {
            (true, Ok(decoding)) => TurnAnswerForm::Stream(Box::new(EventStream {
                cutter: EventCutter::new(),
                decoding,
                events: EventReader::default(),
            })),
            (is_success, _) => TurnAnswerForm::Error {
                status: if is_success { BAD_ANSWER } else { head.status.as_u16() },
                headers: head.headers.clone(),
                body: Vec::new(),
            },
        };
    }

    /// Handles a piece of the answer's body. Appends to `out` the frames that this piece completes. Returns the HTTP status of
    /// the answer when the last frame is appended; otherwise `None`.
    pub(crate) fn push(&mut self, piece: &[u8], out: &mut BytesMut) -> Option<u16> {
        let read = match &mut self.form {
            TurnAnswerForm::Awaited | TurnAnswerForm::Over => return None,
            TurnAnswerForm::Error { body, .. } => {
                let room = ERROR_BYTES_MAX.saturating_sub(body.len());
                body.extend_from_slice(piece.get(..room).unwrap_or(piece));
                return None;
            }
            TurnAnswerForm::Stream(stream) => stream.push(piece, &self.link, out),
        };
        match read {
            Ok(None) => None,
            Ok(Some(status)) => {
                self.form = TurnAnswerForm::Over;
                Some(status)
            }
            Err(AnswerUnusable) => {
                self.is_unusable = true;
                let message = "The model's provider sent an answer that is not a stream of events. Try again.";
                Some(self.end_with(&SocketError::new(BAD_ANSWER, "provider_broken", message), out))
            }
        }
    }

    /// Handles the end of the answer. The answer may be incomplete. If the last frame is missing, appends it to `out` and returns
    /// the HTTP status of the answer. Does nothing if the head of the answer has not arrived.
    pub(crate) fn finish(&mut self, out: &mut BytesMut) -> Option<u16> {
        let error = match &self.form {
            // Pingora ends the session before the gateway sends an error that the gateway has withheld.
            TurnAnswerForm::Awaited | TurnAnswerForm::Over => return None,
            TurnAnswerForm::Error { status, headers, body } => SocketError::from_answer(*status, headers, body),
            TurnAnswerForm::Stream(_) => SocketError::new(BAD_ANSWER, "server_error", Break::ProviderCut.message()),
        };
        Some(self.end_with(&error, out))
    }

    fn end_with(&mut self, error: &SocketError, out: &mut BytesMut) -> u16 {
        self.form = TurnAnswerForm::Over;
        self.link.finish_conversation(None);
        error.write(out, self.link.stream_id());
        error.status
    }
}

impl EventStream {
    fn push(&mut self, piece: &[u8], link: &TurnLink, out: &mut BytesMut) -> Result<Option<u16>, AnswerUnusable> {
        let Self {
            cutter,
            decoding,
            events,
        } = self;
        let Some(decoding) = decoding else {
            return events.read(piece, cutter, link, out);
        };
        decoding.set_bytes_max(EVENT_BYTES_MAX);
        let mut rest = piece;
        loop {
            match decoding.next(&mut rest) {
                Ok(Some(text)) => {
                    if let Some(status) = events.read(text, cutter, link, out)? {
                        return Ok(Some(status));
                    }
                }
                Ok(None) => return Ok(None),
                Err(_) => return Err(AnswerUnusable),
            }
        }
    }
}

impl EventReader {
    /// Reads decoded bytes of the stream. Returns the answer's HTTP status if the last frame has been written; otherwise `None`.
    fn read(
        &mut self,
        text: &[u8],
        cutter: &mut EventCutter,
        link: &TurnLink,
        out: &mut BytesMut,
    ) -> Result<Option<u16>, AnswerUnusable> {
        if !self.has_begun {
            // A provider may announce any content type, but a body that begins like a JSON value is not a stream.
            let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
            if matches!(first, Some(b'{' | b'[')) {
                return Err(AnswerUnusable);
            }
            self.has_begun = first.is_some();
        }
        let pushed = cutter.push(text, |event| self.on_event(event, link, out));
        pushed.map_err(|_| AnswerUnusable)?;
        Ok(self.end)
    }

    fn on_event(&mut self, event: &[u8], link: &TurnLink, out: &mut BytesMut) {
        if self.end.is_some() {
            return;
        }
        let stream_id = link.stream_id();
        match ServerEventKind::from_data(event) {
            None => {}
            Some(ServerEventKind::Progress) => write_event(out, event, stream_id),
            Some(ServerEventKind::ItemDone) => {
                if link.has_conversation() {
                    self.keep_item(event);
                }
                write_event(out, event, stream_id);
            }
            Some(ServerEventKind::Error) => {
                let error = SocketError::from_event(event);
                link.finish_conversation(None);
                error.write(out, stream_id);
                self.end = Some(BAD_ANSWER);
            }
            Some(ServerEventKind::Failed) => {
                link.finish_conversation(None);
                write_event(out, event, stream_id);
                self.end = Some(BAD_ANSWER);
            }
            Some(ServerEventKind::Incomplete) => {
                link.leave_conversation();
                write_event(out, event, stream_id);
                self.end = Some(BAD_ANSWER);
            }
            Some(ServerEventKind::Completed) => {
                let response = CompletedResponse::from_event(event, &self.items);
                let is_whole = |response: &CompletedResponse| !self.lacks_items || !response.output.is_empty();
                link.finish_conversation(response.filter(is_whole));
                write_event(out, event, stream_id);
                self.end = Some(200);
            }
        }
    }

    /// Stores a finished item, because the last event does not always contain it.
    fn keep_item(&mut self, event: &[u8]) {
        let Some(item) = finished_item(event) else { return };
        if self.lacks_items || self.items.len() + item.len() > EVENT_BYTES_MAX {
            self.lacks_items = true;
            self.items = Vec::new();
            return;
        }
        if !self.items.is_empty() {
            self.items.push(b',');
        }
        self.items.extend_from_slice(item);
    }
}
