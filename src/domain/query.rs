//! The parameters of a query, as far as weir reads them. The query itself is passed on as it came.

use percent_encoding::percent_decode_str;

use crate::domain::operation::Operation;

/// Every value that a query has for `name`, decoded.
fn values(query: &str, name: &str) -> Vec<String> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(found, _)| decoded(found) == name)
        .map(|(_, value)| decoded(value))
        .collect()
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

/// The value that a query has for `name`. The same value twice is one.
///
/// # Errors
/// Two values that differ: what is wrong, for the client.
pub fn value(query: Option<&str>, name: &str) -> Result<Option<String>, String> {
    let mut values = values(query.unwrap_or_default(), name);
    let last = values.pop();
    if values.iter().any(|other| Some(other) != last.as_ref()) {
        return Err(format!("`{name}` has two values that differ, give one"));
    }
    Ok(last)
}

/// Checks `alt`, which chooses the form of a Gemini-style answer (spec section 4.5).
///
/// # Errors
/// A value that the operation does not have: what is wrong, for the client.
pub fn check_alt(operation: Operation, query: Option<&str>) -> Result<(), String> {
    if !operation.model_in_path() {
        return Ok(());
    }
    let streams = operation == Operation::StreamGenerateContent;
    match value(query, "alt")?.as_deref() {
        None | Some("json") => Ok(()),
        Some("sse") if streams => Ok(()),
        Some(_) if streams => Err("`alt` is neither `sse` nor `json`".to_owned()),
        Some(_) => Err("`alt` can only be `json` here; `sse` goes with streamGenerateContent".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_in_any_spelling_and_is_one() {
        assert_eq!(value(None, "a"), Ok(None));
        assert_eq!(value(Some("b=1&&aa=2"), "a"), Ok(None));
        assert_eq!(value(Some("b=1&%61=x%2Fy+z"), "a"), Ok(Some("x/y z".to_owned())));
        assert_eq!(value(Some("a"), "a"), Ok(Some(String::new())));
        assert_eq!(value(Some("a=1&a=1"), "a"), Ok(Some("1".to_owned())));
        assert!(value(Some("a=1&a=2"), "a").is_err());
        assert!(value(Some("a=1&b=3&a"), "a").is_err());
    }

    #[test]
    fn alt_is_what_the_operation_has() {
        let stream = |query| check_alt(Operation::StreamGenerateContent, Some(query)).is_ok();
        for fine in [
            "",
            "alt=sse",
            "alt=json",
            "%61lt=sse&x=1",
            "alt=sse&alt=sse",
            "ALT=xml",
            "$alt=json",
        ] {
            assert!(stream(fine), "{fine}");
        }
        for bad in [
            "alt=",
            "alt",
            "alt=SSE",
            "alt=proto",
            "alt=media",
            "alt=sse&alt=json",
            "alt=json&alt",
        ] {
            assert!(!stream(bad), "{bad}");
        }
        for operation in [Operation::GenerateContent, Operation::GeminiCountTokens] {
            assert!(check_alt(operation, None).is_ok() && check_alt(operation, Some("alt=json")).is_ok());
            assert!(check_alt(operation, Some("alt=sse")).is_err());
        }
        assert!(check_alt(Operation::Messages, Some("alt=anything")).is_ok());
    }
}
