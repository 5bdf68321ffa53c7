//! Edits server-sent events. Only the JSON of an event's `data` line is replaced; names, comments, unknown fields and line ends
//! stay as they are.

use std::ops::Range;

use crate::domain::rules::{apply::edit_object, body::BodyRules};

/// Maximum bytes to hold of one event of a stream or one element of an array; a longer one passes unedited.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Holds one event at a time. Only the JSON of its `data` line is replaced; names, comments, unknown fields and line ends stay.
#[derive(Debug, Default)]
pub(super) struct EventRewriter {
    held: Vec<u8>,
    /// The start of the current line in `held`.
    line_start: usize,
    data: DataLines,
    /// Whether the last byte was a CR that ended a line: a following LF belongs to it.
    after_cr: bool,
    /// Whether the current event is too large and passes unedited.
    is_passing: bool,
    /// Whether a line has ended before: a byte order mark counts only at the start.
    has_begun: bool,
    /// Whether the current line has any bytes already.
    is_line_begun: bool,
}

/// The data lines of the current event.
#[derive(Debug, Default)]
enum DataLines {
    #[default]
    None,
    /// One line; the range of its value in `held`.
    One(Range<usize>),
    /// Several lines, which are not edited.
    Several,
}

impl EventRewriter {
    pub(super) fn push(&mut self, bytes: &[u8], rules: &BodyRules, out: &mut Vec<u8>) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                // This LF belongs to the previous line and follows it, whether that line is held or was passed on.
                self.hold_or_pass(b"\n", out);
                self.line_start = self.held.len();
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.hold_or_pass(rest, out);
                self.is_line_begun = true;
                return;
            };
            let (line, stop) = (
                rest.get(..end).unwrap_or_default(),
                rest.get(end..=end).unwrap_or_default(),
            );
            self.hold_or_pass(line, out);
            let is_blank = line.is_empty() && !self.is_line_begun;
            let text = self.line_start..self.held.len();
            self.hold_or_pass(stop, out);
            self.after_cr = stop == b"\r";
            self.is_line_begun = false;
            if is_blank {
                self.on_event_end(rules, out);
            } else if !self.is_passing {
                self.on_line_end(text, out);
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    /// Holds bytes, or lets them pass.
    fn hold_or_pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.is_passing && self.held.len().saturating_add(bytes.len()) > EVENT_BYTES_MAX {
            out.append(&mut self.held);
            self.is_passing = true;
        }
        if self.is_passing || (self.held.is_empty() && bytes == b"\n") {
            // A lone LF while nothing is held passes at once.
            out.extend_from_slice(bytes);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn on_line_end(&mut self, text: Range<usize>, out: &mut Vec<u8>) {
        let mut start = text.start;
        let mut line = self.held.get(text.clone()).unwrap_or_default();
        if !std::mem::replace(&mut self.has_begun, true) && line.starts_with(BYTE_ORDER_MARK) {
            start += BYTE_ORDER_MARK.len();
            line = line.get(BYTE_ORDER_MARK.len()..).unwrap_or_default();
        }
        if line == b"data" || line.starts_with(b"data:") {
            let value = line.strip_prefix(b"data:").unwrap_or_default();
            let skipped = line.len() - value.len() + usize::from(value.first() == Some(&b' '));
            self.data = match self.data {
                DataLines::None => DataLines::One(start + skipped..text.end),
                DataLines::One(_) | DataLines::Several => DataLines::Several,
            };
        }
        let is_comment_alone = text.start == 0 && line.first() == Some(&b':');
        if is_comment_alone {
            // A comment before any other line of an event, such as a heartbeat, is passed on at once.
            out.append(&mut self.held);
        }
        self.line_start = self.held.len();
    }

    fn on_event_end(&mut self, rules: &BodyRules, out: &mut Vec<u8>) {
        self.has_begun = true;
        let data = std::mem::take(&mut self.data);
        if let (false, DataLines::One(place)) = (self.is_passing, data) {
            let value = self.held.get(place.clone()).unwrap_or_default();
            if let Some(edited) = edit_object(rules, value) {
                self.held.splice(place, edited);
            }
        }
        out.append(&mut self.held);
        self.is_passing = false;
        self.line_start = 0;
    }

    pub(super) fn into_held(self) -> Vec<u8> {
        self.held
    }
}
