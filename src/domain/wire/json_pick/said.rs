//! The position of the single counted string in a value.

/// What was listened to in the value that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Said {
    #[default]
    Nothing,
    /// One string without escapes, which came in one piece: where it begins in that piece, and how many bytes it has.
    Once {
        /// Bytes in front of it, its quote included.
        at: usize,
        /// Bytes of it, without its quotes.
        length: usize,
    },
    /// Something else.
    More,
}

impl Said {
    /// A string has ended, all of which is this run.
    pub(super) fn whole(&mut self, at: usize, length: usize) {
        *self = match self {
            Self::Nothing => Self::Once { at, length },
            Self::Once { .. } | Self::More => Self::More,
        };
    }
}
