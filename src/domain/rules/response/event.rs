//! Edits of server-sent events. The bytes of an event are held as they came, and only the JSON of its `data` line is
//! replaced, so that names, comments, unknown fields and line ends stay.

use std::ops::Range;

use crate::domain::rules::{apply::edit_object, body::BodyRules};

/// Bytes of one event of a stream, or of one element of an array, that are held at most; a longer one passes unedited.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Holds one event at a time.
#[derive(Debug, Default)]
pub(super) struct EventRewriter {
    held: Vec<u8>,
    /// Where the line in progress begins in what is held.
    line_start: usize,
    data: Data,
    /// The last byte ended a line and was CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The event in progress is too large, and passes.
    is_passing: bool,
    /// Bytes came before, so a byte order mark is none any more.
    has_begun: bool,
    /// Whether the line in progress has a byte, for an event that passes.
    is_line_begun: bool,
}

/// The data lines of the event in progress.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    /// The place of the only one's value.
    One(Range<usize>),
    /// Several lines, which are left alone.
    Several,
}

impl EventRewriter {
    pub(super) fn push(&mut self, bytes: &[u8], rules: &BodyRules, out: &mut Vec<u8>) {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                // Of the line before: with that line, wherever it is now.
                self.take(b"\n", out);
                self.line_start = self.held.len();
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', rest) else {
                self.take(rest, out);
                self.is_line_begun = true;
                return;
            };
            let (line, stop) = (
                rest.get(..end).unwrap_or_default(),
                rest.get(end..=end).unwrap_or_default(),
            );
            self.take(line, out);
            let is_blank = line.is_empty() && !self.is_line_begun;
            let text = self.line_start..self.held.len();
            self.take(stop, out);
            self.after_cr = stop == b"\r";
            self.is_line_begun = false;
            if is_blank {
                self.event_ends(rules, out);
            } else if !self.is_passing {
                self.line_ends(text, out);
            }
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    /// Holds bytes, or lets them pass.
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.is_passing && self.held.len().saturating_add(bytes.len()) > EVENT_BYTES_MAX {
            out.append(&mut self.held);
            self.is_passing = true;
        }
        if self.is_passing || (self.held.is_empty() && bytes == b"\n") {
            // A line end of nothing that is held.
            out.extend_from_slice(bytes);
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn line_ends(&mut self, text: Range<usize>, out: &mut Vec<u8>) {
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
                Data::None => Data::One(start + skipped..text.end),
                Data::One(_) | Data::Several => Data::Several,
            };
        }
        let is_comment_alone = text.start == 0 && line.first() == Some(&b':');
        if is_comment_alone {
            // A heartbeat: nothing comes that it could belong to.
            out.append(&mut self.held);
        }
        self.line_start = self.held.len();
    }

    fn event_ends(&mut self, rules: &BodyRules, out: &mut Vec<u8>) {
        self.has_begun = true;
        let data = std::mem::take(&mut self.data);
        if let (false, Data::One(place)) = (self.is_passing, data) {
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
