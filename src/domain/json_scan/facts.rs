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
    OutputMax,
    GenerationConfig,
    Tools,
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
            2 if self.top == Field::GenerationConfig
                && (key.is(body, "maxOutputTokens") || key.is(body, "max_output_tokens")) =>
            {
                Field::OutputMax
            }
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
        Ok(
            if is_any(&["max_tokens", "max_output_tokens", "max_completion_tokens"]) {
                Field::OutputMax
            } else if is_any(&["generationConfig", "generation_config"]) {
                Field::GenerationConfig
            } else if key.is(body, "tools") {
                Field::Tools
            } else {
                Field::Other
            },
        )
    }

    pub(super) fn string(&mut self, body: &str, value: &StringToken) {
        if mem::take(&mut self.next) == Field::Model {
            self.scan.model = Some(ModelSpan {
                text: value.decode(body),
                value: value.span.clone(),
            });
        }
    }

    pub(super) fn number(&mut self, at: usize, integer: Option<u64>) -> Result<(), ScanError> {
        let field = self.not_a_string(at)?;
        if field == Field::OutputMax && integer.is_some() {
            self.scan.output_max = integer;
        }
        Ok(())
    }

    pub(super) fn boolean(&mut self, at: usize, value: bool) -> Result<(), ScanError> {
        if self.not_a_string(at)? == Field::Stream {
            self.scan.stream = Some(value);
        }
        Ok(())
    }

    /// A null, an array or an object starts at byte `at`.
    pub(super) fn other(&mut self, at: usize) -> Result<(), ScanError> {
        self.not_a_string(at).map(|_| ())
    }

    fn not_a_string(&mut self, at: usize) -> Result<Field, ScanError> {
        match mem::take(&mut self.next) {
            Field::Model => Err(ScanError::ModelNotString { at }),
            field => Ok(field),
        }
    }
}
