//! Reads an object of a client's body member by member. Each member is either taken or reported, so no member is lost silently.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::domain::{
    QuickMap,
    translation::losses::{TranslationLosses, Untranslatable},
};

/// The members of an object in order, as JSON text. If a name occurs several times, the last member counts, as in most parsers.
struct RawMembers<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A member's name; serde copies it only if it has escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for RawMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = RawMembers<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some((MemberName(name), value)) = map.next_entry::<MemberName<'de>, &'de RawValue>()? {
                    members.push((name, value));
                }
                keep_last_of_each(&mut members);
                Ok(RawMembers(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Removes every member whose name occurs again later in the object.
fn keep_last_of_each(members: &mut Vec<(Cow<'_, str>, &RawValue)>) {
    let mut names: QuickMap<String, usize> = QuickMap::default();
    for (index, (name, _)) in members.iter().enumerate() {
        names.insert(name.to_string(), index);
    }
    if names.len() < members.len() {
        let mut index = 0;
        members.retain(|(name, _)| {
            let is_last = names.get(name.as_ref()) == Some(&index);
            index += 1;
            is_last
        });
    }
}

/// An object whose members are being read. The methods take the known members. At the end, [`MemberReader::finish_options`] or
/// [`MemberReader::finish_content`] must handle the members that remain.
pub(crate) struct MemberReader<'a> {
    path: String,
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> MemberReader<'a> {
    /// Creates a reader for the object with this JSON text. `path` is the object's path in the body, and empty for the body
    /// itself.
    ///
    /// # Errors
    /// The text is not an object.
    pub(crate) fn new(text: &'a str, path: impl Into<String>) -> Result<Self, Untranslatable> {
        let path = path.into();
        match serde_json::from_str::<RawMembers<'a>>(text) {
            Ok(RawMembers(members)) => Ok(Self { path, members }),
            Err(_) => Err(Untranslatable::new(path, "must be an object")),
        }
    }

    /// Returns the path of the object.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of a member.
    pub(crate) fn path_of(&self, name: &str) -> String {
        match self.path.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.path),
        }
    }

    /// Takes a member; `None` if it is missing or null.
    pub(crate) fn take(&mut self, name: &str) -> Option<&'a RawValue> {
        let index = self.members.iter().position(|(member, _)| member == name)?;
        let (_, value) = self.members.remove(index);
        (value.get() != "null").then_some(value)
    }

    /// Whether the object has a member of this name that is not null and has not been taken.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let mut members = self.members.iter();
        members.any(|(member, value)| member == name && value.get() != "null")
    }

    fn parse<T: Deserialize<'a>>(&mut self, name: &str, expected: &'static str) -> Result<Option<T>, Untranslatable> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match serde_json::from_str(value.get()) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(Untranslatable::new(self.path_of(name), expected)),
        }
    }

    /// Takes a string.
    ///
    /// # Errors
    /// The member is not a string.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<Cow<'a, str>>, Untranslatable> {
        let text: Option<MemberName<'a>> = self.parse(name, "must be a string")?;
        Ok(text.map(|MemberName(text)| text))
    }

    /// Takes a required string.
    ///
    /// # Errors
    /// The member is missing or not a string.
    pub(crate) fn required_text(&mut self, name: &str) -> Result<Cow<'a, str>, Untranslatable> {
        let text = self.text(name)?;
        text.ok_or_else(|| missing(self, name))
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// The member is not a boolean.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, Untranslatable> {
        self.parse(name, "must be true or false")
    }

    /// Takes a non-negative integer.
    ///
    /// # Errors
    /// The member is not an integer of at least 0.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u64>, Untranslatable> {
        self.parse(name, "must be a whole number of at least 0")
    }

    /// Takes a number in its original spelling.
    ///
    /// # Errors
    /// The member is not a number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<&'a str>, Untranslatable> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let text = value.get();
        match text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
            true => Ok(Some(text)),
            false => Err(Untranslatable::new(self.path_of(name), "must be a number")),
        }
    }

    /// Takes an object.
    ///
    /// # Errors
    /// The member is not an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<MemberReader<'a>>, Untranslatable> {
        let Some(value) = self.take(name) else { return Ok(None) };
        MemberReader::new(value.get(), self.path_of(name)).map(Some)
    }

    /// Takes an object as JSON text, without parsing its members.
    ///
    /// # Errors
    /// The member is not an object.
    pub(crate) fn object_text(&mut self, name: &str) -> Result<Option<&'a str>, Untranslatable> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match value.get().starts_with('{') {
            true => Ok(Some(value.get())),
            false => Err(Untranslatable::new(self.path_of(name), "must be an object")),
        }
    }

    /// Takes an array, and returns each element with its path.
    ///
    /// # Errors
    /// The member is not an array.
    pub(crate) fn array(&mut self, name: &str) -> Result<Option<Vec<(String, &'a RawValue)>>, Untranslatable> {
        let Some(value) = self.take(name) else { return Ok(None) };
        elements(value, &self.path_of(name)).map(Some)
    }

    /// Takes an array of strings.
    ///
    /// # Errors
    /// The member is not an array of strings.
    pub(crate) fn texts(&mut self, name: &str) -> Result<Option<Vec<Cow<'a, str>>>, Untranslatable> {
        let texts: Option<Vec<MemberName<'a>>> = self.parse(name, "must be an array of strings")?;
        Ok(texts.map(|texts| texts.into_iter().map(|MemberName(text)| text).collect()))
    }

    /// Takes members that need no translation, without reporting them.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.take(name);
        }
    }

    /// Takes members that are dropped, and reports those that are present.
    pub(crate) fn drop_members(&mut self, names: &[&str], losses: &mut TranslationLosses) {
        for name in names {
            if self.take(name).is_some() {
                losses.dropped(self.path_of(name));
            }
        }
    }

    /// Takes a member that cannot be carried over: refuses it in strict mode, and reports it as dropped in lossy mode.
    ///
    /// # Errors
    /// The member is present, and the mode is strict.
    pub(crate) fn refuse_in_strict(
        &mut self,
        name: &str,
        reason: impl Into<Cow<'static, str>>,
        losses: &mut TranslationLosses,
    ) -> Result<(), Untranslatable> {
        match self.take(name) {
            Some(_) => losses.refused_in_strict(self.path_of(name), reason),
            None => Ok(()),
        }
    }

    /// Refuses a member in both modes.
    ///
    /// # Errors
    /// The member is present.
    pub(crate) fn refuse(&mut self, name: &str, reason: impl Into<Cow<'static, str>>) -> Result<(), Untranslatable> {
        match self.take(name) {
            Some(_) => Err(Untranslatable::new(self.path_of(name), reason)),
            None => Ok(()),
        }
    }

    /// Reports the remaining members of an object that contains options, as members that weir does not know.
    pub(crate) fn finish_options(self, losses: &mut TranslationLosses) {
        let unknown = self.members.iter().filter(|(_, value)| value.get() != "null");
        for (name, _) in unknown {
            losses.unknown(self.path_of(name));
        }
    }

    /// Refuses the remaining members of an object that contains content, because no words of a user, a tool or a model may be
    /// lost.
    ///
    /// # Errors
    /// The object has a member that weir does not know.
    pub(crate) fn finish_content(self) -> Result<(), Untranslatable> {
        let mut unknown = self.members.iter().filter(|(_, value)| value.get() != "null");
        match unknown.next() {
            Some((name, _)) => Err(Untranslatable::new(
                self.path_of(name),
                "weir cannot translate this member to the protocol of this model's provider",
            )),
            None => Ok(()),
        }
    }
}

/// Returns the elements of an array, each with its path.
///
/// # Errors
/// The value is not an array.
pub(crate) fn elements<'a>(value: &'a RawValue, path: &str) -> Result<Vec<(String, &'a RawValue)>, Untranslatable> {
    let elements: Vec<&'a RawValue> =
        serde_json::from_str(value.get()).map_err(|_| Untranslatable::new(path, "must be an array"))?;
    let numbered = elements.into_iter().enumerate();
    Ok(numbered
        .map(|(index, element)| (format!("{path}[{index}]"), element))
        .collect())
}

/// Creates the refusal of an object that lacks a required member.
pub(crate) fn missing(object: &MemberReader<'_>, name: &str) -> Untranslatable {
    Untranslatable::new(object.path_of(name), "is missing")
}

/// Returns the members of the object with this JSON text, in order; `None` if the text is not an object.
pub(crate) fn raw_members(text: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    let RawMembers(members) = serde_json::from_str(text).ok()?;
    Some(members)
}

/// Returns the value of a JSON string; `None` if the value is not a string.
pub(crate) fn as_text(value: &RawValue) -> Option<Cow<'_, str>> {
    let MemberName(text) = serde_json::from_str(value.get()).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::translation::losses::TranslationMode;

    fn lossy() -> TranslationLosses {
        TranslationLosses::new(TranslationMode::Lossy)
    }

    #[test]
    fn members_that_nobody_takes_are_reported_or_refused() {
        let text = r#"{"a": 1, "n\u0061me": null, "new": {"x": 1}}"#;
        let mut object = MemberReader::new(text, "tools[1]").unwrap();
        assert_eq!(object.count("a"), Ok(Some(1)));
        let mut losses = lossy();
        object.finish_options(&mut losses);
        assert_eq!(
            losses.iter().map(|loss| loss.path.as_str()).collect::<Vec<_>>(),
            ["tools[1].new"]
        );
        let refusal = MemberReader::new(text, "").unwrap().finish_content().unwrap_err();
        assert_eq!(refusal.path, "a");
    }

    #[test]
    fn a_member_of_the_wrong_type_is_named() {
        let text = r#"{"text": 1, "flag": "x", "count": -1, "number": [], "list": {}, "texts": [1]}"#;
        let mut object = MemberReader::new(text, "input[2]").unwrap();
        let refusals = [
            object.text("text").unwrap_err(),
            object.flag("flag").unwrap_err(),
            object.count("count").unwrap_err(),
            object.number("number").unwrap_err(),
            object.array("list").unwrap_err(),
            object.texts("texts").unwrap_err(),
            object.required_text("none").unwrap_err(),
        ];
        assert_eq!(
            refusals.map(|refusal| refusal.to_string()),
            [
                "input[2].text: must be a string",
                "input[2].flag: must be true or false",
                "input[2].count: must be a whole number of at least 0",
                "input[2].number: must be a number",
                "input[2].list: must be an array",
                "input[2].texts: must be an array of strings",
                "input[2].none: is missing",
            ]
        );
    }

    #[test]
    fn numbers_and_objects_keep_their_spelling_and_the_last_of_one_name_counts() {
        let mut object = MemberReader::new(r#"{"t": 0.10, "o": {"b": 1, "a" : 2}, "t": 1.50}"#, "").unwrap();
        assert_eq!(object.number("t"), Ok(Some("1.50")));
        assert_eq!(object.object_text("o"), Ok(Some(r#"{"b": 1, "a" : 2}"#)));
        assert!(object.finish_content().is_ok());
    }
}
