//! Reads calls of tools that the client runs, and their results. Also reads items about tools that another provider has run or
//! wants to run. The model's provider cannot continue what the other provider's tools did. Such an item is refused in strict
//! mode, and replaced by a line of text in lossy mode.

use std::borrow::Cow;

use crate::domain::translation::{
    conversation::{BlockContent, ContentBlock, ToolCall, ToolCallResult, TurnRole},
    json_out::push_object,
    losses::{TranslationLosses, Untranslatable},
    members::{MemberReader, as_text, elements, missing},
    read::{
        check_caller,
        responses::{ENCRYPTED, ResponsesRequestReader, TOOL_SEARCH},
    },
};

/// The types of items about tools that a provider runs.
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
/// The members of items in [`HOSTED_ITEMS`] that are strings. The `result` of an `image_generation_call` is an image and is
/// omitted.
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
/// The members of items in [`HOSTED_ITEMS`] that are lists of objects with text, and the name of the text member in these
/// objects.
const TEXT_LISTS: [(&str, &str); 2] = [("outputs", "logs"), ("results", "text")];

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Reads `function_call`.
    pub(super) fn read_function_call(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let namespace = object.text("namespace")?;
        let name = object.required_text("name")?;
        let arguments = object.required_text("arguments")?;
        // Codex lists the arguments that it has encrypted for the provider.
        let encrypted = object.array("encrypted_function_args")?.unwrap_or_default();
        if !encrypted.is_empty() {
            return Err(Untranslatable::new(
                object.path_of("encrypted_function_args"),
                ENCRYPTED,
            ));
        }
        let name = self.called_name(namespace.as_deref(), name);
        self.push_call(object, name, arguments)
    }

    /// Reads `custom_tool_call`, whose input is a string. For the provider, the tool is a function with one argument.
    pub(super) fn read_custom_call(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let namespace = object.text("namespace")?;
        let name = object.required_text("name")?;
        let input = object.required_text("input")?;
        let mut arguments = String::with_capacity(input.len() + 16);
        push_object(&mut arguments, |arguments| arguments.text("input", &input));
        let name = self.called_name(namespace.as_deref(), name);
        self.push_call(object, name, Cow::Owned(arguments))
    }

    /// Reads a call of the built-in tool `tool`. The object in the member `action` becomes the arguments for the provider.
    pub(super) fn read_built_in_call(
        &mut self,
        mut object: MemberReader<'a>,
        action: &str,
        tool: &'static str,
    ) -> Result<(), Untranslatable> {
        let Some(arguments) = object.object_text(action)? else {
            return Err(missing(&object, action));
        };
        check_environment(&mut object, self.losses)?;
        self.push_call(object, Cow::Borrowed(tool), Cow::Borrowed(arguments))
    }

    /// Reads `tool_search_call`. A search that the provider has run is dropped, because the tools that the search found are added
    /// to the list.
    pub(super) fn read_tool_search_call(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        if is_search_by_provider(&mut object)? {
            self.losses.dropped(object.path());
            return Ok(());
        }
        let Some(arguments) = object.take("arguments") else {
            return Err(missing(&object, "arguments"));
        };
        let arguments = as_text(arguments).unwrap_or(Cow::Borrowed(arguments.get()));
        self.push_call(object, Cow::Borrowed(TOOL_SEARCH), arguments)
    }

    fn push_call(
        &mut self,
        mut object: MemberReader<'a>,
        name: Cow<'a, str>,
        arguments: Cow<'a, str>,
    ) -> Result<(), Untranslatable> {
        check_caller(&mut object, self.losses)?;
        let id = take_call_id(&mut object, true)?;
        let id = self.target.provider_call_id(id);
        self.called_names.insert(id.clone(), name.clone());
        let path = object.path().to_owned();
        let call = ToolCall { id, name, arguments };
        self.push(TurnRole::Assistant, path, BlockContent::Call(call));
        self.finish_item(object)
    }

    /// Reads `function_call_output` and `custom_tool_call_output`: a string or a list of parts.
    pub(super) fn read_call_output(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(output) = object.take("output") else {
            return Err(missing(&object, "output"));
        };
        let content = self.read_content(output, object.path_of("output"))?;
        let id = take_call_id(&mut object, false)?;
        self.push_result(object, id, content, false)
    }

    /// Reads `local_shell_call_output`. If the item has no call id, its own id is that of the call.
    pub(super) fn read_local_shell_output(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let path = object.path_of("output");
        let content = ContentBlock::from_text(path, object.required_text("output")?);
        let id = take_call_id(&mut object, true)?;
        self.push_result(object, id, content, false)
    }

    /// Reads `shell_call_output`: the list of outputs and exit codes, which is kept as JSON text.
    pub(super) fn read_shell_output(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(output) = object.take("output") else {
            return Err(missing(&object, "output"));
        };
        let content = ContentBlock::from_text(object.path_of("output"), Cow::Borrowed(output.get()));
        object.drop_members(&["max_output_length"], self.losses);
        check_environment(&mut object, self.losses)?;
        let id = take_call_id(&mut object, false)?;
        self.push_result(object, id, content, false)
    }

    /// Reads `apply_patch_call_output`, which also states whether the patch failed.
    pub(super) fn read_apply_patch_output(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let path = object.path_of("output");
        let content = ContentBlock::from_text(path, object.text("output")?.unwrap_or_default());
        let is_error = object.text("status")?.is_some_and(|status| status == "failed");
        let id = take_call_id(&mut object, false)?;
        self.push_result(object, id, content, is_error)
    }

    /// Reads `tool_search_output`: the tools are added to the list, and the result of the search names them.
    pub(super) fn read_tool_search_output(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        let is_by_provider = is_search_by_provider(&mut object)?;
        let tools = object.array("tools")?.unwrap_or_default();
        let mut offered = Vec::new();
        self.read_tools(tools, &mut offered)?;
        self.losses.adapted(object.path());
        if is_by_provider {
            return Ok(());
        }
        let text = match offered.is_empty() {
            true => "No tool was found.".to_owned(),
            false => format!("These tools can be called now: {}", offered.join(", ")),
        };
        let content = ContentBlock::from_text(object.path_of("tools"), Cow::Owned(text));
        let id = take_call_id(&mut object, false)?;
        self.push_result(object, id, content, false)
    }

    fn push_result(
        &mut self,
        mut object: MemberReader<'a>,
        call_id: Cow<'a, str>,
        content: Vec<ContentBlock<'a>>,
        is_error: bool,
    ) -> Result<(), Untranslatable> {
        check_caller(&mut object, self.losses)?;
        let is_refusal = |block: &&ContentBlock<'a>| matches!(block.content, BlockContent::Refusal(_));
        if let Some(block) = content.iter().find(is_refusal) {
            return Err(Untranslatable::new(
                block.path.as_str(),
                "a result cannot have a refusal",
            ));
        }
        let namespace = object.text("namespace")?;
        let stated = object
            .text("name")?
            .map(|name| self.called_name(namespace.as_deref(), name));
        let call_id = self.target.provider_call_id(call_id);
        let name = self.called_names.get(&call_id).cloned().or(stated);
        let path = object.path().to_owned();
        let result = ToolCallResult {
            call_id,
            name,
            content,
            is_error,
        };
        self.push(TurnRole::User, path, BlockContent::Result(result));
        self.finish_item(object)
    }

    /// Whether items of this type are about tools that a provider runs.
    pub(super) fn is_hosted_item(kind: &str) -> bool {
        HOSTED_ITEMS.contains(&kind)
    }

    /// Reads an item about a provider's own tool: refuses it in strict mode, and replaces it with text in lossy mode.
    ///
    /// # Errors
    /// The item is refused.
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

/// Refuses a command that another provider has run in a container of its own.
fn check_environment(object: &mut MemberReader<'_>, losses: &mut TranslationLosses) -> Result<(), Untranslatable> {
    let Some(mut environment) = object.object("environment")? else {
        return Ok(());
    };
    match environment.text("type")?.as_deref() {
        None | Some("local") => {
            // The skills are already in the tool's description.
            environment.drop_members(&["skills"], losses);
            environment.finish_options(losses);
            Ok(())
        }
        Some(_) => Err(Untranslatable::new(
            environment.path(),
            "this model's provider cannot use a container kept elsewhere; run the commands locally",
        )),
    }
}

/// Takes the client's id of a call. If the item has no call id and `can_be_own` is true, takes the item's own id.
fn take_call_id<'a>(object: &mut MemberReader<'a>, can_be_own: bool) -> Result<Cow<'a, str>, Untranslatable> {
    let name = match can_be_own && !object.contains("call_id") {
        true => "id",
        false => "call_id",
    };
    match object.text(name)? {
        Some(id) if !id.is_empty() => Ok(id),
        Some(_) | None => Err(missing(object, "call_id")),
    }
}

/// Whether a tool search was run by the provider. Such a search has no call id.
fn is_search_by_provider(object: &mut MemberReader<'_>) -> Result<bool, Untranslatable> {
    let is_server = object.text("execution")?.is_some_and(|execution| execution == "server");
    Ok(is_server || !object.contains("call_id"))
}
