//! Evaluates conditions on members of the text.

use crate::domain::{
    rules::{
        body::Number,
        condition::{FieldTest, Scalar, ValueTest},
    },
    wire::json_scan::{Kind, Reader, Token, is_string},
};

/// A value of the text: its first token, and the reader behind that.
#[derive(Clone)]
pub(super) struct Place<'t> {
    first: Token,
    inside: Reader<'t>,
}

impl<'t> Place<'t> {
    /// The value that begins with `first`, which the reader has just read.
    pub(super) fn new(first: Token, reader: &Reader<'t>) -> Self {
        let inside = reader.clone();
        Self { first, inside }
    }

    /// Whether a test holds for the value here.
    pub(super) fn passes(&self, test: &FieldTest) -> bool {
        let found = test
            .path
            .iter()
            .try_fold(self.clone(), |place, name| place.member(name));
        match (&test.test, found) {
            (ValueTest::Present(wanted), found) => found.is_some() == *wanted,
            (ValueTest::In(allowed), Some(place)) => {
                let value = place.text();
                allowed.iter().any(|scalar| is(value, scalar))
            }
            (ValueTest::In(_), None) => false,
        }
    }

    /// The member of this name, if this is an object. Of members with one name, the last counts.
    fn member(mut self, name: &str) -> Option<Self> {
        if self.first.kind != Kind::Object {
            return None;
        }
        let mut found = None;
        loop {
            let key = self.inside.token().ok()?;
            if key.kind == Kind::End {
                return found;
            }
            let first = self.inside.token().ok()?;
            if is_string(self.inside.bytes(key.start..key.end), name) {
                found = Some(Self::new(first, &self.inside));
            }
            self.inside.value(first).ok()?;
        }
    }

    /// All bytes of the value.
    fn text(mut self) -> &'t [u8] {
        let range = self.inside.value(self.first).unwrap_or_default();
        self.inside.bytes(range)
    }
}

fn is(value: &[u8], scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Text(text) => is_string(value, text),
        Scalar::Number(number) => Number::of_token(value).is_some_and(|value| value.equals(*number)),
        Scalar::Truth(truth) => value == if *truth { &b"true"[..] } else { b"false" },
    }
}
