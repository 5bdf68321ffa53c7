//! Picks the values at a few fixed paths out of JSON of any size and in any split, in bounded memory.
//!
//! Only picks are buffered, each up to a limit; strings are skipped in bulk. The picker never fails: invalid JSON makes
//! it inert until it is reset, and what it has picked stays readable.

mod heard;
mod key;
mod lexer;
mod marks;
mod path;
mod picked;
mod said;
mod slot;
#[cfg(test)]
pub(in crate::domain) mod tests;

pub(crate) use heard::Heard;
use heard::Listening;
use key::Key;
use lexer::{Lexer, Token};
pub(crate) use marks::Marks;
use path::{NO_LEAVES, NodeId, PathBits, ROOT};
#[cfg(test)]
pub(crate) use path::{PATHS_MAX, SCALAR_BYTES_MAX};
pub(crate) use path::{Path, PathSet, SEGMENTS_MAX, Segment, TREE_BYTES_MAX, Take};
pub(crate) use said::Said;
pub(in crate::domain) use slot::replace;
use slot::{Slot, SlotState, bits};

/// The picker. Paths are named by their place in the set it was made with.
#[derive(Debug)]
pub(crate) struct Picker {
    set: &'static PathSet,
    lexer: Lexer,
    /// Where in the set the open containers are (the outermost first); `None` for those on no path.
    nodes: [Option<NodeId>; SEGMENTS_MAX + 1],
    /// Where in the set the value of the key just read is.
    pending: Option<NodeId>,
    key: Key,
    /// The paths that end at the value being kept; zero when none is.
    active: PathBits,
    /// The number of containers around the value being kept.
    active_depth: usize,
    active_limit: usize,
    /// Where in the piece that is being read it goes on: what is kept is one run of bytes, which is copied at its end, or at
    /// that of the piece.
    active_from: usize,
    /// Set when the value being kept is longer than its limit.
    overflow: bool,
    /// The paths of [`Take::Presence`] to a container that has just opened: the next token says whether it is empty.
    opened: PathBits,
    /// The marks of the object that is being read and is counted by them.
    marks: Marks,
    scratch: Vec<u8>,
    slots: Vec<Slot>,
    /// The slots that a reset has to clear.
    touched: PathBits,
    /// What was listened to since the picker was made; a reset leaves it.
    heard: Heard,
    said: Said,
    listening: Listening,
}

impl Picker {
    /// A picker for these paths.
    pub(crate) fn new(set: &'static PathSet) -> Self {
        Self {
            set,
            lexer: Lexer::new(),
            nodes: [None; SEGMENTS_MAX + 1],
            pending: None,
            key: Key::new(),
            active: 0,
            active_depth: 0,
            active_limit: 0,
            active_from: 0,
            overflow: false,
            opened: 0,
            marks: Marks::default(),
            scratch: Vec::new(),
            slots: vec![Slot::default(); set.takes().len()],
            touched: 0,
            heard: Heard::default(),
            said: Said::default(),
            listening: Listening::No,
        }
    }

    /// Forgets everything, and expects the next value.
    pub(crate) fn reset(&mut self) {
        self.lexer.reset();
        self.pending = None;
        self.active = 0;
        self.opened = 0;
        self.marks = Marks::default();
        self.stop_listening();
        self.said = Said::default();
        self.key.end();
        for at in bits(std::mem::take(&mut self.touched)) {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.state = SlotState::Empty;
                slot.count = 0;
            }
        }
    }

    /// Takes bytes up to the end of the top-level value, and returns how many; all of them when the value goes on or is not JSON.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        self.active_from = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty())
            && !self.lexer.is_done()
        {
            let (length, token) = self.lexer.advance(rest);
            let (before, behind) = bytes.split_at_checked(at + length).unwrap_or((bytes, &[]));
            self.take(before, at, token);
            at = bytes.len() - behind.len();
        }
        self.keep(bytes.get(..at).unwrap_or(bytes));
        at
    }

    /// All that was listened to (see [`Take::Text`]) since the picker was made, over all resets.
    pub(crate) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// What was listened to in the value that is being read, or was read last.
    pub(crate) fn said(&self) -> Said {
        self.said
    }

    /// Hears a text as if it had been read in a value that is otherwise of no effect; it has no escapes.
    pub(crate) fn hear(&mut self, text: &[u8]) {
        self.heard.push_run(text);
        self.heard.end();
    }

    /// Whether the top-level value is closed.
    pub(crate) fn is_done(&self) -> bool {
        self.lexer.is_done()
    }

    /// Whether the bytes were no JSON (or nested too deeply): nothing more is picked until a reset.
    pub(crate) fn is_inert(&self) -> bool {
        self.lexer.is_inert()
    }

    /// The bytes that make what came so far one valid JSON value (nothing came: `null`). `None` when it is none already.
    pub(crate) fn completion(&self) -> Option<Vec<u8>> {
        self.lexer.completion()
    }

    /// The piece that is being read up to a token; its bytes before `at` have been taken.
    fn take(&mut self, piece: &[u8], at: usize, token: Option<Token>) {
        let taken = piece.get(at..).unwrap_or_default();
        if self.listening != Listening::No {
            self.listen(taken, at, token);
        }
        if self.opened != 0 && token.is_some() {
            let opened = std::mem::take(&mut self.opened);
            if token != Some(Token::Close) {
                self.take_each(opened);
            }
        }
        match token {
            None => self.key.extend(taken),
            Some(Token::Key) => {
                let node = self.node(self.lexer.depth());
                self.key
                    .begin(self.active == 0 && node.is_some_and(|node| self.set.has_keys(node)));
            }
            Some(Token::KeyEnd) => {
                let last = taken.split_last().map_or(taken, |(_quote, last)| last);
                let node = self.node(self.lexer.depth());
                self.pending = node.and_then(|node| self.set.key(node, self.key.with(last)?));
                self.key.end();
            }
            Some(Token::Text | Token::Plain) => self.scalar_starts(piece, token == Some(Token::Text)),
            Some(Token::Open(_)) => self.container_opens(piece),
            Some(Token::TextEnd | Token::PlainEnd | Token::Close) => {
                if self.active != 0 && self.lexer.depth() == self.active_depth {
                    self.keep(piece);
                    self.store();
                }
                if token == Some(Token::Close) {
                    self.end_marked();
                }
            }
        }
    }

    /// Where in the set the container with this number (1 is the outermost) is.
    fn node(&self, level: usize) -> Option<NodeId> {
        *self.nodes.get(level.checked_sub(1)?)?
    }

    /// Where in the set the value is that begins inside `outer` containers.
    fn value_node(&self, outer: usize) -> Option<NodeId> {
        if self.active != 0 {
            None
        } else if outer == 0 {
            Some(ROOT)
        } else if self.lexer.is_array(outer) {
            self.set.each(self.node(outer)?)
        } else {
            self.pending
        }
    }

    /// Hears the bytes, if they still belong to what is listened to.
    fn listen(&mut self, taken: &[u8], at: usize, token: Option<Token>) {
        match (self.listening, token) {
            (Listening::No, _) => {}
            (Listening::Text, Some(Token::TextEnd)) => {
                let piece = taken.split_last().map_or(taken, |(_quote, piece)| piece);
                self.heard.push_run(piece);
                self.said.whole(at, piece.len());
                self.stop_listening();
            }
            (Listening::Text, _) => {
                self.said = Said::More;
                self.heard.push_run(taken);
            }
            (Listening::Within(outer), _) => {
                self.said = Said::More;
                self.heard.push_plain(taken);
                if token == Some(Token::Close) && self.lexer.depth() == outer {
                    self.stop_listening();
                }
            }
        }
    }

    fn stop_listening(&mut self) {
        self.heard.end();
        self.listening = Listening::No;
    }

    fn scalar_starts(&mut self, piece: &[u8], is_text: bool) {
        let outer = self.lexer.depth();
        let Some(node) = self.value_node(outer) else { return };
        let leaves = self.set.leaves(node);
        self.count_each(leaves.count);
        if leaves.text && is_text && self.listening == Listening::No {
            self.listening = Listening::Text;
        }
        self.begin(leaves.scalar, leaves.scalar_limit, outer, piece);
    }

    fn container_opens(&mut self, piece: &[u8]) {
        let outer = self.lexer.depth() - 1;
        let node = self.value_node(outer);
        let leaves = node.map_or(&NO_LEAVES, |node| self.set.leaves(node));
        self.count_each(leaves.count);
        self.opened = leaves.presence;
        self.touched |= leaves.presence;
        if leaves.marked != 0 {
            self.marks = Marks::default();
        }
        if let Some(place) = self.nodes.get_mut(outer) {
            *place = node.filter(|_| leaves.tree == 0);
        }
        if leaves.text && self.listening == Listening::No {
            self.listening = Listening::Within(outer);
            self.heard
                .push_plain(piece.last_chunk::<1>().map_or(b"".as_slice(), |byte| byte));
        }
        self.begin(leaves.tree, TREE_BYTES_MAX, outer, piece);
    }

    /// Notes at each of these paths that something was there.
    fn take_each(&mut self, leaves: PathBits) {
        for at in bits(leaves) {
            if let (Some(take), Some(slot)) = (self.set.takes().get(at), self.slots.get_mut(at)) {
                slot.state = SlotState::Taken;
                if let Take::MarkPresence { bits, .. } = take {
                    self.marks.bits |= bits;
                }
            }
        }
    }

    fn count_each(&mut self, leaves: PathBits) {
        for at in bits(leaves) {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.count = slot.count.saturating_add(1);
                self.touched |= 1 << at;
            }
        }
    }

    /// An object or array has ended.
    fn end_marked(&mut self) {
        let ended = self.node(self.lexer.depth() + 1).filter(|_| self.active == 0);
        let marked = ended.map_or(0, |node| self.set.leaves(node).marked);
        for at in bits(marked) {
            let (Some(take), Some(slot)) = (self.set.takes().get(at), self.slots.get_mut(at)) else {
                continue;
            };
            match take {
                Take::CountMarked { all, none } if self.marks.fit(*all, *none) => {
                    slot.count = slot.count.saturating_add(1);
                    self.touched |= 1 << at;
                }
                Take::ListMarked => {
                    slot.push_marks(self.marks);
                    self.touched |= 1 << at;
                }
                _ => {}
            }
        }
    }

    /// Begins to keep a value; its first byte is the last one of `piece`.
    fn begin(&mut self, leaves: PathBits, limit: usize, outer: usize, piece: &[u8]) {
        if leaves != 0 {
            self.active = leaves;
            self.active_depth = outer;
            self.active_limit = limit;
            self.overflow = false;
            self.scratch.clear();
            self.active_from = piece.len().saturating_sub(1);
        }
    }

    /// Keeps what of the piece has not been kept, if a value is being kept.
    fn keep(&mut self, piece: &[u8]) {
        if self.active == 0 || self.overflow {
            return;
        }
        let bytes = piece.get(self.active_from..).unwrap_or_default();
        if self.scratch.len().saturating_add(bytes.len()) > self.active_limit {
            self.overflow = true;
        } else {
            let room = self.scratch.len() + bytes.len();
            if room > self.scratch.capacity() {
                // By doubling, but never beyond the limit.
                let wanted = room.next_power_of_two().min(TREE_BYTES_MAX).max(room);
                self.scratch.reserve_exact(wanted - self.scratch.len());
            }
            self.scratch.extend_from_slice(bytes);
        }
    }

    fn store(&mut self) {
        let scratch = std::mem::take(&mut self.scratch);
        for at in bits(self.active) {
            let (Some(take), Some(slot)) = (self.set.takes().get(at), self.slots.get_mut(at)) else {
                continue;
            };
            let too_long = self.overflow || scratch.len() > take.limit();
            match *take {
                Take::Presence if too_long || !slot::says_nothing(&scratch) => slot.state = SlotState::Taken,
                Take::MarkPresence { bits, none }
                    if too_long
                        || !slot::says_nothing(&scratch) && none.iter().all(|none| none.as_bytes() != scratch) =>
                {
                    slot.state = SlotState::Taken;
                    self.marks.bits |= bits;
                }
                Take::MarkNumber if !too_long => self.marks.number(&scratch),
                Take::Presence
                | Take::MarkPresence { .. }
                | Take::MarkNumber
                | Take::Count
                | Take::CountMarked { .. }
                | Take::ListMarked
                | Take::Text => {}
                Take::CountBeginning(words) => {
                    let text = scratch.strip_prefix(b"\"").unwrap_or_default();
                    let is_one = words.iter().any(|word| text.starts_with(word.as_bytes()));
                    slot.count = slot.count.saturating_add(u64::from(is_one && !too_long));
                }
                Take::Mark { words, other } => self.marks.see(words, other, &scratch, too_long),
                Take::List if too_long => {}
                Take::List => slot.push(&scratch),
                Take::Scalar | Take::Tree if too_long => slot.state = SlotState::TooLong,
                Take::Scalar | Take::Tree => {
                    replace(&mut slot.raw, &scratch);
                    slot.state = SlotState::Taken;
                }
            }
        }
        self.scratch = scratch;
        self.touched |= self.active;
        self.active = 0;
    }
}
