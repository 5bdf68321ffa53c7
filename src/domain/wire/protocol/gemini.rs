//! The Gemini-style protocol: reads its answers, and writes weir's own errors in its shapes.

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, PathSet, Picker, Take};
use crate::domain::wire::protocol::facts::{Facts, in_band_error, keep, note, source};
use crate::domain::wire::protocol::varying::{Carried, Spoken, Varies, Varying};
use crate::domain::wire::protocol::{FailureKind, MidStreamFailure, made, spoken};
use crate::domain::wire::usage::{Modifiers, UsageSource};
use crate::domain::wire::usage::{Usage, fields::Fields};

const USAGE: usize = 0;
const MODEL: usize = 1;
const FINISH_REASON: usize = 2;
const BLOCK_REASON: usize = 3;
const ERROR: usize = 4;
const ERROR_STATUS: usize = 5;
const ERROR_CODE: usize = 6;
const SEARCHES: usize = 7;
/// The kinds of parts that are content; the first, text, is at this place and all others follow.
const FIRST_CONTENT: usize = 8;

macro_rules! part {
    ($kind:literal) => {
        Path::new(
            &[Key("candidates"), Each, Key("content"), Key("parts"), Each, Key($kind)],
            Take::Presence,
        )
    };
}

/// What to pick out of events and bodies.
pub(super) static PATHS: LazyLock<PathSet> =
    LazyLock::new(|| PathSet::new(&[PICKS, spoken::GEMINI, made::GEMINI].concat()));

/// Where the paths begin that say what an answer has made.
pub(super) const MADE: usize = PICKS.len() + spoken::GEMINI.len();

const PICKS: &[Path] = &[
    Path::new(&[Key("usageMetadata")], Take::Tree),
    Path::new(&[Key("modelVersion")], Take::Scalar),
    Path::new(&[Key("candidates"), Each, Key("finishReason")], Take::Scalar),
    Path::new(&[Key("promptFeedback"), Key("blockReason")], Take::Scalar),
    Path::new(&[Key("error")], Take::Presence),
    Path::new(&[Key("error"), Key("status")], Take::Scalar),
    Path::new(&[Key("error"), Key("code")], Take::Scalar),
    Path::new(
        &[
            Key("candidates"),
            Each,
            Key("groundingMetadata"),
            Key("webSearchQueries"),
            Each,
        ],
        Take::Count,
    ),
    part!("text"),
    part!("functionCall"),
    part!("inlineData"),
    part!("fileData"),
    part!("executableCode"),
    part!("codeExecutionResult"),
    part!("toolCall"),
    part!("toolResponse"),
];

const USAGE_KEY: &[u8] = b"\"usageMetadata\"";
/// What grows from chunk to chunk.
const COUNTS: &[Varying] = &[
    count(b"\"candidatesTokenCount\""),
    count(b"\"thoughtsTokenCount\""),
    count(b"\"totalTokenCount\""),
];

const fn count(key: &'static [u8]) -> Varying {
    let value = Varies::Count;
    Varying { key, value }
}

/// What an answer has reported. `usageMetadata` comes in every chunk and is cumulative: the last one counts, as a whole, because a
/// count that is zero is left out of it.
#[derive(Clone, Debug, Default)]
pub(super) struct GeminiState {
    usage_json: Vec<u8>,
    /// The usage came with the reason to finish, or behind it.
    usage_is_last: bool,
    searches: u64,
}

impl GeminiState {
    /// One chunk: an event of a stream, an element of an array, or a whole body.
    pub(super) fn chunk(&mut self, picker: &Picker, facts: &mut Facts) {
        self.searches = self.searches.max(picker.count(SEARCHES));
        note(&mut facts.model, picker.text(MODEL));
        let reason = picker.text(FINISH_REASON).or_else(|| picker.text(BLOCK_REASON));
        facts.terminal |= reason.is_some();
        note(&mut facts.finish_reason, reason);
        self.used(picker.raw(USAGE), facts);
        facts.content_seen |= Self::has_content(picker);
        if picker.is_present(ERROR) {
            facts.error = Some(in_band_error(
                picker.text(ERROR_STATUS),
                "error",
                picker.text(ERROR_CODE),
            ));
            facts.terminal = true;
        }
    }

    /// The usage of a chunk, if it carries one; `facts` are those behind it.
    pub(super) fn used(&mut self, usage: Option<&[u8]>, facts: &Facts) {
        keep(&mut self.usage_json, usage);
        if usage.is_some() {
            self.usage_is_last = facts.finish_reason.is_some();
        }
    }

    /// See [`super::dialect::Dialect::only_speaks`]. Most chunks bring more text, and have counts that grow with it.
    pub(super) fn only_speaks(picker: &Picker) -> Option<Spoken> {
        if !picker.has_only(&[USAGE, MODEL, FIRST_CONTENT]) {
            return None;
        }
        let usage = match picker.raw(USAGE) {
            Some(usage) => Some(Carried {
                key: USAGE_KEY,
                length: usage.len(),
            }),
            None if picker.is_present(USAGE) => return None,
            None => None,
        };
        Some(Spoken { varying: COUNTS, usage })
    }

    pub(super) fn has_content(picker: &Picker) -> bool {
        (FIRST_CONTENT..PICKS.len()).any(|at| picker.is_present(at))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.usage_json.capacity()
    }

    /// `serviceTier` says it plainly; `trafficType` is how the other of the two services says it.
    pub(super) fn modifiers(&self) -> Modifiers {
        let usage = Fields::parse(&self.usage_json).unwrap_or_default();
        Modifiers {
            service_tier: usage.name("serviceTier").or_else(|| usage.name("trafficType")),
            ..Modifiers::default()
        }
    }

    /// A count that is zero is left out: no output is an output of zero, unless some was seen that no count tells of.
    pub(super) fn usage_source(&self, facts: &Facts, body_whole: bool) -> Option<UsageSource> {
        let usage = Fields::parse(&self.usage_json)?;
        let parts = ["candidatesTokenCount", "thoughtsTokenCount"];
        let readable = parts
            .iter()
            .all(|key| usage.is_absent(key) || usage.count(key).is_some());
        let counted = parts.iter().any(|key| usage.count(key).is_some());
        let output_known = readable && (counted || !facts.content_seen);
        let last = self.usage_is_last || body_whole;
        Some(source(
            last && output_known && usage.count("promptTokenCount").is_some(),
        ))
    }

    /// Cached tokens lie inside the prompt's; thoughts and tool prompts are counted beside the candidates and the prompt.
    pub(super) fn usage(&self) -> Option<Usage> {
        let usage = Fields::parse(&self.usage_json)?;
        let prompt = usage.count("promptTokenCount").unwrap_or(0);
        let cache_read = usage.count("cachedContentTokenCount").unwrap_or(0).min(prompt);
        Some(Usage {
            input_uncached: prompt - cache_read,
            cache_read,
            output_text: usage.count("candidatesTokenCount").unwrap_or(0),
            output_reasoning: usage.count("thoughtsTokenCount").unwrap_or(0),
            tool_input: usage.count("toolUsePromptTokenCount").unwrap_or(0),
            web_searches: self.searches,
            ..Usage::default()
        })
    }
}

/// The error object that tells the client of a failure: an event's data, or an array's last element.
pub(super) fn failure_chunk(failure: &MidStreamFailure) -> Value {
    let status = match failure.kind {
        FailureKind::ProviderCut | FailureKind::Stopped => 503,
        FailureKind::ProviderTimeout => 504,
        FailureKind::LimitReached => 429,
        FailureKind::Internal => 500,
    };
    error_body(status, error_status(status), &failure.message)
}

/// The event that tells the client of a failure, ended as the protocol ends its lines.
pub(super) fn failure_event(failure: &MidStreamFailure) -> Vec<u8> {
    format!("data: {}\r\n\r\n", failure_chunk(failure)).into_bytes()
}

/// The `error.status` that goes with a status.
pub(in crate::domain) fn error_status(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        500 => "INTERNAL",
        501.. => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

pub(in crate::domain) fn error_body(status: u16, name: &str, message: &str) -> Value {
    json!({ "error": { "code": status, "message": message, "status": name } })
}
