//! The paths that a picker follows, and the rules for the values at their ends.

use std::borrow::Cow;

use crate::domain::wire::plain_run;

/// The maximum length of a picked scalar's JSON text, in bytes. A longer one is dropped.
pub(crate) const SCALAR_BYTES_MAX: usize = 256;
/// The maximum length of a picked object's or array's JSON text, in bytes. A longer one is dropped.
pub(crate) const TREE_BYTES_MAX: usize = 8 * 1024;
/// The maximum total length of a picked list, in bytes. Values that do not fit are dropped.
pub(crate) const LIST_BYTES_MAX: usize = 8 * 1024;
/// The maximum number of segments in a path.
pub(crate) const SEGMENTS_MAX: usize = 8;
/// The maximum number of paths in a set.
pub(crate) const PATHS_MAX: usize = 128;

/// A subset of the paths in a set, one bit for each path.
pub(super) type PathBits = u128;

/// One step of a path: from an object or array to a value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickSegment {
    /// The value of this key in an object. A key that is written with escapes never matches.
    Key(&'static str),
    /// Each element of an array.
    Each,
}

/// The rule for the values at a path: which of them are stored, counted or recorded, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickRule {
    /// Store a string, number or literal of up to [`SCALAR_BYTES_MAX`] bytes. The last one replaces earlier ones.
    Scalar,
    /// Store all scalars of up to [`SCALAR_BYTES_MAX`] bytes in a list of up to [`LIST_BYTES_MAX`] bytes.
    List,
    /// Store the JSON text of an object, array or scalar of up to [`TREE_BYTES_MAX`] bytes. The last one replaces earlier ones.
    /// Paths that lead into the value are not followed.
    Tree,
    /// Like [`PickRule::Tree`]. In addition, read the fields with these names if the value is an object that is completely in
    /// memory (see [`super::Picks::fields`]).
    Fields(&'static [&'static str]),
    /// Record whether the value is present and is not `null`, `false`, zero, or an empty string, object or array.
    Presence,
    /// Count the values.
    Count,
    /// Count the strings that begin with one of these prefixes.
    CountBeginning(&'static [&'static str]),
    /// Set bits in the marks of the object that contains the string (see [`ObjectMarks`]). If an entry in `words` contains this
    /// string, the entry's bits are set. Otherwise the bits `other` are set.
    Mark {
        /// The strings to compare with, each with the bits to set.
        words: &'static [(&'static str, u8)],
        /// The bits to set for any other string.
        other: u8,
    },
    /// Like [`PickRule::Presence`]. In addition, set bits in the marks of the object that contains the value.
    MarkPresence {
        /// The bits to set. They record which members of the object are present.
        bits: u8,
        /// Further values, as JSON text, that are treated like a missing value.
        none: &'static [&'static str],
    },
    /// Set the number in the marks of the object that contains the value, if the value is an integer from 0 to 255.
    MarkNumber,
    /// Store the marks and the number of each object in a list of up to [`LIST_BYTES_MAX`] bytes.
    ListMarked,
    /// Count the objects whose marks, at the end of the object, have all bits of `all` and no bit of `none`.
    CountMarked {
        /// The bits that the object's marks must have.
        all: u8,
        /// The bits that the object's marks must not have.
        none: u8,
    },
    /// Count text: a string with its escapes resolved, or an object or array as it is written. The text is not stored (see
    /// [`super::TextCounter`]).
    Text,
}

impl PickRule {
    /// Returns the maximum length, in bytes, of a value that is buffered for this rule.
    pub(super) const fn bytes_max(self) -> usize {
        match self {
            Self::Scalar | Self::List => SCALAR_BYTES_MAX,
            Self::Tree | Self::Fields(_) => TREE_BYTES_MAX,
            Self::Mark { .. } | Self::MarkPresence { .. } | Self::MarkNumber | Self::CountBeginning(_) => {
                SCALAR_BYTES_MAX
            }
            Self::Presence => "false".len(),
            Self::Count | Self::CountMarked { .. } | Self::ListMarked | Self::Text => 0,
        }
    }
}

/// A path to values in JSON, and the rule for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickPath {
    segments: &'static [PickSegment],
    take: PickRule,
}

impl PickPath {
    /// Creates a path of at most [`SEGMENTS_MAX`] segments.
    pub(crate) const fn new(segments: &'static [PickSegment], take: PickRule) -> Self {
        assert!(segments.len() <= SEGMENTS_MAX, "a path has too many segments");
        Self { segments, take }
    }
}

/// A set of paths as a tree with one node for each position on a path. It is built once, not for each request.
#[derive(Debug)]
pub(crate) struct PathSet {
    takes: Vec<PickRule>,
    nodes: Vec<PickNode>,
}

/// The index of a node in its path set. The root has index 0.
pub(super) type PickNodeId = usize;
pub(super) const ROOT: PickNodeId = 0;

#[derive(Debug, Default)]
struct PickNode {
    keys: Vec<(&'static str, PickNodeId)>,
    /// The combined bits of all `keys` (see [`key_bit`]). They rule out most other keys without a comparison.
    key_bits: u64,
    each: Option<PickNodeId>,
    leaves: PickLeaves,
}

/// The paths that end at a node, one bit for each path, grouped by the handling of the value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PickLeaves {
    /// The paths that need the JSON text of a scalar. These are all paths except those that only count scalars, or only count the
    /// bytes of strings.
    pub(super) scalar: PathBits,
    /// The maximum length of a scalar that is buffered, in bytes.
    pub(super) scalar_limit: usize,
    pub(super) tree: PathBits,
    /// The names of the fields to read from an object at the node.
    pub(super) fields: &'static [&'static str],
    pub(super) presence: PathBits,
    pub(super) count: PathBits,
    pub(super) marked: PathBits,
    /// Whether the text of the value is counted.
    pub(super) text: bool,
}

/// The leaves of a node at which no path ends.
pub(super) static NO_LEAVES: PickLeaves = PickLeaves {
    scalar: 0,
    scalar_limit: 0,
    tree: 0,
    fields: &[],
    presence: 0,
    count: 0,
    marked: 0,
    text: false,
};

impl PathSet {
    /// Creates a set of at most [`PATHS_MAX`] paths; further ones are ignored.
    pub(crate) fn new(paths: &[PickPath]) -> Self {
        let paths = paths.get(..PATHS_MAX).unwrap_or(paths);
        let mut set = Self {
            takes: paths.iter().map(|path| path.take).collect(),
            nodes: vec![PickNode::default()],
        };
        for (at, path) in paths.iter().enumerate() {
            let node = path
                .segments
                .iter()
                .fold(ROOT, |node, segment| set.child(node, *segment));
            if let Some(node) = set.nodes.get_mut(node) {
                node.leaves.add(1 << at, path.take);
            }
        }
        set
    }

    /// Returns the number of paths.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.takes.len()
    }

    fn child(&mut self, parent: PickNodeId, segment: PickSegment) -> PickNodeId {
        let known = match segment {
            PickSegment::Key(key) => self.key_child(parent, key.as_bytes()),
            PickSegment::Each => self.element_child(parent),
        };
        if let Some(known) = known {
            return known;
        }
        let new = self.nodes.len();
        self.nodes.push(PickNode::default());
        if let Some(parent) = self.nodes.get_mut(parent) {
            match segment {
                PickSegment::Key(key) => {
                    parent.keys.push((key, new));
                    parent.key_bits |= key_bit(key.as_bytes());
                }
                PickSegment::Each => parent.each = Some(new),
            }
        }
        new
    }

    /// Returns the node for the value of `key` in the object at `node`; `None` if no path leads to that value.
    pub(super) fn key_child(&self, node: PickNodeId, key: &[u8]) -> Option<PickNodeId> {
        let node = self.nodes.get(node)?;
        if node.key_bits & key_bit(key) == 0 {
            return None;
        }
        node.keys
            .iter()
            .find(|(name, _)| name.as_bytes() == key)
            .map(|(_, child)| *child)
    }

    /// Returns the node for the elements of the array at `node`; `None` if no path leads into the array.
    pub(super) fn element_child(&self, node: PickNodeId) -> Option<PickNodeId> {
        self.nodes.get(node)?.each
    }

    /// Whether a path leads into the members of an object at this node.
    pub(super) fn has_keys(&self, node: PickNodeId) -> bool {
        self.nodes.get(node).is_some_and(|node| node.key_bits != 0)
    }

    pub(super) fn leaves(&self, node: PickNodeId) -> &PickLeaves {
        self.nodes.get(node).map_or(&NO_LEAVES, |node| &node.leaves)
    }

    pub(super) fn takes(&self) -> &[PickRule] {
        &self.takes
    }
}

/// Returns one of 64 bits, which depends on the key's first byte and length. Keys with different bits are different keys.
fn key_bit(key: &[u8]) -> u64 {
    let first = key.first().copied().map_or(0, usize::from);
    1 << ((first + 7 * key.len()) % 64)
}

impl PickLeaves {
    fn add(&mut self, bit: PathBits, take: PickRule) {
        match take {
            PickRule::Tree => self.tree |= bit,
            PickRule::Fields(names) => {
                self.tree |= bit;
                self.fields = names;
            }
            PickRule::Presence | PickRule::MarkPresence { .. } => self.presence |= bit,
            PickRule::Count => self.count |= bit,
            PickRule::CountMarked { .. } | PickRule::ListMarked => self.marked |= bit,
            PickRule::Text => self.text = true,
            PickRule::Scalar
            | PickRule::List
            | PickRule::CountBeginning(_)
            | PickRule::Mark { .. }
            | PickRule::MarkNumber => {}
        }
        if !matches!(
            take,
            PickRule::Count | PickRule::CountMarked { .. } | PickRule::ListMarked | PickRule::Text
        ) {
            self.scalar |= bit;
            self.scalar_limit = self.scalar_limit.max(take.bytes_max());
        }
    }
}

/// The maximum length of a key that a path can match, in bytes.
const KEY_BYTES_MAX: usize = 48;

/// A buffer for the key that is being read. Keys that no path can match are not buffered.
#[derive(Debug)]
pub(super) struct KeyBuffer {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
    state: KeyBufferState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyBufferState {
    /// The position is outside of all keys, or in a key that no path can match.
    Off,
    Collecting,
    /// The key is too long or contains an escape, so no path matches it.
    Unmatchable,
}

impl KeyBuffer {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; KEY_BYTES_MAX],
            length: 0,
            state: KeyBufferState::Off,
        }
    }

    /// Begins a key. `can_matter` is false if no path can match it.
    pub(super) fn begin(&mut self, can_matter: bool) {
        self.length = 0;
        self.state = if can_matter {
            KeyBufferState::Collecting
        } else {
            KeyBufferState::Off
        };
    }

    /// Appends a piece of the key, if the key is being collected. An escape must be at the beginning of a piece.
    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        if self.state != KeyBufferState::Collecting {
            return;
        }
        let room = self
            .bytes
            .get_mut(self.length..)
            .and_then(|room| room.get_mut(..bytes.len()));
        match room {
            Some(room) if !bytes.starts_with(b"\\") => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.state = KeyBufferState::Unmatchable,
        }
    }

    pub(super) fn end(&mut self) {
        self.state = KeyBufferState::Off;
    }

    /// Returns the key, whose last piece is `last`; `None` if no path can match it. A key that arrives in one piece, as most do,
    /// is not copied.
    pub(super) fn complete_with<'k>(&'k mut self, last: &'k [u8]) -> Option<&'k [u8]> {
        if self.state == KeyBufferState::Collecting
            && self.length == 0
            && last.len() <= KEY_BYTES_MAX
            && !last.starts_with(b"\\")
        {
            return Some(last);
        }
        self.extend(last);
        if self.state == KeyBufferState::Collecting {
            self.bytes.get(..self.length)
        } else {
            None
        }
    }
}

/// The separator of the values in a list. The JSON text of a scalar cannot contain it.
const LIST_SEPARATOR: u8 = b'\n';
/// The number of bytes that an object's marks take in a list: one for its bits and two for its number.
const MARKS_BYTES: usize = 3;
/// The number that is stored for an object without a number.
const NO_NUMBER: u16 = u16::MAX;

/// The storage for the value, list or count at one path.
#[derive(Debug, Default)]
pub(super) struct PickSlot<'b> {
    /// The JSON text that was stored last: a copy, or a slice of JSON that is completely in memory. For a list, all its values.
    pub(super) raw: Cow<'b, [u8]>,
    pub(super) count: u64,
    pub(super) state: PickSlotState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PickSlotState {
    #[default]
    Empty,
    Taken,
    TooLong,
}

impl PickSlot<'_> {
    /// Appends a value to the list, if it fits.
    pub(super) fn push_value(&mut self, value: &[u8]) {
        if let Some(list) = self.list_with_room(value.len() + 1) {
            list.extend_from_slice(value);
            list.push(LIST_SEPARATOR);
        }
    }

    /// Appends the marks of an object to the list of marks, if they fit.
    pub(super) fn push_marks(&mut self, marks: ObjectMarks) {
        if let Some(list) = self.list_with_room(MARKS_BYTES) {
            let number = marks.number.map(u16::from).unwrap_or(NO_NUMBER);
            let [high, low] = number.to_be_bytes();
            list.extend_from_slice(&[marks.bits, high, low]);
        }
    }

    /// Returns the list, with room for `more` further bytes; `None` if the list would then exceed its limit. Begins the list if
    /// necessary.
    fn list_with_room(&mut self, more: usize) -> Option<&mut Vec<u8>> {
        let list = self.raw.to_mut();
        if self.state == PickSlotState::Empty {
            list.clear();
            self.state = PickSlotState::Taken;
        }
        let room = list.len() + more;
        if room > LIST_BYTES_MAX {
            return None;
        }
        if room > list.capacity() {
            // The capacity doubles, but never exceeds the limit.
            let wanted = room.next_power_of_two().min(LIST_BYTES_MAX);
            list.reserve_exact(wanted - list.len());
        }
        Some(list)
    }

    /// Returns the number of bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.raw {
            Cow::Owned(copy) => copy.capacity(),
            Cow::Borrowed(_) => 0,
        }
    }
}

/// Returns the marks of all objects in a list.
pub(super) fn list_marks(list: &[u8]) -> impl Iterator<Item = ObjectMarks> {
    let (objects, _) = list.as_chunks::<MARKS_BYTES>();
    objects.iter().map(|[bits, high, low]| ObjectMarks {
        bits: *bits,
        number: u8::try_from(u16::from_be_bytes([*high, *low])).ok(),
    })
}

/// Returns the texts of all values in a list.
pub(super) fn list_texts(list: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let values = list
        .split(|byte| *byte == LIST_SEPARATOR)
        .filter(|value| !value.is_empty());
    values.filter_map(scalar_text)
}

/// Returns the string that the JSON text `raw` denotes, or the text of a number or boolean; `None` for `null`.
pub(super) fn scalar_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    match raw {
        b"null" => None,
        [b'"', inner @ .., b'"'] if plain_run(inner) == inner.len() => {
            std::str::from_utf8(inner).ok().map(Cow::Borrowed)
        }
        [b'"', ..] => serde_json::from_slice(raw).ok().map(Cow::Owned),
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// Whether the [`scalar_text`] of the JSON text `raw` is equal to `text`.
pub(super) fn has_scalar_text(raw: &[u8], text: &str) -> bool {
    match raw {
        b"null" => false,
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => inner == text.as_bytes(),
        [b'"', ..] => scalar_text(raw).is_some_and(|found| found == text),
        _ => raw == text.as_bytes(),
    }
}

/// Replaces the contents of a buffer with `new`. The buffer's memory is reused, and is never larger than its largest contents.
pub(in crate::domain) fn replace_bytes(buffer: &mut Vec<u8>, new: &[u8]) {
    buffer.clear();
    buffer.reserve_exact(new.len());
    buffer.extend_from_slice(new);
}

/// Returns the indexes of the bits that are set in `mask`.
pub(super) fn set_bits(mut mask: PathBits) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = usize::try_from(mask.trailing_zeros()).ok().filter(|_| mask != 0)?;
        mask &= mask - 1;
        Some(at)
    })
}

/// Whether a scalar's JSON text is `null`, `false`, an empty string or zero.
pub(super) fn is_blank(scalar: &[u8]) -> bool {
    let is_zero = || scalar.iter().all(|byte| matches!(byte, b'0' | b'.' | b'-'));
    matches!(scalar, b"null" | b"false" | b"\"\"") || is_zero()
}

/// The marks of an object. The values of the object's members set them while the object is read. With marks, a rule can depend on
/// several members of the same object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectMarks {
    /// The bits that the object's members have set.
    pub(crate) bits: u8,
    /// The number that a member of the object has set; `None` if no member has set one, or if the number does not fit into a
    /// byte.
    pub(crate) number: Option<u8>,
}

impl ObjectMarks {
    /// Sets bits for the value of a member, if `json` is a string. If an entry in `words` contains this string, the entry's bits
    /// are set. Otherwise the bits `other` are set. If `too_long` is true, the value was not buffered, and is equal to no entry.
    pub(super) fn mark_word(&mut self, words: &[(&str, u8)], other: u8, json: &[u8], too_long: bool) {
        let text = match json {
            [b'"', inner @ .., b'"'] if !too_long => inner,
            _ if too_long => b"",
            _ => return,
        };
        let word = words.iter().find(|(word, _)| word.as_bytes() == text);
        self.bits |= word.map_or(other, |(_, bits)| *bits);
    }

    /// Sets [`Self::number`] from `json`, the JSON text of the member's value.
    pub(super) fn set_number(&mut self, json: &[u8]) {
        self.number = std::str::from_utf8(json).ok().and_then(|number| number.parse().ok());
    }

    /// Whether the marks have all bits of `all` and no bit of `none`.
    pub(super) fn has_bits(self, all: u8, none: u8) -> bool {
        self.bits & all == all && self.bits & none == 0
    }
}
