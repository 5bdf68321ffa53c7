//! The server of the sample provider: sockets, HTTP, credentials, headers, and the cache of rendered answers. With fixed token
//! counts, requests that differ only in their prompts have the same answer, so a rendered answer can be reused.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
};
use parking_lot::Mutex;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    domain::wire::{
        UpstreamProtocol,
        operation::{Operation, UpstreamOperation},
    },
    edges::clock,
    sample_provider::{
        SampleProviderError, SampleSettings, TokenCounting,
        ask::{self, PathTarget},
        chat::check_request,
        connection::{PacedBody, ResetFlag, SampleConnection},
        gemini::GeminiFraming,
        ledger::{SampleLedger, SampleLedgerEntry},
        performance::{self, RawSampleRequest, ScriptedResponse},
        script::MARK_OPEN,
        tokens::PromptCache,
    },
};

/// The maximum size of a request body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The maximum number of open connections. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 65_536;
/// The timeout for a complete request head, and for an idle connection.
const HEADER_READ_MAX: Duration = Duration::from_secs(300);
/// The maximum time that the shutdown waits for running responses to end.
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);
/// The pause after an accept fails, for example because the system has no free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// The maximum size in bytes of a body that is parsed and counted on a thread of the runtime. A larger body is processed on a
/// blocking thread.
const BODY_INLINE_BYTES_MAX: usize = 64 << 10;

/// Serves requests on `listener` (HTTP/1.1, and HTTP/2 with prior knowledge) until `shutdown` completes. After that, running
/// responses have one second to end. Uses no global state, so several servers can run in one process. Fails if the ledger cannot
/// be opened.
pub(crate) async fn serve(
    listener: TcpListener,
    settings: SampleSettings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), SampleProviderError> {
    let ledger = SampleLedger::open(settings.ledger.as_deref()).map_err(|source| SampleProviderError::Ledger {
        path: settings.ledger.clone().unwrap_or_default(),
        source,
    })?;
    let provider = Arc::new(ScriptedProvider {
        settings,
        ledger: Arc::new(ledger),
        rendered: RenderedAnswers::default(),
        prompt_cache: PromptCache::default(),
    });
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.len() < CONNECTIONS_MAX => {
                    connections.spawn(serve_connection(Arc::clone(&provider), stream, graceful.watcher()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
        }
    }
    drop(listener);
    // Connections that do not end in time are aborted when `connections` is dropped.
    let _ = tokio::time::timeout(SHUTDOWN_MAX, graceful.shutdown()).await;
    Ok(())
}

async fn serve_connection(
    provider: Arc<ScriptedProvider>,
    stream: TcpStream,
    watcher: hyper_util::server::graceful::Watcher,
) {
    let reset = ResetFlag::default();
    let Ok(connection) = SampleConnection::new(stream, reset.clone()) else {
        return;
    };
    let service = service_fn(move |request| {
        let provider = Arc::clone(&provider);
        let reset = reset.clone();
        async move { Ok::<_, Infallible>(provider.answer(request, reset).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_MAX);
    builder.http2().timer(TokioTimer::new());
    let served = builder.serve_connection(TokioIo::new(connection), service).into_owned();
    // An error means that the client disconnected or that the script demanded a break, so it is not reported.
    let _ = watcher.watch(served).await;
}

struct ScriptedProvider {
    settings: SampleSettings,
    ledger: Arc<SampleLedger>,
    rendered: RenderedAnswers,
    prompt_cache: PromptCache,
}

impl ScriptedProvider {
    async fn answer(self: Arc<Self>, request: Request<Incoming>, reset: ResetFlag) -> Response<PacedBody> {
        let id = format!("{:032x}", rand::random::<u128>());
        let request_id = format!("req_{id}");
        let started = clock::instant();
        // Over HTTP/2, a broken body resets only its stream, not the connection.
        let reset = if request.version() == Version::HTTP_2 {
            ResetFlag::default()
        } else {
            reset
        };
        let target = ask::parse_path(request.uri().path());
        let protocol = target
            .as_ref()
            .map_or(UpstreamProtocol::Responses, |target| target.operation.protocol());
        let performance = self.perform(request, target, &id, &request_id).await;
        let entry = SampleLedgerEntry::open(
            Arc::clone(&self.ledger),
            Arc::clone(&performance.bill),
            request_id.clone(),
            protocol,
            self.settings.on_client_gone,
        );
        if !performance.ttfb.is_zero() {
            tokio::time::sleep(performance.ttfb).await;
        }
        let mut response = Response::new(PacedBody::new(&performance, entry, reset));
        *response.status_mut() = StatusCode::from_u16(performance.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let processing_ms = clock::instant().duration_since(started).as_millis();
        fill_headers(
            response.headers_mut(),
            protocol,
            &performance,
            &request_id,
            processing_ms,
        );
        response
    }

    async fn perform(
        self: &Arc<Self>,
        request: Request<Incoming>,
        target: Option<PathTarget>,
        id: &str,
        request_id: &str,
    ) -> ScriptedResponse {
        let Some(target) = target else {
            return performance::refusal_response(
                UpstreamProtocol::Responses,
                404,
                "no operation has this path",
                request_id,
            );
        };
        let protocol = target.operation.protocol();
        let refused = |status, message| performance::refusal_response(protocol, status, message, request_id);
        if request.method() != Method::POST {
            return refused(405, "the method must be POST");
        }
        if !self.admits(request.headers()) {
            return refused(
                401,
                "the credential is missing, or is not the one that this sample provider accepts",
            );
        }
        let chunking = if ask::is_sse_query(request.uri().query()) {
            GeminiFraming::Sse
        } else {
            GeminiFraming::Array
        };
        let body = match Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return refused(413, "the body is larger than 64 MiB");
            }
            Err(_) => return refused(400, "the body did not arrive"),
        };
        self.rendered_or_new(target, chunking, body, id, request_id).await
    }

    async fn rendered_or_new(
        self: &Arc<Self>,
        target: PathTarget,
        chunking: GeminiFraming,
        body: Bytes,
        id: &str,
        request_id: &str,
    ) -> ScriptedResponse {
        let key = reuse_key(&target, chunking, &body, &self.settings);
        if let Some(known) = key.as_ref().and_then(|key| self.rendered.find(key)) {
            return known;
        }
        let performance = if body.len() <= BODY_INLINE_BYTES_MAX {
            let created_at = clock::unix_seconds();
            let order = RawSampleRequest {
                target: &target,
                chunking,
                body: &body,
                id,
                request_id,
                created_at,
                prompt_cache: &self.prompt_cache,
            };
            performance::respond(&order, &self.settings)
        } else {
            let (provider, id, name) = (Arc::clone(self), id.to_owned(), request_id.to_owned());
            let protocol = target.operation.protocol();
            let work = tokio::task::spawn_blocking(move || {
                let created_at = clock::unix_seconds();
                let order = RawSampleRequest {
                    target: &target,
                    chunking,
                    body: &body,
                    id: &id,
                    request_id: &name,
                    created_at,
                    prompt_cache: &provider.prompt_cache,
                };
                performance::respond(&order, &provider.settings)
            });
            work.await
                .unwrap_or_else(|_| performance::refusal_response(protocol, 500, "internal error", request_id))
        };
        if let Some(key) = key.filter(|_| performance.status == 200) {
            self.rendered.insert(key, &performance);
        }
        performance
    }

    /// Returns whether the request has a credential that is accepted.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let plain = ["x-api-key", "x-goog-api-key", "api-key"]
            .into_iter()
            .filter_map(|name| headers.get(name));
        let bearer = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let mut keys = plain
            .map(HeaderValue::as_bytes)
            .chain(bearer)
            .filter(|key| !key.is_empty());
        match &self.settings.required_key {
            None => keys.next().is_some(),
            Some(required) => keys.any(|key| key == required.as_bytes()),
        }
    }
}

fn fill_headers(
    headers: &mut HeaderMap,
    protocol: UpstreamProtocol,
    performance: &ScriptedResponse,
    request_id: &str,
    processing_ms: u128,
) {
    let mut insert = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    insert(CONTENT_TYPE, &performance.content_type);
    if performance.gzip {
        insert(CONTENT_ENCODING, "gzip");
    }
    if let Some(seconds) = performance.retry_after {
        insert(RETRY_AFTER, &seconds.to_string());
    }
    if performance.status == 405 {
        insert(ALLOW, "POST");
    }
    let named = http::HeaderName::from_static;
    match protocol {
        UpstreamProtocol::Messages => insert(named("request-id"), request_id),
        UpstreamProtocol::Responses | UpstreamProtocol::Chat => {
            insert(named("x-request-id"), request_id);
            insert(named("openai-processing-ms"), &processing_ms.to_string());
        }
        // The real protocol has no such header. Tests use it to find the request's line in the ledger.
        UpstreamProtocol::Gemini => insert(named("x-request-id"), request_id),
    }
}

/// The maximum number of cached answers. When it is reached, an answer that is not cached is rendered again for each request.
const RENDERED_MAX: usize = 64;

/// The key of a rendered answer: everything that determines its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RenderedKey {
    operation: UpstreamOperation,
    chunking: GeminiFraming,
    model: String,
    stream: bool,
    streams_usage: bool,
}

/// The fields of a request that determine whether its answer can be reused. Other fields are skipped during parsing.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ReusableRequest<'a> {
    #[serde(default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<SampleStreamOptions>,
    messages: Option<IgnoredAny>,
    input: Option<IgnoredAny>,
    contents: Option<IgnoredAny>,
    // If the request has one of the following fields, its answer depends on data that [`RenderedKey`] does not contain.
    tools: Option<IgnoredAny>,
    thinking: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
    include: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    output_config: Option<IgnoredAny>,
    #[serde(rename = "generationConfig", alias = "generation_config")]
    generation_config: Option<IgnoredAny>,
    reasoning_effort: Option<IgnoredAny>,
    response_format: Option<IgnoredAny>,
}

/// The options for a stream of `chat/completions`.
#[derive(Deserialize)]
struct SampleStreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Returns the key of a request whose answer can be reused; `None` if the answer cannot be reused.
pub(super) fn reuse_key(
    target: &PathTarget,
    chunking: GeminiFraming,
    body: &[u8],
    settings: &SampleSettings,
) -> Option<RenderedKey> {
    let fixed = settings.counting == TokenCounting::Fixed && settings.script.deltas.is_some();
    if !fixed || memchr::memmem::find(body, MARK_OPEN.as_bytes()).is_some() {
        return None;
    }
    let head: ReusableRequest<'_> = serde_json::from_slice(body).ok()?;
    let turns = match target.operation {
        UpstreamOperation::Client(Operation::Messages) => head.messages,
        UpstreamOperation::Client(Operation::Responses) => head.input,
        UpstreamOperation::Client(Operation::GenerateContent | Operation::StreamGenerateContent) => head.contents,
        UpstreamOperation::Client(Operation::CountTokens | Operation::GeminiCountTokens) => None,
        UpstreamOperation::ChatCompletions => head.messages.filter(|_| is_accepted(body, settings)),
    };
    turns?;
    let special = [
        head.tools,
        head.thinking,
        head.reasoning,
        head.include,
        head.text,
        head.output_config,
        head.generation_config,
        head.reasoning_effort,
        head.response_format,
    ];
    if special.iter().any(Option::is_some) {
        return None;
    }
    let model = target.model.clone().or_else(|| head.model.map(Cow::into_owned))?;
    Some(RenderedKey {
        operation: target.operation,
        chunking,
        model,
        stream: head.stream,
        streams_usage: head.stream_options.is_some_and(|options| options.include_usage),
    })
}

/// Returns whether a request of `chat/completions` is valid. An invalid request must not get a reused answer.
fn is_accepted(body: &[u8], settings: &SampleSettings) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| check_request(&body, &settings.script).is_ok())
}

/// The rendered answers that can be reused, by their keys.
#[derive(Debug, Default)]
pub(super) struct RenderedAnswers {
    answers: Mutex<HashMap<RenderedKey, ScriptedResponse>>,
}

impl RenderedAnswers {
    /// Returns the cached answer for `key`; `None` if no answer is cached for it.
    pub(super) fn find(&self, key: &RenderedKey) -> Option<ScriptedResponse> {
        self.answers.lock().get(key).cloned()
    }

    /// Caches the answer `performance`, if there is room.
    pub(super) fn insert(&self, key: RenderedKey, performance: &ScriptedResponse) {
        let mut answers = self.answers.lock();
        if answers.len() < RENDERED_MAX {
            answers.insert(key, performance.clone());
        }
    }
}

#[cfg(test)]
mod rendered_tests {
    use super::*;
    use crate::sample_provider::script::SampleScript;

    fn settings() -> SampleSettings {
        let script = SampleScript {
            deltas: Some(5),
            ..SampleScript::default()
        };
        SampleSettings {
            script,
            counting: TokenCounting::Fixed,
            ..SampleSettings::default()
        }
    }

    fn messages() -> PathTarget {
        PathTarget {
            operation: Operation::Messages.into(),
            model: None,
        }
    }

    fn chat_key(body: &str) -> Option<RenderedKey> {
        let chat = PathTarget {
            operation: UpstreamOperation::ChatCompletions,
            model: None,
        };
        reuse_key(&chat, GeminiFraming::Sse, body.as_bytes(), &settings())
    }

    #[test]
    fn plain_requests_of_fixed_answers_share_a_key() {
        let key = |body: &str| reuse_key(&messages(), GeminiFraming::Sse, body.as_bytes(), &settings());
        let first = key(r#"{"model":"m","stream":true,"messages":[{"content":"a"}]}"#);
        assert!(first.is_some());
        assert_eq!(
            first,
            key(r#"{"messages":[],"model":"m","stream":true,"max_tokens":5}"#)
        );
        assert_ne!(first, key(r#"{"messages":[],"model":"m"}"#));
    }

    #[test]
    fn marks_tools_and_thinking_are_looked_at_as_a_whole() {
        for body in [
            r#"{"model":"m","messages":["[[sample: deltas=3]]"]}"#,
            r#"{"model":"m","messages":[],"tools":[]}"#,
            r#"{"model":"m","messages":[],"thinking":{}}"#,
            r#"{"model":"m"}"#,
            "{",
        ] {
            assert_eq!(
                reuse_key(&messages(), GeminiFraming::Sse, body.as_bytes(), &settings()),
                None,
                "{body}"
            );
        }
        let counting = SampleSettings {
            counting: TokenCounting::Text,
            ..settings()
        };
        let body = br#"{"model":"m","messages":[]}"#;
        assert_eq!(reuse_key(&messages(), GeminiFraming::Sse, body, &counting), None);
    }

    #[test]
    fn chat_answers_are_reused_by_their_usage_chunk_and_never_for_a_fault() {
        let reporting = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},
            "messages":[{"role":"user","content":"a"}]}"#;
        let silent = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"a"}]}"#;
        assert!(chat_key(reporting).is_some() && chat_key(silent).is_some());
        assert_ne!(chat_key(reporting), chat_key(silent));
        assert_eq!(chat_key(reporting), chat_key(&reporting.replace("\"a\"", "\"b\"")));
        for body in [
            silent.replace("user", "robot"),
            silent.replace("\"stream\":true", "\"n\":2"),
            silent.replace("\"stream\":true", "\"reasoning_effort\":\"low\""),
        ] {
            assert_eq!(chat_key(&body), None, "{body}");
        }
    }
}
