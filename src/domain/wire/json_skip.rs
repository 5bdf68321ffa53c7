//! Skips JSON values that are completely in memory. The functions accept the same values as the lexer of `json_pick`, which
//! checks neither the range of numbers nor the contents of strings.

use crate::domain::wire::plain_run;

/// The maximum number of nested objects and arrays.
pub(super) const DEPTH_MAX: usize = 512;
/// The number of 64-bit words that contain one bit for each open object or array.
const STACK_WORDS: usize = DEPTH_MAX / 64;

/// Returns `text` without its leading white space.
#[inline]
pub(super) fn skip_space(text: &[u8]) -> &[u8] {
    match text {
        [b'\0'..=b' ', ..] => skip_spaces(text),
        _ => text,
    }
}

/// The slow path of [`skip_space`], which is rarely needed because most JSON is written without white space.
#[cold]
fn skip_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = text {
        text = rest;
    }
    text
}

/// Returns the text after the value at the beginning of `text`. `outer` is the number of objects and arrays around the value.
/// `None` if the value is missing, incomplete or nested too deeply.
#[inline(always)]
pub(super) fn skip_value(text: &[u8], outer: usize) -> Option<&[u8]> {
    skip_counted_value(text, outer, &mut || true)
}

/// Like [`skip_value`], but calls `on_value` before each value in the skipped object or array. Also returns `None` if `on_value`
/// returns false.
#[inline(always)]
pub(super) fn skip_counted_value<'t>(
    text: &'t [u8],
    outer: usize,
    on_value: &mut impl FnMut() -> bool,
) -> Option<&'t [u8]> {
    match text {
        [b'"', inside @ ..] => skip_string(inside),
        [b'{' | b'[', ..] => skip_container(text, outer, on_value),
        _ => skip_plain(text),
    }
}

/// Splits the rest of an object into its next key, without quotes, and the text that begins with the key's value. `None` if no
/// complete key follows.
#[inline]
pub(super) fn split_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let [b'"', inside @ ..] = text else { return None };
    let (key, behind) = match inside.split_at_checked(plain_run(inside))? {
        (key, [b'"', behind @ ..]) => (key, behind),
        (_, escaped) => {
            let behind = skip_escaped(escaped)?;
            (without_end(inside, behind).split_last()?.1, behind)
        }
    };
    match skip_space(behind) {
        [b':', value @ ..] => Some((key, skip_space(value))),
        _ => None,
    }
}

/// Returns `text` without `behind`. `text` must end with `behind`.
#[inline]
pub(super) fn without_end<'t>(text: &'t [u8], behind: &[u8]) -> &'t [u8] {
    text.get(..text.len() - behind.len()).unwrap_or(text)
}

/// Returns the text after a string; `inside` is the text after the string's opening quote. `None` if the string is incomplete or
/// invalid.
#[inline(always)]
fn skip_string(inside: &[u8]) -> Option<&[u8]> {
    match inside.get(plain_run(inside)..)? {
        [b'"', behind @ ..] => Some(behind),
        rest => skip_escaped(rest),
    }
}

/// Like [`skip_string`], but `rest` begins at an escape in the string.
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

/// Returns the text after the number, `true`, `false` or `null` at the beginning of `text`. `None` if `text` begins with anything
/// else.
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

/// The objects and arrays around the current position. `arrays` has one bit for each of these containers except the innermost
/// one. The bit is set if the container is an array.
struct OpenContainers {
    arrays: [u64; STACK_WORDS],
    /// Whether the innermost container is an array. The innermost container has this flag instead of a bit in `arrays`, because
    /// the flag is read after each value.
    is_in_array: bool,
    outer: usize,
    depth: usize,
}

impl OpenContainers {
    fn push(&mut self, is_array: bool) -> Option<()> {
        let word = self.arrays.get_mut(self.depth / 64)?;
        let bit = self.depth % 64;
        *word = *word & !(1 << bit) | u64::from(self.is_in_array) << bit;
        self.is_in_array = is_array;
        self.depth += 1;
        Some(())
    }

    /// Closes the innermost container. Returns false if it was the outermost container of the skipped value.
    fn pop(&mut self) -> bool {
        self.depth -= 1;
        let word = self.arrays.get(self.depth / 64);
        self.is_in_array = word.is_some_and(|word| word >> (self.depth % 64) & 1 != 0);
        self.depth > self.outer
    }
}

#[inline(never)]
fn skip_container<'t>(text: &'t [u8], outer: usize, on_value: &mut impl FnMut() -> bool) -> Option<&'t [u8]> {
    let mut open = OpenContainers {
        arrays: [0; STACK_WORDS],
        is_in_array: false,
        outer,
        depth: outer,
    };
    let mut rest = text;
    loop {
        // A value begins here.
        if !on_value() {
            return None;
        }
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
        // A value has ended, or an empty container lacks only its closing bracket.
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
