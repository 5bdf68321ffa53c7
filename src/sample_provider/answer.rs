//! The content of an answer, split into deltas: deterministic text (derived from the prompt), and possibly thinking or a tool
//! call. This module also has the types that all protocol modules share: the answer to render, the usage to report, and the
//! events of a stream.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    domain::wire::UpstreamProtocol,
    sample_provider::{
        TokenCounting,
        ask::{self, OfferedTool, SampleRequest, ToolInputKind, text_at},
        script::{self, SampleScript, UsageStyle},
        tokens,
    },
};

/// The maximum length of an echoed prompt or tool result, in characters.
const ECHO_CHARS_MAX: usize = 160;
/// The number of words after the echo, if the number of deltas is not fixed.
const WORDS_DEFAULT: usize = 24;

const WORDS: [&str; 32] = [
    "water", "river", "stone", "bridge", "gate", "valley", "rain", "current", "meadow", "willow", "mill", "shore",
    "spring", "flow", "dam", "lake", "cloud", "morning", "boat", "island", "reed", "fish", "heron", "bank", "channel",
    "wheel", "measure", "level", "flood", "calm", "bend", "source",
];

/// The content of one answer, in the order in which it is sent: thinking, text, tool call. Each string is one delta.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ScriptedContent {
    /// The visible thinking; empty for an answer without thinking.
    pub(super) thinking: Vec<String>,
    pub(super) text: Vec<String>,
    /// The tool call; `None` if the answer calls no tool.
    pub(super) call: Option<ScriptedToolCall>,
    /// The number of tokens of hidden reasoning, which precedes the first delta.
    hidden: u64,
    counting: TokenCounting,
}

#[derive(Debug, PartialEq)]
pub(super) struct ScriptedToolCall {
    /// The called tool, with its arguments as JSON.
    pub(super) tool: OfferedTool,
    /// The arguments as a string, split into deltas; a single delta if the protocol does not stream arguments.
    pub(super) deltas: Vec<String>,
}

impl ScriptedContent {
    /// Creates the answer to `ask`. The same seed and prompt always give the same answer.
    pub(super) fn for_request(
        ask: &SampleRequest,
        protocol: UpstreamProtocol,
        script: &SampleScript,
        seed: u64,
        counting: TokenCounting,
    ) -> Self {
        let bytes = script.delta_bytes();
        let hidden = script.hidden_tokens.unwrap_or(0);
        // An answer that is rendered once and reused must not quote any prompt.
        let reusable = counting == TokenCounting::Fixed && script.deltas.is_some();
        let prompt = if reusable {
            String::new()
        } else {
            script::without_marks(&ask.prompt)
        };
        let echo: String = prompt.chars().take(ECHO_CHARS_MAX).collect();
        let words = WordSequence::new(seed ^ fingerprint(&prompt));
        let thinking = if ask.thinking {
            pieces(&format!("The user says \"{echo}\". A short answer will do."), bytes)
        } else {
            Vec::new()
        };
        if let Some(offer) = &ask.call {
            let arguments = offer.arguments_text();
            let deltas = match protocol {
                UpstreamProtocol::Messages | UpstreamProtocol::Responses | UpstreamProtocol::Chat => {
                    pieces(&arguments, bytes)
                }
                UpstreamProtocol::Gemini => vec![arguments],
            };
            let call = ScriptedToolCall {
                tool: offer.clone(),
                deltas,
            };
            return Self {
                thinking,
                text: pieces("I will look that up.", bytes),
                call: Some(call),
                hidden,
                counting,
            };
        }
        let opening = match &ask.tool_result {
            Some(result) if !reusable => {
                format!(
                    "The tool says \"{}\".",
                    result.chars().take(ECHO_CHARS_MAX).collect::<String>()
                )
            }
            _ => format!("You said \"{echo}\"."),
        };
        let text = match (&ask.schema, script.deltas) {
            (Some(schema), _) => pieces(&ask::fitting_arguments(schema).to_string(), bytes),
            (None, Some(count)) => exact_pieces(&opening, words, count, bytes),
            (None, None) => {
                let mut text = opening;
                for word in words.take(WORDS_DEFAULT) {
                    text.push(' ');
                    text.push_str(word);
                }
                text.push('.');
                pieces(&text, bytes)
            }
        };
        Self {
            thinking,
            text,
            call: None,
            hidden,
            counting,
        }
    }

    pub(super) fn deltas(&self) -> usize {
        self.thinking.len() + self.text.len() + self.call.as_ref().map_or(0, |call| call.deltas.len())
    }

    /// The number of output tokens of the complete answer.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens_after(self.deltas())
    }

    /// The number of output tokens after `deltas` deltas. Hidden reasoning counts from the first delta on.
    pub(super) fn tokens_after(&self, deltas: usize) -> u64 {
        let hidden = if deltas > 0 { self.hidden } else { 0 };
        self.shown_after(deltas) + hidden
    }

    /// The number of tokens of the first `deltas` deltas, without hidden reasoning.
    fn shown_after(&self, deltas: usize) -> u64 {
        if self.counting == TokenCounting::Fixed {
            return u64::try_from(deltas.min(self.deltas())).unwrap_or(u64::MAX);
        }
        let text = deltas.saturating_sub(self.thinking.len());
        let call = text.saturating_sub(self.text.len());
        let mut total = count_tokens(&self.thinking, deltas) + count_tokens(&self.text, text);
        if let Some(made) = self.call.as_ref().filter(|_| call > 0) {
            total += tokens::count(&made.tool.name) + count_tokens(&made.deltas, call);
        }
        total
    }

    /// The number of thinking tokens among the output tokens.
    pub(super) fn thinking_tokens(&self) -> u64 {
        self.shown_after(self.thinking.len()) + self.hidden
    }
}

/// Counts the tokens of the first `take` deltas, joined to one text.
fn count_tokens(deltas: &[String], take: usize) -> u64 {
    if take == 0 || deltas.is_empty() {
        return 0;
    }
    tokens::count(&deltas.iter().take(take).map(String::as_str).collect::<String>())
}

/// Splits `text` into pieces of at least `bytes` bytes (exactly `bytes` for ASCII). The last piece is the remainder and may be
/// shorter.
fn pieces(text: &str, bytes: usize) -> Vec<String> {
    let mut pieces = Vec::with_capacity(text.len().div_ceil(bytes.max(1)));
    let mut piece = String::new();
    for letter in text.chars() {
        piece.push(letter);
        if piece.len() >= bytes {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Returns exactly `count` pieces of at least `bytes` bytes each: the opening, followed by as many words as needed.
fn exact_pieces(opening: &str, words: WordSequence, count: usize, bytes: usize) -> Vec<String> {
    let mut letters = opening
        .chars()
        .chain(words.flat_map(|word| std::iter::once(' ').chain(word.chars())));
    (0..count)
        .map(|_| {
            let mut piece = String::with_capacity(bytes + 3);
            while piece.len() < bytes {
                let Some(letter) = letters.next() else { break };
                piece.push(letter);
            }
            piece
        })
        .collect()
}

/// Hashes a text with FNV-1a. The only requirement is that the hash is the same on every machine.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An endless sequence of words, determined by a seed (SplitMix64).
#[derive(Clone)]
struct WordSequence {
    state: u64,
}

impl WordSequence {
    fn new(seed: u64) -> Self {
        Self { state: seed }
    }
}

impl Iterator for WordSequence {
    type Item = &'static str;

    fn next(&mut self) -> Option<&'static str> {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let index = usize::try_from((mixed >> 32) % 32).unwrap_or(0);
        WORDS.get(index).copied()
    }
}

/// The words in a prompt that make the answer call an offered tool.
const ASKING_WORDS: [&str; 3] = ["weather", "forecast", "temperature"];

/// Returns the client-side tools that `body` offers, in order.
fn offers(protocol: UpstreamProtocol, body: &Value) -> Vec<OfferedTool> {
    let tools = array_items(body, "tools");
    match protocol {
        UpstreamProtocol::Messages => tools
            .filter_map(|tool| OfferedTool::new(tool, tool.get("input_schema")?))
            .collect(),
        UpstreamProtocol::Responses => {
            // Agents can also offer tools in an item of the input.
            let added = array_items(body, "input")
                .filter(|item| text_at(item, "/type") == Some("additional_tools"))
                .flat_map(|item| array_items(item, "tools"));
            tools.chain(added).flat_map(responses_offers).collect()
        }
        UpstreamProtocol::Chat => tools
            .filter_map(|tool| tool.get("function"))
            .filter_map(|function| OfferedTool::new(function, function.get("parameters").unwrap_or(&Value::Null)))
            .collect(),
        UpstreamProtocol::Gemini => tools
            .filter_map(|tool| {
                tool.get("functionDeclarations")
                    .or_else(|| tool.get("function_declarations"))
            })
            .filter_map(Value::as_array)
            .flatten()
            .filter_map(|declaration| {
                let names = ["parameters", "parametersJsonSchema", "parameters_json_schema"];
                let schema = names.iter().find_map(|name| declaration.get(name));
                OfferedTool::new(declaration, schema.unwrap_or(&Value::Null))
            })
            .collect(),
    }
}

fn array_items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the tool of an entry in the Responses protocol's tool list, or all tools of the entry if it is a namespace.
fn responses_offers(tool: &Value) -> Vec<OfferedTool> {
    if text_at(tool, "/type") != Some("namespace") {
        return responses_offer(tool).into_iter().collect();
    }
    let namespace = text_at(tool, "/name");
    let within = |offer: OfferedTool| OfferedTool {
        namespace: namespace.map(str::to_owned),
        ..offer
    };
    array_items(tool, "tools")
        .filter_map(responses_offer)
        .map(within)
        .collect()
}

fn responses_offer(tool: &Value) -> Option<OfferedTool> {
    match text_at(tool, "/type") {
        Some("function") => OfferedTool::new(tool, tool.get("parameters").unwrap_or(&Value::Null)),
        Some("custom") => Some(OfferedTool {
            input_kind: ToolInputKind::Text,
            arguments: json!("sample"),
            ..OfferedTool::new(tool, &Value::Null)?
        }),
        _ => None,
    }
}

/// Chooses the tool that the answer calls; `None` for no call. A tool that the request forces has precedence. Otherwise, the
/// answer calls a tool only if the last turn has no tool result. It calls the tool that the script names. If the script names
/// none, it calls the first offered tool, provided that the prompt contains one of [`ASKING_WORDS`].
pub(super) fn choose_tool(
    protocol: UpstreamProtocol,
    body: &Value,
    ask: &SampleRequest,
    script: &SampleScript,
) -> Option<OfferedTool> {
    let (forced, forced_name) = forced_choice(protocol, body)?;
    let has_result = ask.tool_result.is_some();
    let marked = script.tool.as_deref().filter(|_| !has_result);
    let asked = marked.is_some() || {
        let prompt = ask.prompt.to_lowercase();
        !has_result && ASKING_WORDS.iter().any(|word| prompt.contains(word))
    };
    if !(forced || asked) {
        return None;
    }
    let name = forced_name.or(marked);
    let mut offer = offers(protocol, body)
        .into_iter()
        .find(|offer| name.is_none_or(|name| name == offer.name))?;
    if let Some(input) = script
        .tool_input
        .clone()
        .filter(|_| marked == Some(offer.name.as_str()))
    {
        offer.arguments = input;
    }
    Some(offer)
}

/// Returns whether the request forces a call, and the name of the only tool that can be called; the name is `None` if any tool
/// can be called. Returns `None` if the request forbids calls.
fn forced_choice(protocol: UpstreamProtocol, body: &Value) -> Option<(bool, Option<&str>)> {
    match protocol {
        UpstreamProtocol::Messages => match text_at(body, "/tool_choice/type") {
            Some("none") => None,
            Some("any") => Some((true, None)),
            Some("tool") => Some((true, text_at(body, "/tool_choice/name"))),
            _ => Some((false, None)),
        },
        UpstreamProtocol::Responses => word_or_function(body, "/tool_choice/name"),
        UpstreamProtocol::Chat => word_or_function(body, "/tool_choice/function/name"),
        UpstreamProtocol::Gemini => match text_at(body, "/toolConfig/functionCallingConfig/mode") {
            Some("NONE") => None,
            Some("ANY") => {
                let name = text_at(body, "/toolConfig/functionCallingConfig/allowedFunctionNames/0");
                Some((true, name))
            }
            _ => Some((false, None)),
        },
    }
}

/// Does the same as [`forced_choice`] for a `tool_choice` that is a keyword, or an object with a function's name at the JSON
/// pointer `name`.
fn word_or_function<'b>(body: &'b Value, name: &str) -> Option<(bool, Option<&'b str>)> {
    match body.get("tool_choice") {
        Some(Value::String(choice)) if choice == "none" => None,
        Some(Value::String(choice)) => Some((choice == "required", None)),
        Some(Value::Object(choice)) => {
            let is_function = choice.get("type").and_then(Value::as_str) == Some("function");
            Some((is_function, text_at(body, name)))
        }
        _ => Some((false, None)),
    }
}

/// A placeholder for the signature of thinking and for encrypted reasoning, in base64 as clients expect it.
pub(super) const SIGNATURE: &str = "c2FtcGxlLXByb3ZpZGVyIHNpZ25hdHVyZSwgbm90IGEgc2VjcmV0";

/// All data that determines how an answer is rendered.
#[derive(Debug)]
pub(super) struct SampleReply<'a> {
    /// The unique part of every id in the body.
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    /// The time of the answer's creation, in seconds since the Unix epoch.
    pub(super) created_at: i64,
    pub(super) answer: &'a ScriptedContent,
    /// The usage to report; `None` to report none.
    pub(super) counts: Option<ReportedCounts>,
    /// The other models that work on the answer (Messages).
    pub(super) others: OtherModels<'a>,
    /// Whether the client requests encrypted reasoning (Responses).
    pub(super) encrypted_reasoning: bool,
    /// Whether the client requests the usage at the end of a stream (`chat/completions`). The other protocols always report it.
    pub(super) streams_usage: bool,
}

/// The models that work on an answer in addition to the requested one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OtherModels<'a> {
    /// The model that gives advice; `None` for no advisor.
    pub(super) advisor: Option<&'a str>,
    pub(super) fallback: Option<&'a str>,
}

/// The token counts that an answer reports. They are signed, because a script may demand negative counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReportedCounts {
    /// Input tokens outside of any cache.
    pub(super) uncached: i64,
    /// Input tokens read from a cache.
    pub(super) cache_read: i64,
    /// Input tokens written to a cache.
    pub(super) cache_write: i64,
    /// Output tokens without thinking.
    pub(super) spoken: i64,
    pub(super) thinking: i64,
}

impl ReportedCounts {
    /// Returns the counts to report in a usage style; `None` if `style` reports no usage.
    pub(super) fn styled(self, style: UsageStyle) -> Option<Self> {
        let same = |count| {
            Some(Self {
                uncached: count,
                cache_read: count,
                cache_write: count,
                spoken: count,
                thinking: count,
            })
        };
        match style {
            UsageStyle::True => Some(self),
            UsageStyle::None => None,
            UsageStyle::Absurd => same(i64::MAX),
            UsageStyle::Zero => same(0),
            UsageStyle::Negative => same(-7),
        }
    }

    /// The number of all input tokens, whether cached or not.
    pub(super) fn input(&self) -> i64 {
        self.uncached
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// The number of all output tokens, including thinking.
    pub(super) fn output(&self) -> i64 {
        self.spoken.saturating_add(self.thinking)
    }
}

/// One event of a streamed answer, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SampleFrame {
    /// The kind of the event.
    pub(super) kind: FrameKind,
    /// The bytes on the wire.
    pub(super) bytes: Bytes,
}

/// The kind of an event. Scripts use it to count deltas and to interrupt streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The event carries a piece of content.
    Delta,
    /// The event marks the end of the answer, or comes after the end.
    Final,
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_provider::ask::{ToolInputKind, fitting_arguments};
    use serde_json::json;

    fn answer(ask: &SampleRequest, script: &SampleScript) -> ScriptedContent {
        ScriptedContent::for_request(ask, UpstreamProtocol::Messages, script, 1, TokenCounting::Text)
    }

    fn asking(prompt: &str) -> SampleRequest {
        SampleRequest {
            prompt: prompt.to_owned(),
            ..SampleRequest::default()
        }
    }

    #[test]
    fn number_and_size_of_deltas_are_exact() {
        let script = SampleScript {
            deltas: Some(40),
            delta_bytes: Some(7),
            ..SampleScript::default()
        };
        let answer = answer(&asking("hello"), &script);
        assert_eq!(answer.text.len(), 40);
        assert!(answer.text.iter().all(|delta| delta.len() == 7));
        assert!(answer.text.concat().starts_with("You said \"hello\". "));
    }

    #[test]
    fn the_same_seed_and_prompt_say_the_same() {
        let script = SampleScript::default();
        assert_eq!(answer(&asking("a"), &script), answer(&asking("a"), &script));
        assert_ne!(answer(&asking("a"), &script), answer(&asking("b"), &script));
    }

    #[test]
    fn characters_are_not_split_and_marks_not_echoed() {
        let script = SampleScript {
            delta_bytes: Some(1),
            ..SampleScript::default()
        };
        let text = answer(&asking("grüß 🙂 [[sample: delta_bytes=1]]"), &script)
            .text
            .concat();
        assert!(text.starts_with("You said \"grüß 🙂\"."), "{text}");
    }

    #[test]
    fn hidden_reasoning_is_billed_from_the_first_word_on_and_never_shown() {
        let script = SampleScript {
            deltas: Some(4),
            ..SampleScript::default()
        };
        let shown = answer(&asking("hello"), &script);
        let hiding = answer(
            &asking("hello"),
            &SampleScript {
                hidden_tokens: Some(2000),
                ..script
            },
        );
        assert_eq!((&hiding.text, hiding.thinking.len()), (&shown.text, 0));
        assert_eq!((hiding.tokens_after(0), hiding.thinking_tokens()), (0, 2000));
        for deltas in 1..=4 {
            assert_eq!(hiding.tokens_after(deltas), shown.tokens_after(deltas) + 2000);
        }
    }

    #[test]
    fn a_tool_result_is_quoted_and_a_schema_is_filled() {
        let ask = SampleRequest {
            tool_result: Some("18 C".to_owned()),
            ..SampleRequest::default()
        };
        assert!(
            answer(&ask, &SampleScript::default())
                .text
                .concat()
                .starts_with("The tool says \"18 C\".")
        );
        let schema = json!({"properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let ask = SampleRequest {
            schema: Some(schema),
            ..SampleRequest::default()
        };
        assert_eq!(answer(&ask, &SampleScript::default()).text.concat(), r#"{"n":1}"#);
    }

    #[test]
    fn tokens_of_a_part_grow_to_the_tokens_of_the_whole() {
        let offer = OfferedTool {
            name: "get_weather".to_owned(),
            namespace: None,
            input_kind: ToolInputKind::Json,
            arguments: json!({"location": "Paris"}),
        };
        let ask = SampleRequest {
            thinking: true,
            call: Some(offer),
            ..asking("weather")
        };
        let answer = answer(&ask, &SampleScript::default());
        let counts: Vec<u64> = (0..=answer.deltas())
            .map(|deltas| answer.tokens_after(deltas))
            .collect();
        assert_eq!(counts.first(), Some(&0));
        assert_eq!(counts.last(), Some(&answer.tokens()));
        assert!(answer.thinking_tokens() > 0 && answer.thinking_tokens() < answer.tokens());
    }

    fn weather_schema() -> Value {
        json!({"type": "object", "properties": {"unit": {"type": "string", "enum": ["c", "f"]},
            "location": {"type": "string"}, "days": {"type": "integer"}}, "required": ["location"]})
    }

    #[test]
    fn arguments_fit_the_required_properties() {
        assert_eq!(fitting_arguments(&weather_schema()), json!({"location": "Paris"}));
        let gemini = json!({"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}});
        assert_eq!(fitting_arguments(&gemini), json!({"n": 1}));
        assert_eq!(fitting_arguments(&Value::Null), json!({}));
    }

    fn chosen(protocol: UpstreamProtocol, body: &Value, prompt: &str, result: Option<&str>) -> Option<OfferedTool> {
        let ask = SampleRequest {
            prompt: prompt.to_owned(),
            tool_result: result.map(str::to_owned),
            ..SampleRequest::default()
        };
        choose_tool(protocol, body, &ask, &SampleScript::from_prompt(prompt).unwrap())
    }

    fn bodies(schema: &Value) -> [(UpstreamProtocol, Value); 4] {
        let messages = json!({"tools": [{"type": "web_search_20250305", "name": "web_search"},
            {"name": "get_weather", "input_schema": schema}, {"name": "shell", "input_schema": {}}]});
        let responses = json!({"tools": [{"type": "web_search"},
            {"type": "function", "name": "get_weather", "parameters": schema}, {"type": "function", "name": "shell"}]});
        let gemini = json!({"tools": [{"functionDeclarations": [
            {"name": "get_weather", "parameters_json_schema": schema}, {"name": "shell"}]}]});
        let chat = json!({"tools": [
            {"type": "function", "function": {"name": "get_weather", "parameters": schema}},
            {"type": "function", "function": {"name": "shell"}}]});
        [
            (UpstreamProtocol::Messages, messages),
            (UpstreamProtocol::Responses, responses),
            (UpstreamProtocol::Gemini, gemini),
            (UpstreamProtocol::Chat, chat),
        ]
    }

    #[test]
    fn a_prompt_about_the_weather_calls_the_first_tool_of_each_protocol() {
        for (protocol, body) in bodies(&weather_schema()) {
            let call = chosen(protocol, &body, "The Weather in Rome?", None).unwrap();
            assert_eq!(
                (call.name.as_str(), call.arguments),
                ("get_weather", json!({"location": "Paris"}))
            );
            assert_eq!(chosen(protocol, &body, "weather", Some("18 C")), None);
            assert_eq!(chosen(protocol, &body, "hello", None), None);
        }
    }

    #[test]
    fn a_mark_calls_the_tool_it_names_with_its_input_until_there_is_a_result() {
        let prompt = r#"[[sample: tool=shell tool_input={"command": "echo weir"}]] do it"#;
        for (protocol, body) in bodies(&weather_schema()) {
            let call = chosen(protocol, &body, prompt, None).unwrap();
            assert_eq!(
                (call.name.as_str(), call.arguments),
                ("shell", json!({"command": "echo weir"}))
            );
            assert_eq!(chosen(protocol, &body, prompt, Some("weir")), None);
            assert_eq!(chosen(protocol, &json!({}), prompt, None), None, "it is not offered");
        }
    }

    #[test]
    fn a_tool_in_a_namespace_that_came_with_the_input_takes_free_text() {
        let body = json!({"input": [{"type": "additional_tools", "tools": [{"type": "namespace", "name": "functions",
            "tools": [{"type": "custom", "name": "exec"}, {"type": "function", "name": "wait"}]}]}]});
        let prompt = r#"[[sample: tool=exec tool_input="text(\"a b\")"]]"#;
        let call = chosen(UpstreamProtocol::Responses, &body, prompt, None).unwrap();
        assert_eq!(
            (call.input_kind, call.namespace.as_deref()),
            (ToolInputKind::Text, Some("functions"))
        );
        assert_eq!(call.arguments_text(), r#"text("a b")"#);
    }

    #[test]
    fn a_forced_choice_calls_the_named_tool_and_none_forbids() {
        let tools = json!([{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]);
        let body = json!({"tools": tools, "tool_choice": {"type": "tool", "name": "b"}});
        assert_eq!(
            chosen(UpstreamProtocol::Messages, &body, "hello", None).unwrap().name,
            "b"
        );
        let body = json!({"tools": tools, "tool_choice": {"type": "none"}});
        assert_eq!(chosen(UpstreamProtocol::Messages, &body, "weather", None), None);
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        for (choice, expected) in [
            (tool("b"), Some("b")),
            (json!("required"), Some("a")),
            (json!("auto"), None),
            (json!("none"), None),
        ] {
            let body = json!({"tools": [tool("a"), tool("b")], "tool_choice": choice});
            let called = chosen(UpstreamProtocol::Chat, &body, "hello", None);
            assert_eq!(called.map(|tool| tool.name).as_deref(), expected, "{choice}");
        }
    }
}
