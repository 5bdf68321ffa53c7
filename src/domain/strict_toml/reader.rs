//! Deserialization of a parsed TOML document into a type. Values are read in the same way as by the `toml` crate: number types
//! are tried one after the other, spans are supported, and enums are read from strings or tables. In contrast to that crate,
//! errors are structured values and not only messages.

use std::ops::Range;
use std::vec::IntoIter;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use toml_datetime::de::DatetimeDeserializer;

type KeyNames = &'static [&'static str];

/// The reason why a valid TOML document cannot be deserialized into the requested type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadFault {
    UnknownKey {
        name: String,
        valid: KeyNames,
    },
    UnknownValue {
        name: String,
        valid: KeyNames,
    },
    MissingKey(&'static str),
    RepeatedKey(&'static str),
    /// The value has a type other than the expected one. The value itself is not included, because it could be a misplaced
    /// secret.
    WrongType {
        expected: String,
        found: String,
    },
    /// The type's own deserializer rejected the value with this message.
    Refused(String),
}

/// An error of a document, with the range of bytes that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason:?}")]
pub(super) struct ReadError {
    pub(super) reason: ReadFault,
    pub(super) span: Option<Range<usize>>,
}

impl ReadError {
    /// Sets the span, unless the error already has a more precise one.
    fn with_span(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

impl From<ReadFault> for ReadError {
    fn from(reason: ReadFault) -> Self {
        Self { reason, span: None }
    }
}

impl Error for ReadError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        ReadFault::Refused(message.to_string()).into()
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let text = found.to_string();
        // The string contains the type and then the value. Only the type is used.
        let kind = text.split(|c: char| !c.is_ascii_alphabetic() && c != ' ').next();
        ReadFault::WrongType {
            expected: expected.to_string(),
            found: kind.unwrap_or_default().trim().to_owned(),
        }
        .into()
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(name: &str, valid: KeyNames) -> Self {
        let name = name.to_owned();
        ReadFault::UnknownValue { name, valid }.into()
    }

    fn unknown_field(name: &str, valid: KeyNames) -> Self {
        let name = name.to_owned();
        ReadFault::UnknownKey { name, valid }.into()
    }

    fn missing_field(name: &'static str) -> Self {
        ReadFault::MissingKey(name).into()
    }

    fn duplicate_field(name: &'static str) -> Self {
        ReadFault::RepeatedKey(name).into()
    }
}

/// A deserializer for one value of a document. It adds the value's span to errors.
pub(super) struct TomlValueReader<'i> {
    value: DeValue<'i>,
    span: Range<usize>,
}

impl<'i> TomlValueReader<'i> {
    pub(super) fn from_document(document: Spanned<DeTable<'i>>) -> Self {
        Self {
            span: document.span(),
            value: DeValue::Table(document.into_inner()),
        }
    }

    fn from_value(value: Spanned<DeValue<'i>>) -> Self {
        Self {
            span: value.span(),
            value: value.into_inner(),
        }
    }
}

impl<'de> Deserializer<'de> for TomlValueReader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.value {
            DeValue::String(DeString::Owned(text)) => visitor.visit_string(text),
            DeValue::String(DeString::Borrowed(text)) => visitor.visit_borrowed_str(text),
            DeValue::Integer(integer) => {
                let (digits, radix) = (integer.as_str(), integer.radix());
                if let Ok(number) = i64::from_str_radix(digits, radix) {
                    visitor.visit_i64(number)
                } else if let Ok(number) = u64::from_str_radix(digits, radix) {
                    visitor.visit_u64(number)
                } else if let Ok(number) = i128::from_str_radix(digits, radix) {
                    visitor.visit_i128(number)
                } else if let Ok(number) = u128::from_str_radix(digits, radix) {
                    visitor.visit_u128(number)
                } else {
                    Err(ReadError::custom("the integer is too large"))
                }
            }
            DeValue::Float(float) => match float.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(ReadError::custom("the floating-point number is too large")),
            },
            DeValue::Boolean(truth) => visitor.visit_bool(truth),
            DeValue::Datetime(time) => visitor.visit_map(DatetimeDeserializer::new(time)),
            DeValue::Array(elements) => visitor.visit_seq(Elements(elements.into_iter())),
            DeValue::Table(table) => visitor.visit_map(Entries::from_table(table)),
        }
        .map_err(|error| error.with_span(self.span))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let span = self.span.clone();
        visitor.visit_some(self).map_err(|error| error.with_span(span))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ReadError> {
        let span = self.span.clone();
        visitor
            .visit_newtype_struct(self)
            .map_err(|error| error.with_span(span))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: KeyNames,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        if is_spanned(name) {
            let span = self.span.clone();
            return visitor.visit_map(SpannedDeserializer::new(self, span));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: KeyNames,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.value {
            DeValue::String(text) => visitor.visit_enum(text.into_deserializer()),
            DeValue::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::from_table(table)))
            }
            DeValue::Table(_) => Err(ReadError::custom("expected a table with exactly one key")),
            _ => Err(ReadError::custom("expected a string or a table")),
        }
        .map_err(|error| error.with_span(self.span))
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit ignored_any
        unit_struct tuple_struct tuple identifier
    }
}

impl<'de> IntoDeserializer<'de, ReadError> for TomlValueReader<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Elements<'i>(IntoIter<Spanned<DeValue<'i>>>);

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, ReadError> {
        let element = self.0.next();
        element
            .map(|element| seed.deserialize(TomlValueReader::from_value(element)))
            .transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'i> {
    entries: <DeTable<'i> as IntoIterator>::IntoIter,
    value: Option<Spanned<DeValue<'i>>>,
}

impl<'i> Entries<'i> {
    fn from_table(table: DeTable<'i>) -> Self {
        Self {
            entries: table.into_iter(),
            value: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ReadError> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let span = key.span();
        let read = seed.deserialize(key.into_inner().into_deserializer());
        read.map(Some).map_err(|error: ReadError| error.with_span(span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        let value = self
            .value
            .take()
            .ok_or_else(|| ReadError::custom("the TOML value has no key"))?;
        let span = value.span();
        seed.deserialize(TomlValueReader::from_value(value))
            .map_err(|error| error.with_span(span))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.entries.len())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn values_are_read_as_the_toml_crate_reads_them() {
        let text = "text = \"a\\nb\"\nint = -7\nhex = 0xFF\nfloat = 1.5\nnone = nan\nyes = true\n\
                    day = 1979-05-27T07:32:00Z\nlist = [1, \"two\", [3.0]]\n[table.below]\n\"a key\" = {}\n[[many]]\n[[many]]\nx = 1\n";
        let read = toml::Value::deserialize(TomlValueReader::from_document(DeTable::parse(text).unwrap())).unwrap();
        let expected: toml::Value = toml::from_str(text).unwrap();
        // Text, because no NaN is equal to another.
        assert_eq!(format!("{read:?}"), format!("{expected:?}"));
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only the errors matter")]
    struct Sizes {
        small: u8,
        choice: Option<Choice>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Choice {
        One,
    }

    #[test]
    fn a_fault_says_as_data_what_is_wrong_and_where() {
        let wrong = |expected: &str, found: &str| ReadFault::WrongType {
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        let refused = |message: &str| ReadFault::Refused(message.to_owned());
        for (text, reason, at) in [
            ("", ReadFault::MissingKey("small"), ""),
            ("small = 256", wrong("u8", "integer"), "256"),
            (
                "small = 99999999999999999999",
                wrong("u8", "integer"),
                "99999999999999999999",
            ),
            ("small = \"secret\"", wrong("u8", "string"), "\"secret\""),
            ("small = 2020-01-01", wrong("u8", "map"), "2020-01-01"),
            (
                "small = 1\nchoice = \"two\"",
                ReadFault::UnknownValue {
                    name: "two".to_owned(),
                    valid: &["one"],
                },
                "\"two\"",
            ),
            ("small = 1\nchoice = 1", refused("expected a string or a table"), "1"),
            (
                "small = 1\nsmal = 2",
                ReadFault::UnknownKey {
                    name: "smal".to_owned(),
                    valid: &["small", "choice"],
                },
                "smal",
            ),
        ] {
            let error = Sizes::deserialize(TomlValueReader::from_document(DeTable::parse(text).unwrap())).unwrap_err();
            assert_eq!(error.reason, reason, "{text}");
            assert_eq!(error.span.and_then(|span| text.get(span)), Some(at), "{text}");
        }
    }
}
