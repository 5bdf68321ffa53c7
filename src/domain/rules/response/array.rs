//! Edits the elements of a JSON array that arrives in pieces.

use super::event::EVENT_BYTES_MAX;
use crate::domain::{
    rules::{apply::edit_object, body::BodyRules},
    wire::json_scan::{JsonEnd, JsonEndProgress},
};

/// Holds one object at a time: an element of the array, or an error, which is an object without an array.
#[derive(Debug, Default)]
pub(super) struct ElementRewriter {
    position: ElementPosition,
    buffered: Vec<u8>,
}

#[derive(Debug, Default)]
enum ElementPosition {
    /// Between objects: brackets, commas and white space.
    #[default]
    Between,
    /// In an object that is buffered.
    Buffered(JsonEnd),
    /// In an object that is too large.
    TooLarge(JsonEnd),
    /// After something that does not belong to an array of objects: everything passes unedited.
    Lost,
}

impl ElementRewriter {
    pub(super) fn push(&mut self, bytes: &[u8], rules: &BodyRules, out: &mut Vec<u8>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match &mut self.position {
                ElementPosition::Lost => {
                    out.extend_from_slice(rest);
                    return;
                }
                ElementPosition::Between => {
                    let is_between = |byte: &u8| matches!(byte, b'[' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n');
                    let used = rest.iter().take_while(|byte| is_between(byte)).count();
                    out.extend_from_slice(rest.get(..used).unwrap_or_default());
                    self.position = match rest.get(used) {
                        Some(b'{') => ElementPosition::Buffered(JsonEnd::new()),
                        Some(_) => ElementPosition::Lost,
                        None => ElementPosition::Between,
                    };
                    used
                }
                ElementPosition::Buffered(end) => {
                    let room = EVENT_BYTES_MAX.saturating_sub(self.buffered.len());
                    let piece = rest.get(..room).unwrap_or(rest);
                    let (used, is_whole) = advance(end, piece);
                    self.buffered.extend_from_slice(piece.get(..used).unwrap_or_default());
                    if is_whole {
                        let edited = edit_object(rules, &self.buffered);
                        out.extend_from_slice(edited.as_deref().unwrap_or(&self.buffered));
                        self.buffered.clear();
                        self.position = ElementPosition::Between;
                    } else if room <= rest.len() {
                        out.append(&mut self.buffered);
                        self.position = ElementPosition::TooLarge(std::mem::take(end));
                    }
                    used
                }
                ElementPosition::TooLarge(end) => {
                    let (used, is_whole) = advance(end, rest);
                    out.extend_from_slice(rest.get(..used).unwrap_or_default());
                    if is_whole {
                        self.position = ElementPosition::Between;
                    }
                    used
                }
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    pub(super) fn into_held(self) -> Vec<u8> {
        self.buffered
    }
}

/// The number of bytes of a piece that belong to the object, and whether the object ends there.
fn advance(end: &mut JsonEnd, piece: &[u8]) -> (usize, bool) {
    match end.push(piece) {
        JsonEndProgress::More => (piece.len(), false),
        JsonEndProgress::CompleteAt(at) => (at, true),
    }
}
