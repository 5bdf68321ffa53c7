//! Reads the options of a Gemini request.

use std::borrow::Cow;

use crate::domain::translation::{
    conversation::{AnswerFormat, ReasoningEffort, ReasoningRequest, placed},
    losses::Untranslatable,
    members::as_text,
    read::{
        LOG_PROBABILITIES,
        gemini::{GeminiRequestReader, object::GeminiObject, schema::json_schema},
    },
};

/// The options of a request that are preferences or annotations. They are dropped.
const DROPPED: [&str; 4] = ["safetySettings", "labels", "serviceTier", "modelArmorConfig"];
/// The options of `generationConfig` that are preferences, or that control how Google's models process their input. They are
/// dropped.
const DROPPED_OF_GENERATION: [&str; 6] = [
    "mediaResolution",
    "audioTimestamp",
    "enableEnhancedCivicAnswers",
    "enableAffectiveDialog",
    "routingConfig",
    "modelSelectionConfig",
];
/// The options that request output other than text.
const OTHER_MODALITIES: [&str; 2] = ["speechConfig", "imageConfig"];
/// The options that change the answer and have no counterpart in other protocols.
const REFUSED_IN_STRICT: [&str; 3] = ["responseFormat", "translationConfig", "audioTranscriptionConfig"];
/// The names of the option for the JSON schema of the answer. The second name is that of Google's REST interface.
const ANSWER_SCHEMAS: [&str; 2] = ["responseJsonSchema", "_responseJsonSchema"];

/// The reason for refusing an option that requests output other than text.
const ONLY_TEXT: &str = "this model answers only with text; leave this out";
/// The reason for refusing an option without a counterpart.
const NO_COUNTERPART: &str = "this model's provider has no equivalent of this option; leave it out";

impl<'a> GeminiRequestReader<'a, '_> {
    /// Takes all options of a request except the tools and the tool choice.
    ///
    /// # Errors
    /// The request has an option that needs state stored at a provider, or an option that changes the client's answer and cannot be carried over.
    pub(super) fn read_options(&mut self, object: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        object.refuse(
            "cachedContent",
            "this model's provider cannot read content cached elsewhere; send the content itself",
        )?;
        object.refuse(
            "continuationToken",
            "this model's provider cannot continue an answer of another provider; send the conversation in `contents`",
        )?;
        object.refuse(
            "outputConfig",
            "weir returns the answer to the client and cannot have it written to a bucket; leave this out",
        )?;
        object.ignore(&["model"]);
        // The option overrides whether the provider logs the request, which weir does not translate.
        object.drop_members(&["store"], self.losses);
        object.drop_members(&DROPPED, self.losses);
        let Some(mut config) = object.object("generationConfig")? else {
            return Ok(());
        };
        self.read_sampling(&mut config)?;
        self.read_thinking(&mut config)?;
        self.read_format(&mut config)?;
        self.read_output(&mut config)?;
        config.drop_members(&DROPPED_OF_GENERATION, self.losses);
        config.finish_options(self.losses);
        Ok(())
    }

    /// Takes the options for the answer's length and for sampling.
    fn read_sampling(&mut self, config: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        let options = &mut self.conversation.options;
        options.max_tokens = placed("generationConfig.maxOutputTokens", config.count("maxOutputTokens")?);
        options.temperature = placed("generationConfig.temperature", config.number("temperature")?);
        options.top_p = placed("generationConfig.topP", config.number("topP")?);
        // Google's Python SDK writes both numbers as decimals.
        let top_k = config.number("topK")?.map(without_zero_fraction);
        options.top_k = placed("generationConfig.topK", top_k);
        let seed = config.number("seed")?.map(without_zero_fraction);
        options.seed = placed("generationConfig.seed", seed);
        options.presence_penalty = placed("generationConfig.presencePenalty", config.number("presencePenalty")?);
        options.frequency_penalty = placed("generationConfig.frequencyPenalty", config.number("frequencyPenalty")?);
        options.stop = placed("generationConfig.stopSequences", config.texts("stopSequences")?);
        Ok(())
    }

    /// Takes `thinkingConfig`: a level, a budget in tokens, or a negative budget, which leaves the amount to the model.
    fn read_thinking(&mut self, config: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        let Some(mut thinking) = config.object("thinkingConfig")? else {
            return Ok(());
        };
        let options = &mut self.conversation.options;
        options.shows_reasoning = thinking.flag("includeThoughts")?;
        let level_path = thinking.path_of("thinkingLevel");
        let budget_path = thinking.path_of("thinkingBudget");
        let level = thinking.text("thinkingLevel")?;
        let level = level.filter(|level| !level.eq_ignore_ascii_case("THINKING_LEVEL_UNSPECIFIED"));
        let budget = match thinking.number("thinkingBudget")?.map(without_zero_fraction) {
            Some(budget) => {
                let refusal = |_| Untranslatable::new(budget_path.as_str(), "must be a whole number");
                Some(budget.parse::<i64>().map_err(refusal)?)
            }
            None => None,
        };
        if let Some(level) = &level {
            let effort = ReasoningEffort::from_word(level).map(ReasoningRequest::by_effort);
            if effort.is_none() {
                self.losses.unknown(level_path);
            }
            options.reasoning = placed("generationConfig.thinkingConfig.thinkingLevel", effort);
        }
        match budget.map(u64::try_from) {
            Some(_) if options.reasoning.is_some() => self.losses.dropped(budget_path),
            Some(Ok(budget)) => {
                let request = ReasoningRequest::by_budget(budget);
                options.reasoning = placed("generationConfig.thinkingConfig.thinkingBudget", Some(request));
            }
            // A negative budget is the providers' own default.
            Some(Err(_)) => self.losses.adapted(budget_path),
            None => {}
        }
        thinking.finish_options(self.losses);
        Ok(())
    }

    /// Takes the format of the answer's text.
    fn read_format(&mut self, config: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        let path = config.path_of("responseMimeType");
        let mime_type = config.text("responseMimeType")?;
        let is_json = mime_type.as_deref() == Some("application/json");
        if !is_json && !matches!(mime_type.as_deref(), None | Some("" | "text/plain")) {
            let reason = "weir does not know this answer format; use `text/plain` or `application/json`";
            self.losses.refused_in_strict(path, reason)?;
            config.drop_members(&ANSWER_SCHEMAS, self.losses);
            config.drop_members(&["responseSchema"], self.losses);
            return Ok(());
        }
        let format = |schema| AnswerFormat::Schema {
            name: None,
            description: None,
            schema,
            strict: None,
        };
        let options = &mut self.conversation.options;
        for name in ANSWER_SCHEMAS {
            if let Some(schema) = config.object_text(name)? {
                options.format = placed("generationConfig.responseJsonSchema", Some(format(schema.into())));
            }
        }
        let path = config.path_of("responseSchema");
        if let Some(schema) = config.object_text("responseSchema")? {
            if options.format.is_some() {
                self.losses.dropped(path);
                return Ok(());
            }
            let Some(schema) = json_schema(schema) else {
                return Err(Untranslatable::new(path, "must be a schema"));
            };
            if matches!(schema, Cow::Owned(_)) {
                self.losses.adapted(path);
            }
            options.format = placed("generationConfig.responseSchema", Some(format(schema)));
        }
        if is_json && options.format.is_none() {
            options.format = placed("generationConfig.responseMimeType", Some(AnswerFormat::Json));
        }
        Ok(())
    }

    /// Takes the options that request more than one answer, output other than text, or log probabilities.
    fn read_output(&mut self, config: &mut GeminiObject<'a>) -> Result<(), Untranslatable> {
        let path = config.path_of("candidateCount");
        if config.count("candidateCount")?.is_some_and(|count| count > 1) {
            let reason = "this model's provider gives one answer to a request; send the request several times";
            return Err(Untranslatable::new(path, reason));
        }
        for (path, modality) in config.list("responseModalities")? {
            let modality = as_text(modality).unwrap_or_default();
            if !["TEXT", "MODALITY_UNSPECIFIED"]
                .iter()
                .any(|text| modality.eq_ignore_ascii_case(text))
            {
                return Err(Untranslatable::new(path, ONLY_TEXT));
            }
        }
        for name in OTHER_MODALITIES {
            config.refuse(name, ONLY_TEXT)?;
        }
        let path = config.path_of("responseLogprobs");
        if config.flag("responseLogprobs")? == Some(true) {
            self.losses.refused_in_strict(path, LOG_PROBABILITIES)?;
        }
        let path = config.path_of("logprobs");
        if config.count("logprobs")?.is_some_and(|count| count > 0) {
            self.losses.refused_in_strict(path, LOG_PROBABILITIES)?;
        }
        for name in REFUSED_IN_STRICT {
            config.refuse_in_strict(name, NO_COUNTERPART, self.losses)?;
        }
        Ok(())
    }
}

/// Returns a number without its fraction if the fraction consists of zeros, otherwise the number unchanged.
fn without_zero_fraction(number: &str) -> &str {
    match number.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        Some(_) | None => number,
    }
}
