//! Splits a stream of server-sent events into events without buffering them.
//!
//! The rules are those of the WHATWG standard: lines end in LF, CRLF or CR; a byte order mark can come first; lines that begin
//! with a colon are comments; several `data` lines of one event are joined by LF; a blank line ends the event; and an event
//! without data is ignored. The data of an event is passed to the [`EventSink`] as it arrives, so a line can have any length.

#[cfg(test)]
mod tests;

/// The maximum length of an event's name, in bytes. A longer name is truncated.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The length in bytes of `event`, which is the longest field name that is used.
const FIELD_BYTES_MAX: usize = 5;
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// A receiver of the content of server-sent events.
pub(crate) trait EventSink {
    /// Handles the next bytes of the current event's data.
    fn on_data(&mut self, bytes: &[u8]);
    /// Handles the end of the event. `name` is the value of its `event` field; empty if it has none.
    fn on_event_end(&mut self, name: &[u8]);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseField {
    Data,
    Event,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SseLineState {
    Start,
    Name,
    /// After the field name's colon. One space that follows is skipped.
    Colon(SseField),
    Value(SseField),
}

/// A buffer for the first `MAX` bytes of a text of any length.
#[derive(Debug)]
struct TruncatedBytes<const MAX: usize> {
    bytes: [u8; MAX],
    length: u8,
    cut: bool,
}

impl<const MAX: usize> TruncatedBytes<MAX> {
    const fn new() -> Self {
        Self {
            bytes: [0; MAX],
            length: 0,
            cut: false,
        }
    }

    fn clear(&mut self) {
        self.length = 0;
        self.cut = false;
    }

    fn extend(&mut self, more: &[u8]) {
        let room = self.bytes.get_mut(usize::from(self.length)..).unwrap_or_default();
        self.cut |= room.len() < more.len();
        for (to, from) in room.iter_mut().zip(more) {
            *to = *from;
            self.length += 1;
        }
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// A framer that splits a stream into events. The events do not depend on how the stream is split into pieces.
#[derive(Debug)]
pub(crate) struct SseFramer {
    line: SseLineState,
    /// Whether the last line ended in CR. An LF directly after it is part of the same line end.
    after_cr: bool,
    /// The number of bytes of a byte order mark that have arrived; `None` once the stream is past the mark or has begun without
    /// one.
    mark: Option<u8>,
    has_data: bool,
    /// Whether a non-blank line has arrived since the last blank line.
    in_event: bool,
    field: TruncatedBytes<FIELD_BYTES_MAX>,
    /// The name of the current event. It is boxed to keep the framer small. Events that match the observer's template for text
    /// events never access the box.
    name: Box<TruncatedBytes<NAME_BYTES_MAX>>,
}

impl Default for SseFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl SseFramer {
    /// Returns a framer at the start of a stream.
    pub(crate) fn new() -> Self {
        Self {
            line: SseLineState::Start,
            after_cr: false,
            mark: Some(0),
            has_data: false,
            in_event: false,
            field: TruncatedBytes::new(),
            name: Box::new(TruncatedBytes::new()),
        }
    }

    /// Whether an event can be inserted at the current position. This is true if the last line was blank, or if nothing has
    /// arrived yet.
    pub(crate) fn is_between_events(&self) -> bool {
        self.line == SseLineState::Start && !self.in_event && matches!(self.mark, None | Some(0 | 3))
    }

    /// Whether data has arrived for an event that has not ended.
    pub(crate) fn has_open_data(&self) -> bool {
        self.has_data
    }

    /// Returns the name of the event that has not ended; empty if it has none.
    pub(crate) fn open_name(&self) -> &[u8] {
        self.name.as_slice()
    }

    /// Whether the next byte begins an event. False if that byte could belong to a byte order mark or to the end of the last
    /// line.
    pub(crate) fn is_at_event(&self) -> bool {
        self.line == SseLineState::Start && !self.in_event && self.mark.is_none() && !self.after_cr
    }

    /// Reads the next bytes of the stream, and stops after the end of an event. If the last line of the event ends in CRLF and
    /// the LF has arrived, the LF is read, too. Returns the number of bytes read.
    pub(crate) fn push_event(&mut self, bytes: &[u8], sink: &mut impl EventSink) -> usize {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let is_end = self.has_data && self.line == SseLineState::Start && matches!(first, b'\n' | b'\r');
            let used = match self.line {
                SseLineState::Start => self.read_line_start(first, sink),
                SseLineState::Name => self.read_field_name(rest, sink),
                SseLineState::Colon(field) => {
                    self.line = SseLineState::Value(field);
                    usize::from(first == b' ')
                }
                SseLineState::Value(field) => self.read_field_value(rest, field, sink),
            };
            rest = rest.get(used..).unwrap_or_default();
            if is_end {
                if self.after_cr && rest.first() == Some(&b'\n') {
                    self.after_cr = false;
                    rest = rest.get(1..).unwrap_or_default();
                }
                break;
            }
        }
        bytes.len() - rest.len()
    }

    fn read_line_start(&mut self, first: u8, sink: &mut impl EventSink) -> usize {
        if let Some(seen) = self.mark {
            if BYTE_ORDER_MARK.get(usize::from(seen)) == Some(&first) {
                self.mark = Some(seen + 1);
                return 1;
            }
            self.mark = None;
            if matches!(seen, 1 | 2) {
                // These bytes are not a byte order mark, but the beginning of an unknown field.
                self.begin_line(SseLineState::Value(SseField::Other));
                return 0;
            }
        }
        match first {
            b'\n' | b'\r' => {
                self.after_cr = first == b'\r';
                if self.has_data {
                    sink.on_event_end(self.name.as_slice());
                }
                self.name.clear();
                self.has_data = false;
                self.in_event = false;
                1
            }
            b':' => {
                self.begin_line(SseLineState::Value(SseField::Other));
                1
            }
            _ => {
                self.begin_line(SseLineState::Name);
                0
            }
        }
    }

    fn begin_line(&mut self, line: SseLineState) {
        self.line = line;
        self.field.clear();
        self.in_event = true;
    }

    fn read_field_name(&mut self, rest: &[u8], sink: &mut impl EventSink) -> usize {
        let end = memchr::memchr3(b':', b'\n', b'\r', rest);
        let (part, stop) = match end.and_then(|end| rest.split_at_checked(end)) {
            Some((part, stop)) => (part, stop.first().copied()),
            None => (rest, None),
        };
        self.field.extend(part);
        let Some(stop) = stop else { return part.len() };
        let field = match self.field.as_slice() {
            _ if self.field.cut => SseField::Other,
            b"data" => SseField::Data,
            b"event" => SseField::Event,
            _ => SseField::Other,
        };
        match field {
            SseField::Data => {
                if self.has_data {
                    sink.on_data(b"\n");
                }
                self.has_data = true;
            }
            SseField::Event => self.name.clear(),
            SseField::Other => {}
        }
        if stop == b':' {
            self.line = SseLineState::Colon(field);
        } else {
            self.end_line(stop);
        }
        part.len() + 1
    }

    fn read_field_value(&mut self, rest: &[u8], field: SseField, sink: &mut impl EventSink) -> usize {
        let end = memchr::memchr2(b'\n', b'\r', rest);
        let (part, stop) = match end.and_then(|end| rest.split_at_checked(end)) {
            Some((part, stop)) => (part, stop.first().copied()),
            None => (rest, None),
        };
        match field {
            SseField::Data if !part.is_empty() => sink.on_data(part),
            SseField::Event => self.name.extend(part),
            SseField::Data | SseField::Other => {}
        }
        match stop {
            Some(stop) => {
                self.end_line(stop);
                part.len() + 1
            }
            None => part.len(),
        }
    }

    fn end_line(&mut self, stop: u8) {
        self.after_cr = stop == b'\r';
        self.line = SseLineState::Start;
    }
}
