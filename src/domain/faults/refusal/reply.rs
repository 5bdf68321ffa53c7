//! Conversion of refusals to HTTP answers.

use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::faults::refusal::{Refusal, body_message, limit::retry_info, model_phrase, shortened};
use crate::domain::wire::http1::head::HeadFault;
use crate::domain::wire::protocol::{ErrorForm, Protocol, gemini, messages, responses};
use crate::domain::wire::provider_state::StateKind;

/// The number of seconds after which a client should retry if memory was short or the store was unreachable. It is low, because
/// some clients wait exactly this long.
const RETRY_AFTER_SECONDS: u32 = 1;

/// A complete answer that weir itself creates: a refusal, a model list, the usage of a key, or another small answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusalReply {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The answer's headers, with names in lower case. The sender adds `content-length`.
    pub headers: Vec<(&'static str, String)>,
    /// The JSON body of the answer.
    pub body: Vec<u8>,
}

impl Refusal {
    /// Converts the refusal to an answer in this form. The answer includes the request id if the form has a field for it.
    pub(crate) fn reply(&self, form: impl Into<ErrorForm>, request_id: &str) -> RefusalReply {
        let form = form.into();
        let message = message(self);
        let body = match form {
            ErrorForm::NativeRoot => {
                let code = self.status().to_string();
                messages::root_error_body(&code, messages_type(self), &message, request_id)
            }
            ErrorForm::Of(Protocol::Messages) => messages_body(self, &message, request_id),
            ErrorForm::Of(Protocol::Responses) => responses_body(self, &message),
            ErrorForm::Of(Protocol::Gemini) => gemini_body(self, &message),
        };
        RefusalReply {
            status: self.status(),
            headers: headers(self, form.protocol(), request_id),
            body: body.to_string().into_bytes(),
        }
    }
}

fn headers(refusal: &Refusal, protocol: Protocol, request_id: &str) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        (protocol.request_id_header(), request_id.to_owned()),
        // Error messages repeat strings from the client, which a browser must not render as a page.
        ("x-content-type-options", "nosniff".to_owned()),
    ];
    if let Refusal::MethodNotAllowed { allow } = refusal {
        headers.push(("allow", (*allow).to_owned()));
    }
    if *refusal == Refusal::HeadInvalid(HeadFault::Method) {
        headers.push(("allow", "GET, HEAD, POST, OPTIONS".to_owned()));
    }
    if let Refusal::UpgradeUnavailable | Refusal::UpgradeRemoved = refusal {
        // RFC 9110 section 15.5.22 requires this header, which names the protocol to use instead.
        headers.push(("upgrade", "HTTP/1.1".to_owned()));
        // This header contains the WebSocket version that a client may use instead of its own (RFC 6455 section 4.2.2).
        headers.push(("sec-websocket-version", "13".to_owned()));
    }
    if matches!(
        refusal,
        Refusal::TooManyRunning
            | Refusal::BodyBudgetExhausted
            | Refusal::HeadGaveWay
            | Refusal::StoreUnavailable
            | Refusal::JournalFull
            | Refusal::Stopping
            | Refusal::CountTokensBusy { .. }
            | Refusal::BodyShareUsed { .. }
            | Refusal::BodyWorkLimited
    ) {
        headers.push(("retry-after", RETRY_AFTER_SECONDS.to_string()));
    }
    if let Refusal::KeyNotLookedUp { wait } | Refusal::OwnUsageLimited { wait } = refusal {
        headers.push(("retry-after", whole_seconds(*wait).to_string()));
    }
    if let Refusal::Limited(limit) = refusal {
        headers.extend(limit.headers(protocol));
    }
    // Without this header, agents repeat the request for more than a minute. Only an operator can help with a provider that is
    // switched off, has moved, or rejects all its credentials.
    let until_operator_acts = matches!(
        refusal,
        Refusal::ProviderDisabled { .. }
            | Refusal::ProviderRedirected { .. }
            | Refusal::ProviderCredentialRefused
            | Refusal::Untranslatable { .. }
    );
    if refusal.status() == 401 || until_operator_acts {
        headers.push(("x-should-retry", "false".to_owned()));
    }
    headers
}

fn messages_body(refusal: &Refusal, message: &str, request_id: &str) -> Value {
    // The Messages protocol itself defines these codes (docs/interface.md, Errors).
    let code = match refusal {
        Refusal::BodyEncodingUnsupported { .. } => Some("request_body_encoding_unsupported"),
        Refusal::BodyEncodingInvalid { .. } => Some("request_body_encoding_invalid"),
        Refusal::BodyTooLargeDecoded { .. } => Some("request_body_too_large_after_decoding"),
        Refusal::StateUnknown { kind, .. } if *kind == StateKind::Thread => Some("thread_not_found"),
        _ => None,
    };
    messages::error_body(messages_type(refusal), message, code, request_id)
}

fn messages_type(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Limited(limit) => limit.messages_type(),
        _ => messages::error_type(refusal.status()),
    }
}

fn responses_body(refusal: &Refusal, message: &str) -> Value {
    let code = match refusal {
        Refusal::CredentialMissing
        | Refusal::CredentialAmbiguous
        | Refusal::BearerSchemeMissing
        | Refusal::KeyUnknown
        | Refusal::KeyRevoked
        | Refusal::KeyReplaced
        | Refusal::KeyExpired => "invalid_api_key",
        Refusal::ModelUnknown { .. } | Refusal::ModelNotServed { .. } => "model_not_found",
        Refusal::UnknownPath | Refusal::ChatCompletionsRemoved => "unknown_url",
        Refusal::CountTokensBusy { .. }
        | Refusal::KeyNotLookedUp { .. }
        | Refusal::OwnUsageLimited { .. }
        | Refusal::BodyShareUsed { .. }
        | Refusal::BodyWorkLimited => "rate_limit_exceeded",
        Refusal::UsageUnseen { .. } => "unsupported_parameter",
        Refusal::StateUnknown { kind, .. } if *kind == StateKind::Response => "previous_response_not_found",
        Refusal::StateUnknown { .. } => "not_found",
        Refusal::Limited(limit) => limit.responses_code(),
        _ => refusal.reason(),
    };
    let member;
    let place = match refusal {
        Refusal::Untranslatable { path, .. } if !path.is_empty() => {
            member = shortened(path);
            Some(member.as_str())
        }
        Refusal::ModelNotAllowed { .. } | Refusal::ModelUnknown { .. } | Refusal::ModelNotServed { .. } => {
            Some("model")
        }
        Refusal::UsageUnseen { place } => Some(*place),
        Refusal::StateUnknown { kind, .. } => Some(kind.field_path()),
        _ => None,
    };
    let (kind, resets_at) = match refusal {
        Refusal::Limited(limit) => (limit.responses_type(), limit.resets_at()),
        _ => (responses::error_type(refusal.status()), None),
    };
    let mut body = responses::error_body(kind, message, place, code);
    if let Some(at) = resets_at {
        add_error_field(&mut body, "resets_at", json!(at));
    }
    body
}

fn gemini_body(refusal: &Refusal, message: &str) -> Value {
    let status = gemini::error_status(refusal.status());
    let (message, details) = match refusal {
        Refusal::Limited(limit) => (limit.gemini_message(), limit.gemini_details()),
        Refusal::KeyNotLookedUp { wait } | Refusal::OwnUsageLimited { wait } => {
            (message.to_owned(), json!([retry_info(whole_seconds(*wait))]))
        }
        _ => return gemini::error_body(refusal.status(), status, message),
    };
    let mut body = gemini::error_body(refusal.status(), status, &message);
    add_error_field(&mut body, "details", details);
    body
}

/// Adds a member to the object `error` of an answer's body.
fn add_error_field(body: &mut Value, name: &str, value: Value) {
    if let Some(error) = body.get_mut("error").and_then(Value::as_object_mut) {
        error.insert(name.to_owned(), value);
    }
}

/// Rounds a wait up to whole seconds, at least 1.
fn whole_seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1000))
        .unwrap_or(u64::MAX)
        .max(1)
}

/// The message for a request to a path that weir does not serve. Such a request is usually caused by a wrong base URL.
const UNKNOWN_PATH: &str = "There is nothing at this path. Send POST /v1/messages, POST /v1/responses or \
    POST /v1beta/models/{model}:generateContent; GET /v1/models lists the models. The base URL of a client ends in /v1 for \
    OpenAI's SDKs, and has no path for others.";

/// Returns the message for the client. It states what is wrong, which part of the request is affected, and what to do.
fn message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::UnknownPath => UNKNOWN_PATH.to_owned(),
        Refusal::MethodNotAllowed { allow } => format!("This path does not support this method. Use {allow}."),
        Refusal::ChatCompletionsRemoved => "Chat completions have been removed from this service. Use POST /v1/responses: \
            put the messages into `input`."
            .to_owned(),
        Refusal::CredentialMissing
        | Refusal::CredentialAmbiguous
        | Refusal::BearerSchemeMissing
        | Refusal::KeyUnknown
        | Refusal::KeyNotLookedUp { .. }
        | Refusal::KeyRevoked
        | Refusal::KeyReplaced
        | Refusal::KeyExpired => key_message(refusal),
        Refusal::QueryInvalid { reason } => format!("The query cannot be used: {}.", reason.trim_end_matches('.')),
        Refusal::OwnUsageLimited { wait } => format!(
            "Your network has sent too many requests for usage. Try again in {} seconds.",
            whole_seconds(*wait)
        ),
        Refusal::TagsInvalid(fault) => format!("The `x-weir-tag` header cannot be used: {fault}."),
        Refusal::UsageUnseen { place } => usage_message(place),
        Refusal::StateUnknown { kind, id } => state_message(*kind, &shortened(id)),
        Refusal::HeadersTooLarge
        | Refusal::HeadInvalid(_)
        | Refusal::HeadTimeout
        | Refusal::HeadGaveWay
        | Refusal::BodyFramingInvalid
        | Refusal::BodyTimeout
        | Refusal::LengthRequired
        | Refusal::ExpectationUnknown
        | Refusal::UpgradeUnavailable
        | Refusal::UpgradeRemoved => transfer_message(refusal).to_owned(),
        Refusal::TooManyRunning => "The service has no room for another running request now. Try again shortly.".to_owned(),
        Refusal::BodyTooLarge { .. }
        | Refusal::BodyInvalid { .. }
        | Refusal::Untranslatable { .. }
        | Refusal::BodyEncodingUnsupported { .. }
        | Refusal::BodyEncodingInvalid { .. }
        | Refusal::BodyTooLargeDecoded { .. }
        | Refusal::BodyBudgetExhausted
        | Refusal::BodyShareUsed { .. }
        | Refusal::BodyWorkLimited => body_message(refusal),
        Refusal::Limited(limit) => limit.message(),
        Refusal::JournalFull => {
            "The service cannot record the use of this request now. Try again shortly.".to_owned()
        }
        Refusal::StoreUnavailable => "API keys cannot be checked now. Try again shortly.".to_owned(),
        Refusal::ProviderUnreachable => "The model's provider cannot be reached now. Try again shortly.".to_owned(),
        Refusal::ProviderTimeout => "The model's provider did not answer in time. Try again, or ask for a shorter answer.".to_owned(),
        Refusal::ProviderBroken => "The model's provider broke off its answer. Try again.".to_owned(),
        Refusal::ProviderRedirected { status } => format!(
            "The model's provider answered with a redirect (status {status}), which this service does not follow. Use another \
             model until the operator of this service has changed the provider's address."
        ),
        Refusal::ProviderCredentialRefused => {
            "The model's provider refused the credential of this service. The operator has been notified; try again later.".to_owned()
        }
        Refusal::Stopping => "The service is being restarted. Send the request again.".to_owned(),
        Refusal::Internal => "The service failed. Try again; if it fails again, report the request id.".to_owned(),
        Refusal::CountTokensBusy { concurrency } => format!(
            "This API key has reached its limit of {concurrency} concurrent token counts. Try again in a second."
        ),
        Refusal::ModelPathInvalid
        | Refusal::ModelNotAllowed { .. }
        | Refusal::NamedModelNotAllowed { .. }
        | Refusal::ModelUnknown { .. }
        | Refusal::ModelNotServed { .. }
        | Refusal::CountTokensUnsupported { .. }
        | Refusal::ProviderDisabled { .. } => model_message(refusal),
    }
}

/// Returns the message of a refusal that concerns the transfer of the request rather than its content.
fn transfer_message(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::UpgradeUnavailable => "No WebSocket can be opened here now. Send POST /v1/responses over HTTP.",
        Refusal::UpgradeRemoved => {
            "No WebSocket can be opened, because a proxy removed the upgrade header of the handshake. Send POST /v1/responses \
             over HTTP, or have the proxy pass the headers `upgrade` and `connection`."
        }
        Refusal::LengthRequired => "The length of the body is missing. Send a content-length header.",
        Refusal::BodyTimeout => "The request body did not arrive in time. Send the request again.",
        Refusal::ExpectationUnknown => {
            "The expect header has an unknown value. Send `Expect: 100-continue`, or leave the header out."
        }
        Refusal::HeadInvalid(fault) => fault.message(),
        Refusal::HeadTimeout => "The request's head did not arrive in time. Send the request again.",
        Refusal::HeadGaveWay => {
            "The service has no room for request headers of this size now. Try again shortly, or send fewer or shorter headers."
        }
        Refusal::BodyFramingInvalid => {
            "The chunked encoding of the request body is invalid. Send the body with a content-length."
        }
        _ => HeadFault::TooLarge.message(),
    }
}

fn usage_message(place: &str) -> String {
    format!(
        "`{place}` is not supported, because an answer and its usage must arrive on the connection of the request. Leave it out; \
         with `stream` the answer arrives piece by piece."
    )
}

/// Returns the message about state that the account has not created. It begins with the vendors' own wording, because some
/// clients react to that wording.
fn state_message(kind: StateKind, id: &str) -> String {
    let what = match kind {
        StateKind::Response => "Previous response".to_owned(),
        _ => {
            let noun = kind.noun();
            let (first, rest) = noun.split_at_checked(1).unwrap_or_default();
            format!("{}{rest}", first.to_uppercase())
        }
    };
    format!(
        "{what} with id '{id}' not found. `{}` can name only state that a key of the same account has created through this \
         service. Send the content of that state in the request itself.",
        kind.field_path()
    )
}

fn key_message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::CredentialMissing => "The request has no API key. Send it as `Authorization: Bearer KEY` \
            (Messages also `x-api-key: KEY`, Gemini-style instead `x-goog-api-key: KEY`)."
            .to_owned(),
        Refusal::CredentialAmbiguous => {
            "The request has more than one API key in the same place. Send one key in one header.".to_owned()
        }
        Refusal::BearerSchemeMissing => {
            "The header `authorization` has no API key, because its scheme `Bearer` is missing. Send \
            `Authorization: Bearer KEY`."
                .to_owned()
        }
        Refusal::KeyUnknown => {
            "The API key is not valid. Check that it was copied completely, or create a new one.".to_owned()
        }
        Refusal::KeyNotLookedUp { wait } => format!(
            "This API key was not looked up, because too many keys that do not exist were sent from your network, or to this \
            service as a whole. It may be valid. Please try again in {}s.",
            whole_seconds(*wait)
        ),
        Refusal::KeyRevoked => "The API key was revoked. Use another key.".to_owned(),
        Refusal::KeyReplaced => {
            "The API key was rotated, and this old secret no longer works. Use the new one.".to_owned()
        }
        _ => "The API key has expired. Have its expiry extended, or use another key.".to_owned(),
    }
}

fn model_message(refusal: &Refusal) -> String {
    match refusal {
        Refusal::ModelNotAllowed { model } => {
            format!(
                "This API key may not use {}. GET /v1/models lists the models it may use.",
                model_phrase(model)
            )
        }
        Refusal::NamedModelNotAllowed { model } => {
            format!(
                "The body asks the provider to run the {}, which this API key may not use. Leave this model out, or name one \
                 that GET /v1/models lists.",
                model_phrase(model)
            )
        }
        Refusal::ModelUnknown { model } => {
            format!(
                "There is no {}. GET /v1/models lists the models that this API key may use.",
                model_phrase(model)
            )
        }
        Refusal::ModelNotServed { model, protocols } => {
            let places: Vec<&str> = protocols.iter().map(|protocol| generation_path(*protocol)).collect();
            if places.is_empty() {
                format!(
                    "The {} is not available here. GET /v1/models lists the models.",
                    model_phrase(model)
                )
            } else {
                format!(
                    "The {} is not available at this path. Use {}.",
                    model_phrase(model),
                    places.join(" or ")
                )
            }
        }
        Refusal::CountTokensUnsupported { model, possible } => {
            let others = match possible.is_empty() {
                true => String::new(),
                false => format!(" They can be counted for {}.", possible.join(", ")),
            };
            format!(
                "Tokens cannot be counted for the {}. Estimate them, or read `usage` of an answer.{others}",
                model_phrase(model)
            )
        }
        Refusal::ProviderDisabled { model } => format!(
            "The provider of the {} is switched off. Use another model; GET /v1/models lists the available models.",
            model_phrase(model)
        ),
        _ => "The model in the path cannot be read. Use /v1beta/models/{model}:generateContent.".to_owned(),
    }
}

fn generation_path(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Messages => "POST /v1/messages",
        Protocol::Responses => "POST /v1/responses",
        Protocol::Gemini => "POST /v1beta/models/{model}:generateContent",
    }
}
