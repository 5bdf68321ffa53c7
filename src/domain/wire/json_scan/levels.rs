//! The stack of open containers.

/// The maximum of the configurable nesting limit, in levels.
pub(crate) const DEPTH_MAX: usize = 1024;

const WORD_BITS: usize = 64;

/// The kind of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LevelKind {
    Object,
    Array,
}

/// The stack of open containers, one bit each, without allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Levels {
    /// A bit for each enclosing level, set for objects. The innermost level is in `innermost` instead, because it is read after
    /// every value.
    outer: [u64; DEPTH_MAX / WORD_BITS],
    innermost: LevelKind,
    depth: usize,
    depth_max: usize,
}

impl Levels {
    /// `depth_max` is at most [`DEPTH_MAX`].
    pub(super) fn new(depth_max: usize) -> Levels {
        Levels {
            outer: [0; DEPTH_MAX / WORD_BITS],
            innermost: LevelKind::Object,
            depth: 0,
            depth_max,
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn depth_max(&self) -> usize {
        self.depth_max
    }

    /// The innermost container; meaningless at depth 0.
    pub(super) fn innermost(&self) -> LevelKind {
        self.innermost
    }

    /// Opens a level; false, and nothing changes, if it would exceed the limit.
    #[must_use]
    pub(super) fn enter(&mut self, container: LevelKind) -> bool {
        if self.depth >= self.depth_max {
            return false;
        }
        let Some(word) = self.outer.get_mut(self.depth / WORD_BITS) else {
            return false;
        };
        let bit = 1_u64 << (self.depth % WORD_BITS);
        match self.innermost {
            LevelKind::Object => *word |= bit,
            LevelKind::Array => *word &= !bit,
        }
        self.innermost = container;
        self.depth += 1;
        true
    }

    /// Closes the innermost level.
    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        let word = self.outer.get(self.depth / WORD_BITS).copied().unwrap_or_default();
        let is_object = word >> (self.depth % WORD_BITS) & 1 == 1;
        self.innermost = if is_object { LevelKind::Object } else { LevelKind::Array };
    }
}
