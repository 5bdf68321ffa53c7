//! Numbers of JSON texts, compared by value, not by spelling.

/// A number of a JSON text, compared by value, not by spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JsonNumber {
    /// An integer, compared exactly.
    Integer(i128),
    /// A number with a fraction, an exponent, or more digits than an `i128` has; may be infinite.
    Float(f64),
}

impl JsonNumber {
    /// Reads a JSON number.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(integer) => Some(Self::Integer(integer)),
            Err(_) => text.parse().ok().map(Self::Float),
        }
    }

    /// Reads the token of a value; `None` if it is not a number.
    pub(super) fn from_token(token: &[u8]) -> Option<Self> {
        if !token.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-') {
            return None;
        }
        Self::read(std::str::from_utf8(token).ok()?)
    }

    /// Whether it has the same value as `other`, even if spelled differently.
    pub(super) fn equals(self, other: Self) -> bool {
        !self.is_below(other) && !other.is_below(self)
    }

    /// Whether it is less than `other`.
    pub(super) fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left < right,
            (left, right) => left.nearest_float() < right.nearest_float(),
        }
    }

    fn nearest_float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}
