//! Writes calls of the client's tools. The arguments of a function are passed on piece by piece. Other tools get a string or an
//! object, so their calls are written when they are complete.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::domain::translation::{
    answer::{
        AnswerFault, WAITING_BYTES_MAX,
        write::responses::events::{
            COMPLETED, IN_PROGRESS, INCOMPLETE, ITEM_ADDED, ITEM_DONE, ItemPlace, NumberedEvents, single_line,
        },
    },
    json_out::push_object,
    members::{MemberReader, as_text},
    tool_names::{ClientTool, ToolKind},
};

/// The prefix of the identifier of a function call.
pub(super) const FUNCTION_PREFIX: &str = "fc_";
/// The prefix of the identifier of a call of a custom tool.
const CUSTOM_PREFIX: &str = "ctc_";

/// The form of the calls of a built-in tool.
struct BuiltInCallForm {
    /// The prefix of the item's identifier.
    prefix: &'static str,
    /// The type of the item.
    item: &'static str,
    /// The member that contains the arguments as an object.
    member: &'static str,
    /// Converts the arguments to the object for the client; returns `None` if the client could not read that object.
    read: fn(&str) -> Option<String>,
}

/// The form of a call of `tool_search`, which the client runs.
const TOOL_SEARCH_CALL: BuiltInCallForm = BuiltInCallForm {
    prefix: "tsc_",
    item: "tool_search_call",
    member: "arguments",
    read: search_arguments,
};

/// The form of a call of `local_shell`.
const LOCAL_SHELL_CALL: BuiltInCallForm = BuiltInCallForm {
    prefix: "lsh_",
    item: "local_shell_call",
    member: "action",
    read: local_shell_action,
};

/// The form of a call of `shell`.
const SHELL_CALL: BuiltInCallForm = BuiltInCallForm {
    prefix: "sh_",
    item: "shell_call",
    member: "action",
    read: shell_action,
};

/// The form of a call of `apply_patch`.
const APPLY_PATCH_CALL: BuiltInCallForm = BuiltInCallForm {
    prefix: "apc_",
    item: "apply_patch_call",
    member: "operation",
    read: patch_operation,
};

/// A call that has begun.
#[derive(Debug)]
pub(super) struct CallItem {
    /// The index of the call in the answer.
    call_index: u32,
    /// The client's id of the call.
    call_id: String,
    /// The tool.
    tool: ClientTool,
    /// The place of the item, with an id that has the prefix of a function call. An item of another type is written with another
    /// id.
    place: ItemPlace,
    /// The arguments so far.
    arguments: String,
}

impl CallItem {
    /// Begins a call.
    pub(super) fn open(
        call_index: u32,
        call_id: String,
        tool: ClientTool,
        place: ItemPlace,
        events: &mut NumberedEvents,
        out: &mut String,
    ) -> Self {
        let item = Self {
            call_index,
            call_id,
            tool,
            place,
            arguments: String::new(),
        };
        if item.tool.kind == ToolKind::Function {
            item.begin_function(events, out);
        }
        item
    }

    /// Whether the call has this index.
    pub(super) fn has_slot(&self, call_index: u32) -> bool {
        self.call_index == call_index
    }

    /// Adds a piece of the arguments.
    ///
    /// # Errors
    /// The retained arguments are too long.
    pub(super) fn add(
        &mut self,
        piece: &str,
        events: &mut NumberedEvents,
        out: &mut String,
    ) -> Result<(), AnswerFault> {
        self.arguments.push_str(piece);
        if self.tool.kind == ToolKind::Function {
            self.push_delta(piece, events, out);
        } else if self.arguments.len() > WAITING_BYTES_MAX {
            return Err(AnswerFault::CallsTooLarge);
        }
        Ok(())
    }

    /// Ends the call; returns its item as JSON text. `is_interrupted` says whether the end of the answer has interrupted the
    /// call.
    pub(super) fn close(
        self,
        is_interrupted: bool,
        answer_id: &str,
        events: &mut NumberedEvents,
        out: &mut String,
    ) -> String {
        let is_json = || serde_json::from_str::<&RawValue>(self.arguments.trim()).is_ok();
        let is_cut = is_interrupted && !is_json();
        self.end(is_cut, answer_id, events, out)
    }

    /// Ends a call with incomplete arguments; returns its item as JSON text.
    pub(super) fn cut(self, answer_id: &str, events: &mut NumberedEvents, out: &mut String) -> String {
        self.end(true, answer_id, events, out)
    }

    fn end(self, is_cut: bool, answer_id: &str, events: &mut NumberedEvents, out: &mut String) -> String {
        let form = match self.tool.kind {
            ToolKind::Function => return self.close_function(is_cut, events, out),
            ToolKind::Custom => return self.push_custom(is_cut, answer_id, events, out),
            ToolKind::ToolSearch => &TOOL_SEARCH_CALL,
            ToolKind::LocalShell => &LOCAL_SHELL_CALL,
            ToolKind::Shell => &SHELL_CALL,
            ToolKind::ApplyPatch => &APPLY_PATCH_CALL,
        };
        let object = match self.arguments.trim() {
            _ if is_cut => None,
            "" => (form.read)("{}"),
            arguments => (form.read)(arguments),
        };
        match object {
            Some(object) => self.push_built_in(form, &object, answer_id, events, out),
            None => {
                // The call is written as a function call: it reaches the client as the model wrote it, and the client can report
                // the mistake to the model.
                self.begin_function(events, out);
                self.push_delta(&self.arguments, events, out);
                self.close_function(is_cut, events, out)
            }
        }
    }

    fn begin_function(&self, events: &mut NumberedEvents, out: &mut String) {
        events.push_item(out, ITEM_ADDED, self.place.index, &self.function_json(IN_PROGRESS, ""));
    }

    fn push_delta(&self, piece: &str, events: &mut NumberedEvents, out: &mut String) {
        if !piece.is_empty() {
            events.push_in_item(out, "response.function_call_arguments.delta", &self.place, |event| {
                event.text("delta", piece);
            });
        }
    }

    fn close_function(mut self, is_cut: bool, events: &mut NumberedEvents, out: &mut String) -> String {
        // Clients parse the arguments, so a call without arguments gets an empty object.
        if !is_cut && self.arguments.trim().is_empty() {
            self.arguments.push_str("{}");
            self.push_delta("{}", events, out);
        }
        events.push_in_item(out, "response.function_call_arguments.done", &self.place, |event| {
            event.text("arguments", &self.arguments);
        });
        let item = self.function_json(final_status(is_cut), &self.arguments);
        events.push_item(out, ITEM_DONE, self.place.index, &item);
        item
    }

    fn function_json(&self, status: &str, arguments: &str) -> String {
        self.named_json(&self.place.id, "function_call", status, ("arguments", arguments))
    }

    fn push_custom(&self, is_cut: bool, answer_id: &str, events: &mut NumberedEvents, out: &mut String) -> String {
        let place = ItemPlace::new(CUSTOM_PREFIX, answer_id, self.place.index);
        let input = custom_input(&self.arguments);
        let json = |status: &str, input: &str| self.named_json(&place.id, "custom_tool_call", status, ("input", input));
        events.push_item(out, ITEM_ADDED, place.index, &json(IN_PROGRESS, ""));
        if !input.is_empty() {
            events.push_in_item(out, "response.custom_tool_call_input.delta", &place, |event| {
                event.text("delta", &input);
            });
        }
        events.push_in_item(out, "response.custom_tool_call_input.done", &place, |event| {
            event.text("input", &input);
        });
        let item = json(final_status(is_cut), &input);
        events.push_item(out, ITEM_DONE, place.index, &item);
        item
    }

    /// Returns a call that contains the name of its tool, as JSON text. The last parameter is the name and the value of the
    /// member that contains the call's arguments or input.
    fn named_json(&self, id: &str, kind: &str, status: &str, (member, text): (&'static str, &str)) -> String {
        let mut json = String::with_capacity(text.len() + 160);
        push_object(&mut json, |item| {
            item.text("id", id);
            item.text("type", kind);
            item.text("status", status);
            item.text("call_id", &self.call_id);
            item.text("name", &self.tool.name);
            if let Some(namespace) = &self.tool.namespace {
                item.text("namespace", namespace);
            }
            item.text(member, text);
        });
        json
    }

    fn push_built_in(
        &self,
        form: &BuiltInCallForm,
        object: &str,
        answer_id: &str,
        events: &mut NumberedEvents,
        out: &mut String,
    ) -> String {
        let place = ItemPlace::new(form.prefix, answer_id, self.place.index);
        let json = |status: &str| {
            let mut json = String::with_capacity(object.len() + 160);
            push_object(&mut json, |item| {
                item.text("id", &place.id);
                item.text("type", form.item);
                item.text("status", status);
                item.text("call_id", &self.call_id);
                if self.tool.kind == ToolKind::ToolSearch {
                    item.text("execution", "client");
                }
                item.raw(form.member, object);
            });
            json
        };
        events.push_item(out, ITEM_ADDED, place.index, &json(IN_PROGRESS));
        let item = json(COMPLETED);
        events.push_item(out, ITEM_DONE, place.index, &item);
        item
    }
}

/// Returns the status of a call at its end.
const fn final_status(is_cut: bool) -> &'static str {
    if is_cut { INCOMPLETE } else { COMPLETED }
}

/// Returns the input of a custom tool: the member `input` of the arguments, or else all arguments as a string.
fn custom_input(arguments: &str) -> Cow<'_, str> {
    let text = arguments.trim();
    let member = || MemberReader::new(text, "").ok()?.text("input").ok()?;
    let string = || as_text(serde_json::from_str::<&RawValue>(text).ok()?);
    member().or_else(string).unwrap_or(Cow::Borrowed(text))
}

/// Returns the arguments of a search, which can be any object.
fn search_arguments(text: &str) -> Option<String> {
    MemberReader::new(text, "").ok()?;
    Some(single_line(text).into_owned())
}

/// Returns the action of a local shell: a command with its type and environment. Models usually omit the type and the
/// environment, so they are added.
fn local_shell_action(text: &str) -> Option<String> {
    let mut object = MemberReader::new(text, "").ok()?;
    let is_whole = object.contains("type") && object.contains("env");
    let others = ["working_directory", "timeout_ms", "user"].map(|name| (name, object.take(name)));
    if object.text("type").ok()?.is_some_and(|kind| kind != "exec") {
        return None;
    }
    let env = object.object_text("env").ok()?.unwrap_or("{}");
    let command = object.texts("command").ok()?.filter(|command| !command.is_empty())?;
    if is_whole {
        return Some(single_line(text).into_owned());
    }
    let mut action = String::with_capacity(text.len() + 32);
    push_object(&mut action, |action| {
        action.text("type", "exec");
        action.array("command", |words| {
            for word in &command {
                words.text(word);
            }
        });
        action.raw("env", &single_line(env));
        for (name, value) in others {
            if let Some(value) = value {
                action.raw(name, &single_line(value.get()));
            }
        }
    });
    Some(action)
}

/// Returns the action of a shell: a list of commands.
fn shell_action(text: &str) -> Option<String> {
    let commands = MemberReader::new(text, "").ok()?.texts("commands").ok()??;
    (!commands.is_empty()).then(|| single_line(text).into_owned())
}

/// Returns the operation of a patch: its type, the path of its file, and the change.
fn patch_operation(text: &str) -> Option<String> {
    let mut object = MemberReader::new(text, "").ok()?;
    object.text("path").ok()??;
    let has_diff = object.text("diff").ok()?.is_some();
    let is_readable = match &*object.text("type").ok()?? {
        "create_file" | "update_file" => has_diff,
        "delete_file" => true,
        _ => false,
    };
    is_readable.then(|| single_line(text).into_owned())
}
