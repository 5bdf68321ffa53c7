//! Reads a Responses request.
//!
//! The translation of an item depends only on the items and tools before it, so the first turns of a conversation always become
//! the same text.

mod calls;
mod content;
mod input;
mod options;
mod tool_choice;
mod tools;

use std::borrow::Cow;

use crate::domain::{
    QuickMap,
    translation::{
        TranslationTarget,
        conversation::{BlockContent, ContentBlock, Conversation, ToolChoice, TurnRole},
        losses::{TranslationLosses, Untranslatable},
        members::{MemberReader, missing},
        tool_names::{ToolNames, provider_name, provider_tool_name},
    },
    wire::UpstreamProtocol,
};

/// The provider's name of the tool `tool_search`, which is also the tool's type.
const TOOL_SEARCH: &str = "tool_search";
/// The provider's name of the tool `local_shell`, which is also the tool's type.
const LOCAL_SHELL: &str = "local_shell";
/// The provider's name of the tool `shell`, which is also the tool's type.
const SHELL: &str = "shell";
/// The provider's name of the tool `apply_patch`, which is also the tool's type.
const APPLY_PATCH: &str = "apply_patch";

/// The reason for refusing encrypted content.
const ENCRYPTED: &str = "only the provider that has encrypted this can read it; send the text itself";

/// Reads the body of a request. The client's tools are added to `names`.
///
/// # Errors
/// The request has content or state that cannot be translated.
pub(super) fn read<'a>(
    body: &'a str,
    target: &TranslationTarget<'_>,
    names: &mut ToolNames,
    losses: &mut TranslationLosses,
) -> Result<Conversation<'a>, Untranslatable> {
    let mut object = MemberReader::new(body, "")?;
    let mut reader = ResponsesRequestReader {
        conversation: Conversation::default(),
        target,
        names,
        losses,
        tool_indexes: QuickMap::default(),
        called_names: QuickMap::default(),
        hosted_tool: None,
        wants_summary: false,
        has_item_metadata: false,
    };
    reader.read_options(&mut object)?;
    if let Some(instructions) = object.text("instructions")? {
        reader.push(
            TurnRole::System,
            "instructions".to_owned(),
            BlockContent::Text(instructions),
        );
    }
    let tools = object.array("tools")?.unwrap_or_default();
    reader.read_tools(tools, &mut Vec::new())?;
    match object.take("input") {
        Some(input) => reader.read_input(input)?,
        None => return Err(missing(&object, "input")),
    }
    if let Some(choice) = object.take("tool_choice") {
        reader.read_tool_choice(choice)?;
    }
    if reader.wants_summary {
        reader.forbid_calls();
    }
    reader.check_hosted_tool()?;
    object.finish_options(reader.losses);
    Ok(reader.conversation)
}

/// A request that is being read.
struct ResponsesRequestReader<'a, 't> {
    /// The content so far.
    conversation: Conversation<'a>,
    /// The provider's side of the translation.
    target: &'t TranslationTarget<'t>,
    /// The client's tools.
    names: &'t mut ToolNames,
    /// The members that are not carried over unchanged.
    losses: &'t mut TranslationLosses,
    /// The index of each tool of the conversation, by its name at the provider.
    tool_indexes: QuickMap<Cow<'a, str>, usize>,
    /// The names of the called tools, by the ids of the calls. The names and the ids are those that the provider gets.
    called_names: QuickMap<Cow<'a, str>, Cow<'a, str>>,
    /// The path of the first tool that only another provider can run; `None` if there is no such tool.
    hosted_tool: Option<String>,
    /// Whether the client wants a summary that replaces the conversation.
    wants_summary: bool,
    /// Whether any item so far had Codex's annotation, which is reported only once.
    has_item_metadata: bool,
}

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Adds content to a turn, unless it is an empty text. System texts before the first turn become instructions.
    fn push(&mut self, role: TurnRole, path: String, content: BlockContent<'a>) {
        if is_empty(&content) {
            return;
        }
        match content {
            BlockContent::Text(text) if role == TurnRole::System && self.conversation.turns.is_empty() => {
                self.conversation.system.push(text);
            }
            content => self.conversation.push(role, ContentBlock { path, content }),
        }
    }

    /// Returns the provider's name of a tool that is called in the history, whether the tool is still offered or not.
    fn called_name(&self, namespace: Option<&str>, name: Cow<'a, str>) -> Cow<'a, str> {
        let is_offered = |namespace: Option<&str>| {
            let tool = self.names.client_tool(&provider_name(namespace, &name));
            tool.is_some_and(|tool| tool.namespace.as_deref() == namespace && tool.name == name)
        };
        // A tool outside every namespace that was found by a search is called in a namespace with the tool's name.
        let is_own_namespace = namespace.is_some_and(|namespace| namespace == name);
        let namespace = match is_own_namespace && !is_offered(namespace) && is_offered(None) {
            true => None,
            false => namespace,
        };
        match namespace {
            None => provider_tool_name(name),
            Some(_) => Cow::Owned(provider_name(namespace, &name).into_owned()),
        }
    }

    /// Forbids calls and drops the format, because the model has to write a summary. Also drops the tools, unless the provider's
    /// protocol is Messages, which requires every tool that is called in the history.
    fn forbid_calls(&mut self) {
        let conversation = &mut self.conversation;
        conversation.tool_choice = ToolChoice::Forbidden;
        if !conversation.tools.is_empty() {
            match self.target.translation.to {
                UpstreamProtocol::Messages => self.losses.adapted("tool_choice"),
                UpstreamProtocol::Responses | UpstreamProtocol::Gemini | UpstreamProtocol::Chat => {
                    conversation.tools.clear();
                    self.losses.dropped("tools");
                }
            }
        }
        if let Some(format) = conversation.options.format.take() {
            self.losses.dropped(format.path);
        }
    }

    /// Refuses a request that allows calls and has tools, none of which can be offered to the provider.
    fn check_hosted_tool(&self) -> Result<(), Untranslatable> {
        let is_alone = self.conversation.tools.is_empty() && self.conversation.tool_choice != ToolChoice::Forbidden;
        match &self.hosted_tool {
            Some(path) if is_alone => Err(Untranslatable::new(
                path.as_str(),
                "this model's provider does not run this tool, and the request offers no other; leave it out",
            )),
            _ => Ok(()),
        }
    }
}

/// Whether content is an empty text or refusal, which is omitted.
fn is_empty(content: &BlockContent<'_>) -> bool {
    matches!(content, BlockContent::Text(text) | BlockContent::Refusal(text) if text.is_empty())
}

#[cfg(test)]
mod tests;
