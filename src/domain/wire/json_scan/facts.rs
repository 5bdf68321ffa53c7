//! The members of the top level that matter, and their values.

use super::key::Key;
use super::lexer::{Kind, Token};
use super::{ModelSpan, Scan, ScanError, string};

/// The facts found so far. Told of every key and every value in order; a value belongs to the key told last, once.
#[derive(Debug, Default)]
pub(super) struct Facts {
    scan: Scan,
    /// The last top-level key, so that its members can be told apart.
    top: Option<Key>,
    /// The key of the next value, with its depth; taken by it, so that no later array element is mistaken for it.
    next: Option<(usize, Key)>,
    has_stream: bool,
    has_generation_config: bool,
}

impl Facts {
    pub(super) fn into_scan(self) -> Scan {
        self.scan
    }

    /// The last top-level key, if it is known.
    pub(super) fn top(&self) -> Option<Key> {
        self.top
    }

    /// Whether the next value is that of `model`.
    pub(super) fn is_model_next(&self) -> bool {
        self.next == Some((1, Key::Model))
    }

    /// A key of an object at `depth` (1: the top level) that begins at byte `at`.
    pub(super) fn key(&mut self, depth: usize, key: Option<Key>, at: usize) -> Result<(), ScanError> {
        if depth == 1 {
            self.top = key;
        }
        self.next = None;
        let Some(key) = key else { return Ok(()) };
        if let Key::CacheControl | Key::EncryptedContent | Key::Signature = key {
            self.scan.is_account_bound = true;
        }
        let counts = match (depth, self.top) {
            (1, _) => {
                self.top_level_key(key, at)?;
                true
            }
            (2, Some(Key::GenerationConfig)) => {
                matches!(
                    key,
                    Key::MaxOutputTokens | Key::MaxOutputTokensCamel | Key::CandidateCount
                )
            }
            (2, Some(Key::StreamOptions)) => key == Key::IncludeUsage,
            // The object is an element of an array.
            (3, Some(Key::Fallbacks)) => key == Key::MaxTokens,
            _ => false,
        };
        self.next = counts.then_some((depth, key));
        Ok(())
    }

    fn top_level_key(&mut self, key: Key, at: usize) -> Result<(), ScanError> {
        match key {
            // A first `model` always left its value here: one that is no string ended the scan.
            Key::Model if self.scan.model.is_some() => return Err(ScanError::ModelTwice { at }),
            Key::Stream if self.has_stream => return Err(ScanError::StreamTwice { at }),
            Key::Stream => self.has_stream = true,
            Key::Contents => self.scan.has_contents = true,
            // Which of two a provider goes by is its own affair.
            Key::GenerationConfig if self.has_generation_config => self.scan.output_limits.generation_config.note(None),
            Key::GenerationConfig => self.has_generation_config = true,
            _ => {}
        }
        Ok(())
    }

    /// A value; of an object or array its first byte.
    #[inline(always)]
    pub(super) fn value(&mut self, text: &[u8], value: Token) -> Result<(), ScanError> {
        match self.next.take() {
            Some(field) => self.value_of(field, text, value),
            None => Ok(()),
        }
    }

    fn value_of(&mut self, field: (usize, Key), text: &[u8], value: Token) -> Result<(), ScanError> {
        let token = value.of(text);
        let truth = match value.kind {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => None,
        };
        // The grammar is checked: what does not parse has a sign, a fraction, an exponent, or too many digits.
        let integer = match value.kind {
            Kind::Number => std::str::from_utf8(token).ok().and_then(|token| token.parse().ok()),
            _ => None,
        };
        let Scan {
            output_max,
            output_limits: limits,
            ..
        } = &mut self.scan;
        match field {
            (1, Key::Model) => {
                let text = (value.kind == Kind::String).then(|| string::unescaped(token)).flatten();
                let text = text.ok_or(ScanError::ModelNotString { at: value.start })?.into_owned();
                let value = value.start..value.end;
                self.scan.model = Some(ModelSpan { text, value });
            }
            (1, Key::Stream) => self.scan.stream = truth.or(self.scan.stream),
            (1, Key::Store) => self.scan.store = truth.or(self.scan.store),
            (1, Key::MaxCompletionTokens) => *output_max = integer.or(*output_max),
            (1, Key::MaxTokens) => {
                *output_max = integer.or(*output_max);
                limits.max_tokens.note(integer);
            }
            (3, Key::MaxTokens) => limits.max_tokens.note(integer),
            (1, Key::MaxOutputTokens) => {
                *output_max = integer.or(*output_max);
                limits.max_output_tokens.note(integer);
            }
            (2, Key::MaxOutputTokens | Key::MaxOutputTokensCamel) => {
                *output_max = integer.or(*output_max);
                limits.generation_config.note(integer);
            }
            (2, Key::CandidateCount) => limits.candidates.note(integer),
            (1, Key::Background) if truth != Some(false) => self.hidden_usage("background", value.kind),
            (2, Key::IncludeUsage) if truth != Some(true) => {
                self.hidden_usage("stream_options.include_usage", value.kind);
            }
            (1, Key::Thread | Key::Diagnostics) => {
                self.scan.may_be_continued |= matches!(value.kind, Kind::Object | Kind::Array);
            }
            (1, Key::PromptCache) if value.kind == Kind::String => {
                self.scan.prompt_cache_key = Some(value.start..value.end);
            }
            _ => {}
        }
        Ok(())
    }

    /// A value that a provider might take for one that leaves weir without the usage: it is not for weir to know which.
    fn hidden_usage(&mut self, place: &'static str, kind: Kind) {
        if kind != Kind::Null {
            self.scan.unseen_usage.get_or_insert(place);
        }
    }
}
