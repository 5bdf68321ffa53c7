//! Sends weir's own answers: refusals of requests that were not forwarded, model lists, and the public pages.

pub(crate) mod own_usage;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Version, header};
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;
use rand::RngExt;

use crate::{
    console::{self, portal::Portal},
    domain::{
        catalogue::{Catalogue, Model},
        faults::{
            End,
            refusal::{Refusal, RefusalReply},
        },
        keys::KeyRecord,
        sign_in::ManagedSettings,
        wire::{
            protocol::{ErrorForm, ListedModel, Protocol, model_entry, model_list::requested_page, models_list},
            responses_socket::server_frame,
        },
    },
    edges::clock,
    gateway::{
        exchange::Exchange,
        request::head::{self, content_length},
    },
    stability::public::{PublicRequest, PublicResponse, PublicService},
    store::time::StoreTime,
};

/// The header with weir's request id. The provider's own request id stays in the provider's header.
pub(crate) const REQUEST_ID: &str = "x-weir-request-id";

/// The maximum length in bytes of an unread body that weir reads and discards, so that the connection stays usable.
const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// The maximum time for discarding an unread body.
const DISCARD_WAIT: Duration = Duration::from_secs(1);

/// Whether the final head of the answer has been sent. An interim head (RFC 9110 section 15.2), such as `100 Continue`, does not
/// count.
pub(crate) fn has_begun(session: &Session) -> bool {
    session
        .response_written()
        .is_some_and(|head| !head.status.is_informational())
}

/// Answers the client with a refusal, and closes the request's line in the access log.
pub(crate) async fn refuse(session: &mut Session, exchange: &mut Exchange, refusal: Refusal) -> Result<()> {
    let reply = refusal.reply(form(exchange), &exchange.request_id);
    exchange.log.record.response_bytes = reply.body.len() as u64;
    if matches!(refusal, Refusal::BodyTimeout) {
        // The rest of the body will not arrive either, so the connection closes.
        session.set_keepalive(None);
    }
    exchange.log.close(&End::Refused(refusal));
    write(session, reply, &exchange.request_id).await
}

/// Sends an answer of weir's own that is not a refusal, and closes the request's line in the access log.
pub(crate) async fn send_reply(session: &mut Session, exchange: &mut Exchange, mut reply: RefusalReply) {
    exchange.log.record.status = reply.status;
    if session.req_header().method != Method::HEAD {
        exchange.log.record.response_bytes = reply.body.len() as u64;
    }
    let id_header = exchange.protocol.request_id_header();
    reply.headers.push((id_header, exchange.request_id.to_string()));
    let sent = write(session, reply, &exchange.request_id).await;
    exchange.log.close(&end_of_reply(&sent));
}

/// Returns the end of a request that weir has answered itself.
pub(crate) fn end_of_reply(sent: &Result<()>) -> End {
    match sent {
        Ok(()) => End::Complete,
        Err(_) => End::ClientLeft,
    }
}

/// Returns the form of a refusal. It depends on the provider of the requested model if the model is known, and otherwise on the
/// protocol.
fn form(exchange: &Exchange) -> ErrorForm {
    let protocol = exchange.protocol;
    let asked = exchange.log.record.model_asked.as_deref();
    let providers = asked
        .and_then(|asked| exchange.live.catalogue.resolve(protocol, asked))
        .map_or(&[][..], |model| &model.providers);
    let preferred = providers.iter().find(|provider| provider.is_on()).or(providers.first());
    preferred.map_or(protocol.into(), |provider| provider.error_form(protocol))
}

/// Sends a complete answer of weir's own.
pub(crate) async fn write(session: &mut Session, reply: RefusalReply, request_id: &str) -> Result<()> {
    let mut head = ResponseHeader::build(reply.status, Some(reply.headers.len() + 3))?;
    for (name, value) in reply.headers {
        head.insert_header(name, value)?;
    }
    // In a 304, the header would be the length of the body in the client's cache (RFC 9110 section 8.6).
    if reply.status != 304 {
        head.insert_header(header::CONTENT_LENGTH, reply.body.len())?;
    }
    head.insert_header(REQUEST_ID, request_id)?;
    send(session, head, Bytes::from(reply.body)).await
}

/// Sends the head and the body. A HEAD request gets the head only.
pub(crate) async fn send(session: &mut Session, head: ResponseHeader, body: Bytes) -> Result<()> {
    leave_body_unread(session);
    let bare = session.req_header().method == Method::HEAD || body.is_empty();
    if bare && session.req_header().version == Version::HTTP_2 {
        // Over HTTP/1.1, Pingora itself omits the body.
        return session.write_response_header(Box::new(head), true).await;
    }
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(body), true).await
}

/// Lets Pingora read and discard a small unread body. For any other unread body, the connection is closed after the answer, so
/// that the body is not taken for the next request.
fn leave_body_unread(session: &mut Session) {
    if session.is_body_done() {
        return;
    }
    let small = content_length(&session.req_header().headers).is_some_and(|length| length <= DISCARD_BYTES_MAX);
    let waits = session.req_header().headers.contains_key(header::EXPECT);
    if small && !waits {
        session.set_total_drain_timeout(Some(DISCARD_WAIT));
    } else {
        session.set_keepalive(None);
    }
}

/// The data for answers to signed-in agents.
#[derive(Clone, Debug)]
pub(crate) struct SignedInAgents {
    /// The operator's settings for signed-in agents; `None` if the operator has configured none.
    pub settings: Option<ManagedSettings>,
}

/// Builds the answer to `GET /managed/settings`: the operator's settings for signed-in agents, or 304 if the agent has the
/// current ones.
pub(crate) fn managed_settings_reply(settings: &ManagedSettings, headers: &HeaderMap) -> RefusalReply {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = tags.is_some_and(|tags| settings.is_known(tags));
    let mut fields = vec![
        ("etag", settings.etag.clone()),
        ("cache-control", "private, no-cache".to_owned()),
    ];
    if is_known {
        return RefusalReply {
            status: 304,
            headers: fields,
            body: Vec::new(),
        };
    }
    fields.push(("content-type", "application/json".to_owned()));
    RefusalReply {
        status: 200,
        headers: fields,
        body: settings.body.clone().into_bytes(),
    }
}

/// Builds the answer to `HEAD /`, and to `HEAD` and `GET /api/hello`. Claude Code sends these before its first request and
/// without a key (docs/interface.md, Endpoints), so the answer reveals nothing.
pub(crate) fn hello_reply() -> RefusalReply {
    RefusalReply {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: br#"{"status":"ok"}"#.to_vec(),
    }
}

/// Builds the answer to a request that only prepares a conversation on a socket. The answer is a complete stream without output.
/// `model` is the model's name as the client sent it, and `now_unix` the time in seconds.
pub(crate) fn warm_up_reply(model: &str, now_unix: i64) -> RefusalReply {
    let random: [u8; 24] = rand::rng().random();
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    RefusalReply {
        status: 200,
        headers: vec![("content-type", "text/event-stream".to_owned())],
        body: server_frame::warm_up_events(&format!("resp_{id}"), model, now_unix),
    }
}

/// Returns the portal's answer and the operation's name for the access log; `None` if the path does not belong to the portal. The
/// portal's future is boxed: otherwise the futures of all other requests would reserve memory for it.
pub(crate) async fn find_portal_response(
    portal: &Portal,
    session: &mut Session,
) -> Option<(&'static str, PublicResponse)> {
    let operation = portal.route_name(session.req_header().uri.path())?;
    Some((operation, Box::pin(portal_response(portal, session)).await))
}

async fn portal_response(portal: &Portal, session: &mut Session) -> PublicResponse {
    let answer = match console::read(session.as_downstream_mut(), &portal.entrance).await {
        Ok(ask) => portal.answer(&ask).await,
        Err(answer) => *answer,
    };
    answer.into_response()
}

/// Returns the answer of the public stability service; `None` if the path does not belong to that service. Needs no key and reads
/// no body.
pub(crate) fn find_published(public: &PublicService, time: &StoreTime, session: &Session) -> Option<PublicResponse> {
    let now = clock::instant();
    let head = session.req_header();
    public.answer(&PublicRequest {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        peer: head::peer_address(session),
        now_ms: time.now_ms(now),
        now,
    })
}

/// Sends an answer of the stability service or the portal, and closes the request's line in the access log. The line has no
/// protocol.
pub(crate) async fn send_published(
    session: &mut Session,
    exchange: &mut Exchange,
    operation: &'static str,
    answer: PublicResponse,
) {
    let record = &mut exchange.log.record;
    record.protocol = None;
    record.operation = Some(operation);
    record.status = answer.status.as_u16();
    record.response_bytes = answer.body.len() as u64;
    let sent = write_published(session, answer, &exchange.request_id).await;
    exchange.log.close(&end_of_reply(&sent));
}

async fn write_published(session: &mut Session, answer: PublicResponse, request_id: &str) -> Result<()> {
    let mut head = ResponseHeader::build(answer.status, Some(answer.headers.len() + 2))?;
    for (name, value) in &answer.headers {
        head.append_header(name, value)?;
    }
    if answer.has_body() {
        head.insert_header(header::CONTENT_LENGTH, answer.body.len())?;
    }
    head.insert_header(REQUEST_ID, request_id)?;
    send(session, head, answer.body).await
}

/// Builds the answer with the requested page of the model list, or with the entry of the model `wanted`.
pub(crate) fn reply(
    catalogue: &Catalogue,
    is_off: impl Fn(&str) -> bool,
    key: &KeyRecord,
    shape: Protocol,
    wanted: Option<&str>,
    query: Option<&str>,
) -> Result<RefusalReply, Refusal> {
    // Generic clients read the list in the form for Responses, so that form lists all models. The other forms list only the
    // models of their protocol.
    let is_switched_off = |model: &Model| {
        let mut on = model.providers.iter().filter(|provider| provider.is_on());
        on.all(|provider| is_off(&provider.name))
    };
    let fits = |model: &Model| shape == Protocol::Responses || model.serves(shape);
    let usable = catalogue
        .served_models()
        .filter(|model| fits(model) && !is_switched_off(model) && key.allows_model(&model.name));
    let listed: Vec<ListedModel> = usable
        .map(|model| ListedModel {
            id: model.name.clone(),
            display_name: model.display_name.clone(),
            created_unix: model.created_unix,
            context_tokens: model.context_tokens,
            output_tokens: model.output_tokens,
            owner: model.preferred_provider().to_owned(),
        })
        .collect();
    let body = match wanted {
        None => {
            let names: Vec<&str> = listed.iter().map(|model| model.id.as_str()).collect();
            let page = requested_page(shape, query, &names).map_err(|reason| Refusal::QueryInvalid { reason })?;
            let models = listed.get(page.range).unwrap_or_default();
            models_list(shape, models, page.has_more)
        }
        Some(name) => match listed.iter().find(|model| model.id == name) {
            Some(model) => model_entry(shape, model),
            None => return Err(Refusal::ModelUnknown { model: name.to_owned() }),
        },
    };
    Ok(RefusalReply {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body,
    })
}
