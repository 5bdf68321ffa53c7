//! Objects in Google's JSON, whose members have two spellings.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    losses::{TranslationLosses, Untranslatable},
    members::{MemberReader, elements},
};

/// An object whose members are being read. Callers name a member in camel case. The member is also found if it is written in
/// snake case, because Google accepts both spellings and its own SDKs mix them.
pub(super) struct GeminiObject<'a>(MemberReader<'a>);

impl<'a> GeminiObject<'a> {
    /// Creates a reader for the object with this JSON text. `path` is the object's path in the body.
    ///
    /// # Errors
    /// The text is not an object.
    pub(super) fn new(text: &'a str, path: impl Into<String>) -> Result<Self, Untranslatable> {
        MemberReader::new(text, path).map(Self)
    }

    /// Returns the name of a member in the client's spelling.
    fn spelling(&self, name: &'static str) -> Cow<'static, str> {
        let has_one_spelling = !name.bytes().any(|byte| byte.is_ascii_uppercase());
        if has_one_spelling || self.0.contains(name) {
            return Cow::Borrowed(name);
        }
        let snake = snake_case(name);
        match self.0.contains(&snake) {
            true => Cow::Owned(snake),
            false => Cow::Borrowed(name),
        }
    }

    /// Returns the path of the object.
    pub(super) fn path(&self) -> &str {
        self.0.path()
    }

    /// Returns the path of a member, in the client's spelling if the member has not been taken.
    pub(super) fn path_of(&self, name: &'static str) -> String {
        self.0.path_of(&self.spelling(name))
    }

    /// Whether the object has a member of this name that is not null and has not been taken.
    pub(super) fn contains(&self, name: &'static str) -> bool {
        self.0.contains(&self.spelling(name))
    }

    /// Takes a member; `None` if it is missing or null.
    pub(super) fn take(&mut self, name: &'static str) -> Option<&'a RawValue> {
        let name = self.spelling(name);
        self.0.take(&name)
    }

    /// Takes a string.
    ///
    /// # Errors
    /// The member is not a string.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<Cow<'a, str>>, Untranslatable> {
        let name = self.spelling(name);
        self.0.text(&name)
    }

    /// Takes a required string.
    ///
    /// # Errors
    /// The member is missing or not a string.
    pub(super) fn required_text(&mut self, name: &'static str) -> Result<Cow<'a, str>, Untranslatable> {
        let name = self.spelling(name);
        self.0.required_text(&name)
    }

    /// Takes a boolean.
    ///
    /// # Errors
    /// The member is not a boolean.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<Option<bool>, Untranslatable> {
        let name = self.spelling(name);
        self.0.flag(&name)
    }

    /// Takes a non-negative integer.
    ///
    /// # Errors
    /// The member is not an integer of at least 0.
    pub(super) fn count(&mut self, name: &'static str) -> Result<Option<u64>, Untranslatable> {
        let name = self.spelling(name);
        self.0.count(&name)
    }

    /// Takes a number in its original spelling.
    ///
    /// # Errors
    /// The member is not a number.
    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<&'a str>, Untranslatable> {
        let name = self.spelling(name);
        self.0.number(&name)
    }

    /// Takes an object.
    ///
    /// # Errors
    /// The member is not an object.
    pub(super) fn object(&mut self, name: &'static str) -> Result<Option<GeminiObject<'a>>, Untranslatable> {
        let name = self.spelling(name);
        Ok(self.0.object(&name)?.map(GeminiObject))
    }

    /// Takes an object as JSON text, without parsing its members.
    ///
    /// # Errors
    /// The member is not an object.
    pub(super) fn object_text(&mut self, name: &'static str) -> Result<Option<&'a str>, Untranslatable> {
        let name = self.spelling(name);
        self.0.object_text(&name)
    }

    /// Takes an array of strings.
    ///
    /// # Errors
    /// The member is not an array of strings.
    pub(super) fn texts(&mut self, name: &'static str) -> Result<Option<Vec<Cow<'a, str>>>, Untranslatable> {
        let name = self.spelling(name);
        self.0.texts(&name)
    }

    /// Takes an array, and returns each element with its path. Google accepts an object as an array with one element, and many
    /// examples use this form.
    ///
    /// # Errors
    /// The member is neither an array nor an object.
    pub(super) fn list(&mut self, name: &'static str) -> Result<Vec<(String, &'a RawValue)>, Untranslatable> {
        let name = self.spelling(name);
        let path = self.0.path_of(&name);
        match self.0.take(&name) {
            None => Ok(Vec::new()),
            Some(value) if value.get().starts_with('{') => Ok(vec![(path, value)]),
            Some(value) => elements(value, &path),
        }
    }

    /// Takes members that need no translation, without reporting them.
    pub(super) fn ignore(&mut self, names: &[&'static str]) {
        for name in names.iter().copied() {
            self.take(name);
        }
    }

    /// Takes members that are dropped, and reports those that are present.
    pub(super) fn drop_members(&mut self, names: &[&'static str], losses: &mut TranslationLosses) {
        for name in names.iter().copied() {
            let name = self.spelling(name);
            if self.0.take(&name).is_some() {
                losses.dropped(self.0.path_of(&name));
            }
        }
    }

    /// Takes a member that cannot be carried over: refuses it in strict mode, and reports it as dropped in lossy mode.
    ///
    /// # Errors
    /// The member is present, and the mode is strict.
    pub(super) fn refuse_in_strict(
        &mut self,
        name: &'static str,
        reason: &'static str,
        losses: &mut TranslationLosses,
    ) -> Result<(), Untranslatable> {
        let name = self.spelling(name);
        self.0.refuse_in_strict(&name, reason, losses)
    }

    /// Refuses a member in both modes.
    ///
    /// # Errors
    /// The member is present.
    pub(super) fn refuse(&mut self, name: &'static str, reason: &'static str) -> Result<(), Untranslatable> {
        let name = self.spelling(name);
        self.0.refuse(&name, reason)
    }

    /// Reports the remaining members of an object that contains options.
    pub(super) fn finish_options(self, losses: &mut TranslationLosses) {
        self.0.finish_options(losses);
    }

    /// Refuses the remaining members of an object that contains content.
    ///
    /// # Errors
    /// The object has a member that weir does not know.
    pub(super) fn finish_content(self) -> Result<(), Untranslatable> {
        self.0.finish_content()
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for character in name.chars() {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_in_both_spellings_and_named_as_it_is_spelled() {
        let mut object = GeminiObject::new(r#"{"toolConfig": {}, "inline_data": {"mime_type": 1}}"#, "p").unwrap();
        assert_eq!(object.path_of("toolConfig"), "p.toolConfig");
        assert!(object.contains("toolConfig") && !object.contains("fileData"));
        let mut data = object.object("inlineData").unwrap().unwrap();
        assert_eq!(data.path(), "p.inline_data");
        assert_eq!(data.text("mimeType").unwrap_err().path, "p.inline_data.mime_type");
        assert_eq!(
            data.required_text("displayName").unwrap_err().path,
            "p.inline_data.displayName"
        );
    }

    #[test]
    fn an_object_is_a_list_of_one() {
        let mut object =
            GeminiObject::new(r#"{"parts": {"text": "x"}, "tools": [1, 2], "contents": "x"}"#, "").unwrap();
        let paths = |list: Vec<(String, &RawValue)>| list.into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(paths(object.list("parts").unwrap()), ["parts"]);
        assert_eq!(paths(object.list("tools").unwrap()), ["tools[0]", "tools[1]"]);
        assert!(object.list("labels").unwrap().is_empty());
        assert_eq!(object.list("contents").unwrap_err().path, "contents");
    }
}
