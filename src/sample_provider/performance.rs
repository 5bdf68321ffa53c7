//! Computes the steps of the response to a request. The functions are pure: ids and times are arguments.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    domain::wire::{
        UpstreamProtocol,
        operation::{Operation, UpstreamOperation},
    },
    sample_provider::{
        SampleSettings,
        answer::{self, OtherModels, ReportedCounts, SampleFrame, SampleReply, ScriptedContent},
        ask::{self, PathTarget, SampleRequest, SampleRequestError},
        chat::{self, check_request},
        gemini::{self, GeminiFraming},
        messages, responses,
        script::{BodyEncoding, SampleScript},
        steps::{self, ReplyStep, SampleEnding},
        tokens::{self, InputTokens, PromptCache, PromptCacheUse},
    },
};

const RETRY_AFTER_SECONDS_DEFAULT: u32 = 1;

/// A request before it is parsed, with the other inputs that determine its answer.
#[derive(Debug)]
pub(super) struct RawSampleRequest<'a> {
    /// The operation and, in the Gemini-style protocol, the model.
    pub(super) target: &'a PathTarget,
    /// The framing of the answer. It only applies to a Gemini-style stream.
    pub(super) chunking: GeminiFraming,
    pub(super) body: &'a [u8],
    /// The unique part of every id in the answer.
    pub(super) id: &'a str,
    /// The request id that the answer's headers contain.
    pub(super) request_id: &'a str,
    /// The current time, in seconds since the Unix epoch.
    pub(super) created_at: i64,
    /// The cache of the beginnings of earlier prompts.
    pub(super) prompt_cache: &'a PromptCache,
}

/// A scripted response that is ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct ScriptedResponse {
    pub(super) status: u16,
    /// The value of the `content-type` header.
    pub(super) content_type: String,
    /// Whether the body is compressed with gzip.
    pub(super) gzip: bool,
    /// The declared length of the body in bytes; `None` for a body without a declared length, such as a stream.
    pub(super) length: Option<u64>,
    /// The value of the `retry-after` header, in seconds; `None` for no such header.
    pub(super) retry_after: Option<u32>,
    /// The pause before the response's head.
    pub(super) ttfb: Duration,
    /// The duration of each [`ReplyStep::Pause`].
    pub(super) gap: Duration,
    pub(super) steps: Arc<[ReplyStep]>,
    pub(super) bill: Arc<SampleBill>,
}

/// The parts of a response that the ledger records.
#[derive(Debug, Default)]
pub(super) struct SampleBill {
    pub(super) model: String,
    /// Whether the response is streamed.
    pub(super) stream: bool,
    /// The HTTP status of the response.
    pub(super) status: u16,
    /// Whether the response is billed. Errors and free operations are not.
    pub(super) billed: bool,
    /// The number of input tokens outside of any cache; zero if nothing is billed.
    pub(super) input: InputTokens,
    /// The number of input tokens read from a cache.
    pub(super) cache_read: u64,
    /// The number of input tokens written to a cache.
    pub(super) cache_write: u64,
    /// The content of the answer; empty if nothing is billed.
    pub(super) answer: ScriptedContent,
    /// The number of deltas that are generated unless the generation is stopped early.
    pub(super) deltas: usize,
}

/// Returns the response to the request `order`: an error response if the request is invalid.
pub(super) fn respond(order: &RawSampleRequest<'_>, settings: &SampleSettings) -> ScriptedResponse {
    let protocol = order.target.operation.protocol();
    let Ok(body) = serde_json::from_slice::<Value>(order.body) else {
        let error = SampleRequestError::new("invalid_json", "the body is not valid JSON");
        return invalid_request_response(protocol, &error, order.request_id);
    };
    let (mut ask, script) = match read_with_script(order.target, &body, settings) {
        Ok(both) => both,
        Err(error) => return invalid_request_response(protocol, &error, order.request_id),
    };
    if script.status() >= 400 {
        let message = "the script of the sample provider demands this status";
        return failed_response(order, &ask, &script, message);
    }
    ask.call = answer::choose_tool(protocol, &body, &ask, &script);
    let input = tokens::count_input(&body, settings.counting);
    match order.target.operation {
        UpstreamOperation::Client(Operation::CountTokens) => {
            count_response(&ask, &script, &messages::token_count(input.count))
        }
        UpstreamOperation::Client(Operation::GeminiCountTokens) => {
            count_response(&ask, &script, &gemini::token_count(input.count))
        }
        UpstreamOperation::Client(
            Operation::Messages | Operation::Responses | Operation::GenerateContent | Operation::StreamGenerateContent,
        )
        | UpstreamOperation::ChatCompletions => answer_response(order, &body, &ask, &script, input, settings),
    }
}

/// Reads a request and the script for it. A request of `chat/completions` is checked strictly.
fn read_with_script(
    target: &PathTarget,
    body: &Value,
    settings: &SampleSettings,
) -> Result<(SampleRequest, SampleScript), SampleRequestError> {
    let mut ask = ask::read_request(target.operation, target.model.as_deref(), body)?;
    let mark = SampleScript::from_prompt(&ask.prompt)?;
    let script = settings
        .script
        .clone()
        .under(SampleScript::from_model(&ask.model))
        .under(mark);
    script.check()?;
    if target.operation == UpstreamOperation::ChatCompletions {
        check_request(body, &script)?;
    }
    ask.thinking = script.thinking.unwrap_or(ask.thinking);
    Ok((ask, script))
}

/// Builds the error response to a request that cannot be answered.
fn invalid_request_response(
    protocol: UpstreamProtocol,
    error: &SampleRequestError,
    request_id: &str,
) -> ScriptedResponse {
    match protocol {
        UpstreamProtocol::Chat => refusal_with_body(400, &chat::request_error(error).to_string().into()),
        UpstreamProtocol::Messages | UpstreamProtocol::Responses | UpstreamProtocol::Gemini => {
            refusal_response(protocol, 400, &error.to_string(), request_id)
        }
    }
}

/// Builds an error response that the server itself sends, independently of scripts.
pub(super) fn refusal_response(
    protocol: UpstreamProtocol,
    status: u16,
    message: &str,
    request_id: &str,
) -> ScriptedResponse {
    refusal_with_body(status, &error_body(protocol, status, message, request_id, None))
}

fn refusal_with_body(status: u16, body: &Bytes) -> ScriptedResponse {
    let bill = SampleBill {
        status,
        ..SampleBill::default()
    };
    response_in_one_piece(
        &SampleScript::default(),
        bill,
        body,
        SampleEnding::Refused,
        "application/json",
    )
}

fn error_body(protocol: UpstreamProtocol, status: u16, message: &str, request_id: &str, retry: Option<u32>) -> Bytes {
    let body = match protocol {
        UpstreamProtocol::Messages => messages::error(status, message, request_id),
        UpstreamProtocol::Responses | UpstreamProtocol::Chat => responses::error(status, message),
        UpstreamProtocol::Gemini => gemini::error(status, message, retry),
    };
    body.to_string().into()
}

/// Builds an error body in the form that a provider uses instead of the protocol's form. It is the form of provider 3 in
/// docs/interface.md, section Errors.
fn native_error(status: u16, message: &str) -> Value {
    json!({ "code": status.to_string(), "message": message, "param": null, "type": "sample_error" })
}

fn failed_response(
    order: &RawSampleRequest<'_>,
    ask: &SampleRequest,
    script: &SampleScript,
    message: &str,
) -> ScriptedResponse {
    let protocol = order.target.operation.protocol();
    let limited = (script.status() == 429).then_some(RETRY_AFTER_SECONDS_DEFAULT);
    let retry = script.retry_after.or(limited);
    let mut body = error_body(protocol, script.status(), message, order.request_id, retry);
    if script.native_errors == Some(true) {
        body = native_error(script.status(), message).to_string().into();
    } else if script
        .content_type
        .as_deref()
        .is_some_and(|kind| kind.starts_with("text/html"))
    {
        let status = script.status();
        body =
            format!("<!DOCTYPE html>\n<html><head><title>{status}</title></head><body>{status}</body></html>\n").into();
    } else if order.target.operation == UpstreamOperation::Client(Operation::StreamGenerateContent)
        && order.chunking == GeminiFraming::Array
    {
        body = [b"[", body.as_ref(), b"]"].concat().into();
    }
    let bill = SampleBill {
        model: ask.model.clone(),
        stream: ask.stream,
        status: script.status(),
        ..SampleBill::default()
    };
    let performance = response_in_one_piece(script, bill, &body, SampleEnding::Refused, "application/json");
    // In the Gemini-style protocol, the body contains the time to retry after. The header is only sent if the script demands it.
    let header = if protocol == UpstreamProtocol::Gemini {
        script.retry_after
    } else {
        retry
    };
    ScriptedResponse {
        retry_after: header,
        ..performance
    }
}

fn count_response(ask: &SampleRequest, script: &SampleScript, body: &Value) -> ScriptedResponse {
    let bill = SampleBill {
        model: ask.model.clone(),
        status: 200,
        ..SampleBill::default()
    };
    response_in_one_piece(
        script,
        bill,
        &body.to_string().into(),
        SampleEnding::Counted,
        "application/json",
    )
}

/// Builds a response with an error in the body and a success status.
fn in_band_error_response(
    order: &RawSampleRequest<'_>,
    protocol: UpstreamProtocol,
    model: &str,
    script: &SampleScript,
) -> ScriptedResponse {
    let message = "the script of the sample provider demands a failure within a success";
    let body = if script.native_errors == Some(true) {
        json!({ "code": 503, "msg": message, "success": false })
            .to_string()
            .into()
    } else {
        error_body(protocol, 503, message, order.request_id, None)
    };
    let bill = SampleBill {
        model: model.to_owned(),
        status: 200,
        ..SampleBill::default()
    };
    response_in_one_piece(script, bill, &body, SampleEnding::InBandError, "application/json")
}

fn answer_response(
    order: &RawSampleRequest<'_>,
    body: &Value,
    ask: &SampleRequest,
    script: &SampleScript,
    input: InputTokens,
    settings: &SampleSettings,
) -> ScriptedResponse {
    let protocol = order.target.operation.protocol();
    let answer = ScriptedContent::for_request(ask, protocol, script, settings.seed, settings.counting);
    let cached = match script.prompt_cache {
        Some(true) => order.prompt_cache.record(protocol, body),
        Some(false) | None => PromptCacheUse::default(),
    };
    let bill = SampleBill {
        model: ask.model.clone(),
        stream: ask.stream,
        status: 200,
        billed: true,
        input: InputTokens {
            count: input.count.saturating_sub(cached.read.saturating_add(cached.written)),
            ..input
        },
        cache_read: cached.read.saturating_add(script.cache_read.unwrap_or(0)),
        cache_write: cached.written.saturating_add(script.cache_write.unwrap_or(0)),
        deltas: answer.deltas(),
        answer,
    };
    let includes = body.get("include").and_then(Value::as_array).into_iter().flatten();
    let reply = SampleReply {
        id: order.id,
        model: &ask.model,
        created_at: order.created_at,
        answer: &bill.answer,
        counts: counts(&bill).styled(script.usage()),
        others: OtherModels {
            advisor: script.advisor.as_deref(),
            fallback: script.fallback.as_deref(),
        },
        encrypted_reasoning: includes.into_iter().any(|name| name == "reasoning.encrypted_content"),
        streams_usage: ask::flag(body, "/stream_options/include_usage"),
    };
    if ask.stream {
        let (frames, kind) = stream_frames(protocol, &reply, order.chunking);
        let steps = steps::stream_steps(&frames, script, |before| match protocol {
            UpstreamProtocol::Messages => messages::in_band_error(),
            UpstreamProtocol::Responses => responses::in_band_error(&reply, before),
            UpstreamProtocol::Gemini => gemini::in_band_error(order.chunking, before),
            UpstreamProtocol::Chat => chat::in_band_error(),
        });
        return scripted_response(script, bill, None, steps, kind);
    }
    if script.in_band_error_after.is_some() {
        return in_band_error_response(order, protocol, &ask.model, script);
    }
    let (body, kind) = match protocol {
        UpstreamProtocol::Messages => (messages::unary(&reply), "application/json"),
        UpstreamProtocol::Responses => (responses::unary(&reply), "application/json"),
        UpstreamProtocol::Gemini => (gemini::unary(&reply), "application/json; charset=UTF-8"),
        UpstreamProtocol::Chat => (chat::unary(&reply), "application/json"),
    };
    response_in_one_piece(script, bill, &body.to_string().into(), SampleEnding::Complete, kind)
}

/// Renders the events of a streamed answer, and returns them with their content type.
fn stream_frames(
    protocol: UpstreamProtocol,
    reply: &SampleReply<'_>,
    chunking: GeminiFraming,
) -> (Vec<SampleFrame>, &'static str) {
    match protocol {
        UpstreamProtocol::Messages => (messages::stream(reply), "text/event-stream; charset=utf-8"),
        UpstreamProtocol::Responses => (responses::stream(reply), "text/event-stream; charset=utf-8"),
        UpstreamProtocol::Gemini if chunking == GeminiFraming::Array => {
            (gemini::stream(reply, chunking), "application/json; charset=UTF-8")
        }
        UpstreamProtocol::Gemini => (gemini::stream(reply, chunking), "text/event-stream"),
        UpstreamProtocol::Chat => (chat::stream(reply), "text/event-stream; charset=utf-8"),
    }
}

fn counts(bill: &SampleBill) -> ReportedCounts {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let thinking = bill.answer.thinking_tokens();
    ReportedCounts {
        uncached: signed(bill.input.count),
        cache_read: signed(bill.cache_read),
        cache_write: signed(bill.cache_write),
        spoken: signed(bill.answer.tokens().saturating_sub(thinking)),
        thinking: signed(thinking),
    }
}

/// Builds a response whose body is not streamed.
fn response_in_one_piece(
    script: &SampleScript,
    bill: SampleBill,
    body: &Bytes,
    ending: SampleEnding,
    content_type: &str,
) -> ScriptedResponse {
    let steps = steps::body_steps(body, bill.deltas, ending, script);
    let length = steps::announced_length(body, script);
    scripted_response(script, bill, length, steps, content_type)
}

fn scripted_response(
    script: &SampleScript,
    mut bill: SampleBill,
    length: Option<u64>,
    steps: Vec<ReplyStep>,
    content_type: &str,
) -> ScriptedResponse {
    // Generation ends at a stall, even while the client continues to wait.
    if let (Some(ReplyStep::Stall), true) = (steps.last(), bill.stream) {
        bill.deltas = steps
            .iter()
            .rev()
            .find_map(|step| match step {
                ReplyStep::Send { deltas, .. } => Some(*deltas),
                _ => None,
            })
            .unwrap_or(0);
    }
    ScriptedResponse {
        status: bill.status,
        content_type: script.content_type.clone().unwrap_or_else(|| content_type.to_owned()),
        gzip: script.encoding == Some(BodyEncoding::Gzip),
        length,
        retry_after: None,
        ttfb: script.ttfb(),
        gap: script.gap(),
        steps: steps.into(),
        bill: Arc::new(bill),
    }
}
