//! Reads the choice among the tools of a Responses request.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{ToolChoice, ToolDefinition},
    losses::Untranslatable,
    members::{MemberReader, as_text},
    read::responses::{APPLY_PATCH, LOCAL_SHELL, ResponsesRequestReader, SHELL, TOOL_SEARCH},
    tool_names::{TOOLS_MAX, provider_name},
};

/// The path of the member `tool_choice`.
const PATH: &str = "tool_choice";

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Reads which tools the model is allowed or forced to call. The tools must have been read.
    ///
    /// # Errors
    /// The member is not a valid choice, or chooses a tool that is not offered to the provider.
    pub(super) fn read_tool_choice(&mut self, choice: &'a RawValue) -> Result<(), Untranslatable> {
        if let Some(word) = as_text(choice) {
            self.conversation.tool_choice = choice_word(&word, PATH)?;
            return Ok(());
        }
        let mut object = MemberReader::new(choice.get(), PATH)?;
        let kind = object.required_text("type")?;
        if kind == "allowed_tools" {
            return self.read_allowed_tools(object);
        }
        let Some(name) = self.chosen_tool(&kind, &mut object, true)? else {
            let reason =
                "the choice is not among the tools that this model's provider is offered; choose another, or `auto`";
            return Err(Untranslatable::new(PATH, reason));
        };
        self.conversation.tool_choice = ToolChoice::Named(name);
        object.finish_options(self.losses);
        Ok(())
    }

    /// Restricts the list of tools to the allowed ones.
    fn read_allowed_tools(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let mode = object.text("mode")?.unwrap_or(Cow::Borrowed("auto"));
        let choice = choice_word(&mode, &object.path_of("mode"))?;
        let path = object.path_of("tools");
        let tools = object.array("tools")?.unwrap_or_default();
        if tools.len() > TOOLS_MAX {
            return Err(Untranslatable::new(path, format!("can have at most {TOOLS_MAX} tools")));
        }
        let (mut allowed, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
        for (path, tool) in tools {
            let mut tool = MemberReader::new(tool.get(), path)?;
            let kind = tool.required_text("type")?;
            if kind == "namespace" {
                namespaces.insert(tool.required_text("name")?);
                continue;
            }
            match self.chosen_tool(&kind, &mut tool, false)? {
                Some(name) => {
                    allowed.insert(name);
                }
                None => self.losses.dropped(tool.path()),
            }
        }
        let names = &*self.names;
        let is_inside = |flat: &str| {
            let namespace = names.client_tool(flat).and_then(|tool| tool.namespace.as_deref());
            namespace.is_some_and(|namespace| namespaces.contains(namespace))
        };
        self.conversation
            .tools
            .retain(|tool| allowed.contains(&tool.name) || is_inside(&tool.name));
        if self.conversation.tools.is_empty() && choice != ToolChoice::Forbidden {
            let reason = "none of these is among the tools that this model's provider is offered; allow another";
            return Err(Untranslatable::new(path, reason));
        }
        self.losses.adapted(path);
        self.conversation.tool_choice = choice;
        object.finish_options(self.losses);
        Ok(())
    }

    /// Returns the provider's name of the tool that `object` chooses; `None` if this tool is not offered to the provider. If
    /// `in_any_namespace` is true, a name without a namespace can also match a tool in a namespace.
    fn chosen_tool(
        &self,
        kind: &str,
        object: &mut MemberReader<'a>,
        in_any_namespace: bool,
    ) -> Result<Option<Cow<'a, str>>, Untranslatable> {
        let (namespace, name) = match kind {
            "function" | "custom" => (object.text("namespace")?, object.required_text("name")?),
            LOCAL_SHELL | SHELL | APPLY_PATCH | TOOL_SEARCH => (None, Cow::Owned(kind.to_owned())),
            _ => return Ok(None),
        };
        let namespace = namespace.as_deref();
        let is_chosen = |tool: &&ToolDefinition<'a>| {
            let tool = self.names.client_tool(&tool.name);
            tool.is_some_and(|tool| tool.name == name && (in_any_namespace || tool.namespace.as_deref() == namespace))
        };
        let index = self.tool_indexes.get(&*provider_name(namespace, &name));
        let direct = index
            .and_then(|index| self.conversation.tools.get(*index))
            .filter(is_chosen);
        let chosen = match direct {
            None if in_any_namespace && namespace.is_none() => self.conversation.tools.iter().find(is_chosen),
            direct => direct,
        };
        Ok(chosen.map(|tool| tool.name.clone()))
    }
}

/// Returns the choice with this name.
fn choice_word(word: &str, path: &str) -> Result<ToolChoice<'static>, Untranslatable> {
    match word {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::Forbidden),
        "required" => Ok(ToolChoice::Required),
        _ => Err(Untranslatable::new(path, "must be `auto`, `none` or `required`")),
    }
}
