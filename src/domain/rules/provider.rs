//! A provider, as its file and the configuration define it.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header::InvalidHeaderValue};

use crate::domain::{
    faults::retry::RetryPolicy,
    keys::secret::Secret,
    rules::{
        body::BodyRules,
        endpoint::{Endpoints, Origin},
        error::ErrorRules,
        head::HeadEdits,
        pattern::matches,
        query::QueryEdits,
        raw::{ErrorMeaning, ErrorShape, OnClientGone, RefusalShape},
        secret_ref::LackingSecret,
    },
    wire::{
        operation::Operation,
        protocol::{ErrorForm, Protocol},
    },
};

/// One provider. Compiled from its file; part of the catalogue.
#[derive(Debug)]
pub struct Provider {
    /// Its name in configuration, logs and metrics.
    pub name: String,
    /// The human-readable name.
    pub display_name: String,
    /// How the credential is sent.
    pub auth: Auth,
    /// The secrets that were found. Without any the provider is off.
    pub credentials: Vec<Credential>,
    /// Where secrets were looked for and not found.
    pub lacking_secrets: Vec<LackingSecret>,
    /// The URL of each operation that it serves.
    pub endpoints: Endpoints,
    /// Places that serve the same, in the place of the endpoints' own; empty: those of the endpoints.
    pub origins: Vec<WeightedOrigin>,
    /// Time limits that differ from `[upstream]`.
    pub timeouts: Timeouts,
    /// Which answers lead to another attempt, how often and after which pause.
    pub retry: RetryPolicy,
    /// Whether its error bodies pass or are reshaped.
    pub errors: ErrorShape,
    /// The form of weir's own refusals once this provider is chosen.
    pub refusals: RefusalShape,
    /// Errors that mean something else than their status says.
    pub error_rules: ErrorRules,
    /// Whether it keeps nothing of a Responses request that a later one could name.
    pub stateless: bool,
    /// The model that answers for unknown names of a family.
    pub fallback: Option<Fallback>,
    /// Whether an answer is read to its end after the client has disconnected.
    pub on_client_gone: OnClientGone,
    /// Edits of the request's headers.
    pub headers: HeadEdits,
    /// Edits of the request's query.
    pub query: QueryEdits,
    /// Edits of the request's body.
    pub body: BodyRules,
    /// Edits of the answer's body.
    pub response: BodyRules,
}

impl Provider {
    /// Whether it serves: it is not switched off and has a secret.
    pub fn is_on(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// Why it is off and what to do; `None` if it is on.
    pub fn why_off(&self) -> Option<String> {
        if self.is_on() {
            return None;
        }
        let name = &self.name;
        let places: Vec<String> = self.lacking_secrets.iter().map(ToString::to_string).collect();
        Some(match places.as_slice() {
            [] => format!("weir.toml says `enabled = false` in [provider.{name}]"),
            places => format!("its secret {}", places.join(", ")),
        })
    }

    /// Whether an error of this status refuses the credential or its account. `body` is its text as [`ErrorRules::meaning`]
    /// reads it.
    pub fn refuses_credential(&self, status: u16, body: Option<&[u8]>) -> bool {
        match self.error_rules.meaning(status, body) {
            Some(ErrorMeaning::CredentialRefused) => true,
            Some(ErrorMeaning::RequestRefused) => false,
            None => self.auth.refused_statuses.contains(&status),
        }
    }

    /// The form in which clients of a protocol get its errors, and weir's own refusals about it.
    pub fn error_form(&self, protocol: Protocol) -> ErrorForm {
        match self.refusals {
            RefusalShape::NativeRoot if protocol == Protocol::Messages => ErrorForm::NativeRoot,
            RefusalShape::NativeRoot | RefusalShape::Protocol => ErrorForm::Of(protocol),
        }
    }

    /// The places where an operation is served, to share the load between; empty where it is not served.
    pub fn origins_of(&self, operation: Operation) -> Vec<WeightedOrigin> {
        match self.endpoints.of(operation) {
            None => Vec::new(),
            Some(template) if self.origins.is_empty() => vec![WeightedOrigin::only(template.origin.clone())],
            Some(_) => self.origins.clone(),
        }
    }

    /// Hosts and ports of all its places.
    pub fn hosts(&self) -> Vec<(String, u16)> {
        let own = self.endpoints.iter().map(|(_, template)| &template.origin);
        let all: Vec<&Origin> = if self.origins.is_empty() {
            own.collect()
        } else {
            self.origins.iter().map(|place| &place.origin).collect()
        };
        all.into_iter()
            .map(|origin| (origin.host.clone(), origin.port))
            .collect()
    }

    /// The protocols that it has endpoints for, in a fixed order. Token counting alone does not count.
    pub fn protocols(&self) -> Vec<Protocol> {
        let generates = |protocol: &Protocol| {
            self.endpoints.iter().any(|(operation, _)| {
                let counts = matches!(operation, Operation::CountTokens | Operation::GeminiCountTokens);
                operation.protocol() == *protocol && !counts
            })
        };
        [Protocol::Messages, Protocol::Responses, Protocol::Gemini]
            .into_iter()
            .filter(generates)
            .collect()
    }
}

/// How the credential is sent: `header: scheme secret`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The header that carries it.
    pub header: HeaderName,
    /// The text before the secret, with its space: `"Bearer "` or empty.
    pub scheme: &'static str,
    /// Statuses by which the provider refuses the credential or its account, unless an error rule knows better.
    pub refused_statuses: Vec<u16>,
}

/// One credential of a provider.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its share of the requests, at least 1.
    pub weight: u16,
    /// The secret, checked to be valid in a header.
    pub secret: Secret,
    /// The value of the header that carries it, marked as sensitive.
    pub header: HeaderValue,
}

impl Credential {
    /// A credential that is sent as `scheme` and `secret`.
    ///
    /// # Errors
    /// The secret cannot be sent in a header.
    pub fn new(name: String, weight: u16, scheme: &str, secret: Secret) -> Result<Self, InvalidHeaderValue> {
        let mut header = HeaderValue::try_from([scheme, secret.expose()].concat())?;
        header.set_sensitive(true);
        Ok(Self {
            name,
            weight,
            secret,
            header,
        })
    }
}

/// One of the places where a provider serves, with its weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedOrigin {
    /// Scheme, host and port.
    pub origin: Origin,
    /// Its share of the requests, at least 1.
    pub weight: u16,
    /// A free path that answers 200 while the place works.
    pub health_path: Option<String>,
}

impl WeightedOrigin {
    /// A single place, with weight 1.
    pub fn only(origin: Origin) -> Self {
        Self {
            origin,
            weight: 1,
            health_path: None,
        }
    }
}

/// The model that answers for unknown names of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Patterns of names in lower case; `*` matches any text.
    pub patterns: Vec<String>,
    /// The public name of the model that answers.
    pub model: String,
    /// The protocols that it applies to; `None` for all.
    pub protocols: Option<Vec<Protocol>>,
}

impl Fallback {
    /// Whether it applies to this name, in upper or lower case.
    pub fn fits(&self, protocol: Protocol, asked: &str) -> bool {
        let protocols = self.protocols.as_ref();
        let asked = asked.to_lowercase();
        protocols.is_none_or(|only| only.contains(&protocol))
            && self.patterns.iter().any(|pattern| matches(pattern, &asked))
    }
}

/// Time limits of a provider. `None` means that of `[upstream]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// For establishing the connection.
    pub connect: Option<Duration>,
    /// To the first byte of a streamed answer.
    pub first_byte: Option<Duration>,
    /// To the first byte of an answer in one piece.
    pub first_byte_unary: Option<Duration>,
    /// Between two reads of the answer.
    pub idle: Option<Duration>,
    /// From the first attempt to the last byte.
    pub total: Option<Duration>,
}
