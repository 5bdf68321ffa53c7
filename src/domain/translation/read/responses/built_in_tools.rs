//! The tools of Responses that the model knows without a description, as functions for models that do not.
//!
//! The arguments are the JSON object that the client gets in the call: `action` of `local_shell_call` and `shell_call`, `operation`
//! of `apply_patch_call`.

use crate::domain::translation::{
    read::responses::{APPLY_PATCH, LOCAL_SHELL, SHELL},
    tool_names::ToolKind,
};

/// The schema of a custom tool, whose input is a text.
pub(super) const CUSTOM_SCHEMA: &str =
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}"#;

/// A tool that has no definition of its own in a request.
pub(super) struct BuiltInTool {
    /// The name, which is the type as well.
    pub(super) name: &'static str,
    /// The kind.
    pub(super) kind: ToolKind,
    /// The description for models that do not know it.
    pub(super) description: &'static str,
    /// The JSON schema of its arguments.
    pub(super) schema: &'static str,
}

/// A command on the client's machine.
pub(super) const LOCAL_SHELL_TOOL: BuiltInTool = BuiltInTool {
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

/// Shell commands on the client's machine.
pub(super) const SHELL_TOOL: BuiltInTool = BuiltInTool {
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

/// A change of one file.
pub(super) const APPLY_PATCH_TOOL: BuiltInTool = BuiltInTool {
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
