//! Where a picker looks, and what it does there.

/// Bytes of a picked scalar, in its JSON form; a longer one is dropped.
pub const SCALAR_BYTES_MAX: usize = 256;
/// Bytes of a picked object or array, in its JSON form; a longer one is dropped.
pub const TREE_BYTES_MAX: usize = 8 * 1024;
/// Segments of the longest path.
pub const SEGMENTS_MAX: usize = 8;
/// One step from a container to a value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// The value of this key (keys that are written with escapes never match).
    Key(&'static str),
    /// Each element of an array.
    Each,
}

/// What to do with a value at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Keep a string, number or literal of up to [`SCALAR_BYTES_MAX`]; the last one wins.
    Scalar,
    /// Keep a whole object or array of up to [`TREE_BYTES_MAX`]; paths that lead into it are not followed. The last one wins.
    Tree,
    /// Note that there was one which is not `null`, `false` or an empty string.
    Presence,
    /// Count them.
    Count,
    /// Count the strings equal to this one.
    CountOf(&'static str),
}

impl Take {
    /// How much of a value has to be kept for this take.
    pub(super) const fn limit(self) -> usize {
        match self {
            Self::Scalar => SCALAR_BYTES_MAX,
            Self::Tree => TREE_BYTES_MAX,
            Self::CountOf(word) => word.len() + 2,
            Self::Presence => "false".len(),
            Self::Count => 0,
        }
    }
}

/// A place in a JSON value, and what to do with what is there.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub(super) segments: &'static [Segment],
    pub(super) take: Take,
}

impl Path {
    /// A path of up to [`SEGMENTS_MAX`] segments.
    pub const fn new(segments: &'static [Segment], take: Take) -> Self {
        assert!(segments.len() <= SEGMENTS_MAX, "a path has too many segments");
        Self { segments, take }
    }
}
