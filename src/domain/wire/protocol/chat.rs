//! The `chat/completions` protocol of providers: reads its answers. Clients cannot use this protocol, so weir writes no answers
//! in it.

use std::sync::LazyLock;

use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::{
        PathSet, PickPath, PickRule,
        PickSegment::{Each, Key},
        Picks,
    },
    protocol::{
        AnswerFacts, in_band_error, reported_source, update_text,
        varying::{self, TextDelta, VaryingKind, VaryingMember},
    },
    usage::{PriceModifiers, Usage, UsageSource, fields::ReportField},
};

const USAGE: usize = 0;
const MODEL: usize = 1;
const SERVICE_TIER: usize = 2;
const FINISH_REASON: usize = 3;
const ERROR: usize = 4;
const ERROR_TYPE: usize = 5;
const ERROR_CODE: usize = 6;
const CHOICES: usize = 7;
/// The index of the first path that leads to content. The paths after it lead to the other kinds of content, first in the chunks
/// of streams and then in complete bodies.
const FIRST_CONTENT: usize = 8;
/// The paths that can have values in a chunk that only adds text.
const OF_TEXT: [usize; 12] = [
    USAGE,
    MODEL,
    SERVICE_TIER,
    FINISH_REASON,
    ERROR,
    CHOICES,
    FIRST_CONTENT,
    FIRST_CONTENT + 1,
    FIRST_CONTENT + 2,
    FIRST_CONTENT + 3,
    FIRST_CONTENT + 4,
    FIRST_CONTENT + 5,
];
/// The members that some hosts change in every chunk: padding, and the time at which the chunk was created.
const VARYING: &[VaryingMember] = &[
    VaryingMember {
        key: b"\"obfuscation\"",
        value: VaryingKind::Filling,
    },
    VaryingMember {
        key: b"\"p\"",
        value: VaryingKind::Filling,
    },
    VaryingMember {
        key: b"\"created\"",
        value: VaryingKind::Count,
    },
];

/// The paths to pick out of events and bodies.
pub(super) static PATHS: LazyLock<PathSet> = LazyLock::new(|| PathSet::new(&[PICKS, varying::CHAT].concat()));

const PICKS: &[PickPath] = &[
    PickPath::new(&[Key("usage")], PickRule::Fields(&USAGE_FIELDS)),
    PickPath::new(&[Key("model")], PickRule::Scalar),
    PickPath::new(&[Key("service_tier")], PickRule::Scalar),
    PickPath::new(&[Key("choices"), Each, Key("finish_reason")], PickRule::Scalar),
    PickPath::new(&[Key("error")], PickRule::Presence),
    PickPath::new(&[Key("error"), Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("error"), Key("code")], PickRule::Scalar),
    PickPath::new(&[Key("choices"), Each], PickRule::Count),
    delta_path(&[Key("choices"), Each, Key("delta"), Key("content")]),
    delta_path(&[Key("choices"), Each, Key("delta"), Key("reasoning_content")]),
    delta_path(&[Key("choices"), Each, Key("delta"), Key("reasoning")]),
    delta_path(&[Key("choices"), Each, Key("delta"), Key("refusal")]),
    delta_path(&[Key("choices"), Each, Key("delta"), Key("tool_calls")]),
    delta_path(&[Key("choices"), Each, Key("delta"), Key("function_call")]),
    delta_path(&[Key("choices"), Each, Key("message"), Key("content")]),
    delta_path(&[Key("choices"), Each, Key("message"), Key("reasoning_content")]),
    delta_path(&[Key("choices"), Each, Key("message"), Key("reasoning")]),
    delta_path(&[Key("choices"), Each, Key("message"), Key("refusal")]),
    delta_path(&[Key("choices"), Each, Key("message"), Key("tool_calls")]),
    delta_path(&[Key("choices"), Each, Key("message"), Key("function_call")]),
];

const fn delta_path(segments: &'static [crate::domain::wire::json_pick::PickSegment]) -> PickPath {
    PickPath::new(segments, PickRule::Presence)
}

/// The names of the fields of a usage report. Some hosts do not report the cached tokens in `prompt_tokens_details`, but in a
/// field next to it.
const USAGE_FIELDS: [&str; 7] = [
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
    "prompt_cache_hit_tokens",
    "cached_tokens",
];

/// The state of reading the reports of one answer. The usage comes in the chunk with the finish reason, in a later chunk, or
/// cumulatively in every chunk. The last usage is used.
#[derive(Clone, Debug, Default)]
pub(super) struct ChatState {
    report: Option<ChatReport>,
    /// Whether the usage came with the finish reason, or after it.
    usage_is_last: bool,
    service_tier: Option<SmolStr>,
}

/// The usage that an answer reports.
#[derive(Clone, Debug)]
struct ChatReport {
    usage: Usage,
    /// Whether both the input and the output count are present and readable.
    has_both: bool,
}

impl ChatReport {
    /// Reads a usage report. The prompt's count includes cached tokens. The completion's count includes reasoning tokens, unless
    /// the total or the number of reasoning tokens shows that they are counted separately.
    fn from_fields(fields: [ReportField<'_>; USAGE_FIELDS.len()]) -> Self {
        let [
            prompt,
            completion,
            total,
            prompt_details,
            completion_details,
            hits,
            cached,
        ] = fields;
        let (input, output) = (prompt.count(), completion.count());
        let [detailed, written, input_audio] =
            prompt_details.fields(&["cached_tokens", "cache_write_tokens", "audio_tokens"]);
        let [reasoning, output_audio] = completion_details.fields(&["reasoning_tokens", "audio_tokens"]);
        let whole_input = input.unwrap_or(0);
        let read = [detailed, hits, cached]
            .into_iter()
            .find_map(ReportField::count)
            .unwrap_or(0)
            .min(whole_input);
        let written = written.count().unwrap_or(0).min(whole_input - read);
        let fresh = whole_input - read - written;
        let input_audio = input_audio.count().unwrap_or(0).min(fresh);
        let reasoning = reasoning.count().unwrap_or(0);
        let whole_output = output.unwrap_or(0);
        let beside = whole_input.saturating_add(whole_output).saturating_add(reasoning);
        let is_beside = reasoning > 0 && (reasoning > whole_output || total.count() == Some(beside));
        let text = if is_beside {
            whole_output
        } else {
            whole_output - reasoning
        };
        let output_audio = output_audio.count().unwrap_or(0).min(text);
        Self {
            usage: Usage {
                input_uncached: fresh - input_audio,
                input_audio,
                cache_read: read,
                cache_write_short: written,
                output_text: text - output_audio,
                output_audio,
                output_reasoning: reasoning,
                ..Usage::default()
            },
            has_both: input.is_some() && output.is_some(),
        }
    }
}

impl ChatState {
    /// Handles a chunk of a stream or a complete body.
    pub(super) fn on_chunk(&mut self, picks: &Picks<'_>, facts: &mut AnswerFacts) {
        update_text(&mut facts.model, picks.text(MODEL));
        update_text(&mut self.service_tier, picks.text(SERVICE_TIER));
        facts.content_seen |= Self::has_content(picks);
        if let Some(reason) = picks.text(FINISH_REASON).filter(|reason| !reason.is_empty()) {
            // Some hosts repeat the finish reason in the chunk with the usage. The first one is used.
            facts.finish_reason.get_or_insert_with(|| reason.as_ref().into());
            facts.terminal = true;
        }
        if Self::is_error(picks) {
            facts.error = Some(in_band_error(picks.text(ERROR_TYPE), "error", picks.text(ERROR_CODE)));
            facts.terminal = true;
        }
        if let Some(fields) = picks.fields(USAGE, &USAGE_FIELDS) {
            self.report = Some(ChatReport::from_fields(fields));
            self.usage_is_last = facts.terminal;
        }
    }

    /// Handles the `[DONE]` marker after the last chunk. Nothing follows it, so a usage that came before it is final.
    pub(super) fn on_done(&mut self, facts: &mut AnswerFacts) {
        // Some hosts omit the finish reason.
        facts.terminal |= facts.content_seen;
        self.usage_is_last |= facts.terminal;
    }

    /// Whether the chunk reports something that a later chunk would revoke (see [`super::dialect::AnswerDialect::is_revocable`]).
    pub(super) fn is_revocable(&self, picks: &Picks<'_>, facts: &AnswerFacts) -> bool {
        let is_other = |path: usize, known: Option<&SmolStr>| {
            let named = picks.text(path);
            named.is_some_and(|named| known.map(SmolStr::as_str) != Some(&*named))
        };
        is_other(MODEL, facts.model.as_ref()) || is_other(SERVICE_TIER, self.service_tier.as_ref())
    }

    /// Returns the members that can differ in the next chunk, if the chunk only adds text (see
    /// [`super::dialect::AnswerDialect::text_delta`]).
    pub(super) fn text_delta(picks: &Picks<'_>) -> Option<TextDelta> {
        let has_reason = picks.text(FINISH_REASON).is_some_and(|reason| !reason.is_empty());
        let has_usage = picks
            .raw(USAGE)
            .map_or(picks.is_present(USAGE), |usage| usage != b"null");
        let only_adds_text = Self::has_content(picks) && !has_reason && !has_usage && !Self::is_error(picks);
        (only_adds_text && picks.has_only(&OF_TEXT)).then_some(TextDelta {
            varying: VARYING,
            usage: None,
        })
    }

    /// Whether a chunk is an error.
    pub(super) fn is_error(picks: &Picks<'_>) -> bool {
        picks.is_present(ERROR)
    }

    /// Whether the chunk contains any part of an answer.
    pub(super) fn is_answer_event(picks: &Picks<'_>) -> bool {
        !picks.has_only(&[])
    }

    /// Whether the chunk has content.
    pub(super) fn has_content(picks: &Picks<'_>) -> bool {
        (FIRST_CONTENT..PICKS.len()).any(|at| picks.is_present(at))
    }

    /// Whether the body of an answer that is not a stream has content.
    pub(super) fn body_has_content(picks: &Picks<'_>) -> bool {
        picks.count(CHOICES) > 0
    }

    pub(super) fn modifiers(&self) -> PriceModifiers {
        PriceModifiers {
            service_tier: self.service_tier.clone(),
            ..PriceModifiers::default()
        }
    }

    /// Returns whether the reported usage is final; `None` without a report.
    pub(super) fn usage_source(&self, body_whole: bool) -> Option<UsageSource> {
        let report = self.report.as_ref()?;
        Some(reported_source((self.usage_is_last || body_whole) && report.has_both))
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        Some(self.report.as_ref()?.usage)
    }
}
