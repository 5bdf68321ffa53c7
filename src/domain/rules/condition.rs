//! When an edit applies: tests of the request and of the text around the edited place.

use http::{HeaderMap, HeaderName};

use super::{body::Number, pattern::matches};
use crate::domain::wire::{model_name, operation::Operation};

/// What the conditions of edits may ask about a request.
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

/// One condition of an edit; an edit with several applies only where all hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Condition {
    /// The name of the requested model.
    Model(ModelPattern),
    /// A header of the client's request.
    Header {
        /// The header's name.
        name: HeaderName,
        /// The test, which one of its values must pass.
        test: HeaderTest,
    },
    /// A member of the body.
    Field(FieldTest),
}

/// A model's name, or several: `*` stands for any characters.
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
    /// What has to hold. A member that comes twice is judged by the last, as most parsers do.
    pub(super) test: ValueTest,
}

/// Where the path of a field begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldBase {
    /// The object that holds the edited member, or the edited array element itself.
    Holder,
    /// The whole body or event.
    Root,
}

/// A test of a member's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueTest {
    /// It is there, whatever its value, or it is not.
    Present(bool),
    /// It is one of these.
    In(Vec<Scalar>),
}

/// A value to compare a member with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// A string, unescaped.
    Text(String),
    /// A number, equal whatever its spelling.
    Number(Number),
    /// `true` or `false`.
    Truth(bool),
}

impl Condition {
    /// Whether it holds as far as the request's head and model decide; a test of the body is not decided here.
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
    /// Whether a name fits, or what it means without the mark of a context window or the date of a snapshot.
    pub(super) fn matches(&self, name: &str) -> bool {
        model_name::meanings(name).any(|name| matches(&self.0, name))
    }
}
