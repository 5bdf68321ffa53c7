//! Splits a server-sent event stream into events, byte by byte and without keeping them.
//!
//! The rules are those of the WHATWG standard: lines end in LF, CRLF or CR, a byte order mark may come first, lines
//! that begin with a colon are comments, several `data` lines of one event are joined by LF, a blank line ends the
//! event, and an event without data is ignored. An event's data goes straight to the [`EventSink`], so a line may have
//! any length.

#[cfg(test)]
mod tests;

/// Bytes of an event name that are kept; a longer name is cut to this.
pub(crate) const NAME_BYTES_MAX: usize = 64;
/// The longest field name that means anything here is `event`.
const FIELD_BYTES_MAX: usize = 5;
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Takes the content of events.
pub(crate) trait EventSink {
    /// More bytes of the current event's data.
    fn data(&mut self, bytes: &[u8]);
    /// The event is over; `name` is its `event` field, or empty.
    fn end(&mut self, name: &[u8]);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Event,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Start,
    Name,
    /// Behind the colon, where one space is skipped.
    Colon(Field),
    Value(Field),
}

/// A few bytes of what may be long.
#[derive(Debug)]
struct Short<const MAX: usize> {
    bytes: [u8; MAX],
    length: u8,
    cut: bool,
}

impl<const MAX: usize> Short<MAX> {
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

/// The framer. Any split of the stream gives the same events.
#[derive(Debug)]
pub(crate) struct SseFramer {
    line: Line,
    /// The last line ended in CR: an LF that follows belongs to it.
    after_cr: bool,
    /// Bytes of the byte order mark seen; `None` when the stream has begun otherwise.
    mark: Option<u8>,
    has_data: bool,
    /// Whether a line that is not blank came since the last blank one.
    in_event: bool,
    field: Short<FIELD_BYTES_MAX>,
    /// Apart, because events that are recognised as a whole do not need it.
    name: Box<Short<NAME_BYTES_MAX>>,
}

impl Default for SseFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl SseFramer {
    /// A framer at the start of a stream.
    pub(crate) fn new() -> Self {
        Self {
            line: Line::Start,
            after_cr: false,
            mark: Some(0),
            has_data: false,
            in_event: false,
            field: Short::new(),
            name: Box::new(Short::new()),
        }
    }

    /// Whether an event that is appended here stands alone: the last line that came was blank (or none came).
    pub(crate) fn is_between_events(&self) -> bool {
        self.line == Line::Start && !self.in_event && matches!(self.mark, None | Some(0 | 3))
    }

    /// Whether data came for an event that no blank line has ended yet.
    pub(crate) fn has_open_data(&self) -> bool {
        self.has_data
    }

    /// The name of the event that is not ended yet, or empty.
    pub(crate) fn open_name(&self) -> &[u8] {
        self.name.as_slice()
    }

    /// Whether the next byte begins an event, wherever the stream began.
    pub(crate) fn is_at_event(&self) -> bool {
        self.line == Line::Start && !self.in_event && self.mark.is_none() && !self.after_cr
    }

    /// Reads the next bytes of the stream, at most to the end of an event (with all of its last line end, if that is there);
    /// says how many.
    pub(crate) fn push_event(&mut self, bytes: &[u8], sink: &mut impl EventSink) -> usize {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let is_end = self.has_data && self.line == Line::Start && matches!(first, b'\n' | b'\r');
            let used = match self.line {
                Line::Start => self.start(first, sink),
                Line::Name => self.field_name(rest, sink),
                Line::Colon(field) => {
                    self.line = Line::Value(field);
                    usize::from(first == b' ')
                }
                Line::Value(field) => self.value(rest, field, sink),
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

    fn start(&mut self, first: u8, sink: &mut impl EventSink) -> usize {
        if let Some(seen) = self.mark {
            if BYTE_ORDER_MARK.get(usize::from(seen)) == Some(&first) {
                self.mark = Some(seen + 1);
                return 1;
            }
            self.mark = None;
            if matches!(seen, 1 | 2) {
                // No mark after all: its bytes began a field, which nobody knows.
                self.begin_line(Line::Value(Field::Other));
                return 0;
            }
        }
        match first {
            b'\n' | b'\r' => {
                self.after_cr = first == b'\r';
                if self.has_data {
                    sink.end(self.name.as_slice());
                }
                self.name.clear();
                self.has_data = false;
                self.in_event = false;
                1
            }
            b':' => {
                self.begin_line(Line::Value(Field::Other));
                1
            }
            _ => {
                self.begin_line(Line::Name);
                0
            }
        }
    }

    fn begin_line(&mut self, line: Line) {
        self.line = line;
        self.field.clear();
        self.in_event = true;
    }

    fn field_name(&mut self, rest: &[u8], sink: &mut impl EventSink) -> usize {
        let end = memchr::memchr3(b':', b'\n', b'\r', rest);
        let (part, stop) = match end.and_then(|end| rest.split_at_checked(end)) {
            Some((part, stop)) => (part, stop.first().copied()),
            None => (rest, None),
        };
        self.field.extend(part);
        let Some(stop) = stop else { return part.len() };
        let field = match self.field.as_slice() {
            _ if self.field.cut => Field::Other,
            b"data" => Field::Data,
            b"event" => Field::Event,
            _ => Field::Other,
        };
        match field {
            Field::Data => {
                if self.has_data {
                    sink.data(b"\n");
                }
                self.has_data = true;
            }
            Field::Event => self.name.clear(),
            Field::Other => {}
        }
        if stop == b':' {
            self.line = Line::Colon(field);
        } else {
            self.end_line(stop);
        }
        part.len() + 1
    }

    fn value(&mut self, rest: &[u8], field: Field, sink: &mut impl EventSink) -> usize {
        let end = memchr::memchr2(b'\n', b'\r', rest);
        let (part, stop) = match end.and_then(|end| rest.split_at_checked(end)) {
            Some((part, stop)) => (part, stop.first().copied()),
            None => (rest, None),
        };
        match field {
            Field::Data if !part.is_empty() => sink.data(part),
            Field::Event => self.name.extend(part),
            Field::Data | Field::Other => {}
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
        self.line = Line::Start;
    }
}
