//! Reads a Messages request.
//!
//! The translation of a block depends only on the blocks before it, so the first turns of a conversation always become the same
//! text.

mod calls;
mod content;
mod options;
mod tools;
mod turns;

use std::{borrow::Cow, collections::BTreeSet};

use crate::domain::{
    QuickMap,
    translation::{
        TranslationTarget,
        conversation::{BlockContent, ContentBlock, Conversation, PlacedOption, ReasoningEffort, ToolChoice, TurnRole},
        losses::{TranslationLosses, Untranslatable},
        members::{MemberReader, missing},
        read::quotable,
        tool_names::ToolNames,
    },
};

/// The reason for refusing tools of MCP servers that the provider would connect to.
const MCP_TOOLS: &str =
    "this model's provider does not connect to MCP servers; connect to the server yourself and offer its tools";

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
    let mut reader = MessagesRequestReader {
        conversation: Conversation::default(),
        target,
        names,
        losses,
        tool_indexes: QuickMap::default(),
        withdrawn_tools: BTreeSet::new(),
        omitted_tool: None,
        called_names: QuickMap::default(),
        thinking: ThinkingSetting::default(),
        effort: None,
    };
    reader.read_options(&mut object)?;
    if let Some(system) = object.take("system") {
        reader.read_system(system)?;
    }
    for (path, tool) in object.array("tools")?.unwrap_or_default() {
        reader.read_tool(tool, path)?;
    }
    let Some(messages) = object.array("messages")? else {
        return Err(missing(&object, "messages"));
    };
    reader.read_messages(messages)?;
    reader.set_reasoning();
    reader.withdraw_tools();
    if let Some(choice) = object.object("tool_choice")? {
        reader.read_tool_choice(choice)?;
    }
    reader.check_omitted_tool()?;
    object.finish_options(reader.losses);
    Ok(reader.conversation)
}

/// A request that is being read.
struct MessagesRequestReader<'a, 't> {
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
    /// The provider's names of the tools that the client has withdrawn.
    withdrawn_tools: BTreeSet<Cow<'a, str>>,
    /// The path of the first tool that cannot be offered to this provider; `None` if all can be offered.
    omitted_tool: Option<String>,
    /// The names of the called tools, by the ids of the calls. The names and the ids are those that the provider gets.
    called_names: QuickMap<Cow<'a, str>, Cow<'a, str>>,
    /// The member `thinking`.
    thinking: ThinkingSetting,
    /// The most recently stated effort; `None` if no effort is stated.
    effort: Option<PlacedOption<ReasoningEffort>>,
}

/// The setting in the member `thinking`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ThinkingSetting {
    /// No setting that other providers support.
    #[default]
    Unset,
    /// The model decides how much it thinks.
    Adaptive,
    /// The model does not think.
    Disabled,
    /// The model thinks for at most this number of tokens.
    Budget(u64),
}

impl<'a> MessagesRequestReader<'a, '_> {
    /// Adds content to a turn, unless it is an empty text. System texts before the first turn become instructions.
    fn push(&mut self, role: TurnRole, path: String, content: BlockContent<'a>) {
        match content {
            BlockContent::Text(text) if text.is_empty() => {}
            BlockContent::Text(text) if role == TurnRole::System && self.conversation.turns.is_empty() => {
                self.conversation.system.push(text);
            }
            content => self.conversation.push(role, ContentBlock { path, content }),
        }
    }

    /// Refuses a request that allows calls and has tools, none of which can be offered to the provider.
    fn check_omitted_tool(&self) -> Result<(), Untranslatable> {
        let is_alone = self.conversation.tools.is_empty() && self.conversation.tool_choice != ToolChoice::Forbidden;
        match &self.omitted_tool {
            Some(path) if is_alone => Err(Untranslatable::new(
                path.as_str(),
                "this tool cannot be offered to this model's provider, and the request has no other; leave it out",
            )),
            _ => Ok(()),
        }
    }
}

/// Takes an object that is required.
///
/// # Errors
/// The member is missing or not an object.
fn required_object<'a>(object: &mut MemberReader<'a>, name: &str) -> Result<MemberReader<'a>, Untranslatable> {
    let member = object.object(name)?;
    member.ok_or_else(|| missing(object, name))
}

/// Creates the refusal of content whose type weir cannot translate at this path.
fn unknown_content(object: &MemberReader<'_>, kind: &str) -> Untranslatable {
    let reason = format!(
        "weir cannot translate content of type `{}` here to the protocol of this model's provider; leave it out",
        quotable(kind)
    );
    Untranslatable::new(object.path(), reason)
}

#[cfg(test)]
mod tests;
