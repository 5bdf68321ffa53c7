//! Reads the tools that a request offers in its list of tools or in its messages. Also reads which of them the model is allowed
//! or forced to call. Tools that Claude models know without a definition become functions for other models.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    conversation::{ToolChoice, ToolDefinition, placed},
    losses::Untranslatable,
    members::{MemberReader, missing},
    read::{
        messages::{MCP_TOOLS, MessagesRequestReader, required_object},
        quotable,
    },
    tool_names::{ClientTool, ToolKind, provider_tool_name},
};

/// The prefixes of the types of tools that a provider runs itself. The rest of each type is a version.
const HOSTED_TOOLS: [&str; 4] = ["web_search_", "web_fetch_", "code_execution_", "advisor_"];
/// The prefix of the types of tools with which a provider searches for other tools.
const TOOL_SEARCH: &str = "tool_search_tool_";
/// The members of tools that are preferences or annotations.
const DROPPED: [&str; 5] = [
    "cache_control",
    "allowed_callers",
    "eager_input_streaming",
    "input_examples",
    "max_characters",
];

/// A tool that a request offers only by its type, without a description or a schema.
struct TrainedTool {
    /// The types of the tool, one per version.
    kinds: &'static [&'static str],
    /// The description, for models that do not know the tool.
    description: &'static str,
    /// The JSON schema of its arguments.
    schema: &'static str,
}

/// All tools that a request can offer without a definition. The schemas describe the arguments that a client gets in `input`. The
/// list omits versions of tools whose arguments are not publicly documented.
static TRAINED_TOOLS: [TrainedTool; 4] = [
    TrainedTool {
        kinds: &["bash_20241022", "bash_20250124"],
        description: "Runs commands in a bash session on the user's machine and returns their output. The \
                      session keeps its state between calls. `command` is needed unless `restart` is true.",
        schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""command":{"type":"string","description":"The command to run."},"#,
            r#""restart":{"type":"boolean","description":"True restarts the session instead of running a command."}}}"#,
        ),
    },
    TrainedTool {
        kinds: &["text_editor_20241022", "text_editor_20250124"],
        description: "Views, creates and edits text files on the user's machine. `view` shows a file with line \
                      numbers, or lists a directory. `create` writes a new file. `str_replace` replaces \
                      `old_str`, which must match exactly one place of the file. `insert` inserts `new_str` \
                      after a line. `undo_edit` undoes the last edit of a file.",
        schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""command":{"type":"string","enum":["view","create","str_replace","insert","undo_edit"]},"#,
            r#""path":{"type":"string","description":"The path of the file or directory."},"#,
            r#""view_range":{"type":"array","items":{"type":"integer"},"#,
            r#""description":"For `view` of a file: the first and the last line; -1 is the end of the file."},"#,
            r#""file_text":{"type":"string","description":"For `create`: the content."},"#,
            r#""old_str":{"type":"string","description":"For `str_replace`: the text to replace."},"#,
            r#""new_str":{"type":"string","description":"For `str_replace` and `insert`: the new text."},"#,
            r#""insert_line":{"type":"integer","#,
            r#""description":"For `insert`: the line before the text; 0 is the beginning."}},"#,
            r#""required":["command","path"]}"#,
        ),
    },
    TrainedTool {
        kinds: &["text_editor_20250429", "text_editor_20250728"],
        description: "Views, creates and edits text files on the user's machine. `view` shows a file with line \
                      numbers, or lists a directory. `create` writes a new file. `str_replace` replaces \
                      `old_str`, which must match exactly one place of the file. `insert` inserts \
                      `insert_text` after a line.",
        schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""command":{"type":"string","enum":["view","create","str_replace","insert"]},"#,
            r#""path":{"type":"string","description":"The path of the file or directory."},"#,
            r#""view_range":{"type":"array","items":{"type":"integer"},"#,
            r#""description":"For `view` of a file: the first and the last line; -1 is the end of the file."},"#,
            r#""file_text":{"type":"string","description":"For `create`: the content."},"#,
            r#""old_str":{"type":"string","description":"For `str_replace`: the text to replace."},"#,
            r#""new_str":{"type":"string","description":"For `str_replace`: the new text."},"#,
            r#""insert_line":{"type":"integer","#,
            r#""description":"For `insert`: the line before the text; 0 is the beginning."},"#,
            r#""insert_text":{"type":"string","description":"For `insert`: the text."}},"#,
            r#""required":["command","path"]}"#,
        ),
    },
    TrainedTool {
        kinds: &["memory_20250818"],
        description: "Keeps notes in files below `/memories`, across conversations. Look there first: what \
                      earlier work has found is in these files. `view` shows a file or lists a directory. \
                      `create` writes a file. `str_replace` replaces `old_str`, which must match exactly one \
                      place. `insert` inserts `insert_text` at a line. `delete` removes a file or directory. \
                      `rename` moves `old_path` to `new_path`.",
        schema: concat!(
            r#"{"type":"object","properties":{"#,
            r#""command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"#,
            r#""path":{"type":"string","description":"The path; for every command but `rename`."},"#,
            r#""view_range":{"type":"array","items":{"type":"integer"},"#,
            r#""description":"For `view` of a file: the first and the last line."},"#,
            r#""file_text":{"type":"string","description":"For `create`: the content."},"#,
            r#""old_str":{"type":"string","description":"For `str_replace`: the text to replace."},"#,
            r#""new_str":{"type":"string","description":"For `str_replace`: the new text."},"#,
            r#""insert_line":{"type":"integer","description":"For `insert`: the line."},"#,
            r#""insert_text":{"type":"string","description":"For `insert`: the text."},"#,
            r#""old_path":{"type":"string","description":"For `rename`: the path until now."},"#,
            r#""new_path":{"type":"string","description":"For `rename`: the new path."}},"#,
            r#""required":["command"]}"#,
        ),
    },
];

impl<'a> MessagesRequestReader<'a, '_> {
    /// Reads a tool and adds it at the end of the list.
    ///
    /// # Errors
    /// The tool cannot be translated.
    pub(super) fn read_tool(&mut self, tool: &'a RawValue, path: String) -> Result<(), Untranslatable> {
        let mut object = MemberReader::new(tool.get(), path)?;
        let kind = object.text("type")?;
        let definition = match kind.as_deref() {
            None | Some("custom") => self.read_client_tool(&mut object)?,
            Some("mcp_toolset") => return Err(Untranslatable::new(object.path(), MCP_TOOLS)),
            // All tools are offered with their full definition, so the provider does not have to search.
            Some(kind) if kind.starts_with(TOOL_SEARCH) => {
                self.losses.dropped(object.path());
                return Ok(());
            }
            Some(kind) if HOSTED_TOOLS.iter().any(|hosted| kind.starts_with(hosted)) => {
                self.losses.dropped(object.path());
                self.omit_tool(object.path());
                return Ok(());
            }
            Some(kind) => match trained_tool(kind) {
                Some(tool) => self.read_trained_tool(&mut object, tool)?,
                None => {
                    let kind = quotable(kind);
                    let reason = format!("weir cannot describe a tool of type `{kind}` to this model; send a schema");
                    self.losses.refused_in_strict(object.path(), reason)?;
                    self.omit_tool(object.path());
                    return Ok(());
                }
            },
        };
        // A tool that would be found only by a search is offered with its full definition.
        if object.flag("defer_loading")? == Some(true) {
            self.losses.adapted(object.path_of("defer_loading"));
        }
        object.drop_members(&DROPPED, self.losses);
        object.finish_options(self.losses);
        self.offer(definition);
        Ok(())
    }

    fn omit_tool(&mut self, path: &str) {
        if self.omitted_tool.is_none() {
            self.omitted_tool = Some(path.to_owned());
        }
    }

    /// Adds a tool, unless the request has offered it before. The first definition counts, because changing it would change the
    /// beginning of the prompt. The withdrawal of a tool has already changed the prompt, so a new definition of a withdrawn tool
    /// replaces the first definition.
    fn offer(&mut self, definition: ToolDefinition<'a>) {
        let was_withdrawn = self.withdrawn_tools.remove(&definition.name);
        let index = self.tool_indexes.get(&definition.name).copied();
        match index.and_then(|index| self.conversation.tools.get_mut(index)) {
            Some(first) if was_withdrawn => *first = definition,
            Some(_) => self.losses.dropped(definition.path),
            None => {
                let index = self.conversation.tools.len();
                self.tool_indexes.insert(definition.name.clone(), index);
                self.conversation.tools.push(definition);
            }
        }
    }

    fn read_client_tool(&mut self, object: &mut MemberReader<'a>) -> Result<ToolDefinition<'a>, Untranslatable> {
        let name = object.required_text("name")?;
        let mut definition = self.define(object, &name)?;
        definition.description = object.text("description")?;
        let Some(schema) = object.object_text("input_schema")? else {
            return Err(missing(object, "input_schema"));
        };
        definition.schema = Some(Cow::Borrowed(schema));
        definition.strict = object.flag("strict")?;
        Ok(definition)
    }

    /// Reads a tool that the client runs and that Claude models know without a definition.
    fn read_trained_tool(
        &mut self,
        object: &mut MemberReader<'a>,
        tool: &'static TrainedTool,
    ) -> Result<ToolDefinition<'a>, Untranslatable> {
        let name = object.required_text("name")?;
        let mut definition = self.define(object, &name)?;
        definition.description = Some(Cow::Borrowed(tool.description));
        definition.schema = Some(Cow::Borrowed(tool.schema));
        definition.strict = object.flag("strict")?;
        self.losses.adapted(object.path());
        Ok(definition)
    }

    /// Creates a tool with its name at the provider, without a description or a schema.
    fn define(&mut self, object: &MemberReader<'a>, name: &str) -> Result<ToolDefinition<'a>, Untranslatable> {
        let path = object.path().to_owned();
        let tool = ClientTool {
            namespace: None,
            name: name.to_owned(),
            kind: ToolKind::Function,
        };
        let flat = self.names.add(tool, &path)?;
        if flat != name {
            self.losses.adapted(object.path_of("name"));
        }
        Ok(ToolDefinition {
            path,
            name: Cow::Owned(flat),
            description: None,
            schema: None,
            strict: None,
        })
    }

    /// Reads `tool_addition` or `tool_removal`, which states that from this message on, a tool is offered or is no longer
    /// offered.
    ///
    /// # Errors
    /// The tool cannot be translated.
    pub(super) fn read_tool_change(
        &mut self,
        mut object: MemberReader<'a>,
        is_addition: bool,
    ) -> Result<(), Untranslatable> {
        let mut tool = required_object(&mut object, "tool")?;
        match &*tool.required_text("type")? {
            "tool_reference" => {
                let name = provider_tool_name(tool.required_text("name")?);
                if self.tool_indexes.contains_key(&name) {
                    self.losses.adapted(object.path());
                    match is_addition {
                        true => self.withdrawn_tools.remove(&name),
                        false => self.withdrawn_tools.insert(name),
                    };
                } else {
                    self.losses.dropped(object.path());
                }
            }
            "tool_definition" if is_addition => {
                let Some(definition) = tool.take("definition") else {
                    return Err(missing(&tool, "definition"));
                };
                self.losses.adapted(object.path());
                self.read_tool(definition, tool.path_of("definition"))?;
            }
            "mcp_tool_reference" | "mcp_toolset_reference" => return Err(Untranslatable::new(tool.path(), MCP_TOOLS)),
            _ => {
                let reason = "must be `tool_reference` or the `tool_definition` of an addition";
                return Err(Untranslatable::new(tool.path_of("type"), reason));
            }
        }
        tool.finish_options(self.losses);
        object.drop_members(&["cache_control"], self.losses);
        object.finish_content()
    }

    /// Removes from the list the tools that the client has withdrawn.
    pub(super) fn withdraw_tools(&mut self) {
        let withdrawn = &self.withdrawn_tools;
        if !withdrawn.is_empty() {
            self.conversation.tools.retain(|tool| !withdrawn.contains(&tool.name));
        }
    }

    /// Reads which tools the model is allowed or forced to call. The tools must have been read.
    ///
    /// # Errors
    /// The member is not a valid choice, or chooses a tool that is not offered to the provider.
    pub(super) fn read_tool_choice(&mut self, mut object: MemberReader<'a>) -> Result<(), Untranslatable> {
        self.conversation.tool_choice = match &*object.required_text("type")? {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::Forbidden,
            "tool" => {
                let name = provider_tool_name(object.required_text("name")?);
                if !self.conversation.tools.iter().any(|tool| tool.name == name) {
                    let reason = "this tool is not offered to this model's provider; choose another, or `auto`";
                    return Err(Untranslatable::new(object.path(), reason));
                }
                ToolChoice::Named(name)
            }
            _ => {
                let reason = "must be `auto`, `any`, `tool` or `none`";
                return Err(Untranslatable::new(object.path_of("type"), reason));
            }
        };
        if object.flag("disable_parallel_tool_use")? == Some(true) {
            let path = "tool_choice.disable_parallel_tool_use";
            self.conversation.options.parallel_calls = placed(path, Some(false));
        }
        object.finish_options(self.losses);
        Ok(())
    }
}

/// Returns the tool of this type; `None` if weir has no definition of it.
fn trained_tool(kind: &str) -> Option<&'static TrainedTool> {
    TRAINED_TOOLS.iter().find(|tool| tool.kinds.contains(&kind))
}
