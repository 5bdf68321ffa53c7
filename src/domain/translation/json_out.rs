//! Writes JSON text member by member, in the order of the method calls. Nothing is parsed into a tree, so numbers, schemas and
//! arguments keep their spelling, and equal content always produces equal bytes.

use std::fmt::Write;

/// The number of bytes that are searched at once for characters that need escapes.
const SEARCHED_BYTES: usize = 16;

/// Whether this byte is a character that must be escaped in a JSON string.
const fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// Returns the number of bytes in a text before the first character that must be escaped in a JSON string. Only ASCII characters
/// must be escaped, so these bytes end at a character boundary.
pub(crate) fn plain_length(text: &str) -> usize {
    let mut length = 0;
    // The compiler turns the search of a block into a few instructions, because it does not end early.
    for block in text.as_bytes().chunks(SEARCHED_BYTES) {
        if block.iter().fold(false, |found, byte| found | is_escaped(*byte)) {
            let escaped = block.iter().position(|byte| is_escaped(*byte));
            return length + escaped.unwrap_or(block.len());
        }
        length += block.len();
    }
    length
}

/// Appends a string as a JSON string.
pub(crate) fn push_text(out: &mut String, text: &str) {
    out.reserve(text.len() + 2);
    out.push('"');
    let mut rest = text;
    loop {
        let (plain, tail) = rest.split_at_checked(plain_length(rest)).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut characters = tail.chars();
        match characters.next() {
            None => break,
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\n') => out.push_str("\\n"),
            Some('\r') => out.push_str("\\r"),
            Some('\t') => out.push_str("\\t"),
            Some(control) => {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
        }
        rest = characters.as_str();
    }
    out.push('"');
}

/// Appends an object whose members `fill` writes.
pub(crate) fn push_object<R>(out: &mut String, fill: impl FnOnce(&mut JsonObjectWriter<'_>) -> R) -> R {
    out.push('{');
    let mut object = JsonObjectWriter { out, is_empty: true };
    let result = fill(&mut object);
    out.push('}');
    result
}

/// Appends an array whose elements `fill` writes.
pub(crate) fn push_array<R>(out: &mut String, fill: impl FnOnce(&mut JsonArrayWriter<'_>) -> R) -> R {
    out.push('[');
    let mut array = JsonArrayWriter { out, is_empty: true };
    let result = fill(&mut array);
    out.push(']');
    result
}

/// An object that is being written.
pub(crate) struct JsonObjectWriter<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl JsonObjectWriter<'_> {
    /// Writes the name of a member. The names that weir itself writes contain no characters that need escapes.
    fn name(&mut self, name: &'static str) -> &mut String {
        debug_assert_eq!(plain_length(name), name.len(), "{name:?} needs escapes");
        self.out.push_str(if std::mem::take(&mut self.is_empty) {
            "\""
        } else {
            ",\""
        });
        self.out.push_str(name);
        self.out.push_str("\":");
        self.out
    }

    /// Writes a member whose name comes from a client, and whose value is the given JSON text.
    pub(crate) fn member(&mut self, name: &str, json: &str) {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        push_text(self.out, name);
        self.out.push(':');
        self.out.push_str(json);
    }

    /// Writes a member whose value is the given JSON text.
    pub(crate) fn raw(&mut self, name: &'static str, json: &str) {
        self.name(name).push_str(json);
    }

    /// Writes a member whose value is a string.
    pub(crate) fn text(&mut self, name: &'static str, text: &str) {
        push_text(self.name(name), text);
    }

    /// Writes a member whose value is an integer.
    pub(crate) fn number(&mut self, name: &'static str, number: impl itoa::Integer) {
        self.name(name).push_str(itoa::Buffer::new().format(number));
    }

    /// Writes a member whose value is a boolean.
    pub(crate) fn flag(&mut self, name: &'static str, flag: bool) {
        self.raw(name, if flag { "true" } else { "false" });
    }

    /// Writes a member whose value is null.
    pub(crate) fn null(&mut self, name: &'static str) {
        self.raw(name, "null");
    }

    /// Writes a member whose value is an object.
    pub(crate) fn object<R>(&mut self, name: &'static str, fill: impl FnOnce(&mut JsonObjectWriter<'_>) -> R) -> R {
        push_object(self.name(name), fill)
    }

    /// Writes a member whose value is an array.
    pub(crate) fn array<R>(&mut self, name: &'static str, fill: impl FnOnce(&mut JsonArrayWriter<'_>) -> R) -> R {
        push_array(self.name(name), fill)
    }
}

/// An array that is being written.
pub(crate) struct JsonArrayWriter<'o> {
    out: &'o mut String,
    is_empty: bool,
}

impl JsonArrayWriter<'_> {
    fn next(&mut self) -> &mut String {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(',');
        }
        self.out
    }

    /// Writes an element that is the given JSON text.
    pub(crate) fn raw(&mut self, json: &str) {
        self.next().push_str(json);
    }

    /// Writes an element that is a string.
    pub(crate) fn text(&mut self, text: &str) {
        push_text(self.next(), text);
    }

    /// Writes an element that is an object.
    pub(crate) fn object<R>(&mut self, fill: impl FnOnce(&mut JsonObjectWriter<'_>) -> R) -> R {
        push_object(self.next(), fill)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was(text in ".*", name in "[\\x00-\\x7f]*") {
            let mut out = String::new();
            let mut value = String::new();
            push_text(&mut value, &text);
            push_object(&mut out, |object| object.member(&name, &value));
            let read: serde_json::Value = serde_json::from_str(&out).unwrap();
            prop_assert_eq!(read, serde_json::json!({ name: text }));
        }
    }

    #[test]
    fn members_and_elements_stand_in_the_order_of_the_calls() {
        let mut out = String::new();
        push_object(&mut out, |object| {
            object.raw("b", "1.50");
            object.number("n", 7_u64);
            object.array("a", |array| {
                array.text("x\"\u{1}");
                array.object(|inner| inner.flag("f", true));
                array.raw("null");
            });
            object.object("o", |inner| inner.null("z"));
        });
        assert_eq!(
            out,
            r#"{"b":1.50,"n":7,"a":["x\"\u0001",{"f":true},null],"o":{"z":null}}"#
        );
    }
}
