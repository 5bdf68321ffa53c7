//! The position of the text counted in a value.

/// The position of the text counted in a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TextSpan {
    #[default]
    Nothing,
    /// One string without escapes, which arrived in one piece.
    Once {
        /// The offset in the piece at which the string begins, after its quote.
        at: usize,
        /// The length of the string, without its quotes.
        length: usize,
    },
    /// Any other text.
    More,
}

impl TextSpan {
    /// Records a string that has ended, whose last run this is.
    pub(super) fn record_string(&mut self, at: usize, length: usize) {
        *self = match self {
            Self::Nothing => Self::Once { at, length },
            Self::Once { .. } | Self::More => Self::More,
        };
    }
}
