//! The server of the sample provider: sockets, HTTP, credentials and headers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::connection::{ResetFlag, SampleConnection};
use super::gemini::GeminiFraming;
use super::ledger::{SampleLedger, SampleLedgerEntry};
use super::performance::{self, RawSampleRequest, ScriptedResponse};
use crate::domain::wire::UpstreamProtocol;
use crate::edges::clock;
use crate::sample_provider::SampleProviderError;
use crate::sample_provider::SampleSettings;
use crate::sample_provider::ask::{self, PathTarget};
use crate::sample_provider::connection::PacedBody;
use crate::sample_provider::rendered::{RenderedAnswers, reuse_key};
use crate::sample_provider::tokens::PromptCache;

/// The maximum size of a request body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The maximum number of open connections. Further connections are closed at once.
const CONNECTIONS_MAX: usize = 65_536;
/// The timeout for a complete request head, and for an idle connection.
const HEADER_READ_MAX: Duration = Duration::from_secs(300);
/// The time that running responses have to end at shutdown.
const SHUTDOWN_MAX: Duration = Duration::from_secs(1);
/// The pause after a connection could not be accepted, for example because the system has no free file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// The maximum size in bytes of a body that is parsed and counted on a thread of the runtime. A larger one is processed on a
/// blocking thread.
const BODY_INLINE_BYTES_MAX: usize = 64 << 10;

/// Serves requests on `listener` (HTTP/1.1, and HTTP/2 with prior knowledge) until `shutdown` completes. Running responses then
/// have one second to end. Uses no global state, so several servers can run in one process. Fails if the ledger cannot be opened.
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
    // An error means that a client disconnected or that the script demanded a break, which needs no report.
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

    /// Whether the request has a credential that is accepted.
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

#[cfg(test)]
mod tests;
