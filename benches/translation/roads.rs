//! The roads through one weir to one host: each client's protocol natively, and translated pairs beside it.

use std::sync::Arc;

use serde_json::{Value, json};
use weir::parts::{Protocol, translation::UpstreamProtocol};

use crate::{
    driver::{Answer, Connection, Expect},
    events,
    fleet::Proxy,
    host::{Host, HostScript},
    node::{model_of, translated_model},
};

/// The pairs that are compared with the native road of their client: the provider's protocol and the client's.
pub(crate) const PAIRS: [(UpstreamProtocol, Protocol); 5] = [
    (UpstreamProtocol::Chat, Protocol::Responses),
    (UpstreamProtocol::Chat, Protocol::Messages),
    (UpstreamProtocol::Messages, Protocol::Responses),
    (UpstreamProtocol::Responses, Protocol::Messages),
    (UpstreamProtocol::Gemini, Protocol::Messages),
];

/// A way from a client to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Road {
    /// What the client speaks.
    pub(crate) client: Protocol,
    /// What the host speaks.
    pub(crate) provider: UpstreamProtocol,
}

/// What every answer on a road must be like.
pub(crate) struct Pattern {
    /// Its length in bytes. Names and times in it are new each time, and always of the same length.
    length: usize,
    /// What it ends with.
    end: &'static str,
}

impl Road {
    /// The road on which nothing is translated.
    pub(crate) fn native(client: Protocol) -> Self {
        Self {
            client,
            provider: client.into(),
        }
    }

    /// All that [`PAIRS`] needs: a native road for each of their clients, and a road for each pair.
    pub(crate) fn all() -> Vec<Self> {
        let native = [Protocol::Messages, Protocol::Responses].map(Self::native);
        let translated = PAIRS.map(|(provider, client)| Self { client, provider });
        native.into_iter().chain(translated).collect()
    }

    /// Whether weir translates.
    pub(crate) fn is_translated(self) -> bool {
        self != Self::native(self.client)
    }

    /// For people.
    pub(crate) fn name(self) -> String {
        let client = name(self.client.into());
        match self.is_translated() {
            true => format!("{} to {client}", name(self.provider)),
            false => format!("{client}, native"),
        }
    }

    /// The request for a stream on this road, as it goes over the wire.
    pub(crate) fn request(self, key: &str) -> Vec<u8> {
        let client = name(self.client.into());
        let model = match self.is_translated() {
            true => translated_model(name(self.provider), client),
            false => model_of(client),
        };
        let (path, credential) = match self.client {
            Protocol::Messages => (
                "/v1/messages".to_owned(),
                format!("x-api-key: {key}\r\nanthropic-version: 2023-06-01"),
            ),
            Protocol::Responses => ("/v1/responses".to_owned(), format!("authorization: Bearer {key}")),
            Protocol::Gemini => (
                format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
                format!("x-goog-api-key: {key}"),
            ),
        };
        let body = body(self.client, &model).to_string();
        format!(
            "POST {path} HTTP/1.1\r\nhost: gateway.test\r\n{credential}\r\naccept: text/event-stream\r\n\
             user-agent: weir-translation\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Asks for one answer and looks at it closely: it comes from the host's endpoint of this road, with all of the text.
    pub(crate) async fn learn(self, proxy: &Proxy, host: &Host, script: HostScript) -> Result<Arc<Pattern>, String> {
        let before = host.requests(self.provider);
        let mut connection = Connection::new(proxy.address);
        let asked = connection.ask(&self.request(&proxy.key), Expect::Anything).await;
        let answer = asked.map_err(|bad| self.failed(&bad))?;
        if host.requests(self.provider) != before + 1 {
            return Err(self.failed("the host was not asked in its protocol"));
        }
        let body = String::from_utf8(answer.body).map_err(|_| self.failed("not a text"))?;
        let text = text(self.client, &body).ok_or_else(|| self.failed(&format!("not a stream: {body}")))?;
        if text != events::piece(script.delta_bytes).repeat(script.deltas) {
            return Err(self.failed("the text is not the host's"));
        }
        let end = match self.client {
            Protocol::Messages => "data: {\"type\":\"message_stop\"}\n\n",
            Protocol::Responses => "data: [DONE]\n\n",
            Protocol::Gemini => "}\r\n\r\n",
        };
        let pattern = Pattern {
            length: body.len(),
            end,
        };
        pattern.check(body.as_bytes()).map_err(|bad| self.failed(&bad))?;
        Ok(Arc::new(pattern))
    }

    /// The text of an error on this road.
    pub(crate) fn failed(self, bad: &str) -> String {
        format!("{}: {bad}", self.name())
    }
}

impl Pattern {
    /// Compares the body of an answer that was collected.
    pub(crate) fn check(&self, body: &[u8]) -> Result<(), String> {
        if body.len() == self.length && body.ends_with(self.end.as_bytes()) {
            return Ok(());
        }
        Err(format!(
            "not a whole answer: {} of {} bytes, {:?} at the end",
            body.len(),
            self.length,
            String::from_utf8_lossy(&body[body.len().saturating_sub(80)..])
        ))
    }
}

/// Asks on a kept connection and compares the answer.
pub(crate) async fn ask(connection: &mut Connection, request: &[u8], pattern: &Pattern) -> Result<Answer, String> {
    let answer = connection.ask(request, Expect::Anything).await?;
    pattern.check(&answer.body)?;
    Ok(answer)
}

/// A protocol's name, as models and tables have it.
pub(crate) fn name(protocol: UpstreamProtocol) -> &'static str {
    match protocol {
        UpstreamProtocol::Messages => "messages",
        UpstreamProtocol::Responses => "responses",
        UpstreamProtocol::Gemini => "gemini",
        UpstreamProtocol::Chat => "chat",
    }
}

/// A question in the client's protocol.
fn body(client: Protocol, model: &str) -> Value {
    let (system, text) = (
        "You are a terse assistant.",
        "Tell me what a weir does, in a few words.",
    );
    match client {
        Protocol::Messages => json!({
            "model": model, "system": system, "max_tokens": 4096, "stream": true,
            "messages": [{ "role": "user", "content": text }],
        }),
        Protocol::Responses => json!({
            "model": model, "instructions": system, "input": text, "max_output_tokens": 4096, "stream": true,
            "store": false,
        }),
        Protocol::Gemini => json!({
            "systemInstruction": { "parts": [{ "text": system }] },
            "contents": [{ "role": "user", "parts": [{ "text": text }] }],
        }),
    }
}

/// The text of a stream in the client's protocol; nothing if it is none.
fn text(client: Protocol, body: &str) -> Option<String> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut text = String::new();
    for data in data.filter(|data| *data != "[DONE]") {
        let event: Value = serde_json::from_str(data).ok()?;
        let piece = match client {
            Protocol::Messages => &event["delta"]["text"],
            Protocol::Responses => &event["delta"],
            Protocol::Gemini => &event["candidates"][0]["content"]["parts"][0]["text"],
        };
        text.push_str(piece.as_str().unwrap_or_default());
    }
    Some(text)
}
