//! Reads the options of a Responses request.

use crate::domain::{
    translation::{
        conversation::{AnswerFormat, ReasoningEffort, ReasoningRequest, placed},
        losses::Untranslatable,
        members::{MemberReader, as_text, missing},
        read::{LOG_PROBABILITIES, responses::ResponsesRequestReader},
    },
    wire::UpstreamProtocol,
};

/// The options that are preferences or annotations, or that concern storage at a provider. They are dropped.
const DROPPED: [&str; 12] = [
    "stream_options",
    "max_tool_calls",
    "service_tier",
    "moderation",
    "image",
    "access_programs",
    "prompt_cache_retention",
    "metadata",
    "user",
    "safety_identifier",
    "client_metadata",
    "context_management",
];

/// The options that continue state which is stored at another provider.
const STATE: [(&str, &str); 3] = [
    (
        "previous_response_id",
        "this model's provider does not keep answers of translated requests; send the conversation in `input`",
    ),
    (
        "conversation",
        "this model's provider does not keep conversations; send the conversation in `input`",
    ),
    (
        "prompt",
        "this model's provider cannot read prompts kept elsewhere; send the prompt's text in `instructions` and `input`",
    ),
];

impl<'a> ResponsesRequestReader<'a, '_> {
    /// Takes all options of a request except the tools and the tool choice.
    ///
    /// # Errors
    /// The request has an option that needs state stored at a provider, or an option that changes the client's answer and cannot be carried over.
    pub(super) fn read_options(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        for (name, reason) in STATE {
            object.refuse(name, reason)?;
        }
        if object.flag("background")? == Some(true) {
            let reason = "a background answer must be stored by the provider, which is not possible for translated models; leave this out";
            return Err(Untranslatable::new("background", reason));
        }
        object.ignore(&["model"]);
        let options = &mut self.conversation.options;
        options.stream = object.flag("stream")?.unwrap_or(false);
        options.max_tokens = placed("max_output_tokens", object.count("max_output_tokens")?);
        options.temperature = placed("temperature", object.number("temperature")?);
        options.top_p = placed("top_p", object.number("top_p")?);
        options.parallel_calls = placed("parallel_tool_calls", object.flag("parallel_tool_calls")?);
        options.cache_key = placed("prompt_cache_key", object.text("prompt_cache_key")?);
        if let Some(mut reasoning) = object.object("reasoning")? {
            self.read_reasoning_options(&mut reasoning)?;
            reasoning.finish_options(self.losses);
        }
        if let Some(mut text) = object.object("text")? {
            self.read_format(&mut text)?;
            text.drop_members(&["verbosity"], self.losses);
            text.finish_options(self.losses);
        }
        self.read_output_options(object)?;
        self.read_cache_options(object)?;
        object.drop_members(&DROPPED, self.losses);
        Ok(())
    }

    /// Takes `reasoning`.
    fn read_reasoning_options(&mut self, reasoning: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        self.read_effort(reasoning)?;
        for name in ["summary", "generate_summary"] {
            let Some(summary) = reasoning.text(name)? else { continue };
            self.conversation.options.shows_reasoning = Some(summary != "none");
            let path = reasoning.path_of(name);
            match self.target.translation.to {
                UpstreamProtocol::Chat => self.losses.dropped(path),
                UpstreamProtocol::Messages | UpstreamProtocol::Responses | UpstreamProtocol::Gemini => {
                    self.losses.adapted(path);
                }
            }
        }
        reasoning.drop_members(&["context", "mode"], self.losses);
        Ok(())
    }

    /// Takes the `effort` of a `reasoning` object. The last effort of a request counts.
    pub(super) fn read_effort(&mut self, reasoning: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(word) = reasoning.text("effort")? else {
            return Ok(());
        };
        let path = reasoning.path_of("effort");
        let Some(effort) = ReasoningEffort::from_word(&word) else {
            self.losses.unknown(path);
            return Ok(());
        };
        let request = placed(path, Some(ReasoningRequest::by_effort(effort)));
        let earlier = std::mem::replace(&mut self.conversation.options.reasoning, request);
        if let Some(earlier) = earlier {
            self.losses.adapted(earlier.path);
        }
        Ok(())
    }

    /// Takes the `format` of a `text` object. The last format of a request counts.
    pub(super) fn read_format(&mut self, text: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(mut format) = text.object("format")? else {
            return Ok(());
        };
        let value = match &*format.required_text("type")? {
            "text" => None,
            "json_object" => Some(AnswerFormat::Json),
            "json_schema" => Some(AnswerFormat::Schema {
                name: format.text("name")?,
                description: format.text("description")?,
                schema: match format.object_text("schema")? {
                    Some(schema) => schema.into(),
                    None => return Err(missing(&format, "schema")),
                },
                strict: format.flag("strict")?,
            }),
            _ => {
                let reason = "weir does not know this answer format; use `text`, `json_object` or `json_schema`";
                return self.losses.refused_in_strict(format.path(), reason);
            }
        };
        let value = placed(format.path().to_owned(), value);
        let earlier = std::mem::replace(&mut self.conversation.options.format, value);
        if let Some(earlier) = earlier {
            self.losses.adapted(earlier.path);
        }
        format.finish_options(self.losses);
        Ok(())
    }

    /// Takes the options that request further data in the answer, or that concern its storage.
    fn read_output_options(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        for (path, member) in object.array("include")?.unwrap_or_default() {
            match as_text(member).as_deref() {
                Some("reasoning.encrypted_content") => {}
                Some("message.output_text.logprobs") => self.losses.refused_in_strict(path, LOG_PROBABILITIES)?,
                Some(_) => self.losses.dropped(path),
                None => return Err(Untranslatable::new(path, "must be a string")),
            }
        }
        if object.count("top_logprobs")?.is_some_and(|count| count > 0) {
            self.losses.refused_in_strict("top_logprobs", LOG_PROBABILITIES)?;
        }
        // Without this member, the client expects that its answer is stored.
        if object.flag("store")?.unwrap_or(true) {
            self.losses.dropped("store");
        }
        match object.text("truncation")?.as_deref() {
            None | Some("disabled") => {}
            Some(_) => self.losses.dropped("truncation"),
        }
        if object.flag("generate")? == Some(false) {
            let reason = "this model's provider always generates an answer; leave this out";
            self.losses.refused_in_strict("generate", reason)?;
        }
        Ok(())
    }

    /// Takes `prompt_cache_options`.
    fn read_cache_options(&mut self, object: &mut MemberReader<'a>) -> Result<(), Untranslatable> {
        let Some(mut cache) = object.object("prompt_cache_options")? else {
            return Ok(());
        };
        let reason = "this model's provider does not keep answers of translated requests; leave this out";
        cache.refuse("comparison_response_id", reason)?;
        if cache.flag("prewarm")? == Some(true) {
            let reason = "this model's provider always generates an answer; leave this out";
            self.losses.refused_in_strict(cache.path_of("prewarm"), reason)?;
        }
        cache.drop_members(&["mode", "ttl"], self.losses);
        cache.finish_options(self.losses);
        Ok(())
    }
}
