//! Writes a Messages request: its head, tools and options. Instructions and messages precede everything that changes between
//! requests of one conversation.

mod thinking;
mod turns;

use std::borrow::Cow;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{AnswerFormat, Conversation, RequestOptions, ToolChoice, ToolDefinition},
        json_out::{JsonArrayWriter, JsonObjectWriter, push_object},
        losses::{TranslationLosses, Untranslatable},
        members::MemberReader,
        write::{EMPTY_SCHEMA, drop_schema_labels, messages::thinking::ThinkingMembers},
    },
    wire::Protocol,
};

/// The maximum number of output tokens if neither the client nor the catalogue states one. The protocol requires the member.
const OUTPUT_TOKENS_MAX: u64 = 32_000;

/// Writes a conversation as a Messages request.
///
/// # Errors
/// The conversation has content that the protocol cannot carry.
pub(super) fn write(
    conversation: &Conversation<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
) -> Result<String, Untranslatable> {
    let mut body = String::new();
    push_object(&mut body, |object| {
        object.text("model", target.model);
        write_system(&conversation.system, object);
        object.array("messages", |messages| {
            turns::write_messages(&conversation.turns, losses, messages)
        })?;
        if !conversation.tools.is_empty() {
            object.array("tools", |tools| {
                for tool in &conversation.tools {
                    write_tool(tool, losses, tools);
                }
            });
        }
        write_tool_choice(conversation, object);
        write_options(conversation, target, losses, object)
    })?;
    Ok(body)
}

fn write_system(system: &[Cow<'_, str>], object: &mut JsonObjectWriter<'_>) {
    // The protocol refuses text that consists of white space.
    let mut texts = system.iter().filter(|text| !text.trim().is_empty()).peekable();
    if texts.peek().is_none() {
        return;
    }
    object.array("system", |blocks| {
        for text in texts {
            blocks.object(|block| {
                block.text("type", "text");
                block.text("text", text);
            });
        }
    });
}

fn write_tool(tool: &ToolDefinition<'_>, losses: &mut TranslationLosses, tools: &mut JsonArrayWriter<'_>) {
    tools.object(|item| {
        item.text("name", &tool.name);
        if let Some(description) = &tool.description {
            item.text("description", description);
        }
        let schema = tool.schema.as_deref().unwrap_or(EMPTY_SCHEMA);
        match schema_with_type(schema) {
            Some(completed) => {
                losses.adapted(tool.path.as_str());
                item.raw("input_schema", &completed);
            }
            None => item.raw("input_schema", schema),
        }
        // False is the protocol's default, and not every host supports the member.
        if tool.strict == Some(true) {
            item.flag("strict", true);
        }
    });
}

/// Returns the schema with the `type` that the protocol requires; `None` if the schema has a `type`.
fn schema_with_type(schema: &str) -> Option<String> {
    if MemberReader::new(schema, "").ok()?.contains("type") {
        return None;
    }
    let members = schema.trim_start().strip_prefix('{')?;
    let comma = if members.trim_start().starts_with('}') { "" } else { "," };
    Some(format!(r#"{{"type":"object"{comma}{members}"#))
}

fn write_tool_choice(conversation: &Conversation<'_>, object: &mut JsonObjectWriter<'_>) {
    let is_serial = conversation
        .options
        .parallel_calls
        .as_ref()
        .is_some_and(|option| !option.value);
    let has_tools = !conversation.tools.is_empty();
    let (word, name) = match &conversation.tool_choice {
        ToolChoice::Unset if has_tools && is_serial => ("auto", None),
        ToolChoice::Unset => return,
        // Without tools, neither choice has a meaning, and the protocol refuses the member.
        ToolChoice::Auto | ToolChoice::Forbidden if !has_tools => return,
        ToolChoice::Auto => ("auto", None),
        ToolChoice::Forbidden => ("none", None),
        ToolChoice::Required => ("any", None),
        ToolChoice::Named(name) => ("tool", Some(name)),
    };
    object.object("tool_choice", |choice| {
        choice.text("type", word);
        if let Some(name) = name {
            choice.text("name", name);
        }
        if is_serial && word != "none" {
            choice.flag("disable_parallel_tool_use", true);
        }
    });
}

fn write_options(
    conversation: &Conversation<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) -> Result<(), Untranslatable> {
    let options = &conversation.options;
    let max_tokens = match &options.max_tokens {
        // In this protocol, 0 means that the request only fills the prompt cache and gets no answer.
        Some(option) if option.value == 0 => return Err(Untranslatable::new(&*option.path, "must be at least 1")),
        Some(option) => option.value,
        None => {
            losses.adapted(max_tokens_path(target.translation.from));
            target.output_tokens_max.unwrap_or(OUTPUT_TOKENS_MAX)
        }
    };
    object.number("max_tokens", max_tokens);
    if options.stream {
        object.flag("stream", true);
    }
    let thinking = ThinkingMembers::new(conversation, target, max_tokens, losses);
    thinking.write(object);
    write_output_config(options, thinking.effort, losses, object)?;
    write_sampling(options, thinking.is_on(), losses, object);
    Ok(())
}

/// Returns the path of the client's member for the maximum number of output tokens.
fn max_tokens_path(from: Protocol) -> &'static str {
    match from {
        Protocol::Messages => "max_tokens",
        Protocol::Responses => "max_output_tokens",
        Protocol::Gemini => "generationConfig.maxOutputTokens",
    }
}

fn write_output_config(
    options: &RequestOptions<'_>,
    effort: Option<&str>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) -> Result<(), Untranslatable> {
    let mut schema: Option<&str> = None;
    if let Some(option) = &options.format {
        match &option.value {
            AnswerFormat::Json => {
                let reason = "this model's provider cannot guarantee JSON without a schema; send a schema";
                losses.refused_in_strict(&*option.path, reason)?;
            }
            AnswerFormat::Schema {
                name,
                description,
                schema: text,
                strict,
            } => {
                schema = Some(&**text);
                let labels = [
                    ("name", name.is_some()),
                    ("description", description.is_some()),
                    ("strict", strict.is_some()),
                ];
                drop_schema_labels(&option.path, labels, losses);
            }
        }
    }
    if effort.is_none() && schema.is_none() {
        return Ok(());
    }
    object.object("output_config", |config| {
        if let Some(effort) = effort {
            config.text("effort", effort);
        }
        if let Some(schema) = schema {
            config.object("format", |format| {
                format.text("type", "json_schema");
                format.raw("schema", schema);
            });
        }
    });
    Ok(())
}

/// Writes the sampling options and the stop sequences. If the model thinks, drops the sampling options that the protocol does not
/// allow together with thinking.
fn write_sampling(
    options: &RequestOptions<'_>,
    is_thinking: bool,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) {
    let numbers = [
        ("temperature", &options.temperature),
        ("top_p", &options.top_p),
        ("top_k", &options.top_k),
    ];
    for (name, option) in numbers {
        let Some(option) = option else { continue };
        if is_thinking {
            losses.dropped(&*option.path);
        } else {
            object.raw(name, option.value);
        }
    }
    let unknown = [&options.seed, &options.presence_penalty, &options.frequency_penalty];
    for option in unknown.into_iter().flatten() {
        losses.dropped(&*option.path);
    }
    if let Some(option) = &options.stop
        && !option.value.is_empty()
    {
        object.array("stop_sequences", |stops| {
            for stop in &option.value {
                stops.text(stop);
            }
        });
    }
    if let Some(option) = &options.cache_key {
        losses.dropped(&*option.path);
    }
}

#[cfg(test)]
mod tests;
