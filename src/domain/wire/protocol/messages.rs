//! The Messages protocol: reads a provider's answers, and writes weir's errors in the protocol's form.

mod iterations;

use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::domain::wire::{
    json_pick::{
        PathSet, PickPath, PickRule,
        PickSegment::{Each, Key},
        Picks,
    },
    protocol::{AnswerFacts, Break, created_state, in_band_error, reported_source, update_json, update_text, varying},
    usage::{COUNT_MAX, PriceModifiers, Run, UnlimitedWork, Usage, UsageSource, fields::ReportField, total_usage},
};

const TYPE: usize = 0;
const START_USAGE: usize = 1;
const START_MODEL: usize = 2;
const USAGE: usize = 3;
const DELTA_STOP_REASON: usize = 4;
const DELTA_TEXT: usize = 5;
const DELTA_THINKING: usize = 6;
const DELTA_JSON: usize = 7;
const BLOCK_TYPE: usize = 8;
const BLOCK_TEXT: usize = 9;
const BLOCK_THINKING: usize = 10;
const ERROR_TYPE: usize = 11;
const ERROR_CODE: usize = 12;
const ERROR_DETAIL_CODE: usize = 13;
const MODEL: usize = 14;
const STOP_REASON: usize = 15;
const CONTENT: usize = 16;
const ERROR: usize = 17;
const CODE: usize = 18;
const SUCCESS: usize = 19;
const START_ID: usize = 20;
const ID: usize = 21;
const OWN_TOOLS: usize = 22;

/// The paths to pick out of events and bodies of the Messages protocol.
pub(super) static PATHS: LazyLock<PathSet> =
    LazyLock::new(|| PathSet::new(&[PICKS, varying::MESSAGES, created_state::MESSAGES].concat()));

/// The index in [`PATHS`] of the first path of created state.
pub(super) const MADE: usize = PICKS.len() + varying::MESSAGES.len();

const PICKS: &[PickPath] = &[
    PickPath::new(&[Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("message"), Key("usage")], PickRule::Tree),
    PickPath::new(&[Key("message"), Key("model")], PickRule::Scalar),
    PickPath::new(&[Key("usage")], PickRule::Fields(&USAGE_FIELDS)),
    PickPath::new(&[Key("delta"), Key("stop_reason")], PickRule::Scalar),
    PickPath::new(&[Key("delta"), Key("text")], PickRule::Presence),
    PickPath::new(&[Key("delta"), Key("thinking")], PickRule::Presence),
    PickPath::new(&[Key("delta"), Key("partial_json")], PickRule::Presence),
    PickPath::new(&[Key("content_block"), Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("content_block"), Key("text")], PickRule::Presence),
    PickPath::new(&[Key("content_block"), Key("thinking")], PickRule::Presence),
    PickPath::new(&[Key("error"), Key("type")], PickRule::Scalar),
    PickPath::new(&[Key("error"), Key("code")], PickRule::Scalar),
    PickPath::new(&[Key("error"), Key("details"), Key("error_code")], PickRule::Scalar),
    PickPath::new(&[Key("model")], PickRule::Scalar),
    PickPath::new(&[Key("stop_reason")], PickRule::Scalar),
    PickPath::new(&[Key("content"), Each], PickRule::Count),
    PickPath::new(&[Key("error")], PickRule::Presence),
    PickPath::new(&[Key("code")], PickRule::Scalar),
    PickPath::new(&[Key("success")], PickRule::Scalar),
    PickPath::new(&[Key("message"), Key("id")], PickRule::Scalar),
    PickPath::new(&[Key("id")], PickRule::Scalar),
    PickPath::new(
        &[Key("content"), Each, Key("type")],
        PickRule::CountBeginning(&["server_tool_use", "mcp_tool_use"]),
    ),
];

/// The names of the fields of a usage object: output, price modifiers, runs, and input (see [`InputFields`]).
const USAGE_FIELDS: [&str; 11] = [
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
    "service_tier",
    "speed",
    "inference_geo",
    "iterations",
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
];

/// The state of reading the reports of one answer. For each count, the last event that contains it is used. Some servers send
/// zeros or nothing in `message_start`, and the real counts in `message_delta`, whose usage is cumulative. Others do the
/// opposite, so a zero never replaces another count.
#[derive(Clone, Debug, Default)]
pub(super) struct MessagesState {
    reported: bool,
    main: InputCounts,
    output: Option<u64>,
    /// Whether the output count came with `message_delta` or a complete body. In `message_start` it is only preliminary.
    output_is_last: bool,
    thinking: Option<u64>,
    web_searches: Option<u64>,
    web_fetches: Option<u64>,
    /// The number of content blocks that call a provider's own tool.
    own_tools: u64,
    /// The JSON text of the newest list of runs. The other counts of this state do not distinguish the runs.
    iterations: Vec<u8>,
    /// Whether another model has replaced one that declined. The counts of this state are then those of the other model.
    has_fallback: bool,
    modifiers: PriceModifiers,
}

impl MessagesState {
    /// Handles an event of a stream.
    pub(super) fn on_event(&mut self, picks: &Picks<'_>, name: &[u8], facts: &mut AnswerFacts) {
        let kind = picks.text(TYPE);
        match kind.as_deref().map_or(name, str::as_bytes) {
            b"content_block_delta" => {
                facts.content_seen |= [DELTA_TEXT, DELTA_THINKING, DELTA_JSON]
                    .iter()
                    .any(|at| picks.is_present(*at));
            }
            b"content_block_start" => {
                facts.content_seen |= block_has_content(picks);
                self.own_tools += u64::from(calls_own_tool(picks));
            }
            b"message_start" => {
                self.output_is_last = false;
                self.merge(picks.fields(START_USAGE, &USAGE_FIELDS));
                update_text(&mut facts.model, picks.text(START_MODEL));
                update_text(&mut facts.answer_id, picks.text(START_ID));
            }
            b"message_delta" => {
                self.output_is_last |= self.merge(picks.fields(USAGE, &USAGE_FIELDS));
                update_text(&mut facts.finish_reason, picks.text(DELTA_STOP_REASON));
            }
            b"message_stop" => facts.terminal = true,
            b"error" => {
                facts.error = Some(read_error(picks));
                facts.terminal = true;
            }
            _ => {}
        }
    }

    /// Whether the event belongs to an answer, as every event except a ping does.
    pub(super) fn is_answer_event(picks: &Picks<'_>, name: &[u8]) -> bool {
        match picks.raw(TYPE) {
            Some(kind) => kind != br#""ping""#,
            None => !name.is_empty() && name != b"ping",
        }
    }

    /// Whether the event's type shows that the event belongs to an answer or is a ping.
    pub(super) fn is_known_answer_event(picks: &Picks<'_>) -> bool {
        let kind = picks.raw(TYPE).unwrap_or_default();
        [&b"\"message_"[..], b"\"content_block_", b"\"ping\""]
            .iter()
            .any(|known| kind.starts_with(known))
    }

    /// Whether an event that is not known to belong to an answer is an error, in the protocol's form or in a provider's own form.
    pub(super) fn is_error(picks: &Picks<'_>, name: &[u8]) -> bool {
        let kind = picks.raw(TYPE).unwrap_or_default();
        name == b"error" || kind.ends_with(b"error\"") || Self::is_failure(picks)
    }

    /// Whether the event only adds text (see [`super::dialect::AnswerDialect::text_delta`]).
    pub(super) fn is_text_delta(picks: &Picks<'_>) -> bool {
        picks.raw(TYPE) == Some(br#""content_block_delta""#)
    }

    /// Handles the body of a non-streaming answer.
    pub(super) fn on_body(&mut self, picks: &Picks<'_>, facts: &mut AnswerFacts) {
        self.output_is_last |= self.merge(picks.fields(USAGE, &USAGE_FIELDS));
        self.own_tools = picks.count(OWN_TOOLS);
        update_text(&mut facts.model, picks.text(MODEL));
        update_text(&mut facts.answer_id, picks.text(ID));
        update_text(&mut facts.finish_reason, picks.text(STOP_REASON));
        if Self::is_failure(picks) {
            facts.error = Some(read_error(picks));
        }
    }

    pub(super) fn body_has_content(picks: &Picks<'_>) -> bool {
        picks.count(CONTENT) > 0
    }

    /// Whether the body of a non-streaming answer is an error. Some providers answer with status 200 and their native error:
    /// `success` is false, or `code` is an HTTP status of 400 or above.
    pub(super) fn is_failure(picks: &Picks<'_>) -> bool {
        let native = picks.has_text(SUCCESS, "false")
            || picks
                .text(CODE)
                .and_then(|code| code.parse::<u64>().ok())
                .is_some_and(|code| code >= 400);
        picks.has_text(TYPE, "error") || picks.is_present(ERROR) || (native && !Self::body_has_content(picks))
    }

    /// Merges the counts of a usage object into this state. Returns whether the object contained the output count.
    fn merge(&mut self, usage: Option<[ReportField<'_>; USAGE_FIELDS.len()]>) -> bool {
        let Some([output, details, tools, tier, speed, geo, iterations, input @ ..]) = usage else {
            return false;
        };
        self.reported = true;
        if iterations::has_any(iterations) {
            update_json(&mut self.iterations, Some(iterations.json()));
        }
        if !self.has_fallback && iterations::has_fallback(iterations) {
            self.has_fallback = true;
            // The counts so far are those of the model that declined, which has a run of its own in the list.
            (self.main, self.output, self.thinking) = (InputCounts::default(), None, None);
        }
        self.main.merge(input);
        let output = output.count();
        let is_erased = output == Some(0) && self.output.is_some_and(|before| before > 0);
        self.output = newest_count(self.output, output);
        self.thinking = newest_count(self.thinking, thinking_tokens(details));
        let [searches, fetches] = tools.fields(&["web_search_requests", "web_fetch_requests"]);
        self.web_searches = newest_count(self.web_searches, searches.count());
        self.web_fetches = newest_count(self.web_fetches, fetches.count());
        let kept = &mut self.modifiers;
        let kept = [&mut kept.service_tier, &mut kept.speed, &mut kept.geo];
        for (kept, said) in kept.into_iter().zip([tier, speed, geo]) {
            if let Some(name) = said.name() {
                *kept = Some(name);
            }
        }
        output.is_some() && !is_erased
    }

    pub(super) fn modifiers(&self) -> PriceModifiers {
        self.modifiers.clone()
    }

    /// Returns whether the reported usage is final; `None` without a report. The usage in `message_delta` is cumulative, and the
    /// last one comes with the stop reason.
    pub(super) fn usage_source(&self, facts: &AnswerFacts, body_whole: bool) -> Option<UsageSource> {
        let ended = body_whole || facts.finish_reason.is_some() || (facts.terminal && facts.error.is_none());
        self.reported
            .then(|| reported_source(ended && self.output_is_last && self.main.has_input()))
    }

    /// Returns the work that the requested output limit does not cover. The usage object counts only tools that are billed per
    /// call, so weir also counts the content blocks that call a tool.
    pub(super) fn unlimited(&self) -> UnlimitedWork {
        let paid = self
            .web_searches
            .unwrap_or(0)
            .saturating_add(self.web_fetches.unwrap_or(0));
        UnlimitedWork {
            tool_calls: self.own_tools.max(paid),
            images: 0,
        }
    }

    /// Returns the total usage of all runs. `runs` must be the result of [`Self::runs`].
    pub(super) fn usage(&self, runs: &[Run]) -> Option<Usage> {
        self.reported.then(|| match runs {
            [] => self.top_level(),
            runs => total_usage(runs),
        })
    }

    /// Returns the usage of each run; empty unless the answer reports several runs.
    pub(super) fn runs(&self) -> Vec<Run> {
        if self.iterations.is_empty() {
            return Vec::new();
        }
        let iterations = ReportField::from_json(&self.iterations);
        iterations::read_runs(iterations, &self.main, self.top_level(), self.has_fallback)
    }

    /// Returns the counts of the usage object itself. Some servers report the counts of all runs of the answering model there,
    /// others only those of the first run.
    fn top_level(&self) -> Usage {
        let output = self.output.unwrap_or(0);
        let reasoning = self.thinking.unwrap_or(0).min(output);
        Usage {
            output_text: output - reasoning,
            output_reasoning: reasoning,
            web_searches: self.web_searches.unwrap_or(0),
            web_fetches: self.web_fetches.unwrap_or(0),
            ..self.main.usage()
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.iterations.capacity()
    }
}

/// Whether the event that starts a content block contains content. A block of text or thinking starts empty. The start of any
/// other block is content: a tool's name, redacted thinking, a search result.
fn block_has_content(picks: &Picks<'_>) -> bool {
    match picks.text(BLOCK_TYPE).as_deref() {
        None => false,
        Some("text" | "thinking") => picks.is_present(BLOCK_TEXT) || picks.is_present(BLOCK_THINKING),
        Some(_) => true,
    }
}

/// Whether a content block calls a tool that the provider runs.
fn calls_own_tool(picks: &Picks<'_>) -> bool {
    matches!(
        picks.text(BLOCK_TYPE).as_deref(),
        Some("server_tool_use" | "mcp_tool_use")
    )
}

fn read_error(picks: &Picks<'_>) -> crate::domain::wire::protocol::InBandError {
    let code = picks
        .text(ERROR_DETAIL_CODE)
        .or_else(|| picks.text(ERROR_CODE))
        .or_else(|| picks.text(CODE));
    let kind = picks
        .text(ERROR_TYPE)
        .or_else(|| picks.text(TYPE).filter(|kind| kind != "error"));
    in_band_error(kind, "error", code)
}

/// Returns the error event for a break. Agents retry after `overloaded_error`.
pub(super) fn failure_event(why: Break) -> Vec<u8> {
    let kind = match why {
        Break::ProviderCut | Break::ProviderEnded | Break::ProviderTimeout | Break::Stopped => "overloaded_error",
        Break::LimitReached => "billing_error",
        Break::Internal => "api_error",
    };
    let data = json!({ "type": "error", "error": { "type": kind, "message": why.message() } });
    format!("event: error\ndata: {data}\n\n").into_bytes()
}

/// Returns the `error.type` for an HTTP status.
pub(in crate::domain) fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

pub(in crate::domain) fn error_body(kind: &str, message: &str, code: Option<&str>, request_id: &str) -> Value {
    let mut error = json!({ "type": kind, "message": message });
    if let (Some(code), Value::Object(fields)) = (code, &mut error) {
        fields.insert("details".to_owned(), json!({ "error_code": code }));
    }
    json!({ "type": "error", "error": error, "request_id": request_id })
}

/// Returns an error body without a wrapper.
pub(in crate::domain) fn root_error_body(code: &str, kind: &str, message: &str, request_id: &str) -> Value {
    json!({ "code": code, "message": message, "type": kind, "request_id": request_id })
}

/// Returns the count after another event: the newer one, except that a zero does not replace an earlier count.
fn newest_count(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    match (before, now) {
        (Some(before), Some(0)) => Some(before),
        (before, now) => now.or(before),
    }
}

/// Returns the number of thinking tokens in the details of the output.
fn thinking_tokens(details: ReportField<'_>) -> Option<u64> {
    let [thinking] = details.fields(&["thinking_tokens"]);
    thinking.count()
}

/// The fields of one usage object that concern its input: `input_tokens`, `cache_read_input_tokens`,
/// `cache_creation_input_tokens` and `cache_creation`.
type InputFields<'a> = [ReportField<'a>; 4];

/// The input counts of one usage object, or of several that are merged.
#[derive(Clone, Copy, Debug, Default)]
struct InputCounts {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_creation: Option<u64>,
    split: Option<(u64, u64)>,
}

impl InputCounts {
    /// Reads the input counts of one run of an answer. If the run reports only the sum of its cache writes, the sum is divided
    /// among the cache lifetimes in the same ratio as in the whole answer.
    fn of_run(run: InputFields<'_>, answer: &Self) -> Self {
        let mut counts = Self::default();
        counts.merge(run);
        if counts.cache_creation.is_some() {
            counts.split = counts.split.or(answer.split);
        }
        counts
    }

    /// Whether the provider has reported the input.
    fn has_input(&self) -> bool {
        self.input.is_some()
    }

    fn merge(&mut self, [input, read, written, split]: InputFields<'_>) {
        self.input = newest_count(self.input, input.count());
        self.cache_read = newest_count(self.cache_read, read.count());
        self.cache_creation = newest_count(self.cache_creation, written.count());
        let parts = split.fields(&["ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"]);
        let parts = parts.map(ReportField::count);
        let [short, long] = parts.map(Option::unwrap_or_default);
        let is_known = parts.iter().any(Option::is_some);
        let is_erased = (short, long) == (0, 0) && self.split.is_some();
        if is_known && !is_erased {
            self.split = Some((short, long));
        }
    }

    /// Returns the cache writes with short and with long lifetime. Their sum is the newest count of all cache writes. Only
    /// `message_start` divides the cache writes between the two lifetimes, so this division is scaled to the newest count.
    /// Without a division, all cache writes have the short lifetime, which is the protocol's default.
    fn cache_writes(&self) -> (u64, u64) {
        let (short, long) = self.split.unwrap_or((0, 0));
        let parts = u128::from(short) + u128::from(long);
        let Some(total) = self.cache_creation else {
            return (short, long);
        };
        if parts == 0 {
            return (total, 0);
        }
        let scaled = u128::from(total) * u128::from(long) / parts;
        let long = u64::try_from(scaled).unwrap_or(COUNT_MAX).min(total);
        (total - long, long)
    }

    fn usage(&self) -> Usage {
        let (cache_write_short, cache_write_long) = self.cache_writes();
        Usage {
            input_uncached: self.input.unwrap_or(0),
            cache_read: self.cache_read.unwrap_or(0),
            cache_write_short,
            cache_write_long,
            ..Usage::default()
        }
    }
}
