//! Conversations of several turns: what was sent before stays a prefix of what is sent later, and reasoning returns to its maker.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

use super::{
    TARGETS, client_bytes,
    clients::{gemini_chunks, read_answer},
    frame, maker,
    recordings::Recording,
    translation,
};
use crate::domain::{
    translation::{
        ReasoningBack, TranslatedRequest, Translation, TranslationTarget,
        answer::write::{AnswerForm, AnswerFrame},
        losses::LossVerdict,
        reasoning::ReasoningMaker,
        translate_request,
    },
    wire::{Protocol, UpstreamProtocol},
};

/// The provider's answers: reasoning and a call, two calls at once, and a text.
const ANSWERS: [&str; 3] = ["reasoning-call", "parallel", "text"];
/// A model that refuses calls of its own without their signatures.
const MODEL: &str = "gemini-3-pro-preview";

/// A conversation of a client with a provider.
struct Dialogue {
    translation: Translation,
    /// Whether the client gets visible reasoning.
    shows_reasoning: bool,
    /// Whether a Gemini client keeps each chunk of a stream as a content of its own, as the official SDK does.
    keeps_chunks: bool,
    /// The messages, items or contents so far.
    history: Vec<Value>,
    /// The bodies that the provider has got.
    bodies: Vec<String>,
}

impl Dialogue {
    fn new(translation: Translation, shows_reasoning: bool) -> Self {
        Self {
            translation,
            shows_reasoning,
            keeps_chunks: false,
            history: Vec::new(),
            bodies: Vec::new(),
        }
    }

    /// The conversation with all answers, and a last question.
    fn run(mut self) -> Self {
        self.ask("What is the weather in Oslo?");
        for case in ANSWERS {
            self.exchange(Recording::of(self.translation.to, case));
        }
        self.ask("Thanks. And \"tomorrow\"?");
        let last = self.request_for(&maker());
        self.bodies.push(last.body);
        self
    }

    fn client(&self) -> Protocol {
        self.translation.from
    }

    /// The client asks something.
    fn ask(&mut self, text: &str) {
        self.history.push(match self.client() {
            Protocol::Messages => json!({"role": "user", "content": text}),
            Protocol::Responses => {
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
            }
            Protocol::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
        });
    }

    /// The client's request.
    fn client_body(&self) -> String {
        let weather = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
        let time = json!({"type": "object", "properties": {}});
        let body = match self.client() {
            Protocol::Messages => json!({
                "model": "big",
                "max_tokens": 1_000,
                "stream": true,
                "system": "Be brief.",
                "tools": [
                    {"name": "get_weather", "description": "The weather", "input_schema": weather},
                    {"name": "get_time", "input_schema": time},
                ],
                "messages": self.history,
            }),
            Protocol::Responses => json!({
                "model": "big",
                "stream": true,
                "store": false,
                "instructions": "Be brief.",
                "tools": [
                    {"type": "function", "name": "get_weather", "description": "The weather", "parameters": weather},
                    {"type": "function", "name": "get_time", "parameters": time},
                ],
                "input": self.history,
            }),
            Protocol::Gemini => json!({
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "tools": [{"functionDeclarations": [
                    {"name": "get_weather", "description": "The weather", "parametersJsonSchema": weather},
                    {"name": "get_time", "parametersJsonSchema": time},
                ]}],
                "contents": self.history,
            }),
        };
        body.to_string()
    }

    /// The request for the provider, if reasoning can go back to this maker.
    fn request_for(&self, maker: &ReasoningMaker) -> TranslatedRequest {
        let target = TranslationTarget {
            translation: &self.translation,
            model: MODEL,
            output_tokens_max: None,
            maker,
        };
        let body = self.client_body();
        translate_request(&body, true, &target).unwrap_or_else(|refusal| panic!("{refusal} in {body}"))
    }

    /// Sends the history, gets this answer, and adds it with results of its calls.
    fn exchange(&mut self, recording: &Recording) {
        let request = self.request_for(&maker());
        self.bodies.push(request.body);
        let frame = AnswerFrame {
            id: format!("a{}", self.bodies.len()),
            names: request.names,
            request: self.client_body(),
            ..frame(AnswerForm::Stream, self.shows_reasoning)
        };
        let pieces = [recording.stream.as_bytes()];
        let usage = &recording.expected.usage;
        let answer = client_bytes(&self.translation, frame, true, pieces, usage);
        assert_eq!((answer.fault, answer.is_complete), (None, true), "{}", recording.name);
        let object = read_answer(self.client(), AnswerForm::Stream, &answer.text).object;
        match self.client() {
            Protocol::Messages => self.add_message(&object),
            Protocol::Responses => self.add_items(&object),
            Protocol::Gemini => self.add_contents(&object, &answer.text),
        }
    }

    fn add_message(&mut self, message: &Value) {
        let blocks = message["content"].as_array().unwrap();
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        let result = |call: &Value| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "rain"});
        let results: Vec<Value> = calls.map(result).collect();
        self.history.push(json!({"role": "assistant", "content": blocks}));
        if !results.is_empty() {
            self.history.push(json!({"role": "user", "content": results}));
        }
    }

    fn add_items(&mut self, response: &Value) {
        let items = response["output"].as_array().unwrap();
        let calls = items.iter().filter(|item| item["type"] == "function_call");
        let result =
            |call: &Value| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"});
        let results: Vec<Value> = calls.map(result).collect();
        self.history.extend(items.iter().cloned());
        self.history.extend(results);
    }

    fn add_contents(&mut self, object: &Value, stream: &str) {
        let content = |object: &Value| object["candidates"][0]["content"].clone();
        let calls = object["candidates"][0]["content"]["parts"].as_array().unwrap().iter();
        let result = |call: &Value| {
            let mut result = json!({"name": call["name"], "response": {"output": "rain"}});
            if let Some(id) = call.get("id") {
                result["id"] = id.clone();
            }
            json!({ "functionResponse": result })
        };
        let results: Vec<Value> = calls.filter_map(|part| part.get("functionCall")).map(result).collect();
        if self.keeps_chunks {
            self.history
                .extend(gemini_chunks(AnswerForm::Stream, stream).iter().map(content));
        } else {
            self.history.push(content(object));
        }
        if !results.is_empty() {
            self.history.push(json!({"role": "user", "parts": results}));
        }
    }
}

/// Calls `check` with a translation for each client and provider, and each wish to see the reasoning.
fn for_each_pair(check: impl Fn(Translation, bool)) {
    for client in Protocol::ALL {
        for target in TARGETS {
            for shows in [true, false] {
                // Shown if the check fails.
                println!("{} to {}, reasoning: {shows}", client.as_str(), target.as_str());
                check(translation(client, target), shows);
            }
        }
    }
}

/// The JSON text of a member of a body.
fn member<'b>(body: &'b str, name: &str) -> &'b str {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(body).unwrap();
    members[name].get()
}

/// A body up to the end of its last turn.
fn turns_of(body: &str, target: UpstreamProtocol) -> &str {
    let list = member(
        body,
        match target {
            UpstreamProtocol::Messages | UpstreamProtocol::Chat => "messages",
            UpstreamProtocol::Responses => "input",
            UpstreamProtocol::Gemini => "contents",
        },
    );
    let begin = body.find(list).unwrap();
    body.get(..begin + list.len() - 1).unwrap()
}

/// Checks that each body begins with all turns of the one before it, and offers the same tools.
fn check_prefixes(bodies: &[String], target: UpstreamProtocol) {
    for pair in bodies.windows(2) {
        let before = turns_of(&pair[0], target);
        assert!(pair[1].starts_with(before), "{before}\nis no prefix of\n{}", pair[1]);
        assert_eq!(member(&pair[0], "tools"), member(&pair[1], "tools"));
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The texts that the body for the provider must have, because it wants its own reasoning back like this.
fn own_reasoning(recording: &Recording) -> Vec<String> {
    let opaque = recording.expected.opaque.iter().map(|opaque| quoted(opaque));
    match recording.protocol {
        UpstreamProtocol::Messages => {
            let body: Value = serde_json::from_str(recording.body.as_ref().unwrap()).unwrap();
            let blocks = body["content"].as_array().unwrap().iter();
            let is_reasoning = |block: &&Value| block["type"].as_str().unwrap().ends_with("thinking");
            blocks.filter(is_reasoning).map(Value::to_string).collect()
        }
        UpstreamProtocol::Responses => {
            let data = recording.stream.lines().filter_map(|line| line.strip_prefix("data: "));
            let done = data.filter(|data| data.contains(r#""type":"response.output_item.done""#));
            let items = done.map(|data| member(data, "item"));
            items
                .filter(|item| item.contains(r#""type":"reasoning""#))
                .map(str::to_owned)
                .collect()
        }
        // On the call itself.
        UpstreamProtocol::Gemini => opaque
            .map(|opaque| format!(r#"}}}},"thoughtSignature":{opaque}"#))
            .collect(),
        UpstreamProtocol::Chat => opaque
            .map(|opaque| format!(r#""reasoning_content":{opaque}"#))
            .collect(),
    }
}

#[test]
fn earlier_requests_are_prefixes_of_later_ones() {
    for_each_pair(|translation, shows| {
        let target = translation.to;
        let dialogue = Dialogue::new(translation, shows).run();
        assert_eq!(dialogue.bodies.len(), ANSWERS.len() + 1);
        check_prefixes(&dialogue.bodies, target);
    });
}

#[test]
fn opaque_reasoning_returns_to_its_maker_byte_for_byte() {
    for_each_pair(|translation, shows| {
        let target = translation.to;
        let bodies = Dialogue::new(translation, shows).run().bodies;
        for (number, case) in ANSWERS.into_iter().enumerate() {
            let recording = Recording::of(target, case);
            let own = own_reasoning(recording);
            assert_eq!(own.len(), recording.expected.opaque.len());
            for text in &own {
                let has_text = |body: &String| body.contains(text);
                assert!(!bodies[..=number].iter().any(has_text), "{text} was sent too early");
                assert!(
                    bodies[number + 1..].iter().all(has_text),
                    "{text} is not in {bodies:#?}"
                );
            }
        }
    });
}

#[test]
fn calls_return_with_the_providers_ids() {
    for_each_pair(|translation, shows| {
        let target = translation.to;
        let bodies = Dialogue::new(translation, shows).run().bodies;
        for (number, case) in ANSWERS.into_iter().enumerate() {
            let content = &Recording::of(target, case).expected.content;
            for id in content.iter().filter_map(|item| item["id"].as_str()) {
                // The call and its result.
                assert_eq!(bodies[number + 1].matches(&quoted(id)).count(), 2, "{id}");
            }
        }
    });
}

#[test]
fn another_maker_gets_none_of_the_reasoning_and_the_loss_is_reported() {
    for_each_pair(|translation, shows| {
        let target = translation.to;
        let dialogue = Dialogue::new(translation, shows).run();
        let request = dialogue.request_for(&ReasoningMaker::new("host", "model", "b"));
        let cases = ANSWERS.map(|case| Recording::of(target, case));
        let opaque: Vec<&String> = cases.iter().flat_map(|recording| &recording.expected.opaque).collect();
        assert!(opaque.len() >= 2);
        for text in &opaque {
            assert!(!request.body.contains(&quoted(text)), "{text} in {}", request.body);
        }
        assert!(!request.body.contains("weir1."), "{}", request.body);
        assert!(
            request.losses.count(LossVerdict::Dropped) >= opaque.len(),
            "{:?}",
            request.losses
        );
    });
}

#[test]
fn a_summary_takes_the_place_of_the_conversation_for_whatever_model() {
    for target in TARGETS {
        let mut dialogue = Dialogue::new(translation(Protocol::Responses, target), true);
        dialogue.ask("What is the weather in Oslo?");
        dialogue.exchange(Recording::of(target, "parallel"));
        dialogue.history.push(json!({"type": "compaction_trigger"}));
        let request = dialogue.request_for(&maker());
        assert!(request.body.contains("Summarize this conversation"), "{}", request.body);
        let body: Value = serde_json::from_str(&request.body).unwrap();
        // Messages demands the tools that the history calls.
        assert_eq!(body.get("tools").is_some(), target == UpstreamProtocol::Messages);
        let recording = Recording::of(target, "text");
        let output = |form: AnswerForm| {
            let frame = AnswerFrame {
                request: dialogue.client_body(),
                ..frame(form, true)
            };
            let pieces = [recording.stream.as_bytes()];
            let usage = &recording.expected.usage;
            let answer = client_bytes(&dialogue.translation, frame, true, pieces, usage);
            assert_eq!((answer.fault, answer.is_complete), (None, true), "{target:?}");
            read_answer(Protocol::Responses, form, &answer.text).object["output"].clone()
        };
        let items = output(AnswerForm::Stream);
        assert_eq!(output(AnswerForm::Whole), items);
        assert_eq!(items.as_array().unwrap().len(), 1, "{items}");
        assert_eq!(items[0]["type"], "compaction");
        // The client goes on with nothing but the summary, and with another model.
        let mut later = Dialogue::new(translation(Protocol::Responses, target), true);
        later.history.push(items[0].clone());
        later.ask("And tomorrow?");
        let next = later.request_for(&ReasoningMaker::new("another", "model", "b"));
        let summary = recording.expected.content[0]["text"].as_str().unwrap();
        let text = quoted(&format!("[summary of the conversation before this point]\n{summary}"));
        let text = text.strip_suffix('"').unwrap();
        assert!(next.body.contains(text), "{text} is not in {}", next.body);
    }
}

#[test]
fn a_gemini_client_that_keeps_chunks_sends_the_same() {
    for target in TARGETS {
        for shows in [true, false] {
            let merged = Dialogue::new(translation(Protocol::Gemini, target), shows).run();
            let mut dialogue = Dialogue::new(translation(Protocol::Gemini, target), shows);
            dialogue.keeps_chunks = true;
            let dialogue = dialogue.run();
            assert!(dialogue.history.len() > merged.history.len());
            assert_eq!(dialogue.bodies, merged.bodies, "{target:?}");
        }
    }
}

#[test]
fn a_host_that_wants_the_reasoning_of_calls_gets_it_until_the_next_question() {
    for client in Protocol::ALL {
        let mut translation = translation(client, UpstreamProtocol::Chat);
        translation.chat.reasoning_back = ReasoningBack::Calls;
        let bodies = Dialogue::new(translation, true).run().bodies;
        let (last, earlier) = bodies.split_last().unwrap();
        check_prefixes(earlier, UpstreamProtocol::Chat);
        let reasoning = own_reasoning(Recording::of(UpstreamProtocol::Chat, "reasoning-call"));
        assert!(earlier[2].contains(&reasoning[0]), "{}", earlier[2]);
        assert!(!last.contains("reasoning_content"), "{last}");
    }
}

/// The steps of a conversation: the number of an answer, or another question.
fn exchanges() -> impl Strategy<Value = Vec<Option<usize>>> {
    prop::collection::vec(prop::option::of(0..ANSWERS.len()), 1..8)
}

proptest! {
    #[test]
    fn the_requests_of_any_conversation_are_prefixes(
        steps in exchanges(),
        client in prop::sample::select(Protocol::ALL.to_vec()),
        target in prop::sample::select(TARGETS.to_vec()),
        shows: bool,
    ) {
        let mut dialogue = Dialogue::new(translation(client, target), shows);
        dialogue.ask("Begin.");
        for step in steps {
            match step {
                Some(answer) => {
                    dialogue.exchange(Recording::of(target, ANSWERS[answer]));
                    if ANSWERS[answer] == "text" {
                        dialogue.ask("Go on.");
                    }
                }
                None => dialogue.ask("And then?"),
            }
        }
        check_prefixes(&dialogue.bodies, target);
    }
}
