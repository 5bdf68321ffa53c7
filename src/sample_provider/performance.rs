//! One response from request to steps: reads the request, decides, renders. Pure; ids and times are arguments.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::ScriptedContent;
use super::ask::{self, Ask};
use super::gemini::Chunking;
use super::path::Target;
use super::prompt_cache::{Cached, PromptCache};
use super::reply::{Counts, Others, Reply};
use super::script::{Encoding, Script};
use super::settings::Settings;
use super::steps::{self, Ending, ReplyStep};
use super::tokens::{self, InputTokens};
use super::{gemini, messages, responses, tool};
use crate::domain::wire::operation::Operation;
use crate::domain::wire::protocol::Protocol;

const RETRY_AFTER_SECONDS_DEFAULT: u32 = 1;

/// A request as it came in, with what the answer takes from outside of it.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// The operation and, for Gemini, the model.
    pub(super) target: &'a Target,
    /// How a Gemini stream is framed.
    pub(super) chunking: Chunking,
    pub(super) body: &'a [u8],
    /// The unique part of every id.
    pub(super) id: &'a str,
    /// The name of the request in headers.
    pub(super) request_id: &'a str,
    /// Now, Unix seconds.
    pub(super) created_at: i64,
    /// What has been sent before.
    pub(super) prompt_cache: &'a PromptCache,
}

/// A response ready to be given.
#[derive(Clone, Debug)]
pub(super) struct Performance {
    pub(super) status: u16,
    /// The `content-type` header.
    pub(super) content_type: String,
    /// Whether the body is gzip.
    pub(super) gzip: bool,
    /// The length to announce; a stream has none.
    pub(super) length: Option<u64>,
    /// The `retry-after` header, seconds.
    pub(super) retry_after: Option<u32>,
    /// Wait this long before the head.
    pub(super) ttfb: Duration,
    /// Wait this long at each pause.
    pub(super) gap: Duration,
    pub(super) steps: Arc<[ReplyStep]>,
    pub(super) bill: Arc<Bill>,
}

/// What the ledger has to know about a response.
#[derive(Debug, Default)]
pub(super) struct Bill {
    pub(super) model: String,
    /// Whether the response is streamed.
    pub(super) stream: bool,
    /// The status of the response.
    pub(super) status: u16,
    /// Whether it costs anything: an error or a free operation does not.
    pub(super) billed: bool,
    /// Tokens in, outside of any cache; zero when nothing is billed.
    pub(super) input: InputTokens,
    /// Tokens read from a cache.
    pub(super) cache_read: u64,
    /// Tokens written to a cache.
    pub(super) cache_write: u64,
    /// What is said, empty when nothing is billed.
    pub(super) answer: ScriptedContent,
    /// Deltas that are generated when nobody stops it.
    pub(super) deltas: usize,
}

/// What is answered to `order`; a request that cannot be followed is answered with an error, too.
pub(super) fn of(order: &Order<'_>, settings: &Settings) -> Performance {
    let protocol = order.target.operation.protocol();
    let refused = |message: &str| refusal(protocol, 400, message, order.request_id);
    let Ok(body) = serde_json::from_slice::<Value>(order.body) else {
        return refused("the body is not valid JSON");
    };
    let mut ask = match ask::read(order.target.operation, order.target.model.as_deref(), &body) {
        Ok(ask) => ask,
        Err(error) => return refused(&error.to_string()),
    };
    let script = match Script::from_prompt(&ask.prompt) {
        Ok(mark) => settings
            .script
            .clone()
            .under(Script::from_model(&ask.model))
            .under(mark),
        Err(error) => return refused(&error.to_string()),
    };
    if let Err(error) = script.check() {
        return refused(&error.to_string());
    }
    if script.status() >= 400 {
        let message = "the sample provider was told to answer with this status";
        return failed(order, &ask, &script, message);
    }
    ask.call = tool::choose(protocol, &body, &ask, &script);
    let input = tokens::of_request(&body, settings.counting);
    match order.target.operation {
        Operation::CountTokens => counted(&ask, &script, &messages::token_count(input.count)),
        Operation::GeminiCountTokens => counted(&ask, &script, &gemini::token_count(input.count)),
        Operation::Messages | Operation::Responses | Operation::GenerateContent | Operation::StreamGenerateContent => {
            answered(order, &body, &ask, &script, input, settings)
        }
    }
}

/// An error of the server's own, outside of any script.
pub(super) fn refusal(protocol: Protocol, status: u16, message: &str, request_id: &str) -> Performance {
    let body = error_body(protocol, status, message, request_id, None);
    let bill = Bill {
        status,
        ..Bill::default()
    };
    at_once(&Script::default(), bill, &body, Ending::Refused, "application/json")
}

fn error_body(protocol: Protocol, status: u16, message: &str, request_id: &str, retry: Option<u32>) -> Bytes {
    let body = match protocol {
        Protocol::Messages => messages::error(status, message, request_id),
        Protocol::Responses => responses::error(status, message),
        Protocol::Gemini => gemini::error(status, message, retry),
    };
    body.to_string().into()
}

/// An error in a shape of the provider's own (docs/interface.md, Errors: provider 3).
fn native_error(status: u16, message: &str) -> Value {
    json!({ "code": status.to_string(), "message": message, "param": null, "type": "sample_error" })
}

fn failed(order: &Order<'_>, ask: &Ask, script: &Script, message: &str) -> Performance {
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
    } else if order.target.operation == Operation::StreamGenerateContent && order.chunking == Chunking::Array {
        body = [b"[", body.as_ref(), b"]"].concat().into();
    }
    let bill = Bill {
        model: ask.model.clone(),
        stream: ask.stream,
        status: script.status(),
        ..Bill::default()
    };
    let performance = at_once(script, bill, &body, Ending::Refused, "application/json");
    // The Gemini-style protocol says when to retry in the body; the header only comes when it was ordered.
    let header = if protocol == Protocol::Gemini {
        script.retry_after
    } else {
        retry
    };
    Performance {
        retry_after: header,
        ..performance
    }
}

fn counted(ask: &Ask, script: &Script, body: &Value) -> Performance {
    let bill = Bill {
        model: ask.model.clone(),
        status: 200,
        ..Bill::default()
    };
    at_once(
        script,
        bill,
        &body.to_string().into(),
        Ending::Counted,
        "application/json",
    )
}

/// A success that is an error inside.
fn failed_within(order: &Order<'_>, protocol: Protocol, model: &str, script: &Script) -> Performance {
    let message = "the sample provider was told to fail inside of a success";
    let body = if script.native_errors == Some(true) {
        json!({ "code": 503, "msg": message, "success": false })
            .to_string()
            .into()
    } else {
        error_body(protocol, 503, message, order.request_id, None)
    };
    let bill = Bill {
        model: model.to_owned(),
        status: 200,
        ..Bill::default()
    };
    at_once(script, bill, &body, Ending::InBandError, "application/json")
}

fn answered(
    order: &Order<'_>,
    body: &Value,
    ask: &Ask,
    script: &Script,
    input: InputTokens,
    settings: &Settings,
) -> Performance {
    let protocol = order.target.operation.protocol();
    let answer = ScriptedContent::to(ask, protocol, script, settings.seed, settings.counting);
    let cached = match script.prompt_cache {
        Some(true) => order.prompt_cache.pass(protocol, body),
        Some(false) | None => Cached::default(),
    };
    let bill = Bill {
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
    let reply = Reply {
        id: order.id,
        model: &ask.model,
        created_at: order.created_at,
        answer: &bill.answer,
        counts: counts(&bill).styled(script.usage()),
        others: Others {
            advisor: script.advisor.as_deref(),
            fallback: script.fallback.as_deref(),
        },
        encrypted_reasoning: includes.into_iter().any(|name| name == "reasoning.encrypted_content"),
    };
    if ask.stream {
        let (frames, kind) = match protocol {
            Protocol::Messages => (messages::stream(&reply), "text/event-stream; charset=utf-8"),
            Protocol::Responses => (responses::stream(&reply), "text/event-stream; charset=utf-8"),
            Protocol::Gemini if order.chunking == Chunking::Array => (
                gemini::stream(&reply, Chunking::Array),
                "application/json; charset=UTF-8",
            ),
            Protocol::Gemini => (gemini::stream(&reply, Chunking::Sse), "text/event-stream"),
        };
        let steps = steps::of_stream(&frames, script, |before| match protocol {
            Protocol::Messages => messages::in_band_error(),
            Protocol::Responses => responses::in_band_error(&reply, before),
            Protocol::Gemini => gemini::in_band_error(order.chunking, before),
        });
        return performance(script, bill, None, steps, kind);
    }
    if script.in_band_error_after.is_some() {
        return failed_within(order, protocol, &ask.model, script);
    }
    let (body, kind) = match protocol {
        Protocol::Messages => (messages::unary(&reply), "application/json"),
        Protocol::Responses => (responses::unary(&reply), "application/json"),
        Protocol::Gemini => (gemini::unary(&reply), "application/json; charset=UTF-8"),
    };
    at_once(script, bill, &body.to_string().into(), Ending::Complete, kind)
}

fn counts(bill: &Bill) -> Counts {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let thinking = bill.answer.thinking_tokens();
    Counts {
        uncached: signed(bill.input.count),
        cache_read: signed(bill.cache_read),
        cache_write: signed(bill.cache_write),
        spoken: signed(bill.answer.tokens().saturating_sub(thinking)),
        thinking: signed(thinking),
    }
}

/// A response whose body is sent at once.
fn at_once(script: &Script, bill: Bill, body: &Bytes, ending: Ending, content_type: &str) -> Performance {
    let steps = steps::of_body(body, bill.deltas, ending, script);
    let length = steps::announced_length(body, script);
    performance(script, bill, length, steps, content_type)
}

fn performance(
    script: &Script,
    mut bill: Bill,
    length: Option<u64>,
    steps: Vec<ReplyStep>,
    content_type: &str,
) -> Performance {
    // A stall is where generation ends, whoever waits for more.
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
    Performance {
        status: bill.status,
        content_type: script.content_type.clone().unwrap_or_else(|| content_type.to_owned()),
        gzip: script.encoding == Some(Encoding::Gzip),
        length,
        retry_after: None,
        ttfb: script.ttfb(),
        gap: script.gap(),
        steps: steps.into(),
        bill: Arc::new(bill),
    }
}

#[cfg(test)]
mod tests;
