//! Serves the admin API to the subcommands and to operators' programs. Access to the Unix socket is controlled by its file mode;
//! access over TCP requires a client certificate. Every change is written to the audit record before it is made.

mod routes;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    future::pending,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    BoxError, Extension, Router,
    body::{Body, Bytes},
    extract::{RawPathParams, RawQuery, State},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use http::Method;
use pingora::protocols::{Ssl, Stream, l4::stream::Stream as Socket};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
    sync::{mpsc::Receiver, watch},
};

use crate::{
    admin::{Admin, AdminPeer, ConnectionExtension, audit::Author},
    api::{AdminError, AdminQuestion, log::ExportLog, node::Backup, wire},
    edges::connection_slots::{ConnectionSlot, ConnectionSlots},
    front::tls::{self, TlsListener},
    side::{
        admin::routes::router,
        connection::{self, ClientWaits},
        service::ServeFuture,
    },
};

/// The maximum number of concurrent connections. When it is reached, a new connection replaces a connection without a request.
const CONNECTIONS_MAX: usize = 64;
/// The pause after a failed accept. Usually no file descriptor is free, so an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The maximum lifetime of a connection. It can be short, because clients make only one call on each connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(60);
/// The maximum lifetime of a connection on which a backup, an export or another long call runs.
const BACKUP_WAIT: Duration = Duration::from_secs(4 * 3600);
/// The timeouts of clients. The timeout for an answer equals the longest lifetime of a connection. So in practice only a
/// connection's lifetime limits how long an answer takes.
const CLIENT_WAITS: ClientWaits = ClientWaits {
    head: Duration::from_secs(10),
    answer: BACKUP_WAIT,
};

/// Serves the admin API on a Unix socket until `shutdown` turns true. Running calls can still finish after that.
pub(crate) async fn serve_unix(listener: UnixListener, state: Admin, mut shutdown: watch::Receiver<bool>) {
    let router = router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A closed channel has the same meaning as `true`.
            _ = shutdown.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the admin socket; weir tries again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = slots.acquire() else {
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            let credentials = stream.peer_cred().ok();
            let peer = AdminPeer::Process {
                uid: credentials.map(|credentials| credentials.uid()),
                pid: credentials.and_then(|credentials| credentials.pid()),
            };
            serve_connection(stream, slot, peer, router).await;
        });
    }
}

/// Serves one connection until it ends, or until its maximum lifetime is over. Errors of the connection are ignored, because the
/// client notices them.
async fn serve_connection<S>(stream: S, slot: ConnectionSlot, peer: AdminPeer, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let extension = ConnectionExtension::default();
    let router = router.layer(Extension(peer)).layer(Extension(extension.clone()));
    let mut serving = pin!(connection::serve(stream, slot, router, CLIENT_WAITS, pending()));
    let ended = tokio::time::timeout(CONNECTION_WAIT, &mut serving).await;
    if ended.is_err() && extension.0.load(Ordering::Relaxed) {
        let _ = tokio::time::timeout(BACKUP_WAIT, serving).await;
    }
}

/// The timeout for a TLS handshake.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// Returns a function that serves the admin API on one TCP connection, with TLS.
pub(crate) fn serve_tls(state: Admin, tls: Arc<TlsListener>) -> impl Fn(Stream) -> ServeFuture + Send + Sync {
    let router = router(state);
    let slots = ConnectionSlots::new(CONNECTIONS_MAX);
    move |stream| {
        let (router, tls, slots) = (router.clone(), Arc::clone(&tls), Arc::clone(&slots));
        Box::pin(async move {
            let Some(slot) = slots.acquire() else { return };
            let Ok(socket) = stream.into_any().downcast::<Socket>() else {
                return;
            };
            let handshake = tokio::select! {
                handshake = tokio::time::timeout(HANDSHAKE_WAIT, tls.accept(*socket)) => handshake,
                () = slot.given_way() => return,
            };
            let Ok(Ok(stream)) = handshake else { return };
            // The listener has verified the client's certificate. A client is refused if the subject of its certificate cannot be
            // read, because the audit record needs the subject.
            let shown = stream
                .get_ssl()
                .and_then(|tls| tls::describe_holder(tls.peer_certificate_der()?));
            if let Some(holder) = shown {
                serve_connection(stream, slot, AdminPeer::Certified(holder.into()), router).await;
            }
        })
    }
}

/// Sends a backup of the store.
async fn backup(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let backup: Backup = wire::read(Vec::new(), &query.unwrap_or_default(), Map::new())?;
    let pieces = admin.back_up(&author, backup)?;
    extension.extend();
    let kind = Backup::MEDIA.iter().map(|kind| (header::CONTENT_TYPE, *kind)).next();
    Ok((kind.map(|kind| [kind]), in_pieces(pieces, Ok::<_, Infallible>)).into_response())
}

/// Sends an export of the log. If the export fails, the last chunk is missing, so the client notices that the export is
/// incomplete.
async fn log_export(
    State(admin): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    author: Author,
    segments: RawPathParams,
    RawQuery(query): RawQuery,
) -> Result<Response, AdminError> {
    let segments = segments.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let export: ExportLog = wire::read(segments.collect(), &query.unwrap_or_default(), Map::new())?;
    let kind = [(header::CONTENT_TYPE, export.form.media_type())];
    let pieces = admin.export_log(&author, export).await?;
    extension.extend();
    Ok((kind, in_pieces(pieces, |piece| piece)).into_response())
}

/// Creates a body from pieces. Each piece is sent as soon as it arrives.
fn in_pieces<P, B, E>(pieces: Receiver<P>, sent: fn(P) -> Result<B, E>) -> Body
where
    P: Send + 'static,
    B: Into<Bytes> + 'static,
    E: Into<BoxError> + 'static,
{
    Body::from_stream(stream::unfold((pieces, sent), async |(mut pieces, sent)| {
        let piece = pieces.recv().await?;
        Some((sent(piece), (pieces, sent)))
    }))
}

/// The introduction of the OpenAPI description.
const ABOUT: &str = "weir writes every change to the audit record before it makes the change. Callers with access to the socket, \
    or with a certificate, may make every call. `x-role` is the lowest role with which a console session may make the call.\n\n\
    **Versions.** Keys and accounts have a `version`, which is also their `ETag`. A change with `If-Match` is made only if \
    the header has the current version. Otherwise the answer is 412.\n\n\
    **Repetition.** A request that changes a balance, or that creates an account or a key, may have an `operation_id`. If the \
    request is repeated with the same id, it takes effect only once.";

/// Builds the OpenAPI description, one call at a time.
struct Description {
    /// Generates the schemas of requests.
    sent: SchemaGenerator,
    /// Generates the schemas of answers.
    answered: SchemaGenerator,
    /// The described calls, by path and method.
    paths: Map<String, Value>,
}

impl Description {
    fn new() -> Self {
        let generator = |settings: SchemaSettings| {
            let at = |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
            settings.with(at).into_generator()
        };
        Self {
            sent: generator(SchemaSettings::draft2020_12().for_deserialize()),
            answered: generator(SchemaSettings::draft2020_12().for_serialize()),
            paths: Map::new(),
        }
    }

    /// Adds a call to the description.
    fn add<Q: AdminQuestion>(&mut self) {
        let asked = QuestionFields::from_schema(Q::json_schema(&mut self.sent));
        let answer = self.answered.subschema_for::<Q::Answer>();
        let (parameters, body) = asked.parameters_and_body::<Q>();
        let content: Map<String, Value> = Q::MEDIA
            .iter()
            .map(|kind| ((*kind).to_owned(), json!({ "schema": answer })))
            .collect();
        let operation = json!({
            "operationId": Q::schema_name(),
            "summary": asked.about,
            "x-role": Q::ROLE,
            "parameters": parameters,
            "requestBody": body,
            "responses": {
                (Q::STATUS.to_string()): { "description": "The answer.", "content": content },
                "default": { "$ref": "#/components/responses/error" },
            },
        });
        let methods = self.paths.entry(Q::PATH).or_insert_with(|| json!({}));
        if let (Value::Object(methods), Value::Object(mut operation)) = (methods, operation) {
            operation.retain(|_, part| !part.is_null());
            methods.insert(Q::METHOD.as_str().to_ascii_lowercase(), operation.into());
        }
    }

    /// Returns the complete description.
    fn document(mut self) -> Value {
        let error = self.answered.subschema_for::<AdminError>();
        let mut schemas = self.sent.take_definitions(true);
        schemas.extend(self.answered.take_definitions(true));
        schemas.sort_keys();
        self.paths.sort_keys();
        let error = json!({ "type": "object", "properties": { "error": error }, "required": ["error"] });
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "weir's admin API",
                "version": "1",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
                "description": ABOUT,
            },
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "responses": {
                    "error": {
                        "description": "The call was refused or has failed.",
                        "content": { "application/json": { "schema": error } },
                    },
                },
            },
        })
    }
}

/// The fields of a question to the admin API, and the text that describes the question.
struct QuestionFields {
    about: Value,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl QuestionFields {
    fn from_schema(mut schema: Schema) -> Self {
        let mut part = |name: &str| schema.remove(name).unwrap_or_default();
        let about = part("description");
        let properties = match part("properties") {
            Value::Object(properties) => properties,
            _ => Map::new(),
        };
        let required = match part("required") {
            Value::Array(required) => required,
            _ => Vec::new(),
        };
        Self {
            about,
            properties,
            required,
        }
    }

    /// Returns the parameters in the path and the query, and the schema of the body. The schema is `None` if the call has no
    /// body.
    fn parameters_and_body<Q: AdminQuestion>(&self) -> (Vec<Value>, Option<Value>) {
        let takes_query = matches!(Q::METHOD, Method::GET | Method::DELETE);
        let (mut parameters, mut body) = (Vec::new(), Map::new());
        for (name, schema) in &self.properties {
            let place = if Q::PATH.split('/').any(|segment| segment == format!("{{{name}}}")) {
                "path"
            } else if takes_query {
                "query"
            } else {
                body.insert(name.clone(), schema.clone());
                continue;
            };
            let mut schema = schema.clone();
            let about = schema
                .as_object_mut()
                .and_then(|schema| schema.shift_remove("description"));
            without_null(&mut schema);
            parameters.push(json!({
                "name": name, "in": place, "required": self.is_required(name), "description": about, "schema": schema,
            }));
        }
        let required = body.keys().filter(|name| self.is_required(name));
        let required: Vec<&String> = required.collect();
        let has_body = !body.is_empty();
        let body = has_body.then(|| {
            let schema = json!({
                "type": "object", "properties": body, "required": required, "additionalProperties": false,
            });
            json!({ "required": !required.is_empty(), "content": { "application/json": { "schema": schema } } })
        });
        (parameters, body)
    }

    fn is_required(&self, name: &str) -> bool {
        self.required.iter().any(|required| required == name)
    }
}

/// Removes `null` from the schema of a parameter in a path or query, because such a parameter is omitted if it has no value.
fn without_null(schema: &mut Value) {
    if let Some(types) = schema.get_mut("type")
        && let Value::Array(list) = types
    {
        list.retain(|one| one != "null");
        if let [only] = list.as_slice() {
            *types = only.clone();
        }
    }
    if let Some(Value::Array(either)) = schema.get_mut("anyOf") {
        either.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
        if let [only] = either.as_slice() {
            *schema = only.clone();
        }
    }
}
