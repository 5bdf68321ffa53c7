//! Items about tools that another provider has run, or wants to run: its calls, and what came of them.
//!
//! No other provider can continue them. In lossy mode, a line of text keeps what they say.

use crate::domain::translation::{
    conversation::{BlockContent, TurnRole},
    losses::Untranslatable,
    members::{MemberReader, as_text, elements},
    read::responses::ResponsesRequestReader,
};

/// The types of the items.
const HOSTED_ITEMS: [&str; 12] = [
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "program",
    "program_output",
];
/// The members of them that are texts. The result of `image_generation_call` is an image.
const TEXTS: [&str; 8] = [
    "server_label",
    "name",
    "arguments",
    "code",
    "output",
    "result",
    "reason",
    "error",
];
/// The members that are lists of objects with a text, and the names of that text.
const TEXT_LISTS: [(&str, &str); 2] = [("outputs", "logs"), ("results", "text")];

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Whether items of this type are about tools that another provider runs.
    pub(super) fn is_hosted_item(kind: &str) -> bool {
        HOSTED_ITEMS.contains(&kind)
    }

    /// Refuses such an item in strict mode; in lossy mode a text takes its place.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn read_hosted_item(&mut self, kind: &str, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let reason = "this model's provider cannot continue what another provider's tools did; leave the item out";
        let path = object.path().to_owned();
        self.losses.refused_in_strict(path.as_str(), reason)?;
        let is_image = kind == "image_generation_call";
        let mut line = format!("[{kind}]");
        for name in TEXTS.iter().filter(|name| !is_image || **name != "result") {
            if let Some(text) = object.take(name).and_then(as_text) {
                line.push(' ');
                line.push_str(&text);
            }
        }
        if let Some(mut action) = object.object("action").unwrap_or_default()
            && let Some(query) = action.text("query").unwrap_or_default()
        {
            line.push(' ');
            line.push_str(&query);
        }
        if let Some(approved) = object.flag("approve")? {
            line.push_str(if approved { " approved" } else { " declined" });
        }
        for (list, name) in TEXT_LISTS {
            let Some(list) = object.take(list) else { continue };
            for (path, element) in elements(list, &path).unwrap_or_default() {
                let text = MemberReader::new(element.get(), path).and_then(|mut element| element.text(name));
                if let Ok(Some(text)) = text {
                    line.push('\n');
                    line.push_str(&text);
                }
            }
        }
        let role = match kind {
            "computer_call_output" | "mcp_approval_response" => TurnRole::User,
            _ => TurnRole::Assistant,
        };
        self.push(role, path, BlockContent::Text(line.into()));
        Ok(())
    }
}
