//! Writes a `chat/completions` request: its head, tools and options. The messages precede everything that changes between
//! requests of one conversation, and the cache key comes last.

mod turns;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{AnswerFormat, Conversation, ReasoningEffort, RequestOptions, ToolChoice, ToolDefinition},
        json_out::{JsonArrayWriter, JsonObjectWriter, push_object},
        losses::{TranslationLosses, Untranslatable},
        write::{EMPTY_SCHEMA, SCHEMA_NAME, schema_strictness},
    },
    wire::Protocol,
};

/// The maximum number of stop sequences.
const STOPS_MAX: usize = 4;

/// Writes a conversation as a `chat/completions` request.
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
        object.array("messages", |messages| {
            turns::write_messages(conversation, &target.translation.chat, losses, messages)
        })?;
        if !conversation.tools.is_empty() {
            object.array("tools", |tools| {
                for tool in &conversation.tools {
                    write_tool(tool, tools);
                }
            });
        }
        write_tool_choice(conversation, object);
        write_sampling(&conversation.options, losses, object)?;
        write_format(&conversation.options, target, losses, object);
        write_calls_and_reasoning(conversation, target, losses, object);
        Ok::<(), Untranslatable>(())
    })?;
    Ok(body)
}

fn write_tool(tool: &ToolDefinition<'_>, tools: &mut JsonArrayWriter<'_>) {
    tools.object(|item| {
        item.text("type", "function");
        item.object("function", |function| {
            function.text("name", &tool.name);
            if let Some(description) = &tool.description {
                function.text("description", description);
            }
            function.raw("parameters", tool.schema.as_deref().unwrap_or(EMPTY_SCHEMA));
            // False is the protocol's default, and not every host supports the member.
            if tool.strict == Some(true) {
                function.flag("strict", true);
            }
        });
    });
}

fn write_tool_choice(conversation: &Conversation<'_>, object: &mut JsonObjectWriter<'_>) {
    let has_tools = !conversation.tools.is_empty();
    let word = match &conversation.tool_choice {
        ToolChoice::Unset => return,
        // Without tools, neither choice has a meaning, and hosts refuse the member.
        ToolChoice::Auto | ToolChoice::Forbidden if !has_tools => return,
        ToolChoice::Auto => "auto",
        ToolChoice::Forbidden => "none",
        ToolChoice::Required => "required",
        ToolChoice::Named(name) => {
            object.object("tool_choice", |choice| {
                choice.text("type", "function");
                choice.object("function", |function| function.text("name", name));
            });
            return;
        }
    };
    object.text("tool_choice", word);
}

/// Writes the stream option, and the options for the answer's length and for sampling.
fn write_sampling(
    options: &RequestOptions<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) -> Result<(), Untranslatable> {
    if options.stream {
        object.flag("stream", true);
        object.object("stream_options", |inner| inner.flag("include_usage", true));
    }
    if let Some(option) = &options.max_tokens {
        object.number("max_tokens", option.value);
    }
    let numbers = [
        ("temperature", &options.temperature),
        ("top_p", &options.top_p),
        ("seed", &options.seed),
        ("presence_penalty", &options.presence_penalty),
        ("frequency_penalty", &options.frequency_penalty),
    ];
    for (name, option) in numbers {
        if let Some(option) = option {
            object.raw(name, option.value);
        }
    }
    if let Some(option) = &options.top_k {
        losses.dropped(&*option.path);
    }
    if let Some(option) = &options.stop
        && !option.value.is_empty()
    {
        if option.value.len() > STOPS_MAX {
            let reason = "this model's provider takes at most 4 stop sequences; send fewer";
            losses.refused_in_strict(&*option.path, reason)?;
        }
        object.array("stop", |stops| {
            for stop in option.value.iter().take(STOPS_MAX) {
                stops.text(stop);
            }
        });
    }
    Ok(())
}

fn write_format(
    options: &RequestOptions<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) {
    let Some(option) = &options.format else { return };
    object.object("response_format", |format| match &option.value {
        AnswerFormat::Json => format.text("type", "json_object"),
        AnswerFormat::Schema {
            name,
            description,
            schema,
            strict,
        } => {
            format.text("type", "json_schema");
            format.object("json_schema", |inner| {
                inner.text("name", name.as_deref().unwrap_or(SCHEMA_NAME));
                if let Some(description) = description {
                    inner.text("description", description);
                }
                inner.raw("schema", schema);
                if let Some(strict) = schema_strictness(*strict, (&*option.path, &**schema), target, losses) {
                    inner.flag("strict", strict);
                }
            });
        }
    });
}

/// Writes the option for parallel calls, the effort of reasoning, and the cache key.
fn write_calls_and_reasoning(
    conversation: &Conversation<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) {
    let options = &conversation.options;
    // True is the protocol's default, and not every host supports the member.
    let is_serial = options.parallel_calls.as_ref().is_some_and(|option| !option.value);
    if is_serial && !conversation.tools.is_empty() {
        object.flag("parallel_tool_calls", false);
    }
    if let Some(option) = &options.reasoning {
        let request = option.value;
        let has_own_word = target.translation.from == Protocol::Responses
            && request.budget.is_none()
            && request.effort != ReasoningEffort::Max;
        if !has_own_word {
            losses.adapted(&*option.path);
        }
        object.text("reasoning_effort", request.effort.responses_word());
    }
    if let Some(option) = &options.cache_key {
        object.text("prompt_cache_key", &option.value);
    }
}

#[cfg(test)]
mod tests;
