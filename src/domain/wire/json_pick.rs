//! Picks the values at a few fixed paths out of JSON of any size and in any split, in bounded memory.
//!
//! Only picks are buffered, each up to a limit; strings are skipped in bulk. The picker never fails: invalid JSON makes
//! it inert until it is reset, and what it has picked stays readable. A value that is whole in memory is read without
//! buffers ([`Picker::pick_whole`]), with the same result.

mod heard;
mod key;
mod lexer;
mod marks;
mod path;
mod picks;
mod said;
mod slot;
#[cfg(test)]
pub(in crate::domain) mod tests;
mod whole;

pub(crate) use heard::Heard;
use heard::Listening;
use key::Key;
use lexer::{Lexer, Token};
pub(crate) use marks::Marks;
use path::{NO_LEAVES, NodeId, PathBits, ROOT};
#[cfg(test)]
pub(crate) use path::{PATHS_MAX, SCALAR_BYTES_MAX};
pub(crate) use path::{Path, PathSet, SEGMENTS_MAX, Segment, TREE_BYTES_MAX, Take};
pub(crate) use picks::Picks;
pub(crate) use said::Said;
pub(in crate::domain) use slot::replace;

/// The picker. Paths are named by their place in the set it was made with.
#[derive(Debug)]
pub(crate) struct Picker {
    set: &'static PathSet,
    picks: Picks<'static>,
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
    scratch: Vec<u8>,
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
            picks: Picks::default(),
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
            scratch: Vec::new(),
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
        self.stop_listening();
        self.said = Said::default();
        self.key.end();
        self.picks.clear();
    }

    /// Takes bytes up to the end of the top-level value, and returns how many; all of them when the value goes on or is not JSON.
    /// Behind the byte that makes it no JSON nothing is listened to either, so that the split does not matter.
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
            self.take(before, at, token);
            at = bytes.len() - behind.len();
        }
        self.keep(bytes.get(..at).unwrap_or(bytes));
        at
    }

    /// All that was listened to (see [`Take::Text`]) since the picker was made, over all resets.
    #[cfg(test)]
    pub(crate) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// What was listened to in the value that is being read, or was read last.
    pub(crate) fn said(&self) -> Said {
        self.said
    }

    /// Exchanges what was listened to with what is kept elsewhere: whoever keeps it there adds to it without touching the picker.
    pub(crate) fn swap_heard(&mut self, kept: &mut Heard) {
        std::mem::swap(&mut self.heard, kept);
    }

    /// Whether the top-level value is closed.
    pub(crate) fn is_done(&self) -> bool {
        self.lexer.is_done()
    }

    /// Whether the bytes were no JSON (or nested too deeply): nothing more is picked until a reset.
    pub(crate) fn is_inert(&self) -> bool {
        self.lexer.is_inert()
    }

    /// The bytes of heap memory in use: at most one limit per path, and twice that while a value is being kept.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.scratch.capacity() + self.picks.heap_bytes()
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
                self.picks.take_each(opened);
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
                if token == Some(Token::Close) && self.active == 0 {
                    let ended = self.node(self.lexer.depth() + 1);
                    self.picks
                        .end_marked(ended.map_or(0, |node| self.set.leaves(node).marked));
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
        self.picks.count_each(leaves.count);
        if leaves.text && is_text && self.listening == Listening::No {
            self.listening = Listening::Text;
        }
        self.begin(leaves.scalar, leaves.scalar_limit, outer, piece);
    }

    fn container_opens(&mut self, piece: &[u8]) {
        let outer = self.lexer.depth() - 1;
        let node = self.value_node(outer);
        let leaves = node.map_or(&NO_LEAVES, |node| self.set.leaves(node));
        self.opened = leaves.presence;
        self.picks.open(leaves);
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
        let too_long = self.overflow;
        self.picks.store(self.active, &self.scratch, too_long, |raw, json| {
            replace(raw.to_mut(), json)
        });
        self.active = 0;
    }
}

impl std::ops::Deref for Picker {
    type Target = Picks<'static>;

    /// What was picked of the value that is being read, or was read last.
    fn deref(&self) -> &Picks<'static> {
        &self.picks
    }
}
