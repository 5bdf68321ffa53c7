//! The fields of a form or a query: `application/x-www-form-urlencoded` (URL standard, section 5).

use crate::api::{AdminQuestion, error::AdminError, wire};

/// The maximum number of fields; further ones are ignored.
const FIELDS_MAX: usize = 64;

/// Names and values, in the order in which they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    /// Reads a form's body or a query.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(bytes).take(FIELDS_MAX);
        Self(
            pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// The first value of this name, trimmed; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// The first value of this name, trimmed; `None` if it is missing or empty.
    pub(super) fn non_empty(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }
}

/// A question of the admin API with these fields. Fields without a value are left out.
///
/// # Errors
/// The invalid field, and what is wrong with it.
pub(super) fn read_question<Q: AdminQuestion>(pairs: &[(&str, &str)]) -> Result<Q, AdminError> {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    wire::read(given.collect(), "", serde_json::Map::new())
}

/// A query of the pairs that have a value, with its `?`; empty if no pair has one.
pub(super) fn to_query(pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_browsers_write_them() {
        let fields = FormFields::read("name=a+b%26%E2%82%AC&empty=&name=second&reason=%20x%20".as_bytes());
        assert_eq!(fields.text("name"), "a b&\u{20ac}");
        assert_eq!(fields.non_empty("empty"), None);
        assert_eq!(fields.non_empty("missing"), None);
        assert_eq!(fields.non_empty("reason"), Some("x"));
        let many = "x=1&".repeat(FIELDS_MAX) + "late=1";
        assert_eq!(FormFields::read(many.as_bytes()).non_empty("late"), None);
        assert_eq!(FormFields::read(b"%ff=%ff").text("\u{fffd}"), "\u{fffd}");
    }

    #[test]
    fn a_query_leaves_out_what_is_empty() {
        assert_eq!(to_query(&[("a", ""), ("b", "")]), "");
        assert_eq!(to_query(&[("a", "x y"), ("b", ""), ("c", "&")]), "?a=x+y&c=%26");
    }
}
