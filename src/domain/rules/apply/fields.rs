//! Evaluates conditions on members of the text.

use super::cursor::{Cursor, is_string};
use crate::domain::rules::{
    body::Number,
    condition::{FieldTest, Scalar, ValueTest},
};

/// Whether a test holds for the value that begins at `at`.
pub(super) fn holds(text: &[u8], at: usize, test: &FieldTest) -> bool {
    let value = member(text, at, &test.path);
    match (&test.test, value) {
        (ValueTest::Present(wanted), value) => value.is_some() == *wanted,
        (ValueTest::In(allowed), Some(value)) => allowed.iter().any(|scalar| is(value, scalar)),
        (ValueTest::In(_), None) => false,
    }
}

/// The value of a nested member of the object that begins at `at`. Of members with one name, the last counts.
fn member<'t>(text: &'t [u8], at: usize, path: &[String]) -> Option<&'t [u8]> {
    let mut place = at;
    let mut end = at;
    for name in path {
        (place, end) = member_place(text, place, name)?;
    }
    Some(Cursor::new(text, place).token(place..end))
}

fn member_place(text: &[u8], at: usize, name: &str) -> Option<(usize, usize)> {
    let mut cursor = Cursor::new(text, at);
    cursor.expect(b'{').ok()?;
    let mut found = None;
    loop {
        cursor.space();
        match cursor.peek()? {
            b'"' => {
                let token = cursor.name().ok()?;
                let start = cursor.at;
                cursor.skip_value().ok()?;
                if is_string(cursor.token(token), name) {
                    found = Some((start, cursor.at));
                }
            }
            b',' => cursor.at += 1,
            _ => return found,
        }
    }
}

fn is(value: &[u8], scalar: &Scalar) -> bool {
    match scalar {
        Scalar::Text(text) => is_string(value, text),
        Scalar::Number(number) => Number::of_token(value).is_some_and(|value| value.equals(*number)),
        Scalar::Truth(truth) => value == if *truth { &b"true"[..] } else { b"false" },
    }
}
