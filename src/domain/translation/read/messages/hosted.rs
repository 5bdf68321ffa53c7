//! Blocks about tools that another provider has run: its calls, and what came of them.
//!
//! No other provider can continue them. In lossy mode, a text keeps what they say.

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{BlockContent, TurnRole},
    losses::Untranslatable,
    members::{MemberReader, as_text, elements},
    read::messages::MessagesRequestReader,
};

/// The end of the types of results; `tool_result` itself is the result of a client's tool.
const RESULT: &str = "_tool_result";
/// The members of a result that have text, or lists and objects with text.
const TEXTS: [&str; 12] = [
    "title",
    "url",
    "text",
    "stdout",
    "stderr",
    "error_code",
    "tool_name",
    "lines",
    "data",
    "content",
    "source",
    "tool_references",
];
/// How deep the text of a result may be: that of a fetched document is the deepest.
const DEPTH_MAX: usize = 6;

impl<'a> MessagesRequestReader<'a, '_> {
    /// Whether blocks of this type are about tools that a provider runs.
    pub(super) fn is_hosted_block(kind: &str) -> bool {
        matches!(kind, "server_tool_use" | "mcp_tool_use") || kind.ends_with(RESULT)
    }

    /// Refuses such a block in strict mode; in lossy mode a text takes its place.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn read_hosted_block(
        &mut self,
        role: TurnRole,
        kind: &str,
        object: &mut MemberReader<'a>,
    ) -> Result<(), Untranslatable> {
        let reason = "this model's provider cannot continue what another provider's tools did; leave the block out";
        let path = object.path().to_owned();
        self.losses.refused_in_strict(path.as_str(), reason)?;
        let mut text = format!("[{kind}]");
        for name in ["server_name", "name"] {
            if let Some(word) = object.text(name)? {
                text.push(' ');
                text.push_str(&word);
            }
        }
        if let Some(input) = object.take("input") {
            text.push(' ');
            text.push_str(input.get());
        }
        if let Some(content) = object.take("content") {
            push_texts(content, DEPTH_MAX, &mut text);
        }
        self.push(role, path, BlockContent::Text(text.into()));
        Ok(())
    }
}

/// Appends the texts in a value, a line each. Files in base64 are left out.
fn push_texts(value: &RawValue, depth: usize, out: &mut String) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    if let Some(text) = as_text(value) {
        out.push('\n');
        out.push_str(&text);
    } else if let Ok(list) = elements(value, "") {
        for (_, element) in list {
            push_texts(element, depth, out);
        }
    } else if let Ok(mut object) = MemberReader::new(value.get(), "") {
        if matches!(object.text("type"), Ok(Some(kind)) if kind == "base64") {
            return;
        }
        for name in TEXTS {
            if let Some(member) = object.take(name) {
                push_texts(member, depth, out);
            }
        }
    }
}
