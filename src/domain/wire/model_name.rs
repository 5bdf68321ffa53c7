//! The names of models as clients write them: which texts are valid names, and which names of the catalogue they may mean.

use crate::domain::wire::Protocol;

/// The maximum length of a name, in bytes.
pub(crate) const BYTES_MAX: usize = 128;

/// The rule for names, for messages.
pub(crate) const RULE: &str = "1 to 128 bytes of printable text without white space at its ends";

/// Whether a text can be a model's name: 1 to [`BYTES_MAX`] bytes, each character printable, no white space at either end.
/// Other texts are refused before they reach a lookup or a log line. URLs percent-encode the name where they are built.
pub(crate) fn is_plausible(name: &str) -> bool {
    (1..=BYTES_MAX).contains(&name.len()) && name.trim() == name && name.chars().all(is_printable)
}

/// False for control, format, private-use and unassigned characters, and for white space other than the space.
fn is_printable(c: char) -> bool {
    // `escape_debug` escapes the first three with a backslash, and everything that is not printable.
    matches!(c, '"' | '\'' | '\\') || c.is_alphanumeric() || c.escape_debug().len() == 1
}

/// Removes the collection that Gemini-style bodies write before a model's name: `models/gemini-x`,
/// `publishers/google/models/gemini-x`.
pub(crate) fn without_resource(protocol: Protocol, name: &str) -> &str {
    match (protocol, name.rsplit_once("models/")) {
        (Protocol::Gemini, Some(("", model))) => model,
        (Protocol::Gemini, Some((before, model))) if before.ends_with('/') => model,
        _ => name,
    }
}

/// The names of the catalogue that a client's name may mean, the closest first: the name itself, then without the mark of a
/// context window, then without the date of a snapshot too.
pub(crate) fn name_candidates(name: &str) -> impl Iterator<Item = &str> {
    let unmarked = without_context_mark(name);
    let further = |other: &str, than: &str| other.len() < than.len();
    let undated = without_date(unmarked);
    let marked = std::iter::once(name);
    let without_mark = further(unmarked, name).then_some(unmarked);
    let without_date = further(undated, unmarked).then_some(undated);
    marked.chain(without_mark).chain(without_date)
}

/// Turns `claude-opus-5-5[1m]`, Claude Code's name for the model with a context window of a million tokens, into
/// `claude-opus-5-5`.
fn without_context_mark(name: &str) -> &str {
    let split = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    match split {
        Some((unmarked, mark)) if is_context_mark(mark) => unmarked,
        _ => name,
    }
}

/// Whether a mark is like `1m` or `200k`.
fn is_context_mark(mark: &str) -> bool {
    let count = mark.strip_suffix(['k', 'K', 'm', 'M']).unwrap_or_default();
    !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit())
}

/// Turns `claude-haiku-4-5-20251001`, `claude-haiku-4-5@20251001` and `claude-haiku-4-5-2025-10-01` into `claude-haiku-4-5`.
pub(crate) fn without_date(name: &str) -> &str {
    const FORMS: [(&str, &str); 3] = [("-", "YYYYMMDD"), ("@", "YYYYMMDD"), ("-", "YYYY-MM-DD")];
    let undated = FORMS.iter().find_map(|(before, form)| {
        let (undated, date) = name.split_at_checked(name.len().checked_sub(form.len())?)?;
        let undated = undated.strip_suffix(before)?;
        (!undated.is_empty() && is_date(date, form)).then_some(undated)
    });
    undated.unwrap_or(name)
}

/// Whether a text, which is as long as `form`, is a day of this century in that form.
fn is_date(text: &str, form: &str) -> bool {
    let fits = |(c, of): (char, char)| if of == '-' { c == '-' } else { c.is_ascii_digit() };
    if !text.chars().zip(form.chars()).all(fits) {
        return false;
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let part = |from: usize, to: usize| digits.get(from..to).and_then(|part| part.parse::<u16>().ok());
    let is_within =
        |part: Option<u16>, range: std::ops::RangeInclusive<u16>| part.is_some_and(|part| range.contains(&part));
    is_within(part(0, 4), 2000..=2099) && is_within(part(4, 6), 1..=12) && is_within(part(6, 8), 1..=31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_told_from_other_texts() {
        for name in [
            "a",
            "claude-opus-4.5",
            "models/gemini-2.5@001",
            "ft:gpt-4_x:org",
            "deepseek-v4-pro[1m]",
            "GLM 4.6 (beta) \"quoted\" 'x' \\ a?b#c%2f;<&>",
            "caf\u{e9}",
            "\u{6a21}\u{578b}-1",
            "\u{1f999}",
            "x".repeat(128).as_str(),
        ] {
            assert!(is_plausible(name), "{name}");
        }
        for name in [
            "",
            " a",
            "a ",
            "a\n",
            "a\tb",
            "a\0b",
            "\u{1b}[31m",
            "\u{7f}",
            "a\u{a0}b",
            "a\u{200b}b",
            "a\u{202e}b",
            "a\u{2028}b",
            "\u{feff}a",
            "a\u{e0041}",
            "a\u{e000}",
            "x".repeat(129).as_str(),
            "\u{e9}".repeat(65).as_str(),
        ] {
            assert!(!is_plausible(name), "{name:?}");
        }
    }

    #[test]
    fn the_collection_of_a_gemini_style_name_is_left_out() {
        for (name, model) in [
            ("models/gemini-x", "gemini-x"),
            ("publishers/google/models/gemini-x", "gemini-x"),
            ("gemini-x", "gemini-x"),
            ("tunedmodels/x", "tunedmodels/x"),
            ("models/", ""),
        ] {
            assert_eq!(without_resource(Protocol::Gemini, name), model, "{name}");
            assert_eq!(without_resource(Protocol::Responses, name), name);
        }
    }

    #[test]
    fn a_name_means_itself_first_then_without_mark_then_without_date() {
        for (name, meant) in [
            ("claude-haiku-4-5", vec![]),
            ("claude-haiku-4-5-20251001", vec!["claude-haiku-4-5"]),
            ("claude-haiku-4-5@20251001", vec!["claude-haiku-4-5"]),
            ("gpt-5.5-2026-04-01", vec!["gpt-5.5"]),
            ("deepseek-v4-pro[1m]", vec!["deepseek-v4-pro"]),
            ("deepseek-v4-pro[1M]", vec!["deepseek-v4-pro"]),
            ("x[200k]", vec!["x"]),
            (
                "claude-haiku-4-5-20251001[1m]",
                vec!["claude-haiku-4-5-20251001", "claude-haiku-4-5"],
            ),
            // Neither a mark of a context window nor a day.
            ("llama[q4]", vec![]),
            ("llama[m]", vec![]),
            ("llama[1m]x", vec![]),
            ("model-12345678", vec![]),
            ("model-20251301", vec![]),
            ("model-20251000", vec![]),
            ("model-2025-1001", vec![]),
            ("model-2025-10-1", vec![]),
            ("model20251001", vec![]),
            ("kimi-k2-0905", vec![]),
            ("-20251001", vec![]),
            ("20251001", vec![]),
        ] {
            let found: Vec<&str> = name_candidates(name).collect();
            assert_eq!(found, [vec![name], meant].concat(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_date_or_a_mark_is_taken_off_any_name(
            name in "[ -~\u{e9}\u{6a21}]{0,40}[a-z]", year in 2000..2100, month in 1..13, day in 1..32, thousands in 1..10,
        ) {
            for dated in [
                format!("{name}-{year}{month:02}{day:02}"),
                format!("{name}@{year}{month:02}{day:02}"),
                format!("{name}-{year}-{month:02}-{day:02}"),
            ] {
                prop_assert_eq!(without_date(&dated), name.as_str());
                let marked = format!("{dated}[{thousands}m]");
                let meant: Vec<&str> = name_candidates(&marked).collect();
                prop_assert_eq!(meant, [&marked, &dated, &name]);
            }
        }

        #[test]
        fn no_text_has_more_than_three_meanings_and_each_begins_it(text in any::<String>()) {
            let meant: Vec<&str> = name_candidates(&text).collect();
            prop_assert!((1..=3).contains(&meant.len()));
            prop_assert!(meant.iter().all(|name| text.starts_with(name)));
        }
    }
}
