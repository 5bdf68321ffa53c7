//! The mark in a prompt, such as `[[sample: deltas=20 gap_ms=5]]`: words of the form key=value.

use serde::de::IgnoredAny;

use super::script_error::ScriptError;

/// The beginning of a mark such as `[[sample: deltas=20 gap_ms=5]]`: words of the form key=value. A value that begins with a
/// brace or a quote is JSON, and ends where the JSON ends: `[[sample: tool=Bash tool_input={"command": "echo a, b"}]]`.
pub(super) const MARK_OPEN: &str = "[[sample:";
const MARK_CLOSE: &str = "]]";
const SEPARATORS: [char; 5] = [' ', '\t', '\r', '\n', ','];

/// The words of a mark: keys and values.
type MarkWords<'a> = Vec<(&'a str, &'a str)>;

/// The words of the last mark in `prompt`; empty without a mark.
pub(super) fn last_mark(prompt: &str) -> Result<MarkWords<'_>, ScriptError> {
    match prompt.rsplit_once(MARK_OPEN) {
        Some((_, after)) => read_mark(after).map(|(words, _)| words),
        None => Ok(Vec::new()),
    }
}

/// `prompt` without its marks. An unclosed mark extends to the end.
pub(super) fn without_marks(prompt: &str) -> String {
    let mut rest = prompt;
    let mut plain = String::with_capacity(prompt.len().min(1024));
    while let Some((before, after)) = rest.split_once(MARK_OPEN) {
        plain.push_str(before);
        rest = match read_mark(after) {
            Ok((_, rest)) => rest,
            Err(_) => after.split_once(MARK_CLOSE).map_or("", |(_, rest)| rest),
        };
    }
    plain.push_str(rest);
    plain.trim().to_owned()
}

/// A word, shortened for an error message.
pub(super) fn shortened_word(word: &str) -> String {
    word.chars().take(40).collect()
}

/// Parses a mark after its beginning; returns its words and the rest of the prompt.
fn read_mark(after: &str) -> Result<(MarkWords<'_>, &str), ScriptError> {
    let mut words = Vec::new();
    let mut rest = after;
    loop {
        rest = rest.trim_start_matches(SEPARATORS);
        if let Some(behind) = rest.strip_prefix(MARK_CLOSE) {
            return Ok((words, behind));
        }
        let (word, _) = rest.split_at_checked(word_length(rest)?).unwrap_or_default();
        let Some((key, value)) = word.split_once('=') else {
            return Err(ScriptError::NotAPair(shortened_word(word)));
        };
        let (_, behind) = rest.split_at_checked(key.len() + 1).unwrap_or_default();
        let length = json_length(behind).unwrap_or(value.len());
        let (value, behind) = behind.split_at_checked(length).unwrap_or_default();
        words.push((key, value));
        rest = behind;
    }
}

/// The length in bytes of the word at the start of `rest`, up to a separator or the end of the mark.
fn word_length(rest: &str) -> Result<usize, ScriptError> {
    let close = rest.find(MARK_CLOSE);
    match (rest.find(SEPARATORS), close) {
        (Some(separator), Some(close)) => Ok(separator.min(close)),
        (Some(separator), None) => Ok(separator),
        (None, Some(close)) => Ok(close),
        (None, None) => Err(ScriptError::NotClosed),
    }
}

/// The length in bytes of the JSON object or string at the start of `rest`, if there is one.
fn json_length(rest: &str) -> Option<usize> {
    if !rest.starts_with(['{', '"']) {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_ends_where_it_ends_whatever_is_in_it() {
        let prompt = r#"do [[sample: tool=Bash, tool_input={"command": "echo [[x]], y=1"} deltas=2]] it"#;
        let input = r#"{"command": "echo [[x]], y=1"}"#;
        assert_eq!(
            last_mark(prompt).unwrap(),
            [("tool", "Bash"), ("tool_input", input), ("deltas", "2")]
        );
        assert_eq!(without_marks(prompt), "do  it");
        assert_eq!(
            last_mark(r#"[[sample: tool_input="a b"]]"#).unwrap(),
            [("tool_input", r#""a b""#)]
        );
        assert!(last_mark("[[sample: tool_input={\"a b\" ]]").is_err());
    }

    #[test]
    fn what_is_not_closed_is_refused_and_not_said() {
        assert_eq!(last_mark("[[sample: gap_ms=1 "), Err(ScriptError::NotClosed));
        assert_eq!(last_mark("[[sample: gap_ms=1"), Err(ScriptError::NotClosed));
        assert_eq!(
            last_mark("[[sample: gap]]"),
            Err(ScriptError::NotAPair("gap".to_owned()))
        );
        assert_eq!(last_mark("nothing"), Ok(Vec::new()));
        assert_eq!(without_marks("a [[sample: x=1]]b [[sample: y"), "a b");
        assert_eq!(without_marks("plain"), "plain");
    }
}
