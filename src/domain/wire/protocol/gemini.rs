//! The Gemini-style protocol: reads its answers, and writes weir's own errors in its shapes.

mod candidates;
mod own_tools;

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, PathSet, Picks, Take};
use crate::domain::wire::protocol::facts::{Facts, in_band_error, keep, note, source};
use crate::domain::wire::protocol::varying::{Carried, Spoken, Varies, Varying};
use crate::domain::wire::protocol::{Break, made, spoken};
use crate::domain::wire::usage::{Modalities, Usage, fields::Field};
use crate::domain::wire::usage::{Modifiers, Unlimited, UsageSource};
use candidates::{Candidates, part};
use own_tools::OwnTools;

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
        part(&[Key("candidates"), Each, Key("content"), Key("parts"), Each, Key($kind)])
    };
}

/// What to pick out of events and bodies.
pub(super) static PATHS: LazyLock<PathSet> = LazyLock::new(|| {
    PathSet::new(
        &[
            PICKS,
            &candidates::PATHS,
            &own_tools::PATHS,
            spoken::GEMINI,
            made::GEMINI,
        ]
        .concat(),
    )
});

/// Where the paths begin that say what an answer has made.
pub(super) const MADE: usize = OWN_TOOLS + own_tools::PATHS.len() + spoken::GEMINI.len();
/// Where the paths begin that mark the candidates.
const CANDIDATES: usize = PICKS.len();
/// Where the paths begin that count what the provider's tools did.
const OWN_TOOLS: usize = CANDIDATES + candidates::PATHS.len();

const PICKS: &[Path] = &[
    Path::new(&[Key("usageMetadata")], Take::Fields(&USAGE_FIELDS)),
    Path::new(&[Key("modelVersion")], Take::Scalar),
    Path::new(&[Key("candidates"), Each, Key("finishReason")], Take::List),
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

/// What a report says.
const USAGE_FIELDS: [&str; 11] = [
    "promptTokenCount",
    "cachedContentTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
    "promptTokensDetails",
    "cacheTokensDetails",
    "candidatesTokensDetails",
    "serviceTier",
    "trafficType",
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
    /// What that says, once somebody has asked: it changes with every chunk, and is asked for seldom.
    said: OnceLock<Option<GeminiReport>>,
    /// The usage came with the end, or behind it.
    usage_is_last: bool,
    candidates: Candidates,
    searches: u64,
    own_tools: OwnTools,
}

/// The usage that an answer reports.
#[derive(Clone, Debug)]
struct GeminiReport {
    usage: Usage,
    has_prompt: bool,
    /// What tells of the output can be read, as far as it is there.
    readable: bool,
    /// Something tells of the output.
    counted: bool,
    service_tier: Option<SmolStr>,
}

impl GeminiReport {
    /// Cached tokens lie inside the prompt's; thoughts and tool prompts are counted beside the candidates and the prompt, unless
    /// the total says that the thoughts are among the candidates (see [`are_among`]). Sound and images are a part of each count that
    /// has details; cached ones of the prompt's, too.
    /// `serviceTier` says the tier plainly; `trafficType` is how the other of the two services says it.
    fn of(fields: [Field<'_>; USAGE_FIELDS.len()]) -> Self {
        let [
            prompt,
            cached,
            candidates,
            thoughts,
            tool_prompt,
            total,
            details @ ..,
            tier,
            traffic,
        ] = fields;
        let [prompt_details, cached_details, candidates_details] = details;
        let outputs = [candidates, thoughts];
        let (prompt, output) = (prompt.count(), outputs.map(Field::count));
        let [candidates, reasoning] = output.map(Option::unwrap_or_default);
        let cache_read = cached.count().unwrap_or(0).min(prompt.unwrap_or(0));
        let tool_input = tool_prompt.count().unwrap_or(0);
        let inputs = [prompt.unwrap_or(0), tool_input];
        let inside = are_among(candidates, reasoning, inputs, total.count());
        let text = candidates - if inside { reasoning } else { 0 };
        let uncached = prompt.unwrap_or(0) - cache_read;
        let read = Modalities::of_list(cached_details).within(cache_read);
        let fresh = Modalities::of_list(prompt_details).beyond(read).within(uncached);
        let spoken = Modalities::of_list(candidates_details).within(text);
        let is_readable = |(field, count): (&Field<'_>, &Option<u64>)| count.is_some() || field.is_absent();
        Self {
            usage: Usage {
                input_uncached: fresh.rest(uncached),
                input_audio: fresh.audio,
                input_image: fresh.image,
                cache_read: read.rest(cache_read),
                cache_read_audio: read.audio,
                cache_read_image: read.image,
                output_text: spoken.rest(text),
                output_audio: spoken.audio,
                output_image: spoken.image,
                output_reasoning: reasoning,
                tool_input,
                ..Usage::default()
            },
            has_prompt: prompt.is_some(),
            readable: outputs.iter().zip(&output).all(is_readable),
            counted: output.iter().any(Option::is_some),
            service_tier: tier.name().or_else(|| traffic.name()),
        }
    }
}

impl GeminiState {
    /// Whether a chunk is an error.
    pub(super) fn is_error(picks: &Picks<'_>) -> bool {
        picks.is_present(ERROR)
    }

    /// One chunk: an event of a stream, an element of an array, or a whole body.
    pub(super) fn chunk(&mut self, picks: &Picks<'_>, facts: &mut Facts) {
        self.searches = self.searches.max(picks.count(SEARCHES));
        self.own_tools.chunk(picks, OWN_TOOLS);
        note(&mut facts.model, picks.text(MODEL));
        let refusal = reason(picks, BLOCK_REASON);
        self.candidates
            .chunk(picks.each_marks(CANDIDATES + candidates::EACH), refusal.is_some());
        note(&mut facts.finish_reason, reason(picks, FINISH_REASON).or(refusal));
        facts.content_seen |= Self::has_content(picks);
        if Self::is_error(picks) {
            facts.error = Some(in_band_error(picks.text(ERROR_STATUS), "error", picks.text(ERROR_CODE)));
        }
        let have_ended = self.candidates.have_ended();
        facts.terminal = have_ended || facts.error.is_some();
        if !facts.terminal {
            facts.finish_reason = None;
        }
        self.usage_is_last &= have_ended;
        match picks.fields_read(USAGE) {
            Some(fields) => {
                self.said = OnceLock::from(Some(GeminiReport::of(fields)));
                self.usage_is_last = have_ended;
            }
            None => self.used(picks.raw(USAGE)),
        }
    }

    /// The usage of a chunk, if it carries one.
    pub(super) fn used(&mut self, usage: Option<&[u8]>) {
        if usage.is_some() {
            keep(&mut self.usage_json, usage);
            self.said = OnceLock::new();
            self.usage_is_last = self.candidates.have_ended();
        }
    }

    /// Whether the chunk has anything of an answer.
    pub(super) fn says_something(picks: &Picks<'_>) -> bool {
        !picks.has_only(&[])
    }

    /// See [`super::dialect::Dialect::can_be_taken_back`].
    pub(super) fn can_be_taken_back(picks: &Picks<'_>, facts: &Facts) -> bool {
        let names_another = picks
            .text(MODEL)
            .is_some_and(|model| facts.model.as_deref() != Some(&model));
        let ends = candidates::one_ends(picks.each_marks(CANDIDATES + candidates::EACH));
        names_another || ends || reason(picks, BLOCK_REASON).is_some()
    }

    /// See [`super::dialect::Dialect::only_speaks`]. Most chunks bring more text, and have counts that grow with it.
    pub(super) fn only_speaks(picks: &Picks<'_>) -> Option<Spoken> {
        let (each, index) = (CANDIDATES + candidates::EACH, CANDIDATES + candidates::INDEX);
        if !(picks.is_present(FIRST_CONTENT) && picks.has_only(&[USAGE, MODEL, FIRST_CONTENT, each, index])) {
            return None;
        }
        let usage = match picks.raw(USAGE) {
            Some(usage) => Some(Carried {
                key: USAGE_KEY,
                length: usage.len(),
            }),
            None if picks.is_present(USAGE) => return None,
            None => None,
        };
        Some(Spoken { varying: COUNTS, usage })
    }

    pub(super) fn has_content(picks: &Picks<'_>) -> bool {
        (FIRST_CONTENT..PICKS.len()).any(|at| picks.is_present(at))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.usage_json.capacity()
    }

    fn said(&self) -> Option<&GeminiReport> {
        let read = || Field::of(&self.usage_json).object(&USAGE_FIELDS).map(GeminiReport::of);
        self.said.get_or_init(read).as_ref()
    }

    pub(super) fn modifiers(&self) -> Modifiers {
        Modifiers {
            service_tier: self.said().and_then(|said| said.service_tier.clone()),
            ..Modifiers::default()
        }
    }

    /// A count that is zero is left out: no output is an output of zero, unless some was seen that no count tells of.
    pub(super) fn usage_source(&self, facts: &Facts, body_whole: bool) -> Option<UsageSource> {
        let said = self.said()?;
        let output_known = said.readable && (said.counted || !facts.content_seen);
        let last = self.usage_is_last || body_whole;
        Some(source(last && output_known && said.has_prompt))
    }

    pub(super) fn unlimited(&self) -> Unlimited {
        self.own_tools.unlimited(self.searches)
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        Some(Usage {
            web_searches: self.searches,
            ..self.said()?.usage
        })
    }
}

/// Whether the thoughts are counted among the candidates: their total is that of prompt and candidates. The vendor counts them
/// beside (<https://ai.google.dev/api/generate-content#UsageMetadata>); so it is taken where the total says neither.
fn are_among(candidates: u64, thoughts: u64, [prompt, tool_prompt]: [u64; 2], total: Option<u64>) -> bool {
    let sum = |counts: &[u64]| counts.iter().copied().fold(0, u64::saturating_add);
    let is_total = |counts: &[u64]| total == Some(sum(counts));
    let beside = is_total(&[prompt, tool_prompt, candidates, thoughts]);
    let among = is_total(&[prompt, tool_prompt, candidates]) || is_total(&[prompt, candidates]);
    among && !beside && thoughts <= candidates
}

/// The last reason for the end at a path: neither empty nor the word for none.
fn reason<'p>(picks: &'p Picks<'_>, path: usize) -> Option<Cow<'p, str>> {
    let is_none = |reason: &str| {
        matches!(
            reason,
            "" | "0" | "false" | "FINISH_REASON_UNSPECIFIED" | "BLOCK_REASON_UNSPECIFIED"
        )
    };
    picks.each_text(path).filter(|reason| !is_none(reason)).last()
}

/// The error object that tells the client of a failure: an event's data, or an array's last element.
pub(super) fn failure_chunk(why: Break) -> Value {
    let status = match why {
        Break::ProviderCut | Break::ProviderEnded | Break::Stopped => 503,
        Break::ProviderTimeout => 504,
        Break::LimitReached => 429,
        Break::Internal => 500,
    };
    error_body(status, error_status(status), why.message())
}

/// The event that tells the client of a failure, ended as the protocol ends its lines.
pub(super) fn failure_event(why: Break) -> Vec<u8> {
    format!("data: {}\r\n\r\n", failure_chunk(why)).into_bytes()
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
