//! The paths that a picker looks at, and what it does there.

/// Bytes of a picked scalar, in its JSON form; a longer one is dropped.
pub(crate) const SCALAR_BYTES_MAX: usize = 256;
/// Bytes of a picked object or array, in its JSON form; a longer one is dropped.
pub(crate) const TREE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a picked list; what comes behind them is dropped.
pub(crate) const LIST_BYTES_MAX: usize = 8 * 1024;
/// Segments of the longest path.
pub(crate) const SEGMENTS_MAX: usize = 8;
/// Paths of one set: one bit each.
pub(crate) const PATHS_MAX: usize = 128;

/// Some of a set's paths, one bit each.
pub(super) type PathBits = u128;

/// One step from a container to a value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// The value of this key (keys that are written with escapes never match).
    Key(&'static str),
    /// Each element of an array.
    Each,
}

/// What to do with a value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Keep a string, number or literal of up to [`SCALAR_BYTES_MAX`]; the last one wins.
    Scalar,
    /// Keep every scalar of up to [`SCALAR_BYTES_MAX`], up to [`LIST_BYTES_MAX`] in all.
    List,
    /// Keep a whole object or array (or what else is there) of up to [`TREE_BYTES_MAX`]; paths that lead into it are not
    /// followed. The last one wins.
    Tree,
    /// As [`Take::Tree`], and of an object that is whole in memory the fields with these names at once (see
    /// [`super::Picks::fields`]).
    Fields(&'static [&'static str]),
    /// Note that there was one which says something: not `null`, `false`, zero, or an empty string, object or array.
    Presence,
    /// Count them.
    Count,
    /// Count the strings that begin with one of these.
    CountBeginning(&'static [&'static str]),
    /// Mark the object around the string: with the bits of the word that the string is, or with `other` if it is none.
    Mark {
        /// Words, each with its bits.
        words: &'static [(&'static str, u8)],
        /// The bits of any other string.
        other: u8,
    },
    /// As [`Take::Presence`], and mark the object around it with these bits.
    MarkPresence {
        /// They are set among the marks of that object, to tell later which of its members said something.
        bits: u8,
        /// What is no presence either, as it is written.
        none: &'static [&'static str],
    },
    /// Give the object around the number its number, if that is one of a byte.
    MarkNumber,
    /// Keep of each object its marks and its number, up to [`LIST_BYTES_MAX`] in all.
    ListMarked,
    /// Count the objects that have all of some marks when they end, and none of some others.
    CountMarked {
        /// All of these bits.
        all: u8,
        /// None of these.
        none: u8,
    },
    /// Listen to a string, without its escapes, or to an object or array as it is written: see [`super::Heard`]. Nothing of
    /// it is kept.
    Text,
}

impl Take {
    /// How much of a value has to be kept for this take.
    pub(super) const fn limit(self) -> usize {
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

/// A place in a JSON value, and what to do with what is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    segments: &'static [Segment],
    take: Take,
}

impl Path {
    /// A path of up to [`SEGMENTS_MAX`] segments.
    pub(crate) const fn new(segments: &'static [Segment], take: Take) -> Self {
        assert!(segments.len() <= SEGMENTS_MAX, "a path has too many segments");
        Self { segments, take }
    }
}

/// Paths, made ready for looking: a tree with one node per place that is on a path. Built once per set, not per request.
#[derive(Debug)]
pub(crate) struct PathSet {
    takes: Vec<Take>,
    nodes: Vec<Node>,
}

/// The place of a node in its set; the root is 0.
pub(super) type NodeId = usize;
pub(super) const ROOT: NodeId = 0;

#[derive(Debug, Default)]
struct Node {
    keys: Vec<(&'static str, NodeId)>,
    /// The bits of all these keys (see [`bit_of`]): most that are on no path are known by theirs.
    key_bits: u64,
    each: Option<NodeId>,
    leaves: Leaves,
}

/// The paths that end at a node, one bit each, by what they do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaves {
    /// Look at a string, number or literal: all but those that only count or listen.
    pub(super) scalar: PathBits,
    /// Bytes to keep of it.
    pub(super) scalar_limit: usize,
    pub(super) tree: PathBits,
    /// The fields to read of an object.
    pub(super) fields: &'static [&'static str],
    pub(super) presence: PathBits,
    pub(super) count: PathBits,
    pub(super) marked: PathBits,
    /// Whether to listen.
    pub(super) text: bool,
}

/// What is at a place that no path ends at.
pub(super) static NO_LEAVES: Leaves = Leaves {
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
    /// A set of up to [`PATHS_MAX`] paths; those behind are ignored.
    pub(crate) fn new(paths: &[Path]) -> Self {
        let paths = paths.get(..PATHS_MAX).unwrap_or(paths);
        let mut set = Self {
            takes: paths.iter().map(|path| path.take).collect(),
            nodes: vec![Node::default()],
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

    /// How many paths it has.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.takes.len()
    }

    fn child(&mut self, parent: NodeId, segment: Segment) -> NodeId {
        let known = match segment {
            Segment::Key(key) => self.key(parent, key.as_bytes()),
            Segment::Each => self.each(parent),
        };
        if let Some(known) = known {
            return known;
        }
        let new = self.nodes.len();
        self.nodes.push(Node::default());
        if let Some(parent) = self.nodes.get_mut(parent) {
            match segment {
                Segment::Key(key) => {
                    parent.keys.push((key, new));
                    parent.key_bits |= bit_of(key.as_bytes());
                }
                Segment::Each => parent.each = Some(new),
            }
        }
        new
    }

    /// The node of a key in the object at this node.
    pub(super) fn key(&self, node: NodeId, key: &[u8]) -> Option<NodeId> {
        let node = self.nodes.get(node)?;
        if node.key_bits & bit_of(key) == 0 {
            return None;
        }
        node.keys
            .iter()
            .find(|(name, _)| name.as_bytes() == key)
            .map(|(_, child)| *child)
    }

    /// The node of the elements in the array at this node.
    pub(super) fn each(&self, node: NodeId) -> Option<NodeId> {
        self.nodes.get(node)?.each
    }

    /// Whether any key of an object at this node leads on.
    pub(super) fn has_keys(&self, node: NodeId) -> bool {
        self.nodes.get(node).is_some_and(|node| node.key_bits != 0)
    }

    pub(super) fn leaves(&self, node: NodeId) -> &Leaves {
        self.nodes.get(node).map_or(&NO_LEAVES, |node| &node.leaves)
    }

    pub(super) fn takes(&self) -> &[Take] {
        &self.takes
    }
}

/// One of 64 bits that tells keys apart quickly: by their beginnings and lengths.
fn bit_of(key: &[u8]) -> u64 {
    let first = key.first().copied().map_or(0, usize::from);
    1 << ((first + 7 * key.len()) % 64)
}

impl Leaves {
    fn add(&mut self, bit: PathBits, take: Take) {
        match take {
            Take::Tree => self.tree |= bit,
            Take::Fields(names) => {
                self.tree |= bit;
                self.fields = names;
            }
            Take::Presence | Take::MarkPresence { .. } => self.presence |= bit,
            Take::Count => self.count |= bit,
            Take::CountMarked { .. } | Take::ListMarked => self.marked |= bit,
            Take::Text => self.text = true,
            Take::Scalar | Take::List | Take::CountBeginning(_) | Take::Mark { .. } | Take::MarkNumber => {}
        }
        if !matches!(
            take,
            Take::Count | Take::CountMarked { .. } | Take::ListMarked | Take::Text
        ) {
            self.scalar |= bit;
            self.scalar_limit = self.scalar_limit.max(take.limit());
        }
    }
}
