//! Conditional requests (RFC 9110 section 13.1.2).

use http::{HeaderMap, header};

/// Whether `if-none-match` contains this entity tag, also in its weak form, or `*`.
pub(super) fn names_tag(headers: &HeaderMap, tag: &str) -> bool {
    let lines = headers.get_all(header::IF_NONE_MATCH).iter();
    // The service's tags contain no comma, so a list can be split at commas.
    let mut tags = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim);
    tags.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_in_lists_and_in_its_weak_form() {
        for (line, known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("\"b,c\" ,W/\"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
            ("", false),
            ("\"a\"x", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, line.parse().unwrap());
            assert_eq!(names_tag(&headers, "\"a\""), known, "{line}");
        }
        assert!(!names_tag(&HeaderMap::new(), "\"a\""));
    }
}
