//! Writes a Responses request: its head, tools and options. Instructions and input precede everything that changes between
//! requests of one conversation, and the cache key comes last.

mod items;

use crate::domain::{
    translation::{
        TranslationTarget,
        conversation::{AnswerFormat, Conversation, ReasoningEffort, RequestOptions, ToolChoice, ToolDefinition},
        json_out::{JsonArrayWriter, JsonObjectWriter, push_object},
        losses::{TranslationLosses, Untranslatable},
        write::{BLOCK_BREAK, EMPTY_SCHEMA, SCHEMA_NAME, schema_strictness},
    },
    wire::Protocol,
};

/// The value of `include` that requests the reasoning in an encrypted form, which can be sent back without being stored at the
/// provider.
const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";
/// The lowest `max_output_tokens` that OpenAI accepts. Some agents test a connection with a maximum of 1.
const OUTPUT_TOKENS_MIN: u64 = 16;

/// Writes a conversation as a Responses request.
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
        let instructions = conversation.system.join(BLOCK_BREAK);
        if !instructions.is_empty() {
            object.text("instructions", &instructions);
        }
        object.array("input", |input| items::write_items(&conversation.turns, losses, input))?;
        if !conversation.tools.is_empty() {
            object.array("tools", |tools| {
                for tool in &conversation.tools {
                    write_tool(tool, tools);
                }
            });
        }
        write_tool_choice(conversation, object);
        write_state(&conversation.options, object);
        write_sampling(&conversation.options, losses, object)?;
        write_reasoning(&conversation.options, target, losses, object);
        write_format(&conversation.options, target, losses, object);
        write_calls_and_cache_key(conversation, object);
        Ok::<(), Untranslatable>(())
    })?;
    Ok(body)
}

fn write_tool(tool: &ToolDefinition<'_>, tools: &mut JsonArrayWriter<'_>) {
    tools.object(|item| {
        item.text("type", "function");
        item.text("name", &tool.name);
        if let Some(description) = &tool.description {
            item.text("description", description);
        }
        item.raw("parameters", tool.schema.as_deref().unwrap_or(EMPTY_SCHEMA));
        // True is the protocol's default, but few schemas of other protocols meet its conditions.
        item.flag("strict", tool.strict.unwrap_or(false));
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
                choice.text("name", name);
            });
            return;
        }
    };
    object.text("tool_choice", word);
}

/// Writes the stream option, and forbids the provider to store anything.
fn write_state(options: &RequestOptions<'_>, object: &mut JsonObjectWriter<'_>) {
    if options.stream {
        object.flag("stream", true);
    }
    object.flag("store", false);
    object.array("include", |include| include.text(ENCRYPTED_REASONING));
}

/// Writes the options for the answer's length and for sampling.
fn write_sampling(
    options: &RequestOptions<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) -> Result<(), Untranslatable> {
    if let Some(option) = &options.max_tokens {
        if option.value < OUTPUT_TOKENS_MIN {
            losses.adapted(&*option.path);
        }
        object.number("max_output_tokens", option.value.max(OUTPUT_TOKENS_MIN));
    }
    let numbers = [("temperature", &options.temperature), ("top_p", &options.top_p)];
    for (name, option) in numbers {
        if let Some(option) = option {
            object.raw(name, option.value);
        }
    }
    let unknown = [
        &options.top_k,
        &options.seed,
        &options.presence_penalty,
        &options.frequency_penalty,
    ];
    for option in unknown.into_iter().flatten() {
        losses.dropped(&*option.path);
    }
    if let Some(option) = &options.stop
        && !option.value.is_empty()
    {
        losses.refused_in_strict(&*option.path, "Responses has no stop sequences; leave them out")?;
    }
    Ok(())
}

/// Writes the effort of reasoning, and whether the answer contains a summary of the reasoning. If the client requests neither,
/// nothing is written, because models without reasoning refuse the member.
fn write_reasoning(
    options: &RequestOptions<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) {
    let effort = options.reasoning.as_ref().map(|option| {
        losses.adapted(&*option.path);
        option.value.effort
    });
    let is_off = effort == Some(ReasoningEffort::Off);
    // Gemini clients get reasoning only on request.
    let is_visible = effort.is_some() && target.translation.from != Protocol::Gemini;
    let has_summary = !is_off && options.shows_reasoning.unwrap_or(is_visible);
    if effort.is_none() && !has_summary {
        return;
    }
    object.object("reasoning", |reasoning| {
        if let Some(effort) = effort {
            reasoning.text("effort", effort.responses_word());
        }
        if has_summary {
            reasoning.text("summary", "auto");
        }
    });
}

fn write_format(
    options: &RequestOptions<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) {
    let Some(option) = &options.format else { return };
    object.object("text", |text| {
        text.object("format", |format| match &option.value {
            AnswerFormat::Json => format.text("type", "json_object"),
            AnswerFormat::Schema {
                name,
                description,
                schema,
                strict,
            } => {
                format.text("type", "json_schema");
                format.text("name", name.as_deref().unwrap_or(SCHEMA_NAME));
                if let Some(description) = description {
                    format.text("description", description);
                }
                format.raw("schema", schema);
                if let Some(strict) = schema_strictness(*strict, (&*option.path, &**schema), target, losses) {
                    format.flag("strict", strict);
                }
            }
        });
    });
}

fn write_calls_and_cache_key(conversation: &Conversation<'_>, object: &mut JsonObjectWriter<'_>) {
    let options = &conversation.options;
    // True is the protocol's default.
    let is_serial = options.parallel_calls.as_ref().is_some_and(|option| !option.value);
    if is_serial && !conversation.tools.is_empty() {
        object.flag("parallel_tool_calls", false);
    }
    if let Some(option) = &options.cache_key {
        object.text("prompt_cache_key", &option.value);
    }
}

#[cfg(test)]
mod tests;
