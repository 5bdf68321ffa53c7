//! The Responses protocol: reads its answers, and writes weir's own errors in its shapes.

mod calls;
mod report;

use std::sync::LazyLock;

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::domain::wire::json_pick::Segment::{Each, Key};
use crate::domain::wire::json_pick::{Path, PathSet, Picks, Take};
use crate::domain::wire::protocol::facts::{Facts, in_band_error, note, note_name, source};
use crate::domain::wire::protocol::varying::{Varies, Varying};
use crate::domain::wire::protocol::{Break, made, spoken};
use crate::domain::wire::usage::{
    Modifiers, Unlimited, Usage, UsageSource,
    fields::{self, Field},
};
use calls::Calls;
use report::Report;

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
/// Where the calls of an item are counted that an event carries.
const ITEM_CALLS: usize = 10;
/// Where the paths of the response object begin: first those inside an event, then those of a body.
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

/// What differs in each event besides its text.
const NUMBER: Varying = Varying {
    key: br#""sequence_number""#,
    value: Varies::Number,
};
const FILLING: Varying = Varying {
    key: br#""obfuscation""#,
    value: Varies::Filling,
};

/// What to pick out of events and bodies.
pub(super) static PATHS: LazyLock<PathSet> = LazyLock::new(|| {
    let all = [
        EVENT,
        &calls::IN_ITEM,
        IN_EVENT_RESPONSE,
        &calls::IN_EVENT,
        BODY,
        &calls::IN_BODY,
        spoken::RESPONSES,
        made::RESPONSES,
    ];
    PathSet::new(&all.concat())
});

/// Where the paths begin that say what an answer has made.
pub(super) const MADE: usize = EVENT.len()
    + calls::IN_ITEM.len()
    + IN_EVENT_RESPONSE.len()
    + calls::IN_EVENT.len()
    + BODY.len()
    + calls::IN_BODY.len()
    + spoken::RESPONSES.len();

const EVENT: &[Path] = &[
    Path::new(&[Key("type")], Take::Scalar),
    Path::new(&[Key("sequence_number")], Take::Scalar),
    Path::new(&[Key("delta")], Take::Presence),
    Path::new(&[Key("item"), Key("type")], Take::Scalar),
    Path::new(&[Key("code")], Take::Scalar),
    Path::new(&[Key("error"), Key("type")], Take::Scalar),
    Path::new(&[Key("error"), Key("code")], Take::Scalar),
    Path::new(&[Key("error")], Take::Presence),
    Path::new(&[Key("response"), Key("error"), Key("type")], Take::Scalar),
    Path::new(&[Key("response"), Key("error"), Key("code")], Take::Scalar),
];

const IN_EVENT_RESPONSE: &[Path] = &[
    Path::new(&[Key("response"), Key("id")], Take::Scalar),
    Path::new(&[Key("response"), Key("created_at")], Take::Scalar),
    Path::new(&[Key("response"), Key("model")], Take::Scalar),
    Path::new(&[Key("response"), Key("status")], Take::Scalar),
    Path::new(&[Key("response"), Key("usage")], Take::Tree),
    Path::new(&[Key("response"), Key("tool_usage")], Take::Tree),
    Path::new(
        &[Key("response"), Key("incomplete_details"), Key("reason")],
        Take::Scalar,
    ),
    Path::new(&[Key("response"), Key("output"), Each], Take::Count),
    Path::new(&[Key("response"), Key("service_tier")], Take::Scalar),
];

const BODY: &[Path] = &[
    Path::new(&[Key("id")], Take::Scalar),
    Path::new(&[Key("created_at")], Take::Scalar),
    Path::new(&[Key("model")], Take::Scalar),
    Path::new(&[Key("status")], Take::Scalar),
    Path::new(&[Key("usage")], Take::Fields(&report::FIELDS)),
    Path::new(&[Key("tool_usage")], Take::Tree),
    Path::new(&[Key("incomplete_details"), Key("reason")], Take::Scalar),
    Path::new(&[Key("output"), Each], Take::Count),
    Path::new(&[Key("service_tier")], Take::Scalar),
];

/// What an answer has reported. Usage comes only with the last event, and may be `null`.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponsesState {
    said: Option<Report>,
    /// The usage came with the event that ends the answer, or with a body.
    usage_is_last: bool,
    /// As returned: the first event repeats what was asked for, the last one says what it became.
    service_tier: Option<SmolStr>,
    /// Web searches, where they are counted beside the usage.
    web_searches: Option<u64>,
    calls: Calls,
    created_at: Option<u64>,
    sequence: Option<u64>,
}

impl ResponsesState {
    /// One event of a stream.
    pub(super) fn event(&mut self, picks: &Picks<'_>, name: &[u8], facts: &mut Facts) {
        if let Some(sequence) = number(picks, SEQUENCE) {
            self.sequence = Some(sequence);
        }
        self.response(picks, IN_EVENT, facts);
        let kind = picks.text(TYPE);
        match kind.as_deref().map_or(name, str::as_bytes) {
            b"response.output_item.added" => facts.content_seen |= item_is_content(picks),
            b"response.output_item.done" => {
                facts.content_seen = true;
                self.calls.add(Calls::counted(picks, ITEM_CALLS));
            }
            b"response.completed" => self.finish(picks, "completed", facts),
            b"response.incomplete" => self.finish(picks, "incomplete", facts),
            b"response.failed" => {
                self.finish(picks, "failed", facts);
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

    /// Whether the event is one of an answer that has not failed, by its type.
    pub(super) fn is_answers(picks: &Picks<'_>) -> bool {
        let kind = picks.raw(TYPE).unwrap_or_default();
        kind.starts_with(b"\"response.") && kind != br#""response.failed""#
    }

    /// Whether an event that is not known to be one of an answer is an error, in the protocol's form or a provider's own.
    pub(super) fn is_error(picks: &Picks<'_>, name: &[u8]) -> bool {
        let kind = picks.text(TYPE);
        let is_named = matches!(
            kind.as_deref().map_or(name, str::as_bytes),
            b"error" | b"response.failed"
        );
        is_named || picks.is_present(ERROR)
    }

    /// Whether the event is one of an answer.
    pub(super) fn says_something(picks: &Picks<'_>, name: &[u8]) -> bool {
        picks.raw(TYPE).is_some() || !name.is_empty()
    }

    /// See [`super::dialect::Dialect::only_speaks`]. A delta has a number and, to hide its length, filling
    /// (<https://platform.openai.com/docs/api-reference/responses/create>, `include_obfuscation`).
    pub(super) fn only_speaks(picks: &Picks<'_>) -> Option<&'static [Varying]> {
        let is_delta = picks.raw(TYPE).is_some_and(|kind| kind.ends_with(br#".delta""#));
        if !(is_delta && picks.has_only(&[TYPE, SEQUENCE, DELTA])) {
            return None;
        }
        // What stands elsewhere under the name of the number is no number of the event.
        Some(match picks.is_present(SEQUENCE) {
            true => &[NUMBER, FILLING],
            false => &[FILLING],
        })
    }

    /// An event has come that has this number and says nothing else.
    pub(super) fn numbered(&mut self, number: u64) {
        self.sequence = Some(number);
    }

    fn finish(&mut self, picks: &Picks<'_>, status: &str, facts: &mut Facts) {
        facts.terminal = true;
        self.usage_is_last = picks.raw(IN_EVENT + USAGE).is_some();
        facts.content_seen |= picks.count(IN_EVENT + OUTPUT) > 0;
        let reason = picks.text(IN_EVENT + INCOMPLETE_REASON).unwrap_or(status.into());
        note(&mut facts.finish_reason, Some(reason));
    }

    /// The response object, which begins, ends and sometimes accompanies a stream, and is the body of an answer that is none.
    fn response(&mut self, picks: &Picks<'_>, base: usize, facts: &mut Facts) {
        note(&mut facts.answer_id, picks.text(base + ID));
        note(&mut facts.model, picks.text(base + MODEL));
        self.created_at = number(picks, base + CREATED_AT).or(self.created_at);
        note_name(&mut self.service_tier, picks.text(base + SERVICE_TIER));
        if picks.raw(base + USAGE).is_some() {
            self.said = picks.fields(base + USAGE, &report::FIELDS).map(Report::of);
        }
        if let Some(tools) = picks.raw(base + TOOL_USAGE) {
            let [search] = Field::of(tools).fields(&["web_search"]);
            let [requests] = search.fields(&["num_requests"]);
            self.web_searches = requests.count();
        }
        self.calls.raise(Calls::counted(picks, base + CALLS));
    }

    /// The whole body of an answer that is not a stream.
    pub(super) fn body(&mut self, picks: &Picks<'_>, facts: &mut Facts) {
        self.response(picks, IN_BODY, facts);
        self.usage_is_last = picks.raw(IN_BODY + USAGE).is_some();
        let reason = picks
            .text(IN_BODY + INCOMPLETE_REASON)
            .or_else(|| picks.text(IN_BODY + STATUS));
        note(&mut facts.finish_reason, reason);
        if Self::is_failure(picks) {
            let code = picks.text(ERROR_CODE).or_else(|| picks.text(CODE));
            facts.error = Some(in_band_error(picks.text(ERROR_TYPE), "error", code));
        }
    }

    /// Whether the whole body of an answer that is not a stream is an error.
    pub(super) fn is_failure(picks: &Picks<'_>) -> bool {
        picks.is_present(ERROR) || picks.is(IN_BODY + STATUS, "failed")
    }

    pub(super) fn body_has_content(picks: &Picks<'_>) -> bool {
        picks.count(IN_BODY + OUTPUT) > 0
    }

    pub(super) fn modifiers(&self) -> Modifiers {
        Modifiers {
            service_tier: self.service_tier.clone(),
            ..Modifiers::default()
        }
    }

    /// Usage comes only at the end; whoever sends it earlier has not yet said the last word.
    pub(super) fn usage_source(&self) -> Option<UsageSource> {
        let said = self.said.as_ref()?;
        Some(source(self.usage_is_last && said.has_both))
    }

    pub(super) fn unlimited(&self) -> Unlimited {
        Unlimited {
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
            ..self.said.as_ref()?.tokens
        })
    }

    /// The event that tells the client of a failure: agents act on `response.failed`, the SDKs raise on the `error` beside it.
    pub(super) fn failure_event(&self, why: Break, facts: &Facts, number: Option<u64>) -> Vec<u8> {
        let message = why.message();
        // Codex waits and repeats after most codes, not after this one.
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

fn number(picks: &Picks<'_>, path: usize) -> Option<u64> {
    fields::count(picks.text(path)?.as_bytes())
}

/// A message or a reasoning item begins empty; any other item (a tool call) is content by itself.
fn item_is_content(picks: &Picks<'_>) -> bool {
    picks
        .text(ITEM_TYPE)
        .is_some_and(|kind| !matches!(kind.as_ref(), "message" | "reasoning"))
}

/// The `error.type` that goes with a status.
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
