//! A gateway whose models are served by a test's own providers.

use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::chat_provider::CHAT_PATH;
use crate::harness::books::INPUT;
use crate::harness::client::Response;
use crate::harness::request::Wire;
use crate::harness::rules::RuleFolder;
use crate::harness::{Request, Weir, WeirBuilder, wait_for};

/// The credential of every provider here.
pub(super) const SECRET: &str = "secret-in-full";
/// The only provider of [`Stage::start`].
pub(super) const PROVIDER: &str = "scripted";
/// The model that clients ask for.
pub(super) const MODEL: &str = "house-large";
/// The same model at its provider.
pub(super) const UPSTREAM_MODEL: &str = "large-1";
/// The header that says what was not carried over.
pub(super) const TRANSLATION: &str = "weir-translation";
/// What every complete answer here reports: all input, what of it was read from a cache, all output, and what of it was
/// reasoning.
pub(super) const REPORTED: [u64; 4] = [50, 10, 30, 12];
/// What [`REPORTED`] costs by [`PRICES`], in nano-USD.
pub(super) const CHARGE: i64 = 40 * 1_000 + 10 * 100 + 30 * 10_000;
/// What every client sends with its request, whatever it speaks: nothing of it is another provider's business.
const CLIENT_HEADERS: [(&str, &str); 6] = [
    ("anthropic-version", "2023-06-01"),
    ("anthropic-beta", "interleaved-thinking-2025-05-14"),
    ("openai-beta", "responses=v1"),
    ("x-goog-api-client", "gl-node/22"),
    ("x-stainless-lang", "js"),
    ("x-claude-code-session-id", "0b7c-4"),
];
/// The prices of [`MODEL`].
const PRICES: &str = r#"
version = "tests"
[[price]]
name = "house-large"
tiers = [{ input = "1", output = "10", cache_read = "0.1", cache_write_short = "2" }]
"#;

/// What a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upstream {
    /// `chat/completions`, which no client speaks.
    Chat,
    /// A protocol that clients speak, too.
    Of(Wire),
}

impl Upstream {
    /// Its name in headers and logs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Upstream::Chat => "chat",
            Upstream::Of(wire) => protocol(wire),
        }
    }

    /// A provider file without models, with one attempt at the provider.
    pub(super) fn file(self, name: &str, base_url: &str) -> String {
        let gemini = format!("{base_url}/v1beta/models/{{model}}");
        let endpoints = match self {
            Upstream::Chat => format!("chat_completions = \"{base_url}{CHAT_PATH}\"\n"),
            Upstream::Of(Wire::Messages) => format!("messages = \"{base_url}/v1/messages\"\n"),
            Upstream::Of(Wire::Responses) => format!("responses = \"{base_url}/v1/responses\"\n"),
            Upstream::Of(Wire::Gemini) => format!(
                "generate_content = \"{gemini}:generateContent\"\nstream_generate_content = \"{gemini}:streamGenerateContent\"\n"
            ),
        };
        let auth = "[auth]\nstyle = \"bearer\"\nsecret = \"env:SECRET\"\n";
        format!("name = \"{name}\"\n{auth}[retry]\nattempts = 1\n[endpoints]\n{endpoints}")
    }
}

/// A protocol's name in headers and logs.
pub(super) fn protocol(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "messages",
        Wire::Responses => "responses",
        Wire::Gemini => "gemini",
    }
}

/// The gateway, and a key.
pub(super) struct Stage {
    pub(super) weir: Weir,
    pub(super) key: String,
    _rules: RuleFolder,
    _prices: TempDir,
}

impl Stage {
    /// One provider at `base_url` that serves [`MODEL`], with this mode of translation.
    #[track_caller]
    pub(super) fn start(upstream: Upstream, base_url: &str, mode: &str) -> Stage {
        Stage::start_with(upstream, base_url, mode, |builder| builder)
    }

    /// The same with further settings.
    #[track_caller]
    pub(super) fn start_with(
        upstream: Upstream,
        base_url: &str,
        mode: &str,
        settings: impl FnOnce(WeirBuilder) -> WeirBuilder,
    ) -> Stage {
        let model = format!(
            "[[model]]\nname = \"{MODEL}\"\nupstream_name = \"{UPSTREAM_MODEL}\"\noutput_tokens = 64000\ntranslate = \"{mode}\"\n"
        );
        let file = upstream.file(PROVIDER, base_url) + &model;
        Stage::with_settings(&[(PROVIDER, &file)], Vec::new(), settings)
    }

    /// These provider files, and these models of weir.toml.
    #[track_caller]
    pub(super) fn with(files: &[(&str, &str)], models: Vec<toml::Value>) -> Stage {
        Stage::with_settings(files, models, |builder| builder)
    }

    #[track_caller]
    fn with_settings(
        files: &[(&str, &str)],
        models: Vec<toml::Value>,
        settings: impl FnOnce(WeirBuilder) -> WeirBuilder,
    ) -> Stage {
        let rules = RuleFolder::new(files);
        let prices = TempDir::new().unwrap();
        let list = prices.path().join("prices.toml");
        std::fs::write(&list, PRICES).unwrap();
        let mut builder = rules
            .weir()
            .variable("SECRET", SECRET)
            .set("prices.file", list.to_str().unwrap());
        if !models.is_empty() {
            builder = builder.set_top("model", models);
        }
        let weir = settings(builder).start();
        let key = weir.key().text;
        Stage {
            weir,
            key,
            _rules: rules,
            _prices: prices,
        }
    }

    /// The request of a client to [`MODEL`] with this body; the model, and for a stream what asks for one, are added.
    pub(super) fn request(&self, wire: Wire, stream: bool, body: &Json) -> Request {
        let mut body = body.clone();
        let target = match (wire, stream) {
            (Wire::Messages, _) => "/v1/messages?beta=true".to_owned(),
            (Wire::Responses, _) => "/v1/responses".to_owned(),
            (Wire::Gemini, true) => format!("/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"),
            (Wire::Gemini, false) => format!("/v1beta/models/{MODEL}:generateContent"),
        };
        if wire != Wire::Gemini {
            body["model"] = MODEL.into();
            if stream {
                body["stream"] = true.into();
            }
        }
        let (name, value) = wire.key_header(&self.key);
        let request = Request::post(&target)
            .header(name, &value)
            .header("user-agent", "agent/1.0");
        let with_headers = CLIENT_HEADERS
            .iter()
            .fold(request, |request, (name, value)| request.header(name, value));
        with_headers.json(&body.to_string())
    }

    /// Sends [`Stage::request`] and reads the whole answer.
    #[track_caller]
    pub(super) fn ask(&self, wire: Wire, stream: bool, body: &Json) -> Response {
        self.weir.exchange(&self.request(wire, stream, body))
    }

    /// The line of the access log about the request that got this answer.
    #[track_caller]
    pub(super) fn line(&self, answer: &Response) -> Json {
        self.weir.access_line(answer.header("x-weir-request-id").unwrap())
    }

    /// The row of the request that got this answer.
    #[track_caller]
    pub(super) fn row(&self, answer: &Response) -> Json {
        let id = answer.header("x-weir-request-id").unwrap();
        self.weir.access_line(id);
        wait_for("the row", || {
            self.weir.rows().into_iter().find(|row| row["request_id"] == id)
        })
    }
}

/// A question and nothing else.
pub(super) fn question(wire: Wire, text: &str) -> Json {
    match wire {
        Wire::Messages => json!({"max_tokens": 512, "messages": [{"role": "user", "content": text}]}),
        Wire::Responses => json!({"store": false, "input": text}),
        Wire::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}),
    }
}

/// The usage of a row in the form of [`REPORTED`].
pub(super) fn billed(row: &Json) -> [u64; 4] {
    let count = |name: &str| row[name].as_u64().unwrap_or(0);
    let input = INPUT.iter().map(|name| count(name)).sum();
    let reasoning = count("output_reasoning");
    [input, count("cache_read"), count("output_text") + reasoning, reasoning]
}
