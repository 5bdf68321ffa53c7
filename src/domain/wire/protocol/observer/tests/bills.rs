//! What an answer is billed for, from its bytes: what its provider reported, or the most that is accepted of that.

use serde_json::json;

use super::*;
use crate::domain::wire::tokens::{
    TokenFactor,
    bill::{AnswerExtent, ESTIMATE_TIMES_MAX, Evidence, IMAGE_TOKENS_MAX, ModelLimits, bill},
};
use crate::domain::wire::usage::{UnlimitedWork, UsageSource};

/// What a provider does and reports.
#[derive(Clone, Debug)]
struct Plan {
    words: usize,
    tool_calls: usize,
    images: u64,
    input: u32,
    text: i64,
    reasoning: i64,
    asked: Option<u64>,
    head: Head,
}

/// What its answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    Events,
    /// One JSON array, where the protocol has it; elsewhere events.
    Array,
    Body,
}

const INPUT_SCANNED: u64 = 1_000;

fn plan() -> impl Strategy<Value = Plan> {
    let count = || prop_oneof![8 => 0..6_000_i64, 1 => Just(1_i64 << 52), 1 => Just(-5_i64)];
    let asked = prop::option::of(1..3_000_u64);
    (
        (0..400_usize, 0..5_usize, 0..2_u64),
        (0..4_000_u32, count(), count()),
        asked,
        prop::sample::select(vec![Head::Events, Head::Array, Head::Body]),
    )
        .prop_map(
            |((words, tool_calls, images), (input, text, reasoning), asked, head)| Plan {
                words,
                tool_calls,
                images,
                input,
                text,
                reasoning,
                asked,
                head,
            },
        )
}

impl Plan {
    /// Text and reasoning together: as large as JSON's numbers are taken to be, and negative if one of them is.
    fn output(&self) -> i64 {
        let is_negative = self.text < 0 || self.reasoning < 0;
        if is_negative {
            -5
        } else {
            self.text.saturating_add(self.reasoning)
        }
    }

    fn said(&self) -> String {
        "weirs ".repeat(self.words)
    }

    /// The events of a stream, or the body alone.
    fn answer(&self, protocol: Protocol) -> Vec<Value> {
        match protocol {
            Protocol::Messages => self.messages(),
            Protocol::Responses => self.responses(),
            Protocol::Gemini => self.gemini(),
        }
    }

    fn messages(&self) -> Vec<Value> {
        let tool = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {}});
        let tools = vec![tool.clone(); self.tool_calls];
        let output = self.output();
        let usage = json!({"input_tokens": self.input, "output_tokens": output,
            "output_tokens_details": {"thinking_tokens": self.reasoning}});
        if self.head == Head::Body {
            let mut content = tools;
            content.push(json!({"type": "text", "text": self.said()}));
            return vec![json!({"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage})];
        }
        let mut events =
            vec![json!({"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": self.input}}})];
        events.extend(
            (0..self.tool_calls)
                .map(|index| json!({"type": "content_block_start", "index": index, "content_block": tool})),
        );
        events.push(json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": self.said()}}));
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn responses(&self) -> Vec<Value> {
        let mut items = vec![json!({"type": "code_interpreter_call", "status": "completed"}); self.tool_calls];
        items.push(json!({"type": "message", "content": [{"type": "output_text", "text": self.said()}]}));
        let output = self.output();
        let usage = json!({"input_tokens": self.input, "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": self.reasoning}});
        let response = json!({"id": "resp_1", "status": "completed", "output": items, "usage": usage});
        if self.head == Head::Body {
            return vec![response];
        }
        let mut events = vec![json!({"type": "response.output_text.delta", "delta": self.said()})];
        events.extend(
            items
                .iter()
                .map(|item| json!({"type": "response.output_item.done", "item": item})),
        );
        events.push(json!({"type": "response.completed", "response": response}));
        events
    }

    fn gemini(&self) -> Vec<Value> {
        let code = json!({"executableCode": {"language": "PYTHON", "code": ""}});
        let result = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK"}});
        let image = json!({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}});
        let mut parts: Vec<Value> = (0..self.tool_calls)
            .flat_map(|_| [code.clone(), result.clone()])
            .collect();
        parts.extend((0..self.images).map(|_| image.clone()));
        parts.push(json!({"text": self.said()}));
        let usage = json!({"promptTokenCount": self.input, "candidatesTokenCount": self.text,
            "thoughtsTokenCount": self.reasoning});
        let chunk = |parts: &[Value]| json!({"candidates": [{"content": {"parts": parts}}], "usageMetadata": usage});
        let is_stream = self.head != Head::Body;
        let whole = if is_stream { &[] } else { parts.as_slice() };
        let mut last = chunk(whole);
        last["candidates"][0]["finishReason"] = "STOP".into();
        let mut chunks = Vec::new();
        if is_stream {
            chunks.extend(parts.iter().map(|part| chunk(std::slice::from_ref(part))));
        }
        chunks.push(last);
        chunks
    }

    fn unlimited(&self, protocol: Protocol) -> UnlimitedWork {
        UnlimitedWork {
            tool_calls: self.tool_calls as u64,
            images: if protocol == Protocol::Gemini { self.images } else { 0 },
        }
    }

    /// The most output that is accepted.
    fn most(&self, protocol: Protocol, passed: u64) -> u64 {
        let UnlimitedWork { tool_calls, images } = self.unlimited(protocol);
        (self.asked_of_runs(tool_calls) + images * IMAGE_TOKENS_MAX).max(passed * ESTIMATE_TIMES_MAX)
    }

    fn asked_of_runs(&self, tool_calls: u64) -> u64 {
        self.asked.unwrap_or(OUTPUT_MAX).min(OUTPUT_MAX) * (tool_calls + 1)
    }
}

const OUTPUT_MAX: u64 = 100_000;

fn assert_billed_as_reported(protocol: Protocol, plan: &Plan, cut: usize, size: usize) -> Result<(), TestCaseError> {
    let answer = plan.answer(protocol);
    let framing = match plan.head {
        Head::Array if protocol == Protocol::Gemini => AnswerFraming::JsonArray,
        Head::Body => AnswerFraming::Json,
        Head::Events | Head::Array => AnswerFraming::Sse,
    };
    let each: Vec<String> = answer.iter().map(Value::to_string).collect();
    let bytes = match framing {
        AnswerFraming::JsonArray => format!("[{}]", each.join(",\r\n")),
        AnswerFraming::Json => each.concat(),
        AnswerFraming::Sse | AnswerFraming::Opaque => each.iter().map(|event| format!("data: {event}\n\n")).collect(),
    };
    // Half of them are whole.
    let end = if cut.is_multiple_of(2) {
        bytes.len()
    } else {
        cut % (bytes.len() + 1)
    };
    let observer = observe(protocol, framing, &bytes.as_bytes()[..end], size);
    let observed = observer.observed();
    let passed = observer.output_estimate();
    let billed = bill(&Evidence {
        reported: observed.usage,
        runs: &[],
        is_full: observed.usage_source == Some(UsageSource::Reported),
        extent: if observed.complete {
            AnswerExtent::Whole
        } else {
            AnswerExtent::Cut
        },
        input_scanned: INPUT_SCANNED,
        output_observed: passed,
        input_factor: TokenFactor::ONE,
        output_factor: TokenFactor::ONE,
        limits: ModelLimits {
            context_tokens: None,
            output_tokens: Some(OUTPUT_MAX),
        },
        output_requested: plan.asked,
        unlimited: observed.unlimited,
    });
    let output = billed.usage.output_total();
    let most = plan.most(protocol, passed);
    prop_assert!(output <= most, "{output} of {most}: {bytes}");
    if !observed.complete {
        prop_assert_ne!(billed.source, UsageSource::Reported);
        return Ok(());
    }
    prop_assert_eq!(observed.unlimited, plan.unlimited(protocol));
    if plan.text < 0 || plan.reasoning < 0 {
        prop_assert!(
            matches!(billed.source, UsageSource::Partial | UsageSource::Bounded),
            "{billed:?}"
        );
        prop_assert!(
            output >= passed.min(plan.asked_of_runs(plan.tool_calls as u64)),
            "never less than what passed, within the limit"
        );
        return Ok(());
    }
    let reported = u64::try_from(i128::from(plan.text) + i128::from(plan.reasoning)).unwrap();
    prop_assert_eq!(output, reported.min(most));
    prop_assert_eq!(billed.usage.input_total(), u64::from(plan.input));
    let source = if reported > most {
        UsageSource::Bounded
    } else {
        UsageSource::Reported
    };
    prop_assert_eq!(billed.source, source);
    Ok(())
}

proptest! {
    #[test]
    fn an_answer_is_billed_as_reported_or_at_the_bound_whatever_its_pieces_and_its_cut(
        plan in plan(),
        cut: usize,
        size in 1_usize..3_000,
    ) {
        for protocol in [Protocol::Messages, Protocol::Responses, Protocol::Gemini] {
            assert_billed_as_reported(protocol, &plan, cut, size)?;
        }
    }
}
