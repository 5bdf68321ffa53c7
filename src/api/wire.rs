//! Converts the request types of the admin API to HTTP requests and back.

use std::{borrow::Cow, fmt};

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{
    de::{
        self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor,
        value::CowStrDeserializer,
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

use super::AdminQuestion;
use crate::api::AdminError;
use crate::domain::strict_toml::nearest;

/// The characters that are percent-encoded in a path segment: all but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request of the admin API in its HTTP form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminCall {
    /// The path, followed by the query if there is one.
    pub(crate) target: String,
    /// The JSON body; empty for a request without a body.
    pub(crate) body: String,
}

impl AdminCall {
    /// Converts a request type to its HTTP form.
    ///
    /// # Errors
    /// `question` does not serialize to a JSON object. This is a bug, because every [`AdminQuestion`] should serialize to one.
    pub(crate) fn from_question<Q: AdminQuestion>(question: &Q) -> Result<Self, AdminError> {
        let fields = serde_json::to_value(question).map_err(|error| AdminError::failed(error.to_string()))?;
        let Value::Object(mut fields) = fields else {
            return Err(AdminError::failed("cannot send the request: it is not a JSON object"));
        };
        let mut target = String::new();
        for segment in Q::PATH.split('/').skip(1) {
            let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let value = name.and_then(|name| fields.shift_remove(name));
            let text = value.as_ref().map_or_else(|| Cow::Borrowed(segment), plain_text);
            target.push('/');
            target.extend(utf8_percent_encode(&text, SEGMENT));
        }
        let body = match Q::METHOD {
            Method::GET | Method::DELETE => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                let named = fields.iter().filter(|(_, value)| !value.is_null());
                query.extend_pairs(named.map(|(name, value)| (name, plain_text(value))));
                let query = query.finish();
                if !query.is_empty() {
                    target.push('?');
                    target.push_str(&query);
                }
                String::new()
            }
            _ if fields.is_empty() => String::new(),
            _ => Value::Object(fields).to_string(),
        };
        Ok(Self { target, body })
    }
}

/// Formats a JSON value for a path or a query.
fn plain_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Deserializes a request type from the decoded segments of a path, a query, and the fields of a body.
///
/// # Errors
/// A field is invalid. The error contains the field's name and a description of the fault.
pub(crate) fn read<T: DeserializeOwned>(
    segments: Vec<(String, String)>,
    query: &str,
    body: Map<String, Value>,
) -> Result<T, AdminError> {
    let segments = segments.into_iter().map(|(name, value)| (name, Text(value.into())));
    let pairs = form_urlencoded::parse(query.as_bytes());
    let pairs = pairs.map(|(name, value)| (name.into_owned(), Text(value)));
    let fields = body.into_iter().map(|(name, value)| (name, Json(value)));
    let parts = QuestionParts {
        left: segments.chain(pairs).chain(fields),
        next: None,
    };
    T::deserialize(parts).map_err(|FieldFault(error)| error)
}

/// The deserialization error of one field.
#[derive(Debug)]
struct FieldFault(AdminError);

impl fmt::Display for FieldFault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl std::error::Error for FieldFault {}

impl de::Error for FieldFault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(AdminError::invalid(message.to_string()))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = match nearest(field, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "no fields are expected".to_owned(),
            None => format!("the fields are {}", known.join(", ")),
        };
        Self(AdminError::invalid(format!("field `{field}` is unknown: {hint}")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(AdminError::of_field(field, "the field is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(AdminError::of_field(field, "the field is given twice"))
    }
}

/// The fields of a request, as serde's map access. Adds the name of the field to an error in the field's value.
struct QuestionParts<'a, I> {
    left: I,
    /// The field whose value is read next, because its name was read most recently.
    next: Option<(String, QuestionValue<'a>)>,
}

impl<'de, I: Iterator<Item = (String, QuestionValue<'de>)>> MapAccess<'de> for QuestionParts<'de, I> {
    type Error = FieldFault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, FieldFault> {
        self.next = self.left.next();
        let name = self.next.as_ref().map(|(name, _)| name.clone());
        name.map(|name| seed.deserialize(name.into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, FieldFault> {
        let missing = || FieldFault(AdminError::failed("a value was read before its name"));
        let (name, part) = self.next.take().ok_or_else(missing)?;
        seed.deserialize(part)
            .map_err(|FieldFault(error)| FieldFault(AdminError::of_field(name, error.message)))
    }
}

impl<'de, I: Iterator<Item = (String, QuestionValue<'de>)>> Deserializer<'de> for QuestionParts<'de, I> {
    type Error = FieldFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The value of a request's field.
enum QuestionValue<'a> {
    /// A value from the path or the query.
    Text(Cow<'a, str>),
    /// A value from the JSON body.
    Json(Value),
}

use QuestionValue::{Json, Text};

/// Creates the error for a value that cannot be deserialized.
fn fault(why: impl fmt::Display) -> FieldFault {
    FieldFault(AdminError::invalid(why.to_string()))
}

fn number(text: &str) -> Result<u64, FieldFault> {
    text.parse()
        .map_err(|_| fault(format!("`{text}` is not a whole number")))
}

/// Deserializes a JSON value as serde_json does. Deserializes a text from the path or the query by parsing it as the requested
/// type.
impl<'de> Deserializer<'de> for QuestionValue<'de> {
    type Error = FieldFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        match self {
            Json(value) => value.deserialize_any(visitor).map_err(fault),
            Text(text) => CowStrDeserializer::new(text).deserialize_any(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        match self {
            Json(value) => value.deserialize_bool(visitor).map_err(fault),
            Text(text) => match &*text {
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                other => Err(fault(format!("`{other}` is neither true nor false"))),
            },
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        match self {
            Json(value) => value.deserialize_u32(visitor).map_err(fault),
            Text(text) => {
                let small = u32::try_from(number(&text)?);
                visitor.visit_u32(small.map_err(|_| fault(format!("`{text}` is too large")))?)
            }
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        match self {
            Json(value) => value.deserialize_u64(visitor).map_err(fault),
            Text(text) => visitor.visit_u64(number(&text)?),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, FieldFault> {
        match self {
            Json(Value::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, FieldFault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, FieldFault> {
        match self {
            Json(value) => value.deserialize_enum(name, variants, visitor).map_err(fault),
            Text(text) => CowStrDeserializer::new(text).deserialize_enum(name, variants, visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{
        accounts::{ListAccounts, UpdateAccount},
        keys::{DeleteKey, ListKeys, UpdateKey},
    };

    fn asked<Q: AdminQuestion>(target: &str, body: &Value) -> Result<Q, AdminError> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let names = Q::PATH.split('/');
        let segments = names.zip(path.split('/')).filter_map(|(name, text)| {
            let name = name.strip_prefix('{')?.strip_suffix('}')?;
            Some((name.to_owned(), text.to_owned()))
        });
        let body = body.as_object().cloned().unwrap_or_default();
        read(segments.collect(), query, body)
    }

    #[test]
    fn a_question_is_read_as_it_was_asked() {
        let update: UpdateAccount = asked(
            "/v1/accounts/a.b",
            &json!({ "rpm": 5, "tpm": null, "low_balance_usd": "1.50" }),
        )
        .unwrap();
        let call = AdminCall::from_question(&update).unwrap();
        assert_eq!(call.target, "/v1/accounts/a.b");
        let body: Value = serde_json::from_str(&call.body).unwrap();
        assert_eq!(
            body,
            json!({ "rpm": 5, "tpm": null, "low_balance_usd": "1.50" }),
            "concurrency is not named"
        );
        let list: ListKeys = asked(
            "/v1/keys?search=%C3%A9+x%26y&limit=5&used_since=2026-01-31",
            &Value::Null,
        )
        .unwrap();
        let call = AdminCall::from_question(&list).unwrap();
        assert_eq!(
            call.target,
            "/v1/keys?limit=5&search=%C3%A9+x%26y&used_since=2026-01-31T00%3A00%3A00Z"
        );
        assert_eq!(call.body, "");
        let delete: DeleteKey = asked("/v1/keys/key_0000000000000001", &Value::Null).unwrap();
        let call = AdminCall::from_question(&delete).unwrap();
        assert_eq!((&*call.target, &*call.body), ("/v1/keys/key_0000000000000001", ""));
    }

    #[test]
    fn a_fault_names_its_field() {
        let fault = |error: AdminError| (error.field.clone().unwrap_or_default(), error.message);
        let id = "/v1/keys/key_0000000000000001";
        for (target, body, field, message) in [
            (id, json!({ "rpm": 0 }), "rpm", "with 0 no request would be admitted"),
            (
                id,
                json!({ "rpm": "5" }),
                "rpm",
                "give a whole number from 1 to 1000000000, or null for no limit",
            ),
            (id, json!({ "name": 5 }), "name", "give 1 to 128 characters"),
            (id, json!({ "reset": "yearly" }), "reset", "unknown variant `yearly`"),
            (
                id,
                json!({ "quota_usd": 5 }),
                "quota_usd",
                "give an amount in USD as a string",
            ),
            (
                id,
                json!({ "id": "key_0000000000000002" }),
                "id",
                "the field is given twice",
            ),
            (
                id,
                json!({ "rpn": 5 }),
                "",
                "field `rpn` is unknown: did you mean `rpm`?",
            ),
            ("/v1/keys/other", json!({}), "id", "not a key id"),
        ] {
            let (told, said) = fault(asked::<UpdateKey>(target, &body).unwrap_err());
            assert_eq!(told, field, "{said}");
            assert!(said.starts_with(message), "{said}");
        }
        for (target, field, message) in [
            ("/v1/accounts?limit=x", "limit", "`x` is not a whole number"),
            ("/v1/accounts?limit=1&limit=2", "limit", "the field is given twice"),
            (
                "/v1/accounts?x=1",
                "",
                "field `x` is unknown: the fields are after, limit",
            ),
        ] {
            let (told, said) = fault(asked::<ListAccounts>(target, &Value::Null).unwrap_err());
            assert_eq!((&*told, &*said), (field, message));
        }
    }
}
