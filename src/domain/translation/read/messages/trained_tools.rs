//! The tools of Messages that clients run and that Claude models know without a definition, as functions for models that do not.
//!
//! The arguments are those that a client gets in `input`. Versions whose arguments no public source states are not here.

/// A tool that has no description and no schema in a request.
pub(super) struct TrainedTool {
    /// Its types: a version each.
    kinds: &'static [&'static str],
    /// The description for models that do not know it.
    pub(super) description: &'static str,
    /// The JSON schema of its arguments.
    pub(super) schema: &'static str,
}

/// All such tools.
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
        kinds: &["text_editor_20250728"],
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

/// The tool of this type.
pub(super) fn trained_tool(kind: &str) -> Option<&'static TrainedTool> {
    TRAINED_TOOLS.iter().find(|tool| tool.kinds.contains(&kind))
}
