//! Goes past JSON values that are whole in memory, as far as they are right: the same values as the picker's lexer takes in
//! pieces, which leaves the range of numbers and what stands in a string to others.

use crate::domain::wire::plain_run::plain_run;

/// Containers that may be open at once.
pub(super) const DEPTH_MAX: usize = 512;
/// One bit for each of them.
const STACK_WORDS: usize = DEPTH_MAX / 64;

/// What comes next but white space.
#[inline]
pub(super) fn skip_space(text: &[u8]) -> &[u8] {
    match text {
        [b'\0'..=b' ', ..] => skip_spaces(text),
        _ => text,
    }
}

/// The same: most JSON is written without any.
#[cold]
fn skip_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = text {
        text = rest;
    }
    text
}

/// What follows the value that a text begins with, inside so many containers. `None` if there is none, it is not whole, or too
/// many containers are open in it.
#[inline(always)]
pub(super) fn skip_value(text: &[u8], outer: usize) -> Option<&[u8]> {
    match text {
        [b'"', inside @ ..] => skip_string(inside),
        [b'{' | b'[', ..] => skip_container(text, outer),
        _ => skip_plain(text),
    }
}

/// The key that an object goes on with, between its quotes, and its value with what follows.
#[inline]
pub(super) fn split_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let [b'"', inside @ ..] = text else { return None };
    let (key, behind) = match inside.split_at_checked(plain_run(inside))? {
        (key, [b'"', behind @ ..]) => (key, behind),
        (_, escaped) => {
            let behind = skip_escaped(escaped)?;
            (before(inside, behind).split_last()?.1, behind)
        }
    };
    match skip_space(behind) {
        [b':', value @ ..] => Some((key, skip_space(value))),
        _ => None,
    }
}

/// What of a text stands before its end `behind`.
#[inline]
pub(super) fn before<'t>(text: &'t [u8], behind: &[u8]) -> &'t [u8] {
    text.get(..text.len() - behind.len()).unwrap_or(text)
}

/// What follows a string, from behind its first quote.
#[inline(always)]
fn skip_string(inside: &[u8]) -> Option<&[u8]> {
    match inside.get(plain_run(inside)..)? {
        [b'"', behind @ ..] => Some(behind),
        rest => skip_escaped(rest),
    }
}

/// The same of what has an escape.
#[inline(never)]
fn skip_escaped(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        match rest.get(plain_run(rest)..)? {
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'u', digits @ ..] => {
                let (digits, behind) = digits.split_at_checked(4)?;
                rest = digits.iter().all(u8::is_ascii_hexdigit).then_some(behind)?;
            }
            [
                b'\\',
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                behind @ ..,
            ] => rest = behind,
            _ => return None,
        }
    }
}

/// What follows a number, `true`, `false` or `null`.
fn skip_plain(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'-' | b'0'..=b'9', rest @ ..] => {
            let is_in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
            let length = rest.iter().position(|byte| !is_in_number(byte)).unwrap_or(rest.len());
            rest.get(length..)
        }
        [b't', rest @ ..] => rest.strip_prefix(b"rue"),
        [b'f', rest @ ..] => rest.strip_prefix(b"alse"),
        [b'n', rest @ ..] => rest.strip_prefix(b"ull"),
        _ => None,
    }
}

/// The containers that are open within the value, one bit each: set for an array.
struct Open {
    arrays: [u64; STACK_WORDS],
    /// What the innermost is, which is asked for after each value.
    is_in_array: bool,
    outer: usize,
    depth: usize,
}

impl Open {
    fn push(&mut self, is_array: bool) -> Option<()> {
        let word = self.arrays.get_mut(self.depth / 64)?;
        let bit = self.depth % 64;
        *word = *word & !(1 << bit) | u64::from(self.is_in_array) << bit;
        self.is_in_array = is_array;
        self.depth += 1;
        Some(())
    }

    /// The innermost ends; false if it was the last.
    fn pop(&mut self) -> bool {
        self.depth -= 1;
        let word = self.arrays.get(self.depth / 64);
        self.is_in_array = word.is_some_and(|word| word >> (self.depth % 64) & 1 != 0);
        self.depth > self.outer
    }
}

#[inline(never)]
fn skip_container(text: &[u8], outer: usize) -> Option<&[u8]> {
    let mut open = Open {
        arrays: [0; STACK_WORDS],
        is_in_array: false,
        outer,
        depth: outer,
    };
    let mut rest = text;
    loop {
        // A value begins here.
        rest = match rest {
            [first @ (b'{' | b'['), inside @ ..] => {
                let is_array = *first == b'[';
                open.push(is_array)?;
                match skip_space(inside) {
                    empty @ [b'}' | b']', ..] => empty,
                    inside => {
                        rest = if is_array { inside } else { split_key(inside)?.1 };
                        continue;
                    }
                }
            }
            [b'"', inside @ ..] => skip_string(inside)?,
            _ => skip_plain(rest)?,
        };
        // It has ended, or only its end follows.
        loop {
            rest = match (skip_space(rest), open.is_in_array) {
                ([b',', next @ ..], true) => {
                    rest = skip_space(next);
                    break;
                }
                ([b',', next @ ..], false) => {
                    rest = split_key(skip_space(next))?.1;
                    break;
                }
                ([b']', behind @ ..], true) | ([b'}', behind @ ..], false) => behind,
                _ => return None,
            };
            if !open.pop() {
                return Some(rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_it_ends() {
        for value in [
            "null",
            "true",
            "false",
            "-0.5e+7",
            "\"\"",
            r#""\" \\ \/ \u00e9 \ud83d }""#,
            "{}",
            "[ ]",
            r#"{ "a" : [ 1 , {"b":"]"} , [ [ ] ] ] , "" : { } }"#,
        ] {
            for behind in ["", " ", ",1", "]", "}"] {
                let text = format!("{value}{behind}");
                assert_eq!(skip_value(text.as_bytes(), 0), Some(behind.as_bytes()), "{text}");
            }
            for cut in 0..value.len() {
                let is_number = value.starts_with('-') && cut > 0;
                assert_eq!(
                    skip_value(&value.as_bytes()[..cut], 0).is_some(),
                    is_number,
                    "{value} {cut}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_value_has_no_end() {
        for text in [
            "",
            " 1",
            "nul!",
            "+1",
            "}",
            "]",
            ",",
            "{]",
            "[}",
            "{,}",
            "[,]",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "{1:2}",
            "[1 2]",
            "\"\\x\"",
            "\"\\u00g0\"",
        ] {
            assert_eq!(skip_value(text.as_bytes(), 0), None, "{text}");
        }
    }

    #[test]
    fn depth_is_limited_with_what_is_around() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(skip_value(nested(DEPTH_MAX).as_bytes(), 0), Some(&b""[..]));
        assert_eq!(skip_value(nested(DEPTH_MAX + 1).as_bytes(), 0), None);
        assert_eq!(skip_value(nested(DEPTH_MAX - 3).as_bytes(), 3), Some(&b""[..]));
        assert_eq!(skip_value(nested(DEPTH_MAX - 2).as_bytes(), 3), None);
    }
}
