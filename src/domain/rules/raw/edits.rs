//! The edits of a provider file as written.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use toml::Spanned;

use crate::domain::wire::protocol::Protocol;

/// `[headers]`: applied in the order remove, rename, set, default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawHeaders {
    /// Names to drop.
    pub remove: Vec<Spanned<String>>,
    /// Old name to new name.
    pub rename: BTreeMap<String, Spanned<String>>,
    /// Values that replace what the client sent.
    pub set: BTreeMap<String, Spanned<String>>,
    /// Values for headers that the client did not send.
    pub default: BTreeMap<String, Spanned<String>>,
}

/// `[query]`: applied in the order remove, set, default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawQuery {
    /// Names to drop.
    pub remove: Vec<Spanned<String>>,
    /// Values that replace what the client sent.
    pub set: BTreeMap<String, Spanned<String>>,
    /// Values for parameters that the client did not send.
    pub default: BTreeMap<String, Spanned<String>>,
}

/// What a `[[body]]` or `[[response]]` edit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawBodyOp {
    /// Sets the member to `value`; a missing member is added at the end of its object.
    Set,
    /// Removes the member or array element.
    Remove,
    /// Renames the member to `to`, unless the object already has a member of that name.
    Rename,
    /// Replaces a number outside `min` to `max` by the bound it exceeds.
    Clamp,
    /// Replaces a string that is a key of `values` by its value.
    Map,
    /// Refuses the request: for a number outside `min` to `max`, for a string of the list `values`, or without these keys for
    /// any value. Only in `[[body]]`.
    Refuse,
}

/// `[[body]]` and `[[response]]`: one edit. `op` decides which of the optional keys belong to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBodyEdit {
    /// The operation.
    pub op: Spanned<RawBodyOp>,
    /// The path: names of nested object members, joined by dots; `[]` after a name means each element of that array.
    pub path: Spanned<String>,
    /// Only for requests of these protocols; without it, for all.
    pub protocols: Option<Vec<Protocol>>,
    /// Only where all of these conditions hold.
    #[serde(default)]
    pub when: OneOrMore<RawCondition>,
    /// For `set`.
    pub value: Option<toml::Value>,
    /// For `rename`.
    pub to: Option<String>,
    /// For `clamp` and `refuse`.
    pub min: Option<toml::Value>,
    /// For `clamp` and `refuse`.
    pub max: Option<toml::Value>,
    /// For `map`, a table; for `refuse`, a list.
    pub values: Option<toml::Value>,
    /// For `refuse`: the message to the client.
    pub message: Option<String>,
}

/// `when = { .. }`: a test of the model, a header or a field. Exactly one of the first four keys is given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCondition {
    /// The requested model; `*` matches any characters.
    pub model: Option<String>,
    /// A header of the request.
    pub header: Option<String>,
    /// A member of the object that contains the edited member; for a path that ends in `[]`, a member of the element itself.
    pub field: Option<String>,
    /// A member of the whole body or event.
    pub root_field: Option<String>,
    /// For a header: one of its values.
    pub value: Option<String>,
    /// For a header: part of one of its values.
    pub contains: Option<String>,
    /// For a field: its value.
    pub equals: Option<toml::Value>,
    /// For a field: its possible values.
    #[serde(rename = "in")]
    pub one_of: Option<Vec<toml::Value>>,
    /// For a field: whether it is present.
    pub present: Option<bool>,
}

/// A table, or a list of such tables.
#[derive(Debug)]
pub(crate) struct OneOrMore<T>(pub Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tables<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table `{ .. }` or a list of tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| OneOrMore(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(table) = tables.next_element()? {
                    all.push(table);
                }
                Ok(OneOrMore(all))
            }
        }
        deserializer.deserialize_any(Tables(PhantomData))
    }
}
