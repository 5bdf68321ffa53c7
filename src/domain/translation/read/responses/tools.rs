//! Reads the tools that a request offers in its list of tools or in an item of its input. Tools that OpenAI's models know without
//! a description become functions for other models. The arguments of these functions are a JSON object that the client gets in
//! the call. The object is the member `action` in `local_shell_call` and `shell_call`, and the member `operation` in
//! `apply_patch_call`.

use std::{borrow::Cow, fmt::Write};

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::ToolDefinition,
    losses::Untranslatable,
    members::{MemberReader, as_text},
    read::{
        STORED_FILE,
        responses::{APPLY_PATCH, LOCAL_SHELL, ResponsesRequestReader, SHELL, TOOL_SEARCH},
    },
    tool_names::{ClientTool, ToolKind},
};

/// The types of tools that a provider runs itself. Further types of such tools begin with [`WEB_SEARCH`].
const HOSTED_TOOLS: [&str; 8] = [
    "file_search",
    "computer",
    "computer_use",
    "computer_use_preview",
    "mcp",
    "code_interpreter",
    "image_generation",
    "programmatic_tool_calling",
];
/// The prefix of the types of web search tools.
const WEB_SEARCH: &str = "web_search";
/// The reason for refusing a tool of an unknown type in strict mode.
const UNKNOWN_TOOL: &str = "weir does not know tools of this type; leave it out";
/// The schema of a custom tool, whose input is a string.
const CUSTOM_SCHEMA: &str =
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;

/// A tool that a request offers without a definition.
struct BuiltInTool {
    /// The name of the tool, which is also its type.
    name: &'static str,
    /// The kind.
    kind: ToolKind,
    /// The description, for models that do not know the tool.
    description: &'static str,
    /// The JSON schema of its arguments.
    schema: &'static str,
}

/// The tool that runs a command on the client's machine.
const LOCAL_SHELL_TOOL: BuiltInTool = BuiltInTool {
    name: LOCAL_SHELL,
    kind: ToolKind::LocalShell,
    description: "Runs a command on the user's machine and returns its output. `command` is the program and its \
                  arguments, each a string of its own; `env` has additional environment variables, usually none.",
    schema: concat!(
        r#"{"type":"object","properties":{"type":{"type":"string","enum":["exec"]},"#,
        r#""command":{"type":"array","items":{"type":"string"}},"#,
        r#""env":{"type":"object","additionalProperties":{"type":"string"}},"#,
        r#""working_directory":{"type":"string"},"timeout_ms":{"type":"integer"},"user":{"type":"string"}},"#,
        r#""required":["type","command","env"],"additionalProperties":false}"#,
    ),
};

/// The tool that runs shell commands on the client's machine.
const SHELL_TOOL: BuiltInTool = BuiltInTool {
    name: SHELL,
    kind: ToolKind::Shell,
    description: "Runs shell commands on the user's machine, in their order, and returns the standard output, the \
                  standard error and the exit code of each.",
    schema: concat!(
        r#"{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}},"#,
        r#""timeout_ms":{"type":"integer","description":"The time limit of all commands."},"#,
        r#""max_output_length":{"type":"integer","description":"The maximum number of characters of output."}},"#,
        r#""required":["commands"],"additionalProperties":false}"#,
    ),
};

/// The tool that changes one file.
const APPLY_PATCH_TOOL: BuiltInTool = BuiltInTool {
    name: APPLY_PATCH,
    kind: ToolKind::ApplyPatch,
    description: "Creates, updates or deletes one file. `path` is relative to the workspace. `diff` is needed unless the \
                  file is deleted. For a new file, each of its lines begins with `+`. For an update, it has sections \
                  that begin with a line `@@`, followed by lines that begin with a space (unchanged), `-` (removed) or \
                  `+` (added); about three unchanged lines before and after a change show where it belongs.",
    schema: concat!(
        r#"{"type":"object","properties":{"#,
        r#""type":{"type":"string","enum":["create_file","update_file","delete_file"]},"#,
        r#""path":{"type":"string"},"diff":{"type":"string"}},"#,
        r#""required":["type","path"],"additionalProperties":false}"#,
    ),
};

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Reads tools and adds them at the end of the list. Their names at the provider are added to `offered`.
    ///
    /// # Errors
    /// A tool cannot be translated.
    pub(super) fn read_tools(
        &mut self,
        tools: Vec<(String, &'a RawValue)>,
        offered: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), Untranslatable> {
        for (path, tool) in tools {
            self.read_tool(MemberReader::new(tool.get(), path)?, offered)?;
        }
        Ok(())
    }

    fn read_tool(
        &mut self,
        mut object: MemberReader<'a>,
        offered: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), Untranslatable> {
        let kind = object.required_text("type")?;
        let definition = match &*kind {
            "function" => self.read_function(object, None)?,
            "custom" => self.read_custom(object, None)?,
            "namespace" => return self.read_namespace(object, offered),
            TOOL_SEARCH if is_search_by_client(&mut object)? => self.read_tool_search(object)?,
            // All tools are offered with their full definition, so the provider does not have to search.
            TOOL_SEARCH => {
                self.losses.dropped(object.path());
                return Ok(());
            }
            LOCAL_SHELL => self.read_built_in(object, &LOCAL_SHELL_TOOL, None)?,
            APPLY_PATCH => self.read_built_in(object, &APPLY_PATCH_TOOL, None)?,
            SHELL => match self.read_shell(object)? {
                Some(definition) => definition,
                None => return Ok(()),
            },
            kind if HOSTED_TOOLS.contains(&kind) || kind.starts_with(WEB_SEARCH) => {
                return self.drop_hosted_tool(&mut object);
            }
            _ => return self.losses.refused_in_strict(object.path(), UNKNOWN_TOOL),
        };
        self.offer(definition, offered);
        Ok(())
    }

    /// Adds a tool, unless the request has offered it before, for example because a search found it again. The first definition
    /// counts, because changing it would change the beginning of the prompt.
    fn offer(&mut self, definition: ToolDefinition<'a>, offered: &mut Vec<Cow<'a, str>>) {
        offered.push(definition.name.clone());
        let index = self.tool_indexes.get(&definition.name).copied();
        match index.and_then(|index| self.conversation.tools.get(index)) {
            Some(first) if has_same_definition(first, &definition) => {}
            Some(_) => self.losses.dropped(definition.path),
            None => {
                self.tool_indexes
                    .insert(definition.name.clone(), self.conversation.tools.len());
                self.conversation.tools.push(definition);
            }
        }
    }

    fn read_function(
        &mut self,
        mut object: MemberReader<'a>,
        namespace: Option<&str>,
    ) -> Result<ToolDefinition<'a>, Untranslatable> {
        let tool = client_tool(namespace, &object.required_text("name")?, ToolKind::Function);
        let mut definition = self.define(&object, tool)?;
        definition.description = object.text("description")?;
        definition.schema = object.object_text("parameters")?.map(Cow::Borrowed);
        definition.strict = object.flag("strict")?;
        self.finish_tool(object)?;
        Ok(definition)
    }

    /// Reads a tool whose input is a string. The tool becomes a function with one argument, and a grammar of the input is added
    /// to the description.
    fn read_custom(
        &mut self,
        mut object: MemberReader<'a>,
        namespace: Option<&str>,
    ) -> Result<ToolDefinition<'a>, Untranslatable> {
        let tool = client_tool(namespace, &object.required_text("name")?, ToolKind::Custom);
        let mut definition = self.define(&object, tool)?;
        definition.description = object.text("description")?;
        definition.schema = Some(Cow::Borrowed(CUSTOM_SCHEMA));
        if let Some(mut format) = object.object("format")? {
            match &*format.required_text("type")? {
                "text" => {}
                "grammar" => {
                    let syntax = format.required_text("syntax")?;
                    let grammar = format.required_text("definition")?;
                    let mut description = definition.description.take().map(Cow::into_owned).unwrap_or_default();
                    if !description.is_empty() {
                        description.push_str("\n\n");
                    }
                    // Writing to a string cannot fail.
                    let _ = write!(description, "`input` must follow this grammar ({syntax}):\n{grammar}");
                    definition.description = Some(Cow::Owned(description));
                }
                _ => {
                    let reason = "weir does not know this input format of a tool; use `text` or `grammar`";
                    self.losses.refused_in_strict(format.path(), reason)?;
                }
            }
            format.finish_options(self.losses);
        }
        self.finish_tool(object)?;
        Ok(definition)
    }

    /// Adds the tools of a namespace. The description of the namespace is added once, before the description of its first tool.
    fn read_namespace(
        &mut self,
        mut object: MemberReader<'a>,
        offered: &mut Vec<Cow<'a, str>>,
    ) -> Result<(), Untranslatable> {
        let namespace = object.required_text("name")?;
        let mut about = object.text("description")?.filter(|about| !about.is_empty());
        let tools = object.array("tools")?.unwrap_or_default();
        self.losses.adapted(object.path());
        self.finish_tool(object)?;
        for (path, tool) in tools {
            let mut object = MemberReader::new(tool.get(), path)?;
            let mut definition = match &*object.required_text("type")? {
                "function" => self.read_function(object, Some(&*namespace))?,
                "custom" => self.read_custom(object, Some(&*namespace))?,
                _ => {
                    self.losses.refused_in_strict(object.path(), UNKNOWN_TOOL)?;
                    continue;
                }
            };
            if let Some(about) = about.take() {
                let own = definition.description.take().unwrap_or_default();
                let description = format!("About all tools of `{namespace}`: {about}\n\n{own}");
                definition.description = Some(Cow::Owned(description.trim_end().to_owned()));
            }
            self.offer(definition, offered);
        }
        Ok(())
    }

    fn read_tool_search(&mut self, mut object: MemberReader<'a>) -> Result<ToolDefinition<'a>, Untranslatable> {
        let mut definition = self.define(&object, client_tool(None, TOOL_SEARCH, ToolKind::ToolSearch))?;
        definition.description = object.text("description")?;
        definition.schema = object.object_text("parameters")?.map(Cow::Borrowed);
        self.finish_tool(object)?;
        Ok(definition)
    }

    fn read_built_in(
        &mut self,
        object: MemberReader<'a>,
        tool: &BuiltInTool,
        more: Option<String>,
    ) -> Result<ToolDefinition<'a>, Untranslatable> {
        let mut definition = self.define(&object, client_tool(None, tool.name, tool.kind))?;
        definition.description = Some(match more {
            Some(more) => Cow::Owned(format!("{}{more}", tool.description)),
            None => Cow::Borrowed(tool.description),
        });
        definition.schema = Some(Cow::Borrowed(tool.schema));
        self.finish_tool(object)?;
        Ok(definition)
    }

    /// Reads the tool `shell`. Returns `None` if the commands would be run by the provider instead of the client.
    fn read_shell(&mut self, mut object: MemberReader<'a>) -> Result<Option<ToolDefinition<'a>>, Untranslatable> {
        let Some(mut environment) = object.object("environment")? else {
            return self.read_built_in(object, &SHELL_TOOL, None).map(Some);
        };
        if environment.required_text("type")? != "local" {
            let reason =
                "this model's provider cannot use a container or skills kept elsewhere; run the commands locally";
            for name in ["container_id", "skills"] {
                environment.refuse(name, reason)?;
            }
            environment.refuse("file_ids", STORED_FILE)?;
            self.drop_hosted_tool(&mut object)?;
            return Ok(None);
        }
        let mut more = String::new();
        for (path, skill) in environment.array("skills")?.unwrap_or_default() {
            let mut skill = MemberReader::new(skill.get(), path)?;
            let name = skill.required_text("name")?;
            let description = skill.text("description")?.unwrap_or_default();
            let folder = skill.text("path")?.unwrap_or_default();
            let head = if more.is_empty() {
                "\n\nSkills, each described in its folder:"
            } else {
                ""
            };
            // Writing to a string cannot fail.
            let _ = write!(more, "{head}\n- {name} ({folder}): {description}");
            skill.finish_options(self.losses);
        }
        environment.finish_options(self.losses);
        self.read_built_in(object, &SHELL_TOOL, Some(more)).map(Some)
    }

    /// Drops a tool that a provider runs itself. Refuses the tool if it refers to anything that is stored at that provider.
    fn drop_hosted_tool(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        object.refuse("vector_store_ids", STORED_FILE)?;
        object.refuse(
            "tunnel_id",
            "this model's provider cannot use a tunnel to another; leave the tool out",
        )?;
        if let Some(container) = object.take("container") {
            let path = object.path_of("container");
            if as_text(container).is_some() {
                let reason = "this model's provider cannot use a container kept elsewhere; leave the tool out";
                return Err(Untranslatable::new(path, reason));
            }
            MemberReader::new(container.get(), path)?.refuse("file_ids", STORED_FILE)?;
        }
        if let Some(mut mask) = object.object("input_image_mask")? {
            mask.refuse("file_id", STORED_FILE)?;
        }
        self.losses.dropped(object.path());
        if self.hosted_tool.is_none() {
            self.hosted_tool = Some(object.path().to_owned());
        }
        Ok(())
    }

    /// Creates a tool with its name at the provider, without a description or a schema.
    fn define(&mut self, object: &MemberReader<'a>, tool: ClientTool) -> Result<ToolDefinition<'a>, Untranslatable> {
        let path = object.path().to_owned();
        let is_function = tool.kind == ToolKind::Function;
        let plain_name = tool.namespace.is_none().then(|| tool.name.clone());
        let name = self.names.add(tool, &path)?;
        if !is_function {
            self.losses.adapted(path.as_str());
        } else if plain_name.is_some_and(|plain_name| plain_name != name) {
            self.losses.adapted(object.path_of("name"));
        }
        Ok(ToolDefinition {
            path,
            name: Cow::Owned(name),
            description: None,
            schema: None,
            strict: None,
        })
    }

    /// Handles the members that any tool can have, and reports unknown members.
    fn finish_tool(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        // A tool that would be found only by a search is offered with its full definition.
        if object.flag("defer_loading")? == Some(true) {
            self.losses.adapted(object.path_of("defer_loading"));
        }
        object.drop_members(&["allowed_callers", "output_schema", "async"], self.losses);
        object.finish_options(self.losses);
        Ok(())
    }
}

/// Whether the client, and not the provider, runs the searches of the tool `tool_search`. The tool's member `execution` states
/// this. Without this member, a tool with `parameters` is run by the client, and a tool without them by the provider.
fn is_search_by_client(object: &mut MemberReader<'_>) -> Result<bool, Untranslatable> {
    Ok(match object.text("execution")? {
        Some(execution) => execution == "client",
        None => object.contains("parameters"),
    })
}

/// Whether two tools have the same description, schema and `strict`.
fn has_same_definition(first: &ToolDefinition<'_>, second: &ToolDefinition<'_>) -> bool {
    first.description == second.description && first.schema == second.schema && first.strict == second.strict
}

fn client_tool(namespace: Option<&str>, name: &str, kind: ToolKind) -> ClientTool {
    ClientTool {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        kind,
    }
}
