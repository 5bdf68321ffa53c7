//! Which keys of the top level matter, and what they said.

use std::mem;

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
}

impl Facts {
    pub(super) fn into_scan(self) -> Scan {
        self.scan
    }

    /// Whether the last key was of the tools that the request declares, or their own.
    pub(super) fn in_tools(&self) -> bool {
        self.top == Field::Tools
    }

    /// A key of an object at `depth` (1: the top level).
    pub(super) fn key(&mut self, depth: usize, body: &str, key: &StringToken) -> Result<(), ScanError> {
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
        let is_any = |names: &[&str]| names.iter().any(|name| key.is(body, name));
        let output_names = [
            ("max_tokens", OutputName::MaxTokens),
            ("max_output_tokens", OutputName::MaxOutputTokens),
            ("max_completion_tokens", OutputName::MaxCompletionTokens),
        ];
        let output = output_names.into_iter().find(|(name, _)| key.is(body, name));
        Ok(match output {
            Some((_, name)) => Field::OutputMax(name),
            None if is_any(&["generationConfig", "generation_config"]) => {
                if mem::replace(&mut self.has_generation_config, true) {
                    // Which of two a provider goes by is its own affair.
                    self.scan.output_limits.generation_config.note(None);
                }
                Field::GenerationConfig
            }
            None if key.is(body, "fallbacks") => Field::Fallbacks,
            None if key.is(body, "tools") => Field::Tools,
            None => Field::Other,
        })
    }

    /// A value belongs to a limit of the output: an integer, or anything else.
    fn limit(&mut self, field: Field, integer: Option<u64>) {
        let limits = &mut self.scan.output_limits;
        match field {
            Field::OutputMax(OutputName::MaxTokens) | Field::FallbackMax => limits.max_tokens.note(integer),
            Field::OutputMax(OutputName::MaxOutputTokens) => limits.max_output_tokens.note(integer),
            Field::OutputMax(OutputName::GenerationConfig) => limits.generation_config.note(integer),
            Field::Candidates => limits.candidates.note(integer),
            Field::OutputMax(OutputName::MaxCompletionTokens)
            | Field::Other
            | Field::Model
            | Field::Stream
            | Field::GenerationConfig
            | Field::Fallbacks
            | Field::Tools => {}
        }
    }

    pub(super) fn string(&mut self, body: &str, value: &StringToken) {
        let field = mem::take(&mut self.next);
        self.limit(field, None);
        if field == Field::Model {
            self.scan.model = Some(ModelSpan {
                text: value.decode(body),
                value: value.span.clone(),
            });
        }
    }

    pub(super) fn number(&mut self, at: usize, integer: Option<u64>) -> Result<(), ScanError> {
        let field = self.not_a_string(at)?;
        self.limit(field, integer);
        if matches!(field, Field::OutputMax(_)) && integer.is_some() {
            self.scan.output_max = integer;
        }
        Ok(())
    }

    pub(super) fn boolean(&mut self, at: usize, value: bool) -> Result<(), ScanError> {
        let field = self.not_a_string(at)?;
        self.limit(field, None);
        if field == Field::Stream {
            self.scan.stream = Some(value);
        }
        Ok(())
    }

    /// A null, an array or an object starts at byte `at`.
    pub(super) fn other(&mut self, at: usize) -> Result<(), ScanError> {
        let field = self.not_a_string(at)?;
        self.limit(field, None);
        Ok(())
    }

    fn not_a_string(&mut self, at: usize) -> Result<Field, ScanError> {
        match mem::take(&mut self.next) {
            Field::Model => Err(ScanError::ModelNotString { at }),
            field => Ok(field),
        }
    }
}
