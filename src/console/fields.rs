//! The fields of a form, or of a query: `application/x-www-form-urlencoded` (URL standard, section 5).

use crate::api::{Question, error::AdminError, wire};

/// The most fields that are read; the rest is left out.
const FIELDS_MAX: usize = 64;

/// Names and values, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Reads a form's body or a query.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(bytes).take(FIELDS_MAX);
        Self(
            pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// The first value of a name, without white space around it; empty if there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    /// The same; `None` if it is empty.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }
}

/// A question of the admin API with these fields, those without a value left out.
///
/// # Errors
/// The field that is at fault, and why.
pub(super) fn question<Q: Question>(pairs: &[(&str, &str)]) -> Result<Q, AdminError> {
    let given = pairs.iter().filter(|(_, value)| !value.is_empty());
    let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    wire::read(given.collect(), "", serde_json::Map::new())
}

/// A query of these pairs, those without a value left out; empty without any.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
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
        let fields = Fields::read("name=a+b%26%E2%82%AC&empty=&name=second&reason=%20x%20".as_bytes());
        assert_eq!(fields.text("name"), "a b&\u{20ac}");
        assert_eq!(fields.given("empty"), None);
        assert_eq!(fields.given("missing"), None);
        assert_eq!(fields.given("reason"), Some("x"));
        let many = "x=1&".repeat(FIELDS_MAX) + "late=1";
        assert_eq!(Fields::read(many.as_bytes()).given("late"), None);
        assert_eq!(Fields::read(b"%ff=%ff").text("\u{fffd}"), "\u{fffd}");
    }

    #[test]
    fn a_query_leaves_out_what_is_empty() {
        assert_eq!(query(&[("a", ""), ("b", "")]), "");
        assert_eq!(query(&[("a", "x y"), ("b", ""), ("c", "&")]), "?a=x+y&c=%26");
    }
}
