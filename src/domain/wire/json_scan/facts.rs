//! Reads the members of the top level that weir needs.

use super::key::BodyKey;
use super::lexer::{JsonToken, JsonTokenKind};
use super::{ModelSpan, Scan, ScanError, string};

/// Collects facts. Gets every key and value in order; only the first value after a key belongs to it.
#[derive(Debug, Default)]
pub(super) struct TopLevelReader {
    scan: Scan,
    /// The last top-level key, which tells what the members below it mean.
    last_top_level: Option<BodyKey>,
    /// The key of the next value, with its depth. That value takes it, so that no later array element counts as its value.
    next: Option<(usize, BodyKey)>,
    has_stream: bool,
    has_generation_config: bool,
}

impl TopLevelReader {
    pub(super) fn into_scan(self) -> Scan {
        self.scan
    }

    /// The last top-level key, if it is known.
    pub(super) fn last_top_level(&self) -> Option<BodyKey> {
        self.last_top_level
    }

    /// Whether the next value is that of `model`.
    pub(super) fn is_model_next(&self) -> bool {
        self.next == Some((1, BodyKey::Model))
    }

    /// Handles a key of an object at `depth` (1: the top level) that begins at byte `at`.
    pub(super) fn on_key(&mut self, depth: usize, key: Option<BodyKey>, at: usize) -> Result<(), ScanError> {
        if depth == 1 {
            self.last_top_level = key;
        }
        self.next = None;
        let Some(key) = key else { return Ok(()) };
        if let BodyKey::CacheControl | BodyKey::EncryptedContent | BodyKey::Signature = key {
            self.scan.is_account_bound = true;
        }
        let counts = match (depth, self.last_top_level) {
            (1, _) => {
                self.on_top_level_key(key, at)?;
                true
            }
            (2, Some(BodyKey::GenerationConfig)) => {
                matches!(
                    key,
                    BodyKey::MaxOutputTokens | BodyKey::MaxOutputTokensCamel | BodyKey::CandidateCount
                )
            }
            (2, Some(BodyKey::StreamOptions)) => key == BodyKey::IncludeUsage,
            // The object is an element of an array.
            (3, Some(BodyKey::Fallbacks)) => key == BodyKey::MaxTokens,
            _ => false,
        };
        self.next = counts.then_some((depth, key));
        Ok(())
    }

    fn on_top_level_key(&mut self, key: BodyKey, at: usize) -> Result<(), ScanError> {
        match key {
            // A first `model` has set this: the scan fails if its value is not a string.
            BodyKey::Model if self.scan.model.is_some() => return Err(ScanError::ModelTwice { at }),
            BodyKey::Stream if self.has_stream => return Err(ScanError::StreamTwice { at }),
            BodyKey::Stream => self.has_stream = true,
            BodyKey::Contents => self.scan.has_contents = true,
            // It is unknown which of two the provider uses.
            BodyKey::GenerationConfig if self.has_generation_config => {
                self.scan.output_limits.generation_config.add(None)
            }
            BodyKey::GenerationConfig => self.has_generation_config = true,
            _ => {}
        }
        Ok(())
    }

    /// Handles a value, or the first byte of an object or array.
    #[inline(always)]
    pub(super) fn on_value(&mut self, text: &[u8], value: JsonToken) -> Result<(), ScanError> {
        match self.next.take() {
            Some(field) => self.set_fact(field, text, value),
            None => Ok(()),
        }
    }

    fn set_fact(&mut self, field: (usize, BodyKey), text: &[u8], value: JsonToken) -> Result<(), ScanError> {
        let token = value.bytes_in(text);
        let truth = match value.kind {
            JsonTokenKind::True => Some(true),
            JsonTokenKind::False => Some(false),
            _ => None,
        };
        // The grammar is checked: a number that does not parse has a sign, a fraction, an exponent, or too many digits.
        let integer = match value.kind {
            JsonTokenKind::Number => std::str::from_utf8(token).ok().and_then(|token| token.parse().ok()),
            _ => None,
        };
        let Scan {
            output_max,
            output_limits: limits,
            ..
        } = &mut self.scan;
        match field {
            (1, BodyKey::Model) => {
                let text = (value.kind == JsonTokenKind::String)
                    .then(|| string::unescaped(token))
                    .flatten();
                let text = text.ok_or(ScanError::ModelNotString { at: value.start })?.into_owned();
                let value = value.start..value.end;
                self.scan.model = Some(ModelSpan { text, value });
            }
            (1, BodyKey::Stream) => self.scan.stream = truth.or(self.scan.stream),
            (1, BodyKey::Store) => self.scan.store = truth.or(self.scan.store),
            (1, BodyKey::MaxCompletionTokens) => *output_max = integer.or(*output_max),
            (1, BodyKey::MaxTokens) => {
                *output_max = integer.or(*output_max);
                limits.max_tokens.add(integer);
            }
            (3, BodyKey::MaxTokens) => limits.max_tokens.add(integer),
            (1, BodyKey::MaxOutputTokens) => {
                *output_max = integer.or(*output_max);
                limits.max_output_tokens.add(integer);
            }
            (2, BodyKey::MaxOutputTokens | BodyKey::MaxOutputTokensCamel) => {
                *output_max = integer.or(*output_max);
                limits.generation_config.add(integer);
            }
            (2, BodyKey::CandidateCount) => limits.candidates.add(integer),
            (1, BodyKey::Background) if truth != Some(false) => self.record_hidden_usage("background", value.kind),
            (2, BodyKey::IncludeUsage) if truth != Some(true) => {
                self.record_hidden_usage("stream_options.include_usage", value.kind);
            }
            (1, BodyKey::Thread | BodyKey::Diagnostics) => {
                self.scan.may_be_continued |= matches!(value.kind, JsonTokenKind::Object | JsonTokenKind::Array);
            }
            (1, BodyKey::PromptCache) if value.kind == JsonTokenKind::String => {
                self.scan.prompt_cache_key = Some(value.start..value.end);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records a member that may hide the usage from weir. Which values the provider reads so is unknown: all but `null` count.
    fn record_hidden_usage(&mut self, place: &'static str, kind: JsonTokenKind) {
        if kind != JsonTokenKind::Null {
            self.scan.unseen_usage.get_or_insert(place);
        }
    }
}
