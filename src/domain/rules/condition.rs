//! When an edit applies: tests of the request and of the JSON around the edited member.

use http::{HeaderMap, HeaderName};

use crate::domain::wire::operation::{self, Operation};

/// The facts of a request that conditions can test.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The requested operation.
    pub operation: Operation,
    /// The model's name as the client gave it.
    pub model: &'a str,
    /// The provider's name for the model.
    pub upstream_model: &'a str,
    /// The client's headers.
    pub headers: &'a HeaderMap,
}

/// One condition of an edit. An edit applies only where all of its conditions hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// The name of the requested model.
    Model(ModelPattern),
    /// A header of the client's request.
    Header {
        /// The header's name.
        name: HeaderName,
        /// The test that at least one of its values must pass.
        test: HeaderTest,
    },
    /// A member of the body.
    Field(FieldTest),
}

/// A pattern of model names: `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelPattern(pub(super) String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderTest {
    /// The header is present.
    Present,
    /// One of its values is this text.
    Equals(String),
    /// One of its values contains this text.
    Contains(String),
}

/// A test of one member of a JSON object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldTest {
    /// Where its path begins.
    pub(super) base: FieldBase,
    /// Names of nested members.
    pub(super) path: Vec<String>,
    /// The test. If a member occurs twice, the last one counts, as in most parsers.
    pub(super) test: ValueTest,
}

/// The value at which the path of a field begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldBase {
    /// The object that contains the edited member, or the edited array element itself.
    Holder,
    /// The whole body or event.
    Root,
}

/// A test of a member's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueTest {
    /// It is present, with any value (`true`), or it is missing (`false`).
    Present(bool),
    /// It is one of these.
    In(Vec<Scalar>),
}

/// A value to compare a member with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// A string, unescaped.
    Text(String),
    /// A number, compared by value.
    Number(JsonNumber),
    /// `true` or `false`.
    Truth(bool),
}

impl Condition {
    /// Whether it holds as far as the request's head and model decide. A test of the body counts as holding here.
    pub(super) fn may_hold(&self, facts: &RequestFacts<'_>) -> bool {
        match self {
            Self::Model(pattern) => pattern.matches(facts.model),
            Self::Header { name, test } => {
                let values = facts.headers.get_all(name);
                match test {
                    HeaderTest::Present => values.iter().next().is_some(),
                    HeaderTest::Equals(text) => values.iter().any(|value| value.as_bytes() == text.as_bytes()),
                    HeaderTest::Contains(text) => values
                        .iter()
                        .any(|value| memchr::memmem::find(value.as_bytes(), text.as_bytes()).is_some()),
                }
            }
            Self::Field(_) => true,
        }
    }
}

impl ModelPattern {
    /// Whether the pattern matches the name, or the name without its context-window mark or snapshot date.
    pub(super) fn matches(&self, name: &str) -> bool {
        operation::name_candidates(name).any(|name| matches(&self.0, name))
    }
}

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

/// Whether a pattern matches a text. `*` matches any text, everything else matches itself.
pub(in crate::domain) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*') {
        // The earliest match leaves the most text for the rest of the pattern.
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}
