//! Picks the values at a few fixed paths out of JSON of any size, fed in any split, in bounded memory.
//!
//! Nothing is buffered but what is picked, and each pick has a limit; strings are skipped in bulk. The picker never fails:
//! what is not JSON makes it inert until it is reset, and what it had picked by then stays readable.

use std::borrow::Cow;

mod key;
mod lexer;
mod path;
#[cfg(test)]
pub(in crate::domain) mod tests;

use key::Key;
use lexer::{Container, Lexer, Token};
pub use path::{Path, SCALAR_BYTES_MAX, SEGMENTS_MAX, Segment, TREE_BYTES_MAX, Take};

/// Paths of one picker: one bit each.
pub const PATHS_MAX: usize = 64;

/// What was picked at one path.
#[derive(Clone, Debug, Default)]
struct Slot {
    raw: Vec<u8>,
    count: u64,
    state: SlotState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotState {
    #[default]
    Empty,
    Taken,
    TooLong,
}

/// The picker. Paths are named by their place in the slice it was made with.
#[derive(Debug)]
pub struct Picker {
    paths: &'static [Path],
    lexer: Lexer,
    /// Per open container (the outermost first), the paths that lead on into it.
    masks: [u64; SEGMENTS_MAX + 1],
    /// The paths that match the key just read.
    pending: u64,
    key: Key,
    /// The paths that end at the value being kept; zero when none is.
    active: u64,
    /// The number of containers around the value being kept.
    active_depth: usize,
    active_limit: usize,
    /// Set when the value being kept is longer than its limit.
    overflow: bool,
    scratch: Vec<u8>,
    slots: Vec<Slot>,
    dirty: bool,
}

impl Picker {
    /// A picker for these paths ([`PATHS_MAX`]; those behind are ignored).
    pub fn new(paths: &'static [Path]) -> Self {
        let paths = paths.get(..PATHS_MAX).unwrap_or(paths);
        Self {
            paths,
            lexer: Lexer::new(),
            masks: [0; SEGMENTS_MAX + 1],
            pending: 0,
            key: Key::new(),
            active: 0,
            active_depth: 0,
            active_limit: 0,
            overflow: false,
            scratch: Vec::new(),
            slots: vec![Slot::default(); paths.len()],
            dirty: false,
        }
    }

    /// Forgets everything, and expects the next value.
    pub fn reset(&mut self) {
        self.lexer.reset();
        self.pending = 0;
        self.active = 0;
        self.key.end();
        if self.dirty {
            self.dirty = false;
            for slot in &mut self.slots {
                slot.state = SlotState::Empty;
                slot.count = 0;
            }
        }
    }

    /// Takes bytes up to the end of the top-level value, and returns how many; all of them when the value goes on or is not JSON.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && !self.lexer.is_done() {
            let (length, token) = self.lexer.advance(rest);
            let (taken, left) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            rest = left;
            self.take(taken, token);
        }
        bytes.len() - rest.len()
    }

    /// Whether the top-level value is closed.
    pub fn is_done(&self) -> bool {
        self.lexer.is_done()
    }

    /// Whether the bytes were no JSON (or nested too deeply): nothing more is picked until a reset.
    pub fn is_inert(&self) -> bool {
        self.lexer.is_inert()
    }

    /// The bytes that make what came so far one valid JSON value (nothing came: `null`). `None` when it is none already.
    pub fn completion(&self) -> Option<Vec<u8>> {
        self.lexer.completion()
    }

    /// The JSON text of what was kept at this path.
    pub fn raw(&self, path: usize) -> Option<&[u8]> {
        let slot = self.slots.get(path)?;
        (slot.state == SlotState::Taken).then_some(slot.raw.as_slice())
    }

    /// The string kept at this path, or the text of the number or boolean; `null` is nothing.
    pub fn text(&self, path: usize) -> Option<Cow<'_, str>> {
        match self.raw(path)? {
            b"null" => None,
            [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
            raw @ [b'"', ..] => serde_json::from_slice(raw).ok().map(Cow::Owned),
            raw => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
        }
    }

    /// Whether the string kept at this path is this one.
    pub fn is(&self, path: usize, text: &str) -> bool {
        self.text(path).is_some_and(|found| found == text)
    }

    /// Whether something was seen at this path (see [`Take::Presence`]); for other takes, whether something was kept or was too long.
    pub fn is_present(&self, path: usize) -> bool {
        self.slots
            .get(path)
            .is_some_and(|slot| slot.state != SlotState::Empty || slot.count > 0)
    }

    /// Whether the value at this path was too long to keep.
    pub fn is_too_long(&self, path: usize) -> bool {
        self.slots
            .get(path)
            .is_some_and(|slot| slot.state == SlotState::TooLong)
    }

    /// What was counted at this path.
    pub fn count(&self, path: usize) -> u64 {
        self.slots.get(path).map_or(0, |slot| slot.count)
    }

    /// The bytes of heap memory in use: at most one limit per path, and twice that while a value is being kept.
    pub fn heap_bytes(&self) -> usize {
        let slots: usize = self
            .slots
            .iter()
            .map(|slot| slot.raw.capacity() + size_of::<Slot>())
            .sum();
        self.scratch.capacity() + slots
    }

    fn take(&mut self, taken: &[u8], token: Option<Token>) {
        match token {
            None => {
                self.key.extend(taken);
                self.keep(taken);
            }
            Some(Token::Key) => {
                self.keep(taken);
                self.key.begin(self.active == 0 && self.mask(self.lexer.depth()) != 0);
            }
            Some(Token::KeyEnd) => {
                self.keep(taken);
                self.pending = self.matching_key();
                self.key.end();
            }
            Some(Token::Text | Token::Plain) => {
                self.scalar_starts();
                self.keep(taken);
            }
            Some(Token::Open(container)) => {
                self.container_opens(container);
                self.keep(taken);
            }
            Some(Token::TextEnd | Token::PlainEnd | Token::Close) => {
                self.keep(taken);
                if self.active != 0 && self.lexer.depth() == self.active_depth {
                    self.store();
                }
            }
        }
    }

    fn mask(&self, depth: usize) -> u64 {
        depth
            .checked_sub(1)
            .and_then(|level| self.masks.get(level))
            .copied()
            .unwrap_or(0)
    }

    fn matching_key(&self) -> u64 {
        let depth = self.lexer.depth();
        let Some(key) = self.key.text() else { return 0 };
        self.filter(
            self.mask(depth),
            |path| matches!(path.segments.get(depth - 1), Some(Segment::Key(name)) if name.as_bytes() == key),
        )
    }

    /// The paths of `mask` for which `wanted` holds.
    fn filter(&self, mask: u64, wanted: impl Fn(&Path) -> bool) -> u64 {
        bits(mask)
            .filter(|at| self.paths.get(*at).is_some_and(&wanted))
            .fold(0, |sum, at| sum | (1 << at))
    }

    /// The paths that match the value which begins inside `outer` containers, whole or in their beginning.
    fn matching_value(&self, outer: usize) -> u64 {
        if self.active != 0 {
            0
        } else if outer == 0 {
            // Shifting by the whole width would overflow, hence from above.
            u64::MAX
                .checked_shr(u32::try_from(PATHS_MAX - self.paths.len()).unwrap_or(0))
                .unwrap_or(0)
        } else if self.lexer.is_array(outer) {
            self.mask(outer)
        } else {
            self.pending
        }
    }

    fn scalar_starts(&mut self) {
        let outer = self.lexer.depth();
        let here = self.matching_value(outer);
        if here != 0 {
            let leaf = self.filter(here, |path| path.segments.len() == outer);
            self.count_each(leaf);
            self.begin(self.filter(leaf, |path| path.take != Take::Count), outer);
        }
    }

    fn container_opens(&mut self, container: Container) {
        let outer = self.lexer.depth() - 1;
        let here = self.matching_value(outer);
        let (mut tree, mut onward) = (0, 0);
        if here != 0 {
            let leaf = self.filter(here, |path| path.segments.len() == outer);
            self.count_each(leaf);
            for at in bits(self.filter(leaf, |path| path.take == Take::Presence)) {
                self.mark(at, SlotState::Taken);
            }
            tree = self.filter(leaf, |path| path.take == Take::Tree);
            onward = self.filter(here & !leaf, |path| {
                matches!(path.segments.get(outer), Some(Segment::Each)) == (container == Container::Array)
            });
        }
        if let Some(mask) = self.masks.get_mut(outer) {
            *mask = if tree == 0 { onward } else { 0 };
        }
        self.begin(tree, outer);
    }

    fn count_each(&mut self, leaf: u64) {
        for at in bits(self.filter(leaf, |path| path.take == Take::Count)) {
            if let Some(slot) = self.slots.get_mut(at) {
                slot.count = slot.count.saturating_add(1);
                self.dirty = true;
            }
        }
    }

    fn begin(&mut self, paths: u64, outer: usize) {
        if paths == 0 {
            return;
        }
        self.active = paths;
        self.active_depth = outer;
        self.active_limit = bits(paths)
            .filter_map(|at| self.paths.get(at))
            .map(|path| path.take.limit())
            .max()
            .unwrap_or(0);
        self.overflow = false;
        self.scratch.clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.active == 0 || self.overflow {
            return;
        }
        if self.scratch.len().saturating_add(bytes.len()) > self.active_limit {
            self.overflow = true;
        } else {
            self.scratch.extend_from_slice(bytes);
        }
    }

    fn store(&mut self) {
        let scratch = std::mem::take(&mut self.scratch);
        for at in bits(self.active) {
            let (Some(path), Some(slot)) = (self.paths.get(at), self.slots.get_mut(at)) else {
                continue;
            };
            let too_long = self.overflow || scratch.len() > path.take.limit();
            match path.take {
                Take::Presence if too_long || !matches!(scratch.as_slice(), b"null" | b"false" | b"\"\"") => {
                    slot.state = SlotState::Taken;
                }
                Take::Presence | Take::Count => {}
                Take::CountOf(word) => {
                    let same =
                        matches!(scratch.as_slice(), [b'"', inner @ .., b'"'] if !too_long && inner == word.as_bytes());
                    slot.count = slot.count.saturating_add(u64::from(same));
                }
                Take::Scalar | Take::Tree if too_long => slot.state = SlotState::TooLong,
                Take::Scalar | Take::Tree => {
                    slot.raw.clear();
                    slot.raw.extend_from_slice(&scratch);
                    slot.state = SlotState::Taken;
                }
            }
        }
        self.scratch = scratch;
        self.active = 0;
        self.dirty = true;
    }

    fn mark(&mut self, at: usize, state: SlotState) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.state = state;
            self.dirty = true;
        }
    }
}

/// The places of the bits that are set.
fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = usize::try_from(mask.trailing_zeros()).ok().filter(|_| mask != 0)?;
        mask &= mask - 1;
        Some(at)
    })
}
