//! The Gemini-style protocol: reads a provider's answers, and writes weir's errors in the protocol's form.

use std::{
    borrow::Cow,
    sync::{LazyLock, OnceLock},
};

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::{
        ObjectMarks, PathSet, PickPath, PickRule,
        PickSegment::{self, Each, Key},
        Picks,
    },
    protocol::{
        AnswerFacts, Break, created_state, in_band_error, reported_source, update_json, update_text,
        varying::{self, TextDelta, VaryingKind, VaryingMember, VerbatimMember},
    },
    usage::{Modalities, PriceModifiers, UnlimitedWork, Usage, UsageSource, fields::ReportField},
};

const USAGE: usize = 0;
const MODEL: usize = 1;
const FINISH_REASON: usize = 2;
const BLOCK_REASON: usize = 3;
const ERROR: usize = 4;
const ERROR_STATUS: usize = 5;
const ERROR_CODE: usize = 6;
const SEARCHES: usize = 7;
/// The index of the path of text parts. The paths of the other kinds of content parts follow it.
const FIRST_CONTENT: usize = 8;

macro_rules! part {
    ($kind:literal) => {
        content_part(&[Key("candidates"), Each, Key("content"), Key("parts"), Each, Key($kind)])
    };
}

/// The paths to pick out of events and bodies of the Gemini-style protocol.
pub(super) static PATHS: LazyLock<PathSet> = LazyLock::new(|| {
    PathSet::new(
        &[
            PICKS,
            &CANDIDATE_PATHS,
            &TOOL_PATHS,
            varying::GEMINI,
            created_state::GEMINI,
        ]
        .concat(),
    )
});

/// The index in [`PATHS`] of the first path of created state.
pub(super) const MADE: usize = OWN_TOOLS + TOOL_PATHS.len() + varying::GEMINI.len();
/// The index in [`PATHS`] of the first path that marks candidates.
const CANDIDATES: usize = PICKS.len();
/// The index in [`PATHS`] of the first path that counts the work of the provider's tools.
const OWN_TOOLS: usize = CANDIDATES + CANDIDATE_PATHS.len();

const PICKS: &[PickPath] = &[
    PickPath::new(&[Key("usageMetadata")], PickRule::Fields(&USAGE_FIELDS)),
    PickPath::new(&[Key("modelVersion")], PickRule::Scalar),
    PickPath::new(&[Key("candidates"), Each, Key("finishReason")], PickRule::List),
    PickPath::new(&[Key("promptFeedback"), Key("blockReason")], PickRule::Scalar),
    PickPath::new(&[Key("error")], PickRule::Presence),
    PickPath::new(&[Key("error"), Key("status")], PickRule::Scalar),
    PickPath::new(&[Key("error"), Key("code")], PickRule::Scalar),
    PickPath::new(
        &[
            Key("candidates"),
            Each,
            Key("groundingMetadata"),
            Key("webSearchQueries"),
            Each,
        ],
        PickRule::Count,
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

/// The names of the fields of a usage report.
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
/// The counts in a usage report that grow from chunk to chunk.
const COUNTS: &[VaryingMember] = &[
    varying_count(b"\"candidatesTokenCount\""),
    varying_count(b"\"thoughtsTokenCount\""),
    varying_count(b"\"totalTokenCount\""),
];

const fn varying_count(key: &'static [u8]) -> VaryingMember {
    let value = VaryingKind::Count;
    VaryingMember { key, value }
}

/// The state of reading the reports of one answer. `usageMetadata` is cumulative and comes in every chunk. Only the last one is
/// used: a count that it omits is zero.
#[derive(Clone, Debug, Default)]
pub(super) struct GeminiState {
    usage_json: Vec<u8>,
    /// The usage parsed from `usage_json`. It is parsed only when it is needed, because it changes with every chunk and is seldom
    /// needed.
    report: OnceLock<Option<GeminiReport>>,
    /// Whether the usage came with the end of the answer, or after it.
    usage_is_last: bool,
    candidates: Candidates,
    searches: u64,
    own_tools: ProviderToolCounts,
}

/// The usage that an answer reports.
#[derive(Clone, Debug)]
struct GeminiReport {
    usage: Usage,
    has_prompt: bool,
    /// Whether every output count that is present can be read.
    readable: bool,
    /// Whether at least one output count was read.
    counted: bool,
    service_tier: Option<SmolStr>,
}

impl GeminiReport {
    /// Reads a usage report. The prompt's count includes the cached tokens. The candidates' count does not include the thoughts,
    /// unless the total shows that it does (see [`are_thoughts_included`]). The prompt's count does not include tool prompts.
    /// Each count includes the audio and image tokens that its details list. The details of the prompt also include cached
    /// tokens. Of the vendor's two services, one reports the tier as `serviceTier`, the other as `trafficType`.
    fn from_fields(fields: [ReportField<'_>; USAGE_FIELDS.len()]) -> Self {
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
        let (prompt, output) = (prompt.count(), outputs.map(ReportField::count));
        let [candidates, reasoning] = output.map(Option::unwrap_or_default);
        let cache_read = cached.count().unwrap_or(0).min(prompt.unwrap_or(0));
        let tool_input = tool_prompt.count().unwrap_or(0);
        let inputs = [prompt.unwrap_or(0), tool_input];
        let inside = are_thoughts_included(candidates, reasoning, inputs, total.count());
        let text = candidates - if inside { reasoning } else { 0 };
        let uncached = prompt.unwrap_or(0) - cache_read;
        let read = Modalities::from_list(cached_details).at_most(cache_read);
        let fresh = Modalities::from_list(prompt_details).minus(read).at_most(uncached);
        let spoken = Modalities::from_list(candidates_details).at_most(text);
        let is_readable = |(field, count): (&ReportField<'_>, &Option<u64>)| count.is_some() || field.is_absent();
        Self {
            usage: Usage {
                input_uncached: fresh.remaining(uncached),
                input_audio: fresh.audio,
                input_image: fresh.image,
                cache_read: read.remaining(cache_read),
                cache_read_audio: read.audio,
                cache_read_image: read.image,
                output_text: spoken.remaining(text),
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

    /// Handles a chunk: an event of a stream, an element of an array, or a complete body.
    pub(super) fn on_chunk(&mut self, picks: &Picks<'_>, facts: &mut AnswerFacts) {
        self.searches = self.searches.max(picks.count(SEARCHES));
        self.own_tools.on_chunk(picks, OWN_TOOLS);
        update_text(&mut facts.model, picks.text(MODEL));
        let refusal = last_reason(picks, BLOCK_REASON);
        self.candidates
            .on_chunk(picks.each_marks(CANDIDATES + EACH), refusal.is_some());
        update_text(&mut facts.finish_reason, last_reason(picks, FINISH_REASON).or(refusal));
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
        match picks.parsed_fields(USAGE) {
            Some(fields) => {
                self.report = OnceLock::from(Some(GeminiReport::from_fields(fields)));
                self.usage_is_last = have_ended;
            }
            None => self.set_usage(picks.raw(USAGE)),
        }
    }

    /// Records the usage of a chunk. Does nothing if the chunk has no usage.
    pub(super) fn set_usage(&mut self, usage: Option<&[u8]>) {
        if usage.is_some() {
            update_json(&mut self.usage_json, usage);
            self.report = OnceLock::new();
            self.usage_is_last = self.candidates.have_ended();
        }
    }

    /// Whether the chunk contains any part of an answer.
    pub(super) fn is_answer_event(picks: &Picks<'_>) -> bool {
        !picks.has_only(&[])
    }

    /// Whether the chunk reports something that a later chunk would revoke (see [`super::dialect::AnswerDialect::is_revocable`]).
    pub(super) fn is_revocable(picks: &Picks<'_>, facts: &AnswerFacts) -> bool {
        let names_another = picks
            .text(MODEL)
            .is_some_and(|model| facts.model.as_deref() != Some(&model));
        let ends = has_ended_candidate(picks.each_marks(CANDIDATES + EACH));
        names_another || ends || last_reason(picks, BLOCK_REASON).is_some()
    }

    /// Returns the members that can differ in the next chunk, if the chunk only adds text (see
    /// [`super::dialect::AnswerDialect::text_delta`]). Most chunks only add text, and contain counts that grow with the text.
    pub(super) fn text_delta(picks: &Picks<'_>) -> Option<TextDelta> {
        let (each, index) = (CANDIDATES + EACH, CANDIDATES + INDEX);
        if !(picks.is_present(FIRST_CONTENT) && picks.has_only(&[USAGE, MODEL, FIRST_CONTENT, each, index])) {
            return None;
        }
        let usage = match picks.raw(USAGE) {
            Some(usage) => Some(VerbatimMember {
                key: USAGE_KEY,
                length: usage.len(),
            }),
            None if picks.is_present(USAGE) => return None,
            None => None,
        };
        Some(TextDelta { varying: COUNTS, usage })
    }

    pub(super) fn has_content(picks: &Picks<'_>) -> bool {
        (FIRST_CONTENT..PICKS.len()).any(|at| picks.is_present(at))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.usage_json.capacity()
    }

    fn report(&self) -> Option<&GeminiReport> {
        let read = || {
            ReportField::from_json(&self.usage_json)
                .object(&USAGE_FIELDS)
                .map(GeminiReport::from_fields)
        };
        self.report.get_or_init(read).as_ref()
    }

    pub(super) fn modifiers(&self) -> PriceModifiers {
        PriceModifiers {
            service_tier: self.report().and_then(|said| said.service_tier.clone()),
            ..PriceModifiers::default()
        }
    }

    /// Returns whether the reported usage is final; `None` without a report. Providers omit counts of zero, so a missing output
    /// count means zero, unless content has arrived.
    pub(super) fn usage_source(&self, facts: &AnswerFacts, body_whole: bool) -> Option<UsageSource> {
        let said = self.report()?;
        let output_known = said.readable && (said.counted || !facts.content_seen);
        let last = self.usage_is_last || body_whole;
        Some(reported_source(last && output_known && said.has_prompt))
    }

    pub(super) fn unlimited(&self) -> UnlimitedWork {
        self.own_tools.unlimited(self.searches)
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        Some(Usage {
            web_searches: self.searches,
            ..self.report()?.usage
        })
    }
}

/// Whether the count of the candidates includes the thoughts. It does if the total is the sum of prompt and candidates. If the
/// total is another number, the count does not include the thoughts, because the vendor's documentation says that they are
/// counted separately (<https://ai.google.dev/api/generate-content#UsageMetadata>).
fn are_thoughts_included(candidates: u64, thoughts: u64, [prompt, tool_prompt]: [u64; 2], total: Option<u64>) -> bool {
    let sum = |counts: &[u64]| counts.iter().copied().fold(0, u64::saturating_add);
    let is_total = |counts: &[u64]| total == Some(sum(counts));
    let beside = is_total(&[prompt, tool_prompt, candidates, thoughts]);
    let among = is_total(&[prompt, tool_prompt, candidates]) || is_total(&[prompt, candidates]);
    among && !beside && thoughts <= candidates
}

/// Returns the last finish or block reason at a path. Empty reasons, and the values that mean no reason, are ignored.
fn last_reason<'p>(picks: &'p Picks<'_>, path: usize) -> Option<Cow<'p, str>> {
    let is_none = |reason: &str| {
        matches!(
            reason,
            "" | "0" | "false" | "FINISH_REASON_UNSPECIFIED" | "BLOCK_REASON_UNSPECIFIED"
        )
    };
    picks.each_text(path).filter(|reason| !is_none(reason)).last()
}

/// Returns the error object for a break. The object becomes the data of an event or the last element of an array.
pub(super) fn failure_chunk(why: Break) -> Value {
    let status = match why {
        Break::ProviderCut | Break::ProviderEnded | Break::Stopped => 503,
        Break::ProviderTimeout => 504,
        Break::LimitReached => 429,
        Break::Internal => 500,
    };
    error_body(status, error_status(status), why.message())
}

/// Returns the error event for a break, with the line ends that the protocol uses.
pub(super) fn failure_event(why: Break) -> Vec<u8> {
    format!("data: {}\r\n\r\n", failure_chunk(why)).into_bytes()
}

/// Returns the `error.status` for an HTTP status.
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

/// The mark of a candidate that has content.
const CONTENT: u8 = 1;
/// The mark of a candidate that has a finish reason.
const REASON: u8 = 1 << 1;
/// The maximum number of candidates that are distinguished. Further ones share the last bit. The vendor allows at most eight
/// (<https://ai.google.dev/api/generate-content>, `candidateCount`).
const PLACES: u8 = 64;
/// The JSON texts that mean that there is no finish reason: an enum value, written as its name or as its number.
const NO_REASON: &[&str] = &["\"FINISH_REASON_UNSPECIFIED\"", "0"];

/// The paths whose values mark the candidates of a chunk.
const CANDIDATE_PATHS: [PickPath; 3] = [
    PickPath::new(&[Key("candidates"), Each], PickRule::ListMarked),
    PickPath::new(&[Key("candidates"), Each, Key("index")], PickRule::MarkNumber),
    PickPath::new(
        &[Key("candidates"), Each, Key("finishReason")],
        PickRule::MarkPresence {
            bits: REASON,
            none: NO_REASON,
        },
    ),
];
/// The index in [`CANDIDATE_PATHS`] of the path that leads to the candidates. [`INDEX`] is the index of the path that leads to a
/// candidate's number.
const EACH: usize = 0;
const INDEX: usize = 1;

/// Returns the path of one kind of content parts. It marks the candidate that contains the part.
const fn content_part(segments: &'static [PickSegment]) -> PickPath {
    PickPath::new(
        segments,
        PickRule::MarkPresence {
            bits: CONTENT,
            none: &[],
        },
    )
}

/// The candidates of an answer so far, one bit for each.
///
/// A candidate with a finish reason has ended, unless more of its content follows. The output of a tool that the provider runs
/// ends with a finish reason of its own, and the candidate continues after it. Some servers send an empty finish reason before
/// the real one, or send a finish reason in each chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Candidates {
    begun: u64,
    ended: u64,
    /// Whether the provider has refused the prompt and no content has arrived since then.
    refused: bool,
}

impl Candidates {
    /// Handles the candidates of a chunk. Providers omit an `index` of zero, so a candidate without an `index` gets its position
    /// in the chunk as its number. `refuses` is true if the chunk refuses the prompt.
    fn on_chunk(&mut self, candidates: impl Iterator<Item = ObjectMarks>, refuses: bool) {
        for (place, ObjectMarks { bits, number }) in (0..PLACES).chain(std::iter::repeat(PLACES)).zip(candidates) {
            let candidate = 1 << number.unwrap_or(place).min(PLACES - 1);
            self.begun |= candidate;
            if bits & REASON != 0 {
                self.ended |= candidate;
            } else if bits & CONTENT != 0 {
                self.ended &= !candidate;
                self.refused = false;
            }
        }
        self.refused |= refuses;
    }

    /// Whether all candidates have ended.
    fn have_ended(&self) -> bool {
        self.refused || self.begun != 0 && self.ended == self.begun
    }
}

/// Whether one of these candidates has a finish reason.
fn has_ended_candidate(mut candidates: impl Iterator<Item = ObjectMarks>) -> bool {
    candidates.any(|candidate| candidate.bits & REASON != 0)
}

macro_rules! count {
    ($take:expr, $($kind:literal),+) => {
        PickPath::new(
            &[Key("candidates"), Each, Key("content"), Key("parts"), Each, $(Key($kind)),+],
            $take,
        )
    };
}

/// The rule that counts the strings that begin with `image`, as the media types of images do.
const IMAGE: PickRule = PickRule::CountBeginning(&["image"]);

/// The paths that count, in this order, the calls of the provider's own tools, the results of these calls, and images.
const TOOL_PATHS: [PickPath; 6] = [
    count!(PickRule::Count, "executableCode"),
    count!(PickRule::Count, "toolCall"),
    count!(PickRule::Count, "codeExecutionResult"),
    count!(PickRule::Count, "toolResponse"),
    count!(IMAGE, "inlineData", "mimeType"),
    count!(IMAGE, "fileData", "mimeType"),
];

/// The numbers of calls of the provider's own tools, of results of these calls, and of images in the answer so far.
#[derive(Clone, Copy, Debug, Default)]
struct ProviderToolCounts {
    calls: u64,
    results: u64,
    images: u64,
}

impl ProviderToolCounts {
    /// Adds the counts of a chunk. `base` is the index of the first path of [`TOOL_PATHS`].
    fn on_chunk(&mut self, picks: &Picks<'_>, base: usize) {
        let count = |at: usize| picks.count(base + at);
        self.calls = self.calls.saturating_add(count(0) + count(1));
        self.results = self.results.saturating_add(count(2) + count(3));
        self.images = self.images.saturating_add(count(4) + count(5));
    }

    /// Returns the total work. `searches`, which are reported elsewhere, are added. A call can appear without its result, and a
    /// result without its call, so the larger of the two numbers is used.
    fn unlimited(&self, searches: u64) -> UnlimitedWork {
        UnlimitedWork {
            tool_calls: self.calls.max(self.results).saturating_add(searches),
            images: self.images,
        }
    }
}
