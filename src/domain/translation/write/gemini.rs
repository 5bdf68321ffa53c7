//! Writes a Gemini request: its head, tools and configuration. The model and the stream option are in the path, so the body does
//! not contain them. Instructions and contents precede everything that changes between requests of one conversation.

mod contents;
mod media;

use crate::domain::translation::{
    TranslationTarget,
    conversation::{AnswerFormat, Conversation, ReasoningEffort, RequestOptions, ToolChoice, ToolDefinition},
    json_out::{JsonArrayWriter, JsonObjectWriter, push_object},
    losses::{TranslationLosses, Untranslatable},
    write::{drop_schema_labels, schema::gemini_schema},
};

/// The maximum number of stop sequences.
const STOPS_MAX: usize = 5;
/// The largest thinking budget that all models with budgets accept, in tokens.
const BUDGET_MAX: u64 = 24_576;

/// The generation of a Gemini model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GeminiGeneration {
    /// The number in the model's name; `None` if the name contains none.
    number: Option<u32>,
}

impl GeminiGeneration {
    /// Returns the generation that is stated in a model's name.
    fn of_model(model: &str) -> Self {
        let behind = model.split_once("gemini-").map_or("", |(_, behind)| behind);
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        Self {
            number: digits.parse().ok(),
        }
    }

    /// Whether the model is known to be of the third generation or a later one. These models have levels of thinking, and accept
    /// media in results.
    fn is_since_third(self) -> bool {
        self.number.is_some_and(|number| number >= 3)
    }

    /// Whether the model may refuse a call without a signature, as models since the third generation do.
    fn wants_signatures(self) -> bool {
        self.number.is_none_or(|number| number >= 3)
    }
}

/// Writes a conversation as a Gemini request.
///
/// # Errors
/// The conversation has content that the protocol cannot carry.
pub(super) fn write(
    conversation: &Conversation<'_>,
    target: &TranslationTarget<'_>,
    losses: &mut TranslationLosses,
) -> Result<String, Untranslatable> {
    let generation = GeminiGeneration::of_model(target.model);
    let mut body = String::new();
    push_object(&mut body, |object| {
        if !conversation.system.is_empty() {
            object.object("systemInstruction", |instruction| {
                instruction.array("parts", |parts| {
                    for text in &conversation.system {
                        parts.object(|part| part.text("text", text));
                    }
                });
            });
        }
        object.array("contents", |list| {
            contents::write_contents(&conversation.turns, generation, losses, list)
        })?;
        write_tools(&conversation.tools, losses, object);
        write_tool_config(conversation, object);
        write_generation_config(conversation, generation, losses, object)
    })?;
    Ok(body)
}

fn write_tools(tools: &[ToolDefinition<'_>], losses: &mut TranslationLosses, object: &mut JsonObjectWriter<'_>) {
    if tools.is_empty() {
        return;
    }
    object.array("tools", |list| {
        list.object(|item| {
            item.array("functionDeclarations", |declarations| {
                for tool in tools {
                    write_declaration(tool, losses, declarations);
                }
            });
        });
    });
}

fn write_declaration(
    tool: &ToolDefinition<'_>,
    losses: &mut TranslationLosses,
    declarations: &mut JsonArrayWriter<'_>,
) {
    declarations.object(|declaration| {
        declaration.text("name", &tool.name);
        if let Some(description) = &tool.description {
            declaration.text("description", description);
        }
        if let Some(schema) = &tool.schema {
            let changed = gemini_schema(schema);
            if changed.is_some() {
                losses.adapted(tool.path.as_str());
            }
            declaration.raw("parametersJsonSchema", changed.as_deref().unwrap_or(schema));
        }
    });
    if tool.strict == Some(true) {
        losses.dropped(format!("{}.strict", tool.path));
    }
}

fn write_tool_config(conversation: &Conversation<'_>, object: &mut JsonObjectWriter<'_>) {
    let has_tools = !conversation.tools.is_empty();
    let (mode, name) = match &conversation.tool_choice {
        ToolChoice::Unset => return,
        // Without tools, neither choice has a meaning.
        ToolChoice::Auto | ToolChoice::Forbidden if !has_tools => return,
        ToolChoice::Auto => ("AUTO", None),
        ToolChoice::Forbidden => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Named(name) => ("ANY", Some(name)),
    };
    object.object("toolConfig", |config| {
        config.object("functionCallingConfig", |calling| {
            calling.text("mode", mode);
            if let Some(name) = name {
                calling.array("allowedFunctionNames", |names| names.text(name));
            }
        });
    });
}

/// Writes the configuration of the answer, if the client sets any option.
fn write_generation_config(
    conversation: &Conversation<'_>,
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
    object: &mut JsonObjectWriter<'_>,
) -> Result<(), Untranslatable> {
    let options = &conversation.options;
    let mut text = String::new();
    push_object(&mut text, |config| {
        write_sampling(options, losses, config)?;
        write_format(options, losses, config);
        write_thinking(options, generation, losses, config);
        Ok::<(), Untranslatable>(())
    })?;
    if text != "{}" {
        object.raw("generationConfig", &text);
    }
    let is_serial = options.parallel_calls.as_ref().filter(|option| !option.value);
    if let Some(option) = is_serial
        && !conversation.tools.is_empty()
    {
        losses.dropped(&*option.path);
    }
    if let Some(option) = &options.cache_key {
        losses.dropped(&*option.path);
    }
    Ok(())
}

/// Writes the options for the answer's length and for sampling.
fn write_sampling(
    options: &RequestOptions<'_>,
    losses: &mut TranslationLosses,
    config: &mut JsonObjectWriter<'_>,
) -> Result<(), Untranslatable> {
    if let Some(option) = &options.max_tokens {
        config.number("maxOutputTokens", option.value);
    }
    let numbers = [
        ("temperature", &options.temperature),
        ("topP", &options.top_p),
        ("topK", &options.top_k),
        ("seed", &options.seed),
        ("presencePenalty", &options.presence_penalty),
        ("frequencyPenalty", &options.frequency_penalty),
    ];
    for (name, option) in numbers {
        if let Some(option) = option {
            config.raw(name, option.value);
        }
    }
    if let Some(option) = &options.stop
        && !option.value.is_empty()
    {
        if option.value.len() > STOPS_MAX {
            let reason = "this model's provider takes at most 5 stop sequences; send fewer";
            losses.refused_in_strict(&*option.path, reason)?;
        }
        config.array("stopSequences", |stops| {
            for stop in option.value.iter().take(STOPS_MAX) {
                stops.text(stop);
            }
        });
    }
    Ok(())
}

fn write_format(options: &RequestOptions<'_>, losses: &mut TranslationLosses, config: &mut JsonObjectWriter<'_>) {
    let Some(option) = &options.format else { return };
    config.text("responseMimeType", "application/json");
    match &option.value {
        AnswerFormat::Json => {}
        AnswerFormat::Schema {
            name,
            description,
            schema,
            strict,
        } => {
            let changed = gemini_schema(schema);
            if changed.is_some() {
                losses.adapted(&*option.path);
            }
            config.raw("responseJsonSchema", changed.as_deref().unwrap_or(schema));
            let labels = [
                ("name", name.is_some()),
                ("description", description.is_some()),
                ("strict", strict.is_some()),
            ];
            drop_schema_labels(&option.path, labels, losses);
        }
    }
}

/// Writes how much the model thinks, and whether the answer contains its thoughts. If the client requests neither, nothing is
/// written, because models without thinking refuse the member.
fn write_thinking(
    options: &RequestOptions<'_>,
    generation: GeminiGeneration,
    losses: &mut TranslationLosses,
    config: &mut JsonObjectWriter<'_>,
) {
    let request = options.reasoning.as_ref().map(|option| {
        losses.adapted(&*option.path);
        option.value
    });
    let is_off = request.is_some_and(|request| request.effort == ReasoningEffort::Off);
    let has_thoughts = !is_off && options.shows_reasoning.unwrap_or(request.is_some());
    if request.is_none() && !has_thoughts {
        return;
    }
    config.object("thinkingConfig", |thinking| {
        match request {
            Some(request) if generation.is_since_third() => thinking.text("thinkingLevel", level_word(request.effort)),
            Some(request) => thinking.number("thinkingBudget", request.tokens().min(BUDGET_MAX)),
            None => {}
        }
        if has_thoughts {
            thinking.flag("includeThoughts", true);
        }
    });
}

/// Returns the level for an effort. Models with levels always think, and most of them refuse the protocol's lowest and highest
/// level.
fn level_word(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Off | ReasoningEffort::Minimal | ReasoningEffort::Low => "LOW",
        ReasoningEffort::Medium => "MEDIUM",
        ReasoningEffort::High | ReasoningEffort::ExtraHigh | ReasoningEffort::Max => "HIGH",
    }
}

#[cfg(test)]
mod tests;
