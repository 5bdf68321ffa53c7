//! The paths that a picker follows, and what it does with the values there.

/// The maximum length of a picked scalar's JSON text; a longer one is dropped.
pub(crate) const SCALAR_BYTES_MAX: usize = 256;
/// The maximum length of a picked object's or array's JSON text; a longer one is dropped.
pub(crate) const TREE_BYTES_MAX: usize = 8 * 1024;
/// The maximum length of a picked list; values that do not fit are dropped.
pub(crate) const LIST_BYTES_MAX: usize = 8 * 1024;
/// The maximum number of segments in a path.
pub(crate) const SEGMENTS_MAX: usize = 8;
/// The maximum number of paths in a set.
pub(crate) const PATHS_MAX: usize = 128;

/// A subset of a set's paths, one bit each.
pub(super) type PathBits = u128;

/// One step from a container to a value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickSegment {
    /// The value of this key. A key that is written with escapes never matches.
    Key(&'static str),
    /// Each element of an array.
    Each,
}

/// What to do with a value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PickRule {
    /// Keep a string, number or literal of up to [`SCALAR_BYTES_MAX`]; the last one wins.
    Scalar,
    /// Keep every scalar of up to [`SCALAR_BYTES_MAX`], up to [`LIST_BYTES_MAX`] together.
    List,
    /// Keep the JSON text of an object, array or scalar of up to [`TREE_BYTES_MAX`]; paths that lead into it are not followed.
    /// The last one wins.
    Tree,
    /// Like [`Take::Tree`]; of an object that is complete in memory, also read the fields with these names (see
    /// [`super::Picks::fields`]).
    Fields(&'static [&'static str]),
    /// Record that a value was there other than `null`, `false`, zero, or an empty string, object or array.
    Presence,
    /// Count the values.
    Count,
    /// Count the strings that begin with one of these.
    CountBeginning(&'static [&'static str]),
    /// Mark the object around the string: with the bits of the word that equals the string, or with `other` if no word does.
    Mark {
        /// Words, each with its bits.
        words: &'static [(&'static str, u8)],
        /// The bits of any other string.
        other: u8,
    },
    /// Like [`Take::Presence`], and mark the object around the value with these bits.
    MarkPresence {
        /// The bits to set, which tell later which members of the object were present.
        bits: u8,
        /// Further JSON texts that do not count as present.
        none: &'static [&'static str],
    },
    /// Set the number of the object around the value, if the value is a number from 0 to 255.
    MarkNumber,
    /// Keep the marks and the number of each object, up to [`LIST_BYTES_MAX`] together.
    ListMarked,
    /// Count the objects that have all marks of `all`, and none of `none`, when they end.
    CountMarked {
        /// The bits that must be set.
        all: u8,
        /// The bits that must not be set.
        none: u8,
    },
    /// Count the text of a string, with its escapes resolved, or of an object or array as it is written: see [`super::Heard`].
    /// Nothing of it is kept.
    Text,
}

impl PickRule {
    /// The maximum length of a value to buffer.
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

/// A position in a JSON value, and what to do with the value there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickPath {
    segments: &'static [PickSegment],
    take: PickRule,
}

impl PickPath {
    /// A path of up to [`SEGMENTS_MAX`] segments.
    pub(crate) const fn new(segments: &'static [PickSegment], take: PickRule) -> Self {
        assert!(segments.len() <= SEGMENTS_MAX, "a path has too many segments");
        Self { segments, take }
    }
}

/// Paths, prepared for picking: a tree with one node for each position on a path. Built once per set, not per request.
#[derive(Debug)]
pub(crate) struct PathSet {
    takes: Vec<PickRule>,
    nodes: Vec<PickNode>,
}

/// The index of a node in its set; the root is 0.
pub(super) type PickNodeId = usize;
pub(super) const ROOT: PickNodeId = 0;

#[derive(Debug, Default)]
struct PickNode {
    keys: Vec<(&'static str, PickNodeId)>,
    /// The bits of all these keys (see [`bit_of`]), by which most other keys are ruled out.
    key_bits: u64,
    each: Option<PickNodeId>,
    leaves: PickLeaves,
}

/// The paths that end at a node, one bit each, by what they do with the value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PickLeaves {
    /// Paths that read a scalar: all but those that only count it or its text.
    pub(super) scalar: PathBits,
    /// The maximum length of a scalar to buffer.
    pub(super) scalar_limit: usize,
    pub(super) tree: PathBits,
    /// The fields to read of an object.
    pub(super) fields: &'static [&'static str],
    pub(super) presence: PathBits,
    pub(super) count: PathBits,
    pub(super) marked: PathBits,
    /// Whether to count the value's text.
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
    /// A set of up to [`PATHS_MAX`] paths; further ones are ignored.
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

    /// The number of paths.
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

    /// The node of a key's value in the object at this node.
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

    /// The node of the elements in the array at this node.
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

/// One of 64 bits, chosen by a key's first byte and length, to tell keys apart quickly.
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
