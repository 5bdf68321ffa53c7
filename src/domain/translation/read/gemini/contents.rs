//! Reads the instructions and the contents: text, reasoning, and the calls and results of tools that a provider ran itself.

use std::borrow::Cow;

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{BlockContent, TurnRole},
    losses::Untranslatable,
    members::as_text,
    read::gemini::{GeminiRequestReader, PendingThought, media::take_media, object::GeminiObject},
    reasoning::CarriedReasoning,
};

/// The values that clients and weir send in place of a missing thought signature.
const PLACEHOLDERS: [&str; 2] = [
    "skip_thought_signature_validator",
    "context_engineering_is_the_way_to_go",
];
/// The members of a part that control how Google's models process it.
pub(super) const PART_OPTIONS: [&str; 8] = [
    "videoMetadata",
    "mediaResolution",
    "mediaProcessing",
    "audioMetadata",
    "documentMetadata",
    "spreadsheetMetadata",
    "speechMetadata",
    "partMetadata",
];
/// The kinds of parts about tools that another provider has run. For each kind, the list contains the members that weir keeps as
/// text.
const HOSTED_PARTS: [(&str, [&str; 2]); 4] = [
    ("executableCode", ["language", "code"]),
    ("codeExecutionResult", ["outcome", "output"]),
    ("toolCall", ["toolType", "args"]),
    ("toolResponse", ["toolType", "response"]),
];
/// The base64 encoding of bytes in JSON. Clients send it with or without padding.
const SIGNATURE_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

impl<'a> GeminiRequestReader<'a, '_> {
    /// Reads `systemInstruction`: a content with text, or a string.
    ///
    /// # Errors
    /// The instruction contains something other than text.
    pub(super) fn read_system(&mut self, object: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        let path = object.path_of("systemInstruction");
        let Some(value) = object.take("systemInstruction") else {
            return Ok(());
        };
        if let Some(text) = as_text(value) {
            self.push_system(text);
            return Ok(());
        }
        let mut content = GeminiObject::new(value.get(), path)?;
        content.ignore(&["role"]);
        for (path, part) in content.list("parts")? {
            let mut part = GeminiObject::new(part.get(), path)?;
            let Some(text) = part.text("text")? else {
                let reason = "instructions can contain only text; send other content with the role `user`";
                return Err(Untranslatable::new(part.path(), reason));
            };
            part.drop_members(&PART_OPTIONS, self.losses);
            part.finish_content()?;
            self.push_system(text);
        }
        content.finish_content()
    }

    fn push_system(&mut self, text: Cow<'a, str>) {
        if !text.is_empty() {
            self.conversation.system.push(text);
        }
    }

    /// Reads `contents`.
    ///
    /// # Errors
    /// A content cannot be translated.
    pub(super) fn read_contents(&mut self, object: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        if !object.contains("contents") {
            return Err(Untranslatable::new("contents", "is missing"));
        }
        for (path, content) in object.list("contents")? {
            self.read_content(path, content)?;
        }
        self.report_thought();
        Ok(())
    }

    fn read_content(&mut self, path: String, content: &'a RawValue) -> Result<(), Untranslatable> {
        let mut object = GeminiObject::new(content.get(), path)?;
        let role = match object.text("role")?.as_deref() {
            None | Some("" | "user" | "function") => TurnRole::User,
            Some("model") => TurnRole::Assistant,
            Some(_) => return Err(Untranslatable::new(object.path_of("role"), "must be `user` or `model`")),
        };
        if role == TurnRole::User {
            self.report_thought();
        }
        for (path, part) in object.list("parts")? {
            self.read_part(role, GeminiObject::new(part.get(), path)?)?;
        }
        object.finish_content()
    }

    fn read_part(&mut self, role: TurnRole, mut part: GeminiObject<'a>) -> Result<(), Untranslatable> {
        let is_model = role == TurnRole::Assistant;
        let text = part.text("text")?.unwrap_or_default();
        let is_thought = part.flag("thought")? == Some(true);
        if is_thought && is_model {
            self.add_thought(part.path(), &text);
        } else if is_thought {
            self.losses.dropped(part.path_of("thought"));
        }
        // The state belongs before the content of its part.
        self.read_signature(role, &mut part)?;
        if !(is_thought && is_model) {
            self.push(role, part.path().to_owned(), BlockContent::Text(text));
        }
        if let Some(call) = part.object("functionCall")? {
            check_role(
                is_model,
                &call,
                "only the model calls functions; send it with the role `model`",
            )?;
            self.read_call(part.path().to_owned(), call)?;
        }
        if let Some(result) = part.object("functionResponse")? {
            check_role(
                !is_model,
                &result,
                "only the user sends results of functions; send it with the role `user`",
            )?;
            self.read_result(part.path().to_owned(), result)?;
        }
        if let Some(media) = take_media(&mut part)? {
            let reason = "no provider accepts this content in a turn of the model; send it with the role `user`";
            check_role(!is_model, &part, reason)?;
            self.push(role, part.path().to_owned(), BlockContent::Media(media));
        }
        self.read_hosted_part(role, &mut part)?;
        part.drop_members(&PART_OPTIONS, self.losses);
        part.finish_content()
    }

    /// Retains visible reasoning until the part with its state is read.
    fn add_thought(&mut self, path: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        let thought = self.thought.get_or_insert_with(|| PendingThought {
            path: path.to_owned(),
            text: String::new(),
        });
        thought.text.push_str(text);
    }

    /// Reads the state of the model's reasoning. State of another maker (provider, model and credential) is dropped and reported.
    fn read_signature(&mut self, role: TurnRole, part: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        if !part.contains("thoughtSignature") {
            return Ok(());
        }
        let path = part.path_of("thoughtSignature");
        let field = part.text("thoughtSignature")?.unwrap_or_default();
        let field = decoded_signature(&field).map_or(field, Cow::Owned);
        if field.is_empty() || PLACEHOLDERS.contains(&&*field) {
            return Ok(());
        }
        let visible = self.thought.as_ref().map_or("", |thought| thought.text.as_str());
        match CarriedReasoning::returned(&field, visible, self.target.maker) {
            Some(state) if role == TurnRole::Assistant => {
                self.thought = None;
                self.push(role, path, BlockContent::Reasoning(state));
            }
            Some(_) | None => self.losses.dropped(path),
        }
        Ok(())
    }

    /// Reads a part about another provider's tool: refuses it in strict mode, and replaces it with a line of text in lossy mode.
    fn read_hosted_part(&mut self, role: TurnRole, part: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        for (name, members) in HOSTED_PARTS {
            let Some(mut hosted) = part.object(name)? else { continue };
            let reason = "this model's provider cannot continue what another provider's tools did; leave the part out";
            let path = hosted.path().to_owned();
            self.losses.refused_in_strict(path.as_str(), reason)?;
            // Adjacent texts of the model are joined without a separator.
            let mut line = format!("\n[{name}]");
            for member in members {
                if let Some(value) = hosted.take(member) {
                    line.push(' ');
                    line.push_str(&as_text(value).unwrap_or(Cow::Borrowed(value.get())));
                }
            }
            line.push('\n');
            self.push(role, path, BlockContent::Text(Cow::Owned(line)));
        }
        Ok(())
    }
}

/// Refuses content that is in a turn of the wrong role.
fn check_role(is_right: bool, object: &GeminiObject<'_>, reason: &'static str) -> Result<(), Untranslatable> {
    match is_right {
        true => Ok(()),
        false => Err(Untranslatable::new(object.path(), reason)),
    }
}

/// Returns the text that a signature encodes; `None` if the signature is not base64 of UTF-8 text.
fn decoded_signature(field: &str) -> Option<String> {
    String::from_utf8(SIGNATURE_BASE64.decode(field).ok()?).ok()
}
