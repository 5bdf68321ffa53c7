//! The query of a request, read into what is asked for. What is wrong with it is said in words that people can use: the console
//! shows them.

use std::{borrow::Cow, fmt};

use axum::extract::FromRequestParts;
use http::{Uri, request::Parts};
use serde::{
    de::{
        self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor,
        value::{CowStrDeserializer, MapDeserializer},
    },
    forward_to_deserialize_any,
};

use super::reply::AdminError;
use crate::domain::strict_toml::nearest;

/// What is asked for.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> Query<T> {
    /// Reads it from a target.
    ///
    /// # Errors
    /// Which part of it is wrong, and what it should be.
    pub(super) fn of(uri: &Uri) -> Result<Self, AdminError> {
        let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        let pairs = pairs.map(|(name, value)| {
            let part = Part {
                name: name.clone(),
                value,
            };
            (name, part)
        });
        let read = T::deserialize(MapDeserializer::new(pairs));
        read.map(Self).map_err(|Fault(message)| AdminError::invalid(message))
    }
}

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = AdminError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, AdminError> {
        Self::of(&parts.uri)
    }
}

/// What is wrong with a query.
#[derive(Debug)]
struct Fault(String);

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let hint = nearest(field, known.iter().copied()).map_or_else(
            || format!("there are {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        Self(format!("`{field}` cannot be asked for here: {hint}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("{field} is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(format!("{field}: it is there twice"))
    }
}

/// One value, with its name.
struct Part<'a> {
    name: Cow<'a, str>,
    value: Cow<'a, str>,
}

impl Part<'_> {
    fn is_no(&self, what: &str) -> Fault {
        Fault(format!("{}: `{}` is {what}", self.name, self.value))
    }

    fn number(&self) -> Result<u64, Fault> {
        self.value.parse().map_err(|_| self.is_no("no whole number"))
    }
}

impl<'de> IntoDeserializer<'de, Fault> for Part<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Part<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        CowStrDeserializer::new(self.value).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &*self.value {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.is_no("neither true nor false")),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let number = u32::try_from(self.number()?).map_err(|_| self.is_no("no whole number that is small enough"))?;
        visitor.visit_u32(number)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_u64(self.number()?)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}
