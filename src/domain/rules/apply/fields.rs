//! Evaluates conditions on members of the text.

use crate::domain::{
    rules::{
        body::JsonNumber,
        condition::{FieldTest, Scalar, ValueTest},
    },
    wire::json_scan::{JsonToken, JsonTokenKind, TapeReader, is_string},
};

/// A value of the text: its first token, and a reader positioned after that token.
#[derive(Clone)]
pub(super) struct ValueView<'t> {
    first: JsonToken,
    inside: TapeReader<'t>,
}

impl<'t> ValueView<'t> {
    /// The value that begins with `first`, which the reader has just read.
    pub(super) fn new(first: JsonToken, reader: &TapeReader<'t>) -> Self {
        let inside = reader.clone();
        Self { first, inside }
    }

    /// Whether a test holds for this value.
    pub(super) fn passes(&self, test: &FieldTest) -> bool {
        let found = test
            .path
            .iter()
            .try_fold(self.clone(), |place, name| place.member(name));
        match (&test.test, found) {
            (ValueTest::Present(wanted), found) => found.is_some() == *wanted,
            (ValueTest::In(allowed), Some(place)) => {
                let value = place.text();
                allowed.iter().any(|scalar| equals_scalar(value, scalar))
            }
            (ValueTest::In(_), None) => false,
        }
    }

    /// The member of this name; `None` if there is none or this is not an object. If the name occurs twice, the last one
    /// counts.
    fn member(mut self, name: &str) -> Option<Self> {
        if self.first.kind != JsonTokenKind::Object {
            return None;
        }
        let mut found = None;
        loop {
            let key = self.inside.next_token().ok()?;
            if key.kind == JsonTokenKind::End {
                return found;
            }
            let first = self.inside.next_token().ok()?;
            if is_string(self.inside.bytes(key.start..key.end), name) {
                found = Some(Self::new(first, &self.inside));
            }
            self.inside.skip_value(first).ok()?;
        }
    }

    /// All bytes of the value.
    fn text(mut self) -> &'t [u8] {
        let range = self.inside.skip_value(self.first).unwrap_or_default();
        self.inside.bytes(range)
    }
}

fn equals_scalar(value: &[u8], scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Text(text) => is_string(value, text),
        Scalar::Number(number) => JsonNumber::from_token(value).is_some_and(|value| value.equals(*number)),
        Scalar::Truth(truth) => value == if *truth { &b"true"[..] } else { b"false" },
    }
}
