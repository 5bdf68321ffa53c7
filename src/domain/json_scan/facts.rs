//! The keys of the top level that matter, and their values.

use std::mem;

use super::references::{REFERENCES_MAX, References};
use super::string::StringToken;
use super::{ModelSpan, Scan, ScanError};

/// What the value that comes next is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Field {
    #[default]
    Other,
    Model,
    Stream,
    OutputMax(OutputName),
    GenerationConfig,
    Candidates,
    Fallbacks,
    /// The limit of output of a model that may stand in.
    FallbackMax,
    Tools,
    Background,
    StreamOptions,
    IncludeUsage,
    Store,
    Continued,
    PromptCacheKey,
}

/// The names under which a request limits its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputName {
    MaxTokens,
    MaxOutputTokens,
    MaxCompletionTokens,
    GenerationConfig,
}

/// The facts found so far. Told of every key and every value in order; a value belongs to the key told last, once.
#[derive(Debug, Default)]
pub(super) struct Facts {
    scan: Scan,
    /// The field of the last top-level key, so that its members can be told apart.
    top: Field,
    /// The field of the next value; taken by it, so that no later array element is mistaken for it.
    next: Field,
    has_stream: bool,
    has_generation_config: bool,
    references: References,
}

/// A value that is no string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    Null,
    Boolean(bool),
    /// Its value if it is a non-negative integer.
    Number(Option<u64>),
    /// An array or an object.
    Container,
}

impl Facts {
    pub(super) fn into_scan(self) -> Scan {
        Scan {
            references: self.references.into_found(),
            ..self.scan
        }
    }

    /// Whether the last key was of the tools that the request declares, or their own.
    pub(super) fn in_tools(&self) -> bool {
        self.top == Field::Tools
    }

    /// A key of an object at `depth` (1: the top level).
    pub(super) fn key(&mut self, depth: usize, body: &str, key: &StringToken) -> Result<(), ScanError> {
        self.references.key(depth, body, key);
        self.next = match depth {
            1 => {
                self.top = self.top_level_field(body, key)?;
                self.top
            }
            2 if self.top == Field::GenerationConfig => {
                let is_any = |names: &[&str]| names.iter().any(|name| key.is(body, name));
                if is_any(&["maxOutputTokens", "max_output_tokens"]) {
                    Field::OutputMax(OutputName::GenerationConfig)
                } else if is_any(&["candidateCount", "candidate_count"]) {
                    Field::Candidates
                } else {
                    Field::Other
                }
            }
            2 if self.top == Field::StreamOptions && key.is(body, "include_usage") => Field::IncludeUsage,
            // The object is an element of an array.
            3 if self.top == Field::Fallbacks && key.is(body, "max_tokens") => Field::FallbackMax,
            _ => Field::Other,
        };
        Ok(())
    }

    fn top_level_field(&mut self, body: &str, key: &StringToken) -> Result<Field, ScanError> {
        let at = key.span.start;
        if key.is(body, "model") {
            // A first `model` always left its value here: one that is no string ended the scan.
            return if self.scan.model.is_some() {
                Err(ScanError::ModelTwice { at })
            } else {
                Ok(Field::Model)
            };
        }
        if key.is(body, "stream") {
            let again = mem::replace(&mut self.has_stream, true);
            return if again {
                Err(ScanError::StreamTwice { at })
            } else {
                Ok(Field::Stream)
            };
        }
        if key.is(body, "contents") {
            self.scan.has_contents = true;
            return Ok(Field::Other);
        }
        Ok(match key.short(body, &mut [0; 24]).unwrap_or_default() {
            "max_tokens" => Field::OutputMax(OutputName::MaxTokens),
            "max_output_tokens" => Field::OutputMax(OutputName::MaxOutputTokens),
            "max_completion_tokens" => Field::OutputMax(OutputName::MaxCompletionTokens),
            "generationConfig" | "generation_config" => {
                if mem::replace(&mut self.has_generation_config, true) {
                    // Which of two a provider goes by is its own affair.
                    self.scan.output_limits.generation_config.note(None);
                }
                Field::GenerationConfig
            }
            "fallbacks" => Field::Fallbacks,
            "tools" => Field::Tools,
            "background" => Field::Background,
            "stream_options" => Field::StreamOptions,
            "store" => Field::Store,
            "thread" | "diagnostics" => Field::Continued,
            "prompt_cache_key" => Field::PromptCacheKey,
            _ => Field::Other,
        })
    }

    /// A string, `depth` containers deep.
    pub(super) fn string(&mut self, depth: usize, body: &str, value: &StringToken) -> Result<(), ScanError> {
        self.references.string(depth, body, value);
        if self.references.is_too_many() {
            return Err(ScanError::TooManyReferences {
                at: value.span.start,
                references_max: REFERENCES_MAX,
            });
        }
        let field = mem::take(&mut self.next);
        self.limit(field, None);
        match field {
            Field::Model => {
                self.scan.model = Some(ModelSpan {
                    text: value.decode(body),
                    value: value.span.clone(),
                });
            }
            Field::PromptCacheKey => self.scan.prompt_cache_key = Some(value.span.clone()),
            field => self.doubtful(field),
        }
        Ok(())
    }

    /// Any other value, at byte `at`.
    pub(super) fn plain(&mut self, at: usize, value: Plain) -> Result<(), ScanError> {
        self.references.other();
        let field = mem::take(&mut self.next);
        let integer = match value {
            Plain::Number(integer) => integer,
            Plain::Null | Plain::Boolean(_) | Plain::Container => None,
        };
        self.limit(field, integer);
        match (field, value) {
            (Field::Model, _) => return Err(ScanError::ModelNotString { at }),
            (Field::OutputMax(_), Plain::Number(Some(integer))) => self.scan.output_max = Some(integer),
            (Field::Stream, Plain::Boolean(value)) => self.scan.stream = Some(value),
            (Field::Store, Plain::Boolean(value)) => self.scan.store = Some(value),
            (Field::Continued, Plain::Container) => self.scan.may_be_continued = true,
            (Field::Background, Plain::Boolean(false)) | (Field::IncludeUsage, Plain::Boolean(true)) => {}
            (_, Plain::Null) => {}
            (field, _) => self.doubtful(field),
        }
        Ok(())
    }

    /// An object has opened, the container number `depth`.
    pub(super) fn object(&mut self, depth: usize) {
        self.references.object(depth);
    }

    /// A value belongs to a limit of the output: an integer, or anything else.
    fn limit(&mut self, field: Field, integer: Option<u64>) {
        let limits = &mut self.scan.output_limits;
        match field {
            Field::OutputMax(OutputName::MaxTokens) | Field::FallbackMax => limits.max_tokens.note(integer),
            Field::OutputMax(OutputName::MaxOutputTokens) => limits.max_output_tokens.note(integer),
            Field::OutputMax(OutputName::GenerationConfig) => limits.generation_config.note(integer),
            Field::Candidates => limits.candidates.note(integer),
            _ => {}
        }
    }

    /// A value that a provider might take for one that leaves weir without the usage: it is not for weir to know which.
    fn doubtful(&mut self, field: Field) {
        let place = match field {
            Field::Background => "background",
            Field::IncludeUsage => "stream_options.include_usage",
            _ => return,
        };
        self.scan.unseen_usage.get_or_insert(place);
    }
}
