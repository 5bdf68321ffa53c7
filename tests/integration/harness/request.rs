//! A request as exact bytes, and the same prompt in the three protocols.

use super::models::{GEMINI_MODEL, MESSAGES_MODEL, RESPONSES_MODEL};

/// An HTTP/1.1 request that is written exactly as it stands here.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// How the body is delimited on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// `content-length`.
    Length,
    /// `transfer-encoding: chunked`, chunks of this many bytes.
    Chunked(usize),
}

/// One of the three protocols, with what the tests need to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Messages,
    Responses,
    Gemini,
}

pub(crate) const ALL_WIRES: [Wire; 3] = [Wire::Messages, Wire::Responses, Wire::Gemini];

impl Wire {
    /// The provider name that serves the model of [`Wire::request`].
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Wire::Messages => "anthropic",
            Wire::Responses => "openai",
            Wire::Gemini => "gemini",
        }
    }

    /// The catalogue model of [`Wire::request`].
    pub(crate) fn model(self) -> &'static str {
        match self {
            Wire::Messages => MESSAGES_MODEL,
            Wire::Responses => RESPONSES_MODEL,
            Wire::Gemini => GEMINI_MODEL,
        }
    }

    /// A unary request with this prompt.
    pub(crate) fn request(self, key: &str, prompt: &str) -> Request {
        self.request_for(self.model(), key, prompt)
    }

    /// A unary request to `model`.
    pub(crate) fn request_for(self, model: &str, key: &str, prompt: &str) -> Request {
        let max_tokens = expected_tokens(prompt);
        let prompt = serde_json::Value::from(prompt).to_string();
        match self {
            Wire::Messages => Request::post("/v1/messages")
                .header("x-api-key", key)
                .header("anthropic-version", "2023-06-01")
                .json(&format!(
                    r#"{{"model":"{model}","max_tokens":{max_tokens},"messages":[{{"role":"user","content":{prompt}}}]}}"#
                )),
            Wire::Responses => Request::post("/v1/responses")
                .header("authorization", &format!("Bearer {key}"))
                .json(&format!(r#"{{"model":"{model}","input":{prompt}}}"#)),
            Wire::Gemini => Request::post(&format!("/v1beta/models/{model}:generateContent"))
                .header("x-goog-api-key", key)
                .json(&format!(
                    r#"{{"contents":[{{"role":"user","parts":[{{"text":{prompt}}}]}}]}}"#
                )),
        }
    }

    /// A streaming (SSE) request with this prompt.
    pub(crate) fn streaming(self, key: &str, prompt: &str) -> Request {
        self.streaming_for(self.model(), key, prompt)
    }

    /// A streaming (SSE) request to `model`.
    pub(crate) fn streaming_for(self, model: &str, key: &str, prompt: &str) -> Request {
        let mut request = self.request_for(model, key, prompt);
        match self {
            Wire::Messages | Wire::Responses => {
                let text = String::from_utf8(request.body).unwrap();
                request.body = text.replacen('{', r#"{"stream":true,"#, 1).into_bytes();
            }
            Wire::Gemini => {
                request.target = request
                    .target
                    .replace(":generateContent", ":streamGenerateContent?alt=sse")
            }
        }
        request
    }

    /// The key of `request` replaced by nothing: no credential at all.
    pub(crate) fn without_credential(self, prompt: &str) -> Request {
        let mut request = self.request("none", prompt);
        request
            .headers
            .retain(|(name, _)| !matches!(name.as_str(), "x-api-key" | "authorization" | "x-goog-api-key"));
        request
    }

    /// The header that carries the key in [`Wire::request`].
    pub(crate) fn key_header(self, key: &str) -> (&'static str, String) {
        match self {
            Wire::Messages => ("x-api-key", key.to_owned()),
            Wire::Responses => ("authorization", format!("Bearer {key}")),
            Wire::Gemini => ("x-goog-api-key", key.to_owned()),
        }
    }
}

/// What a client asks for that expects the answer which a mark in its prompt orders: weir bills no more than that.
fn expected_tokens(prompt: &str) -> u64 {
    let ordered = |key: &str| {
        let (_, value) = prompt.split_once(key)?;
        value
            .split(|other: char| !other.is_ascii_digit())
            .next()?
            .parse::<u64>()
            .ok()
    };
    let bytes = ordered("deltas=").unwrap_or(0) * ordered("delta_bytes=").unwrap_or(16);
    bytes.max(256) + ordered("hidden_tokens=").unwrap_or(0)
}

/// Which protocol a request's target belongs to.
pub(crate) fn wire_of(target: &str) -> Wire {
    match target {
        target if target.starts_with("/v1/messages") => Wire::Messages,
        target if target.starts_with("/v1/responses") => Wire::Responses,
        _ => Wire::Gemini,
    }
}

/// A Gemini request whose answer is one JSON array.
pub(crate) fn array_request(key: &str) -> Request {
    let mut request = Wire::Gemini.request(key, "hi");
    request.target = request.target.replace(":generateContent", ":streamGenerateContent");
    request
}

impl Request {
    /// Any method and target, no header but `host`.
    pub(crate) fn new(method: &str, target: &str) -> Request {
        let headers = vec![("host".to_owned(), "weir.test".to_owned())];
        Request {
            method: method.to_owned(),
            target: target.to_owned(),
            headers,
            body: Vec::new(),
        }
    }

    /// A GET.
    pub(crate) fn get(target: &str) -> Request {
        Request::new("GET", target)
    }

    /// A POST.
    pub(crate) fn post(target: &str) -> Request {
        Request::new("POST", target)
    }

    /// Adds a header, exactly in this spelling.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body and `content-type: application/json`.
    pub(crate) fn json(self, text: &str) -> Request {
        let mut request = self.header("content-type", "application/json");
        request.body = text.as_bytes().to_vec();
        request
    }

    /// Replaces the body.
    pub(crate) fn body(mut self, body: &[u8]) -> Request {
        self.body = body.to_vec();
        self
    }

    /// The head only, with the delimiting header of `upload`.
    pub(crate) fn head_bytes(&self, upload: Upload) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        match upload {
            Upload::Length if self.body.is_empty() && self.method == "GET" => {}
            Upload::Length => text.push_str(&format!("content-length: {}\r\n", self.body.len())),
            Upload::Chunked(_) => text.push_str("transfer-encoding: chunked\r\n"),
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    /// The body only, as `upload` puts it on the wire.
    pub(crate) fn body_bytes(&self, upload: Upload) -> Vec<u8> {
        match upload {
            Upload::Length => self.body.clone(),
            Upload::Chunked(size) => {
                let mut wire = Vec::with_capacity(self.body.len() + self.body.len() / size * 10 + 16);
                for chunk in self.body.chunks(size) {
                    wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    wire.extend_from_slice(chunk);
                    wire.extend_from_slice(b"\r\n");
                }
                wire.extend_from_slice(b"0\r\n\r\n");
                wire
            }
        }
    }

    /// Head and body.
    pub(crate) fn bytes(&self, upload: Upload) -> Vec<u8> {
        let mut bytes = self.head_bytes(upload);
        bytes.extend_from_slice(&self.body_bytes(upload));
        bytes
    }
}
