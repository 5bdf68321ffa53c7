//! The conditions of a provider file's edits: tests of the request, and of the JSON around the edited member. This module
//! contains their form in the file ([`RawCondition`]) and their compiled form ([`Condition`]).

use std::fmt;

use http::{HeaderMap, HeaderName};
use serde::Deserialize;

use crate::domain::wire::operation::{self, UpstreamOperation};

/// The facts of a request that conditions can test.
#[derive(Clone, Copy, Debug)]
pub struct RequestFacts<'a> {
    /// The operation of the provider's endpoint.
    pub operation: UpstreamOperation,
    /// Whether weir has translated the body from another protocol.
    pub is_translated: bool,
    /// The requested model's name, as the client sent it.
    pub model: &'a str,
    /// The provider's name for the model.
    pub upstream_model: &'a str,
    /// The client's headers.
    pub headers: &'a HeaderMap,
}

/// `when = { .. }`: one condition of an edit. Exactly one of `model`, `translated`, `header`, `field` and `root_field` is given
/// and determines what the condition tests.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCondition {
    /// A pattern for the requested model's name; `*` matches any characters.
    pub model: Option<String>,
    /// The name of a header of the request.
    pub header: Option<String>,
    /// Whether weir has translated the request from another protocol.
    pub translated: Option<bool>,
    /// The path of a body member. It begins in the object that contains the edited member or, if the edit's path ends in `[]`, in
    /// the edited array element.
    pub field: Option<String>,
    /// The path of a body member. It begins at the root of the body. In a stream, it begins at the root of the event.
    pub root_field: Option<String>,
    /// For `header`: a value that the header must have. If the header has several values, one of them suffices.
    pub value: Option<String>,
    /// For `header`: a string that the header's value must contain. If the header has several values, one of them suffices.
    pub contains: Option<String>,
    /// For `field` and `root_field`: the value that the member must have.
    pub equals: Option<toml::Value>,
    /// For `field` and `root_field`: a list of values, one of which the member must have.
    #[serde(rename = "in")]
    pub one_of: Option<Vec<toml::Value>>,
    /// For `field` and `root_field`: the text with which the member's value must begin. The value must be a string.
    pub starts_with: Option<String>,
    /// For `field` and `root_field`: whether the member must be present (`true`) or missing (`false`).
    pub present: Option<bool>,
}

/// One condition of an edit. An edit applies only where all of its conditions hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// A test of the requested model's name.
    Model(ModelPattern),
    /// Whether weir has translated the request from another protocol.
    Translated(bool),
    /// A test of a header of the client's request.
    Header {
        /// The header's name.
        name: HeaderName,
        /// The test that at least one of the header's values must pass.
        test: HeaderTest,
    },
    /// A test of a member of the body.
    Field(FieldTest),
}

/// A pattern for model names, in which `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelPattern(pub(super) String);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderTest {
    /// The header is present.
    Present,
    /// One of the header's values is equal to this string.
    Equals(String),
    /// One of the header's values contains this string.
    Contains(String),
}

/// A test of one member of a JSON object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldTest {
    /// The value in which `path` begins.
    pub(super) base: FieldBase,
    /// The path of the tested member: names of nested members.
    pub(super) path: Vec<String>,
    /// The test of the member's value. If an object has the member twice, the last one is tested, because most parsers use the
    /// last one.
    pub(super) test: ValueTest,
}

/// The value in which the path of a [`FieldTest`] begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldBase {
    /// The object that contains the edited member, or the edited array element itself.
    Holder,
    /// The root of the body, or of a stream's event.
    Root,
}

/// A test of a member's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueTest {
    /// The member is present with any value (`true`), or is missing (`false`).
    Present(bool),
    /// The member's value is equal to one of these values.
    In(Vec<Scalar>),
    /// The member's value is a string that begins with this text. The text contains no escapes.
    StartsWith(String),
}

/// A value that a member's value is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// A string, without escapes.
    Text(String),
    /// A number, compared by value.
    Number(JsonNumber),
    /// `true` or `false`.
    Truth(bool),
}

impl Condition {
    /// Whether the condition can hold for a request with these facts. Always true for a condition on the body, because the facts
    /// do not include the body.
    pub(super) fn may_hold(&self, facts: &RequestFacts<'_>) -> bool {
        match self {
            Self::Model(pattern) => pattern.matches(facts.model),
            Self::Translated(wanted) => facts.is_translated == *wanted,
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

impl fmt::Display for FieldTest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = match self.base {
            FieldBase::Holder => "",
            FieldBase::Root => "the root's ",
        };
        write!(formatter, "{base}{}", self.path.join("."))?;
        match &self.test {
            ValueTest::Present(true) => formatter.write_str(" is present"),
            ValueTest::Present(false) => formatter.write_str(" is missing"),
            ValueTest::In(values) => {
                let values: Vec<String> = values.iter().map(Scalar::to_string).collect();
                write!(formatter, " is {}", values.join(" or "))
            }
            ValueTest::StartsWith(beginning) => write!(formatter, " starts with {beginning:?}"),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(formatter, "{text:?}"),
            Self::Number(JsonNumber::Integer(number)) => write!(formatter, "{number}"),
            Self::Number(JsonNumber::Float(number)) => write!(formatter, "{number}"),
            Self::Truth(value) => write!(formatter, "{value}"),
        }
    }
}

impl ModelPattern {
    /// Whether the pattern matches `name`, or `name` without its context-window mark or snapshot date.
    pub(super) fn matches(&self, name: &str) -> bool {
        operation::name_candidates(name).any(|name| matches(&self.0, name))
    }
}

/// A number in a JSON text, which is compared by value, not by spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum JsonNumber {
    /// An integer, compared exactly.
    Integer(i128),
    /// A number with a fraction, an exponent, or more digits than an `i128` has. It can be infinite.
    Float(f64),
}

impl JsonNumber {
    /// Parses a JSON number; `None` if `text` is not a number.
    pub(super) fn read(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(integer) => Some(Self::Integer(integer)),
            Err(_) => text.parse().ok().map(Self::Float),
        }
    }

    /// Parses the token of a JSON value; `None` if the value is not a number.
    pub(super) fn from_token(token: &[u8]) -> Option<Self> {
        if !token.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-') {
            return None;
        }
        Self::read(std::str::from_utf8(token).ok()?)
    }

    /// Whether the number has the same value as `other`, even if it is spelled differently.
    pub(super) fn equals(self, other: Self) -> bool {
        !self.is_below(other) && !other.is_below(self)
    }

    /// Whether the number is less than `other`.
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

/// Whether `pattern` matches the complete `text`. `*` matches any text, and everything else matches itself.
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
