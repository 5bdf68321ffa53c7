//! The values in a query.

use percent_encoding::percent_decode_str;

/// Every value that a query has for `name`, decoded.
fn values(query: &str, name: &str) -> Vec<String> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(found, _)| decoded(found) == name)
        .map(|(_, value)| decoded(value))
        .collect()
}

/// The name of a parameter as it is written.
pub(in crate::domain) fn name_of(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

pub(in crate::domain) fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

/// The value that a query has for `name`. The same value twice is one.
///
/// # Errors
/// Two values that differ: what is wrong, for the client.
pub(crate) fn value(query: Option<&str>, name: &str) -> Result<Option<String>, String> {
    let mut values = values(query.unwrap_or_default(), name);
    let last = values.pop();
    if values.iter().any(|other| Some(other) != last.as_ref()) {
        return Err(format!("`{name}` has two values that differ, give one"));
    }
    Ok(last)
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
}
