//! The protocols of providers, and what the host says in each of them.

use serde_json::{Value as Json, json};

use super::script::{Entry, ModelAnswer, ToolCall};
use super::{chat, gemini, messages, responses};

/// What a provider speaks, or an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agents) enum Speech {
    Messages,
    Responses,
    Gemini,
    /// `chat/completions`, which no client of weir speaks.
    Chat,
}

impl Speech {
    /// Its name in headers and logs.
    pub(in crate::agents) fn name(self) -> &'static str {
        match self {
            Speech::Messages => "messages",
            Speech::Responses => "responses",
            Speech::Gemini => "gemini",
            Speech::Chat => "chat",
        }
    }

    /// A provider file without models, with one attempt at the provider. A host of `chat/completions` gets all of its reasoning
    /// back: otherwise a conversation would begin anew with each prompt.
    pub(in crate::agents) fn file(self, name: &str, base_url: &str) -> String {
        let gemini = format!("{base_url}/v1beta/models/{{model}}");
        let endpoints = match self {
            Speech::Messages => format!("messages = \"{base_url}/v1/messages\"\n"),
            Speech::Responses => format!("responses = \"{base_url}/v1/responses\"\n"),
            Speech::Gemini => format!(
                "generate_content = \"{gemini}:generateContent\"\nstream_generate_content = \"{gemini}:streamGenerateContent\"\n"
            ),
            Speech::Chat => {
                format!("chat_completions = \"{base_url}/v1/chat/completions\"\n[chat]\nreasoning_back = \"all\"\n")
            }
        };
        let auth = "[auth]\nstyle = \"bearer\"\nsecret = \"env:SECRET\"\n";
        format!("name = \"{name}\"\n{auth}[retry]\nattempts = 1\n[endpoints]\n{endpoints}")
    }

    /// The path of the requests for this model.
    pub(super) fn path(self, model: &str) -> String {
        match self {
            Speech::Messages => "/v1/messages".to_owned(),
            Speech::Responses => "/v1/responses".to_owned(),
            Speech::Gemini => format!("/v1beta/models/{model}:streamGenerateContent"),
            Speech::Chat => "/v1/chat/completions".to_owned(),
        }
    }

    /// The identifier of a call.
    pub(super) fn call_id(self, call: &ToolCall) -> String {
        match self {
            Speech::Messages => messages::call_id(call),
            Speech::Responses => responses::call_id(call),
            Speech::Gemini => gemini::call_id(call),
            Speech::Chat => chat::call_id(call),
        }
    }

    /// An answer as a later request has to repeat it.
    pub(super) fn entries_of(self, answer: &ModelAnswer) -> Vec<Entry> {
        match self {
            Speech::Messages => messages::entries_of(answer),
            Speech::Responses => responses::entries_of(answer),
            Speech::Gemini => gemini::entries_of(answer),
            Speech::Chat => chat::entries_of(answer),
        }
    }

    /// The conversation of a request.
    pub(super) fn entries(self, body: &Json) -> Result<Vec<Entry>, String> {
        match self {
            Speech::Messages => messages::entries(body),
            Speech::Responses => responses::entries(body),
            Speech::Gemini => gemini::entries(body),
            Speech::Chat => chat::entries(body),
        }
    }

    /// The events of an answer.
    pub(super) fn events(self, answer: &ModelAnswer, model: &str) -> Vec<String> {
        match self {
            Speech::Messages => messages::events(answer, model),
            Speech::Responses => responses::events(answer, model),
            Speech::Gemini => gemini::events(answer, model),
            Speech::Chat => chat::events(answer, model),
        }
    }

    /// The error for a conversation that is longer than the model's context, in the words of the protocol's vendor. A host of
    /// `chat/completions` has it as vLLM does.
    pub(super) fn full(self) -> Json {
        match self {
            Speech::Messages => json!({"type": "error", "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            }}),
            Speech::Responses => json!({"error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input and try again.",
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }}),
            Speech::Gemini => json!({"error": {
                "code": 400,
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                "status": "INVALID_ARGUMENT",
            }}),
            Speech::Chat => json!({"error": {
                "message": "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens.",
                "type": "BadRequestError",
                "param": null,
                "code": 400,
            }}),
        }
    }
}
