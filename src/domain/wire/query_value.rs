//! The parameters of a query.

use percent_encoding::percent_decode_str;

/// Returns the values of all parameters `name`, decoded.
fn query_values(query: &str, name: &str) -> Vec<String> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(found, _)| decode_query_text(found) == name)
        .map(|(_, value)| decode_query_text(value))
        .collect()
}

/// The name of a parameter, still percent-encoded.
pub(in crate::domain) fn parameter_name(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

pub(in crate::domain) fn decode_query_text(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the value of the parameter `name`, which may be repeated with the same value.
///
/// # Errors
/// A message for the client, if the parameter has different values.
pub(crate) fn query_value(query: Option<&str>, name: &str) -> Result<Option<String>, String> {
    let mut values = query_values(query.unwrap_or_default(), name);
    let last = values.pop();
    if values.iter().any(|other| Some(other) != last.as_ref()) {
        return Err(format!("`{name}` has different values: give it once"));
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_in_any_spelling_and_is_one() {
        assert_eq!(query_value(None, "a"), Ok(None));
        assert_eq!(query_value(Some("b=1&&aa=2"), "a"), Ok(None));
        assert_eq!(query_value(Some("b=1&%61=x%2Fy+z"), "a"), Ok(Some("x/y z".to_owned())));
        assert_eq!(query_value(Some("a"), "a"), Ok(Some(String::new())));
        assert_eq!(query_value(Some("a=1&a=1"), "a"), Ok(Some("1".to_owned())));
        assert!(query_value(Some("a=1&a=2"), "a").is_err());
        assert!(query_value(Some("a=1&b=3&a"), "a").is_err());
    }
}
