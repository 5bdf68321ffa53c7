//! A question as an HTTP request, and back.

use std::{borrow::Cow, fmt};

use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{
    de::{
        self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor,
        value::{CowStrDeserializer, MapDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

use super::{Question, error::AdminError};
use crate::domain::strict_toml::nearest;

/// The characters that need no encoding in a path: the unreserved ones of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A question as an HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The path and the query.
    pub(crate) target: String,
    /// The JSON body; empty where there is none.
    pub(crate) body: String,
}

impl Call {
    /// The request that asks this.
    ///
    /// # Errors
    /// The question is no JSON object, which no [`Question`] is.
    pub(crate) fn of<Q: Question>(question: &Q) -> Result<Self, AdminError> {
        let fields = serde_json::to_value(question).map_err(|error| AdminError::failed(error.to_string()))?;
        let Value::Object(mut fields) = fields else {
            return Err(AdminError::failed("a question is a JSON object"));
        };
        let mut target = String::new();
        for segment in Q::PATH.split('/').skip(1) {
            let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let value = name.and_then(|name| fields.shift_remove(name));
            let text = value.as_ref().map_or_else(|| Cow::Borrowed(segment), plain);
            target.push('/');
            target.extend(utf8_percent_encode(&text, SEGMENT));
        }
        let body = match Q::METHOD {
            Method::GET | Method::DELETE => {
                let mut query = form_urlencoded::Serializer::new(String::new());
                query.extend_pairs(fields.iter().map(|(name, value)| (name, plain(value))));
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

/// A value as it stands in a path or a query.
fn plain(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

/// Reads a question, or another type like it, from the decoded segments of a path, a query and the fields of a body.
///
/// # Errors
/// The field that is at fault, and why.
pub(crate) fn read<T: DeserializeOwned>(
    segments: Vec<(String, String)>,
    query: &str,
    body: Map<String, Value>,
) -> Result<T, AdminError> {
    let segments = segments.into_iter().map(|(name, value)| (name, Text(value.into())));
    let pairs = form_urlencoded::parse(query.as_bytes());
    let pairs = pairs.map(|(name, value)| (name.into_owned(), Text(value)));
    let fields = body.into_iter().map(|(name, value)| (name, Json(value)));
    let parts = segments.chain(pairs).chain(fields);
    let parts = parts.map(|(name, value)| (name.clone(), Part { name, value }));
    T::deserialize(MapDeserializer::new(parts)).map_err(|Fault(error)| error)
}

/// A fault of one field.
#[derive(Debug)]
struct Fault(AdminError);

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(AdminError::invalid(message.to_string()))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = match nearest(field, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "there is none".to_owned(),
            None => format!("there are {}", known.join(", ")),
        };
        Self(AdminError::invalid(format!("field `{field}` is unknown here: {hint}")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(AdminError::of_field(field, "it is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(AdminError::of_field(field, "it is there twice"))
    }
}

/// A field and its value.
struct Part<'a> {
    name: String,
    value: PartValue<'a>,
}

enum PartValue<'a> {
    /// Of a path or a query.
    Text(Cow<'a, str>),
    /// Of a body.
    Json(Value),
}

use PartValue::{Json, Text};

impl Part<'_> {
    fn fault(name: &str, why: impl fmt::Display) -> Fault {
        Fault(AdminError::of_field(name, why.to_string()))
    }
}

impl<'de> IntoDeserializer<'de, Fault> for Part<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads a value as `$as` of a JSON value, or of a text by `$of_text`.
macro_rules! read_part {
    ($($method:ident: $of_text:expr;)*) => { $(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let Self { name, value } = self;
            match value {
                Json(value) => value.$method(visitor).map_err(|error| Self::fault(&name, error)),
                Text(text) => {
                    let of_text: fn(Cow<'de, str>, V) -> Result<V::Value, Fault> = $of_text;
                    of_text(text, visitor).map_err(|Fault(error)| Self::fault(&name, error.message))
                }
            }
        }
    )* };
}

/// A text that does not read as a number or a truth value.
fn is_no(text: &str, wanted: &str) -> Fault {
    Fault(AdminError::invalid(format!("`{text}` is {wanted}")))
}

fn number(text: &str) -> Result<u64, Fault> {
    text.parse().map_err(|_| is_no(text, "no whole number"))
}

impl<'de> Deserializer<'de> for Part<'de> {
    type Error = Fault;

    read_part! {
        deserialize_any: |text, visitor| CowStrDeserializer::new(text).deserialize_any(visitor);
        deserialize_bool: |text, visitor| match &*text {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(is_no(&text, "neither true nor false")),
        };
        deserialize_u32: |text, visitor| match u32::try_from(number(&text)?) {
            Ok(number) => visitor.visit_u32(number),
            Err(_) => Err(is_no(&text, "no whole number that is small enough")),
        };
        deserialize_u64: |text, visitor| visitor.visit_u64(number(&text)?);
        deserialize_unit: |text, visitor| CowStrDeserializer::new(text).deserialize_any(visitor);
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.value {
            Json(Value::Null) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Self { name: field, value } = self;
        match value {
            Json(value) => {
                let read = value.deserialize_enum(name, variants, visitor);
                read.map_err(|error| Self::fault(&field, error))
            }
            Text(text) => {
                let text = CowStrDeserializer::<serde_json::Error>::new(text);
                let read = text.deserialize_enum(name, variants, visitor);
                read.map_err(|error| Self::fault(&field, error))
            }
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}
