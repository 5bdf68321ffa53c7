//! The Responses protocol: reads a provider's answers, and writes weir's errors in the protocol's form.

mod calls;

use std::sync::LazyLock;

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::{
        PathSet, PickPath, PickRule,
        PickSegment::{Each, Key},
        Picks,
    },
    protocol::{
        AnswerFacts, Break, created_state, in_band_error, reported_source,
        responses::calls::ToolCalls,
        update_name, update_text,
        varying::{self, VaryingKind, VaryingMember},
    },
    usage::{
        Modalities, PriceModifiers, UnlimitedWork, Usage, UsageSource,
        fields::{self, ReportField},
    },
};

const TYPE: usize = 0;
const SEQUENCE: usize = 1;
const DELTA: usize = 2;
const ITEM_TYPE: usize = 3;
const CODE: usize = 4;
const ERROR_TYPE: usize = 5;
const ERROR_CODE: usize = 6;
const ERROR: usize = 7;
const RESPONSE_ERROR_TYPE: usize = 8;
const RESPONSE_ERROR_CODE: usize = 9;
/// The index of the first path that counts the tool calls in an event's item.
const ITEM_CALLS: usize = 10;
/// The index of the first path of the response object in an event. [`IN_BODY`] is the same index for the response object that is
/// the body of an answer.
const IN_EVENT: usize = ITEM_CALLS + calls::PATHS;
const IN_BODY: usize = IN_EVENT + RESPONSE_PATHS;

const ID: usize = 0;
const CREATED_AT: usize = 1;
const MODEL: usize = 2;
const STATUS: usize = 3;
const USAGE: usize = 4;
const TOOL_USAGE: usize = 5;
const INCOMPLETE_REASON: usize = 6;
const OUTPUT: usize = 7;
const SERVICE_TIER: usize = 8;
const CALLS: usize = 9;
const RESPONSE_PATHS: usize = CALLS + calls::PATHS;

/// The sequence number of an event, which differs in each event.
const NUMBER: VaryingMember = VaryingMember {
    key: br#""sequence_number""#,
    value: VaryingKind::Number,
};
/// The padding of an event, which differs in each event.
const FILLING: VaryingMember = VaryingMember {
    key: br#""obfuscation""#,
    value: VaryingKind::Filling,
};

/// The paths to pick out of events and bodies of the Responses protocol.
pub(super) static PATHS: LazyLock<PathSet> = LazyLock::new(|| {
    let all = [
        EVENT,
        &calls::IN_ITEM,
        IN_EVENT_RESPONSE,
        &calls::IN_EVENT,
        BODY,
        &calls::IN_BODY,
        varying::RESPONSES,
        created_state::RESPONSES,
    ];
    PathSet::new(&all.concat())
});

/// The index in [`PATHS`] of the first path of created state.
pub(super) const MADE: usize = EVENT.len()
    + calls::IN_ITEM.len()
    + IN_EVENT_RESPONSE.len()
    + calls::IN_EVENT.len()
    + BODY.len()
    + calls::IN_BODY.len()
    + varying::RESPONSES.len();

const EVENT: &[PickPath] = &[
    PickPath::new(&[Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("sequence_number")], PickRule::Scalar),
    PickPath::new(&[Key("delta")], PickRule::Presence),
    PickPath::new(&[Key("item"), Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("code")], PickRule::Scalar),
    PickPath::new(&[Key("error"), Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("error"), Key("code")], PickRule::Scalar),
    PickPath::new(&[Key("error")], PickRule::Presence),
    PickPath::new(&[Key("response"), Key("error"), Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("response"), Key("error"), Key("code")], PickRule::Scalar),
];

const IN_EVENT_RESPONSE: &[PickPath] = &[
    PickPath::new(&[Key("response"), Key("id")], PickRule::Scalar),
    PickPath::new(&[Key("response"), Key("created_at")], PickRule::Scalar),
    PickPath::new(&[Key("response"), Key("model")], PickRule::Scalar),
    PickPath::new(&[Key("response"), Key("status")], PickRule::Scalar),
    PickPath::new(&[Key("response"), Key("usage")], PickRule::Tree),
    PickPath::new(&[Key("response"), Key("tool_usage")], PickRule::Tree),
    PickPath::new(
        &[Key("response"), Key("incomplete_details"), Key("reason")],
        PickRule::Scalar,
    ),
    PickPath::new(&[Key("response"), Key("output"), Each], PickRule::Count),
    PickPath::new(&[Key("response"), Key("service_tier")], PickRule::Scalar),
];

const BODY: &[PickPath] = &[
    PickPath::new(&[Key("id")], PickRule::Scalar),
    PickPath::new(&[Key("created_at")], PickRule::Scalar),
    PickPath::new(&[Key("model")], PickRule::Scalar),
    PickPath::new(&[Key("status")], PickRule::Scalar),
    PickPath::new(&[Key("usage")], PickRule::Fields(&FIELDS)),
    PickPath::new(&[Key("tool_usage")], PickRule::Tree),
    PickPath::new(&[Key("incomplete_details"), Key("reason")], PickRule::Scalar),
    PickPath::new(&[Key("output"), Each], PickRule::Count),
    PickPath::new(&[Key("service_tier")], PickRule::Scalar),
];

/// The state of reading the reports of one answer. The usage comes only with the last event, and can be `null`.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponsesState {
    report: Option<ResponsesReport>,
    /// Whether the usage came with the event that ends the answer, or with a body.
    usage_is_last: bool,
    /// The service tier that was reported last. The first event repeats the requested tier, and the last event contains the tier
    /// that was used.
    service_tier: Option<SmolStr>,
    /// The number of web searches; `None` if the provider does not report it in `tool_usage`, next to the usage.
    web_searches: Option<u64>,
    calls: ToolCalls,
    created_at: Option<u64>,
    sequence: Option<u64>,
}

impl ResponsesState {
    /// Handles an event of a stream.
    pub(super) fn on_event(&mut self, picks: &Picks<'_>, name: &[u8], facts: &mut AnswerFacts) {
        if let Some(sequence) = read_number(picks, SEQUENCE) {
            self.sequence = Some(sequence);
        }
        self.on_response(picks, IN_EVENT, facts);
        let kind = picks.text(TYPE);
        match kind.as_deref().map_or(name, str::as_bytes) {
            b"response.output_item.added" => facts.content_seen |= item_is_content(picks),
            b"response.output_item.done" => {
                facts.content_seen = true;
                self.calls.add(ToolCalls::from_picks(picks, ITEM_CALLS));
            }
            b"response.completed" => self.on_last_event(picks, "completed", facts),
            b"response.incomplete" => self.on_last_event(picks, "incomplete", facts),
            b"response.failed" => {
                self.on_last_event(picks, "failed", facts);
                let kind = picks.text(RESPONSE_ERROR_TYPE).or_else(|| picks.text(ERROR_TYPE));
                let code = picks.text(RESPONSE_ERROR_CODE).or_else(|| picks.text(ERROR_CODE));
                facts.error = Some(in_band_error(kind, "response.failed", code));
            }
            b"error" => {
                let code = picks.text(ERROR_CODE).or_else(|| picks.text(CODE));
                facts.error = Some(in_band_error(picks.text(ERROR_TYPE), "error", code));
                facts.terminal = true;
            }
            other if other.ends_with(b".delta") => facts.content_seen |= picks.is_present(DELTA),
            _ => {}
        }
    }

    /// Whether the event's type shows that the event belongs to an answer that has not failed.
    pub(super) fn is_known_answer_event(picks: &Picks<'_>) -> bool {
        let kind = picks.raw(TYPE).unwrap_or_default();
        kind.starts_with(b"\"response.") && kind != br#""response.failed""#
    }

    /// Whether an event that is not known to belong to an answer is an error, in the protocol's form or in a provider's own form.
    pub(super) fn is_error(picks: &Picks<'_>, name: &[u8]) -> bool {
        let kind = picks.text(TYPE);
        let is_named = matches!(
            kind.as_deref().map_or(name, str::as_bytes),
            b"error" | b"response.failed"
        );
        is_named || picks.is_present(ERROR)
    }

    /// Whether the event belongs to an answer.
    pub(super) fn is_answer_event(picks: &Picks<'_>, name: &[u8]) -> bool {
        picks.raw(TYPE).is_some() || !name.is_empty()
    }

    /// Returns the members that can have other values in the next event, if this event only adds text (see
    /// [`super::dialect::AnswerDialect::text_delta`]); otherwise `None`. These members are the sequence number, if this event has
    /// one, and the padding, which hides the length of the text
    /// (<https://platform.openai.com/docs/api-reference/responses/create>, `include_obfuscation`).
    pub(super) fn varying_members(picks: &Picks<'_>) -> Option<&'static [VaryingMember]> {
        let is_delta = picks.raw(TYPE).is_some_and(|kind| kind.ends_with(br#".delta""#));
        if !(is_delta && picks.has_only(&[TYPE, SEQUENCE, DELTA])) {
            return None;
        }
        // If the event has no sequence number at the top level, a key of this name elsewhere in the event is not its sequence
        // number.
        Some(match picks.is_present(SEQUENCE) {
            true => &[NUMBER, FILLING],
            false => &[FILLING],
        })
    }

    /// Records the sequence number of an event that only adds text.
    pub(super) fn set_number(&mut self, number: u64) {
        self.sequence = Some(number);
    }

    fn on_last_event(&mut self, picks: &Picks<'_>, status: &str, facts: &mut AnswerFacts) {
        facts.terminal = true;
        self.usage_is_last = picks.raw(IN_EVENT + USAGE).is_some();
        facts.content_seen |= picks.count(IN_EVENT + OUTPUT) > 0;
        let reason = picks.text(IN_EVENT + INCOMPLETE_REASON).unwrap_or(status.into());
        update_text(&mut facts.finish_reason, Some(reason));
    }

    /// Handles the response object. It is in the first, the last and sometimes other events of a stream, and is the body of a
    /// non-streaming answer. `base` is the index of the first path of the object.
    fn on_response(&mut self, picks: &Picks<'_>, base: usize, facts: &mut AnswerFacts) {
        update_text(&mut facts.answer_id, picks.text(base + ID));
        update_text(&mut facts.model, picks.text(base + MODEL));
        self.created_at = read_number(picks, base + CREATED_AT).or(self.created_at);
        update_name(&mut self.service_tier, picks.text(base + SERVICE_TIER));
        if picks.raw(base + USAGE).is_some() {
            self.report = picks.fields(base + USAGE, &FIELDS).map(ResponsesReport::from_fields);
        }
        if let Some(tools) = picks.raw(base + TOOL_USAGE) {
            let [search] = ReportField::from_json(tools).fields(&["web_search"]);
            let [requests] = search.fields(&["num_requests"]);
            self.web_searches = requests.count();
        }
        self.calls.raise_to(ToolCalls::from_picks(picks, base + CALLS));
    }

    /// Handles the body of a non-streaming answer.
    pub(super) fn on_body(&mut self, picks: &Picks<'_>, facts: &mut AnswerFacts) {
        self.on_response(picks, IN_BODY, facts);
        self.usage_is_last = picks.raw(IN_BODY + USAGE).is_some();
        let reason = picks
            .text(IN_BODY + INCOMPLETE_REASON)
            .or_else(|| picks.text(IN_BODY + STATUS));
        update_text(&mut facts.finish_reason, reason);
        if Self::is_failure(picks) {
            let code = picks.text(ERROR_CODE).or_else(|| picks.text(CODE));
            facts.error = Some(in_band_error(picks.text(ERROR_TYPE), "error", code));
        }
    }

    /// Whether the body of a non-streaming answer is an error.
    pub(super) fn is_failure(picks: &Picks<'_>) -> bool {
        picks.is_present(ERROR) || picks.has_text(IN_BODY + STATUS, "failed")
    }

    pub(super) fn body_has_content(picks: &Picks<'_>) -> bool {
        picks.count(IN_BODY + OUTPUT) > 0
    }

    pub(super) fn modifiers(&self) -> PriceModifiers {
        PriceModifiers {
            service_tier: self.service_tier.clone(),
            ..PriceModifiers::default()
        }
    }

    /// Returns whether the reported usage is final; `None` without a report. Usage that comes before the end of the answer is not
    /// final.
    pub(super) fn usage_source(&self) -> Option<UsageSource> {
        let said = self.report.as_ref()?;
        Some(reported_source(self.usage_is_last && said.has_both))
    }

    pub(super) fn unlimited(&self) -> UnlimitedWork {
        UnlimitedWork {
            tool_calls: self.calls.own_tools,
            images: self.calls.image_generation,
        }
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        Some(Usage {
            web_searches: self.web_searches.unwrap_or(self.calls.web_searches),
            file_searches: self.calls.file_searches,
            code_interpreter_calls: self.calls.code_interpreter,
            image_generations: self.calls.image_generation,
            ..self.report.as_ref()?.tokens
        })
    }

    /// Returns the error event for a break. Agents act on `response.failed`, and the vendor's SDKs raise an exception for the
    /// `error` in it.
    pub(super) fn failure_event(&self, why: Break, facts: &AnswerFacts, number: Option<u64>) -> Vec<u8> {
        let message = why.message();
        // Codex retries after most codes, but not after this one.
        let code = match why {
            Break::LimitReached => "insufficient_quota",
            Break::ProviderCut | Break::ProviderEnded | Break::ProviderTimeout | Break::Stopped | Break::Internal => {
                "server_error"
            }
        };
        let mut response = json!({
            "id": facts.answer_id.as_deref().unwrap_or("resp_interrupted"),
            "object": "response",
            "created_at": self.created_at.unwrap_or(0),
            "status": "failed",
            "error": { "code": code, "message": message },
            "output": [],
        });
        if let (Some(model), Value::Object(fields)) = (&facts.model, &mut response) {
            fields.insert("model".to_owned(), json!(model));
        }
        let data = json!({
            "type": "response.failed",
            "sequence_number": number.or(self.sequence).map_or(0, |last| last.saturating_add(1)),
            "response": response,
            "error": { "type": code, "code": code, "message": message },
        });
        format!("event: response.failed\ndata: {data}\n\n").into_bytes()
    }
}

fn read_number(picks: &Picks<'_>, path: usize) -> Option<u64> {
    fields::read_count(picks.text(path)?.as_bytes())
}

/// Whether the event that starts an item contains content. A message or a reasoning item starts empty. The start of any other
/// item, for example of a tool call, is content.
fn item_is_content(picks: &Picks<'_>) -> bool {
    picks
        .text(ITEM_TYPE)
        .is_some_and(|kind| !matches!(kind.as_ref(), "message" | "reasoning"))
}

/// Returns the `error.type` for an HTTP status.
pub(in crate::domain) fn error_type(status: u16) -> &'static str {
    match status {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

pub(in crate::domain) fn error_body(kind: &str, message: &str, param: Option<&str>, code: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

/// The names of the fields of a usage object.
const FIELDS: [&str; 5] = [
    "input_tokens",
    "input_tokens_details",
    "output_tokens",
    "output_tokens_details",
    "total_tokens",
];

/// The counts of one usage object.
#[derive(Clone, Debug)]
struct ResponsesReport {
    /// The usage without the calls of tools.
    tokens: Usage,
    /// Whether both input and output are reported.
    has_both: bool,
}

impl ResponsesReport {
    /// Reads the counts of a usage object. `input_tokens` includes cached and written tokens, and `output_tokens` includes
    /// reasoning tokens, unless the total shows that reasoning tokens are counted separately. Both counts, and the count of
    /// cached tokens, include audio and image tokens.
    fn from_fields([input, input_details, output, output_details, total]: [ReportField<'_>; FIELDS.len()]) -> Self {
        let (counted_input, counted_output) = (input.count(), output.count());
        let input = counted_input.unwrap_or(0);
        let [cached, cached_details, written, split, audio, image] = input_details.fields(&[
            "cached_tokens",
            "cached_tokens_details",
            "cache_write_tokens",
            "cache_write_tokens_details",
            "audio_tokens",
            "image_tokens",
        ]);
        let fresh = Modalities::from_counts(audio, image);
        let [audio, image] = cached_details.fields(&["audio_tokens", "image_tokens"]);
        let read = Modalities::from_counts(audio, image);
        let [reasoning, audio, image] = output_details.fields(&["reasoning_tokens", "audio_tokens", "image_tokens"]);
        let spoken = Modalities::from_counts(audio, image);
        let cache_read = cached.count().unwrap_or(0).min(input);
        let split = split.fields(&["ttl_30m_tokens", "ttl_12h_tokens"]);
        let [short, long] = split.map(|count| count.count().unwrap_or(0));
        let written = written.count().unwrap_or(short.saturating_add(long));
        let written = written.min(input - cache_read);
        let cache_write_long = long.min(written);
        let said = counted_output.unwrap_or(0);
        let reasoning = reasoning.count().unwrap_or(0);
        let with_reasoning = said.saturating_add(reasoning);
        let is_beside = total.count() == Some(input.saturating_add(with_reasoning));
        let output = if is_beside { with_reasoning } else { said };
        let reasoning = reasoning.min(output);
        let uncached = input - cache_read - written;
        let read = read.at_most(cache_read);
        let fresh = fresh.minus(read).at_most(uncached);
        let spoken = spoken.at_most(output - reasoning);
        let tokens = Usage {
            input_uncached: fresh.remaining(uncached),
            input_audio: fresh.audio,
            input_image: fresh.image,
            cache_read: read.remaining(cache_read),
            cache_read_audio: read.audio,
            cache_read_image: read.image,
            cache_write_short: written - cache_write_long,
            cache_write_long,
            output_text: spoken.remaining(output - reasoning),
            output_audio: spoken.audio,
            output_image: spoken.image,
            output_reasoning: reasoning,
            ..Usage::default()
        };
        let has_both = counted_input.is_some() && counted_output.is_some();
        Self { tokens, has_both }
    }
}
