//! Picks values out of JSON, at a few fixed paths and in bounded memory. The JSON can have any size, and can be split into pieces
//! anywhere.
//!
//! Only the picked values are buffered, each up to a limit; strings are skipped in bulk. The picker never fails. Invalid JSON
//! makes it inert until it is reset, but the values that were already picked stay readable. JSON that is completely in memory is
//! read without buffers ([`Picker::pick_whole`]), with the same result. [`ArrayFramer`] splits an array into elements for a
//! picker.

mod lexer;
mod path;
mod picks;
#[cfg(test)]
pub(in crate::domain) mod tests;
mod text;
mod whole;

use crate::domain::wire::json_pick::{
    lexer::{PickLexer, PickToken},
    path::{KeyBuffer, NO_LEAVES, PathBits, PickNodeId, ROOT},
    text::TextCounting,
};

pub(crate) use crate::domain::wire::json_pick::path::ObjectMarks;
pub(in crate::domain) use crate::domain::wire::json_pick::path::replace_bytes;
#[cfg(test)]
pub(crate) use crate::domain::wire::json_pick::path::{PATHS_MAX, SCALAR_BYTES_MAX};
pub(crate) use crate::domain::wire::json_pick::path::{
    PathSet, PickPath, PickRule, PickSegment, SEGMENTS_MAX, TREE_BYTES_MAX,
};
pub(crate) use crate::domain::wire::json_pick::picks::Picks;
pub(crate) use crate::domain::wire::json_pick::text::TextCounter;
pub(crate) use crate::domain::wire::json_pick::text::TextSpan;

/// A picker of values from JSON that arrives in pieces. A path is identified by its index in the set with which the picker was
/// created.
#[derive(Debug)]
pub(crate) struct Picker {
    set: &'static PathSet,
    picks: Picks<'static>,
    lexer: PickLexer,
    /// The nodes of the path set that belong to the open containers, the outermost first; `None` for a container to which no path
    /// leads.
    nodes: [Option<PickNodeId>; SEGMENTS_MAX + 1],
    /// The node of the path set that belongs to the value of the last key; `None` if no path leads to that value.
    pending: Option<PickNodeId>,
    key: KeyBuffer,
    /// The paths of the value that is being buffered, one bit for each; zero if no value is being buffered.
    active: PathBits,
    /// The number of containers around the value that is being buffered.
    active_depth: usize,
    active_limit: usize,
    /// The offset in the current piece at which the uncopied bytes of the buffered value begin. They are copied at the end of the
    /// value or of the piece.
    active_from: usize,
    /// Whether the value that is being buffered is longer than its limit.
    overflow: bool,
    /// The paths with [`PickRule::Presence`] that end at the container which has just been opened. The next token determines
    /// whether the container is empty.
    opened: PathBits,
    scratch: Vec<u8>,
    /// The counter of all text that the picker has read at paths with [`PickRule::Text`] since its creation. A reset does not
    /// change it.
    text_counter: TextCounter,
    text_span: TextSpan,
    counting: TextCounting,
}

impl Picker {
    /// Creates a picker for the paths of `set`.
    pub(crate) fn new(set: &'static PathSet) -> Self {
        Self {
            set,
            picks: Picks::default(),
            lexer: PickLexer::new(),
            nodes: [None; SEGMENTS_MAX + 1],
            pending: None,
            key: KeyBuffer::new(),
            active: 0,
            active_depth: 0,
            active_limit: 0,
            active_from: 0,
            overflow: false,
            opened: 0,
            scratch: Vec::new(),
            text_counter: TextCounter::default(),
            text_span: TextSpan::default(),
            counting: TextCounting::No,
        }
    }

    /// Prepares the picker for the next JSON value. Discards everything except the counted text.
    pub(crate) fn reset(&mut self) {
        self.lexer.reset();
        self.pending = None;
        self.active = 0;
        self.opened = 0;
        self.end_text();
        self.text_span = TextSpan::default();
        self.key.end();
        self.picks.clear();
    }

    /// Reads `bytes` up to the end of the top-level value, and returns the number of bytes read. If the value does not end in
    /// `bytes`, or is not JSON, all bytes are read. Text after a byte that makes the value invalid is not counted, so the result
    /// does not depend on how the JSON is split.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        self.active_from = 0;
        self.picks.make_room(self.set);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty())
            && !self.lexer.is_done()
        {
            if self.lexer.is_inert() {
                return bytes.len();
            }
            let (length, token) = self.lexer.advance(rest);
            let (before, behind) = bytes.split_at_checked(at + length).unwrap_or((bytes, &[]));
            self.on_token(before, at, token);
            at = bytes.len() - behind.len();
        }
        self.buffer(bytes.get(..at).unwrap_or(bytes));
        at
    }

    /// Returns the counter of the text (see [`PickRule::Text`]) since the picker was created, including text before resets.
    #[cfg(test)]
    pub(crate) fn text_counter(&self) -> &TextCounter {
        &self.text_counter
    }

    /// Returns the position of the text that was counted in the current value. A complete value remains the current one until the
    /// reset.
    pub(crate) fn text_span(&self) -> TextSpan {
        self.text_span
    }

    /// Swaps the text counter with `kept`, so that the owner of `kept` can add text without the picker.
    pub(crate) fn swap_text_counter(&mut self, kept: &mut TextCounter) {
        std::mem::swap(&mut self.text_counter, kept);
    }

    /// Whether the top-level value is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.lexer.is_done()
    }

    /// Whether the bytes are not JSON, or are nested too deeply. Nothing more is picked until a reset.
    pub(crate) fn is_inert(&self) -> bool {
        self.lexer.is_inert()
    }

    /// Returns the number of bytes of heap memory in use. For each path it is at most the limit of the path's rule, or twice that
    /// limit while a value is being buffered.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.scratch.capacity() + self.picks.heap_bytes()
    }

    /// Returns the bytes that must be appended to complete the JSON value read so far (`null` if nothing has arrived). `None` if
    /// the value is already invalid.
    pub(crate) fn completion(&self) -> Option<Vec<u8>> {
        self.lexer.completion()
    }

    /// Handles the bytes of `piece` from offset `at` on. `token` is the token that ends with them; `None` if they are inside a
    /// token.
    fn on_token(&mut self, piece: &[u8], at: usize, token: Option<PickToken>) {
        let taken = piece.get(at..).unwrap_or_default();
        if self.counting != TextCounting::No {
            self.count_text(taken, at, token);
        }
        if self.opened != 0 && token.is_some() {
            let opened = std::mem::take(&mut self.opened);
            if token != Some(PickToken::Close) {
                self.picks.set_present(opened);
            }
        }
        match token {
            None => self.key.extend(taken),
            Some(PickToken::Key) => {
                let node = self.container_node(self.lexer.depth());
                self.key
                    .begin(self.active == 0 && node.is_some_and(|node| self.set.has_keys(node)));
            }
            Some(PickToken::KeyEnd) => {
                let last = taken.split_last().map_or(taken, |(_quote, last)| last);
                let node = self.container_node(self.lexer.depth());
                self.pending = node.and_then(|node| self.set.key_child(node, self.key.complete_with(last)?));
                self.key.end();
            }
            Some(PickToken::Text | PickToken::Plain) => self.on_scalar(piece, token == Some(PickToken::Text)),
            Some(PickToken::Open(_)) => self.on_container(piece),
            Some(PickToken::TextEnd | PickToken::PlainEnd | PickToken::Close) => {
                if self.active != 0 && self.lexer.depth() == self.active_depth {
                    self.buffer(piece);
                    self.store_buffered();
                }
                if token == Some(PickToken::Close) && self.active == 0 {
                    let ended = self.container_node(self.lexer.depth() + 1);
                    self.picks
                        .on_container_end(ended.map_or(0, |node| self.set.leaves(node).marked));
                }
            }
        }
    }

    /// Returns the node that belongs to the open container at `level`; `None` if no path leads to it. The outermost container has
    /// level 1.
    fn container_node(&self, level: usize) -> Option<PickNodeId> {
        *self.nodes.get(level.checked_sub(1)?)?
    }

    /// Returns the node of a value that begins inside `outer` containers; `None` if no path leads to it.
    fn value_node(&self, outer: usize) -> Option<PickNodeId> {
        if self.active != 0 {
            None
        } else if outer == 0 {
            Some(ROOT)
        } else if self.lexer.is_array(outer) {
            self.set.element_child(self.container_node(outer)?)
        } else {
            self.pending
        }
    }

    /// Counts the bytes `taken` as text. Ends the text if `token` is the end of the counted value.
    fn count_text(&mut self, taken: &[u8], at: usize, token: Option<PickToken>) {
        match (self.counting, token) {
            (TextCounting::No, _) => {}
            (TextCounting::Text, Some(PickToken::TextEnd)) => {
                let piece = taken.split_last().map_or(taken, |(_quote, piece)| piece);
                self.text_counter.push_run(piece);
                self.text_span.record_string(at, piece.len());
                self.end_text();
            }
            (TextCounting::Text, _) => {
                self.text_span = TextSpan::More;
                self.text_counter.push_run(taken);
            }
            (TextCounting::Within(outer), _) => {
                self.text_span = TextSpan::More;
                self.text_counter.push_json(taken);
                if token == Some(PickToken::Close) && self.lexer.depth() == outer {
                    self.end_text();
                }
            }
        }
    }

    fn end_text(&mut self) {
        self.text_counter.end();
        self.counting = TextCounting::No;
    }

    fn on_scalar(&mut self, piece: &[u8], is_text: bool) {
        let outer = self.lexer.depth();
        let Some(node) = self.value_node(outer) else { return };
        let leaves = self.set.leaves(node);
        self.picks.count_each(leaves.count);
        if leaves.text && is_text && self.counting == TextCounting::No {
            self.counting = TextCounting::Text;
        }
        self.begin_buffering(leaves.scalar, leaves.scalar_limit, outer, piece);
    }

    fn on_container(&mut self, piece: &[u8]) {
        let outer = self.lexer.depth() - 1;
        let node = self.value_node(outer);
        let leaves = node.map_or(&NO_LEAVES, |node| self.set.leaves(node));
        self.opened = leaves.presence;
        self.picks.on_container_begin(leaves);
        if let Some(place) = self.nodes.get_mut(outer) {
            *place = node.filter(|_| leaves.tree == 0);
        }
        if leaves.text && self.counting == TextCounting::No {
            self.counting = TextCounting::Within(outer);
            self.text_counter
                .push_json(piece.last_chunk::<1>().map_or(b"".as_slice(), |byte| byte));
        }
        self.begin_buffering(leaves.tree, TREE_BYTES_MAX, outer, piece);
    }

    /// Begins to buffer a value whose first byte is the last byte of `piece`.
    fn begin_buffering(&mut self, leaves: PathBits, limit: usize, outer: usize, piece: &[u8]) {
        if leaves != 0 {
            self.active = leaves;
            self.active_depth = outer;
            self.active_limit = limit;
            self.overflow = false;
            self.scratch.clear();
            self.active_from = piece.len().saturating_sub(1);
        }
    }

    /// Buffers the part of `piece` that is not copied yet, if a value is being buffered.
    fn buffer(&mut self, piece: &[u8]) {
        if self.active == 0 || self.overflow {
            return;
        }
        let bytes = piece.get(self.active_from..).unwrap_or_default();
        if self.scratch.len().saturating_add(bytes.len()) > self.active_limit {
            self.overflow = true;
        } else {
            let room = self.scratch.len() + bytes.len();
            if room > self.scratch.capacity() {
                // The capacity doubles, but never exceeds the limit.
                let wanted = room.next_power_of_two().min(TREE_BYTES_MAX).max(room);
                self.scratch.reserve_exact(wanted - self.scratch.len());
            }
            self.scratch.extend_from_slice(bytes);
        }
    }

    fn store_buffered(&mut self) {
        let too_long = self.overflow;
        self.picks.store(self.active, &self.scratch, too_long, |raw, json| {
            replace_bytes(raw.to_mut(), json)
        });
        self.active = 0;
    }
}

impl std::ops::Deref for Picker {
    type Target = Picks<'static>;

    /// Returns the values picked from the current JSON value. A complete value remains the current one until the reset.
    fn deref(&self) -> &Picks<'static> {
        &self.picks
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrayState {
    Before,
    /// After the opening bracket, before the first element.
    Opened,
    Element,
    AfterElement,
    AfterComma,
    Closed,
    /// In a value that is not an array. Google sends an error as an object without an array.
    Bare,
    BareClosed,
    Broken,
}

/// A framer that splits a JSON array into its elements. The array arrives in pieces, as a Gemini stream without `alt=sse` does.
/// The elements are passed to a [`Picker`] as they arrive. After any byte, the framer can end the array so that it is valid JSON.
/// The elements do not depend on how the array is split into pieces.
#[derive(Debug)]
pub(crate) struct ArrayFramer {
    state: ArrayState,
}

impl Default for ArrayFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl ArrayFramer {
    /// Returns a framer at the start of a body.
    pub(crate) const fn new() -> Self {
        Self {
            state: ArrayState::Before,
        }
    }

    /// Whether the array is complete. If another value was sent instead of an array, whether that value is complete.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, ArrayState::Closed | ArrayState::BareClosed)
    }

    /// Whether the current position is outside of all elements: among brackets, commas and white space.
    pub(crate) fn is_between_elements(&self) -> bool {
        !matches!(self.state, ArrayState::Element | ArrayState::Bare | ArrayState::Broken)
    }

    /// Reads the next bytes. `picker` reads the current element. When an element is complete, `on_element` is called with the
    /// picker and the offset in `bytes` at which the element ends.
    pub(crate) fn push(&mut self, bytes: &[u8], picker: &mut Picker, mut on_element: impl FnMut(&Picker, usize)) {
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            let used = match self.state {
                ArrayState::Closed | ArrayState::BareClosed | ArrayState::Broken => return,
                ArrayState::Element | ArrayState::Bare => {
                    let used = picker.push(rest);
                    if picker.is_done() {
                        on_element(picker, bytes.len() - rest.len() + used);
                        self.state = if self.state == ArrayState::Element {
                            ArrayState::AfterElement
                        } else {
                            ArrayState::BareClosed
                        };
                    } else if picker.is_inert() {
                        self.state = ArrayState::Broken;
                    }
                    used
                }
                ArrayState::Before | ArrayState::Opened | ArrayState::AfterElement | ArrayState::AfterComma => {
                    self.step_between_elements(first, picker)
                }
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    fn step_between_elements(&mut self, first: u8, picker: &mut Picker) -> usize {
        let (state, used) = match (self.state, first) {
            (state, b' ' | b'\t' | b'\r' | b'\n') => (state, 1),
            (ArrayState::Before, b'[') => (ArrayState::Opened, 1),
            (ArrayState::Before, _) => (ArrayState::Bare, 0),
            (ArrayState::Opened | ArrayState::AfterElement, b']') => (ArrayState::Closed, 1),
            (ArrayState::AfterElement, b',') => (ArrayState::AfterComma, 1),
            (ArrayState::Opened | ArrayState::AfterComma, _) => (ArrayState::Element, 0),
            _ => (ArrayState::Broken, 0),
        };
        if matches!(state, ArrayState::Element | ArrayState::Bare) {
            picker.reset();
        }
        self.state = state;
        used
    }

    /// Returns the bytes that end the array at the current position, with the JSON value `last` as its last element. `None` if
    /// the array is already closed, or if the body is not an array.
    pub(crate) fn failure_tail(&self, picker: &Picker, last: &[u8]) -> Option<Vec<u8>> {
        let before = match self.state {
            ArrayState::Before => b"[".to_vec(),
            ArrayState::Opened | ArrayState::AfterComma => Vec::new(),
            ArrayState::AfterElement => b",".to_vec(),
            ArrayState::Element => {
                let mut before = picker.completion()?;
                before.push(b',');
                before
            }
            ArrayState::Closed | ArrayState::Bare | ArrayState::BareClosed | ArrayState::Broken => return None,
        };
        Some([before.as_slice(), last, b"]"].concat())
    }
}
