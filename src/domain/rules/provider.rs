//! Providers, as defined by their files and the configuration.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header::InvalidHeaderValue};

use crate::domain::{
    faults::retry::RetryPolicy,
    keys::secret::Secret,
    rules::{
        body::BodyRules,
        endpoint::{EndpointTemplates, Origin},
        error::ErrorRules,
        head::HeadEdits,
        pattern::matches,
        query::QueryEdits,
        raw::{ErrorMeaning, ErrorShape, OnClientGone, RefusalShape},
        secret_ref::MissingSecret,
    },
    wire::{
        operation::Operation,
        protocol::{ErrorForm, Protocol},
    },
};

/// One provider, compiled from its file; part of the catalogue.
#[derive(Debug)]
pub struct Provider {
    /// Its name in configuration, logs and metrics.
    pub name: String,
    /// The name for people.
    pub display_name: String,
    /// How the credential is sent.
    pub auth: Auth,
    /// The credentials whose secrets were found. Without any, the provider is off.
    pub credentials: Vec<Credential>,
    /// The secrets that were not found.
    pub missing_secrets: Vec<MissingSecret>,
    /// The URL of each operation that the provider serves.
    pub endpoints: EndpointTemplates,
    /// Backends that replace the endpoints' own scheme, host and port. Empty: those of the endpoints apply.
    pub origins: Vec<WeightedOrigin>,
    /// Time limits that differ from `[upstream]`.
    pub timeouts: ProviderTimeouts,
    /// Which answers lead to another attempt, how many attempts there are, and the pauses between them.
    pub retry: RetryPolicy,
    /// Whether error bodies pass unchanged or are rewritten.
    pub errors: ErrorShape,
    /// The form of weir's own refusals once this provider is chosen.
    pub refusals: RefusalShape,
    /// Errors whose status does not show their meaning.
    pub error_rules: ErrorRules,
    /// Whether the provider stores nothing of a Responses request that a later request could name.
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
    /// Whether it serves requests: it is not switched off and has a credential.
    pub fn is_on(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// Why the provider is off; `None` if it is on.
    pub fn why_off(&self) -> Option<String> {
        if self.is_on() {
            return None;
        }
        let name = &self.name;
        let places: Vec<String> = self.missing_secrets.iter().map(ToString::to_string).collect();
        Some(match places.as_slice() {
            [] => format!("weir.toml says `enabled = false` in [provider.{name}]"),
            places => format!("its secret {}", places.join(", ")),
        })
    }

    /// Whether an error of this status refuses the credential or its account. `body` is what [`ErrorRules::meaning`] takes.
    pub fn refuses_credential(&self, status: u16, body: Option<&[u8]>) -> bool {
        match self.error_rules.meaning(status, body) {
            Some(ErrorMeaning::CredentialRefused) => true,
            Some(ErrorMeaning::RequestRefused) => false,
            None => self.auth.refused_statuses.contains(&status),
        }
    }

    /// The form in which clients of a protocol get the provider's errors, and weir's own refusals once it is chosen.
    pub fn error_form(&self, protocol: Protocol) -> ErrorForm {
        match self.refusals {
            RefusalShape::NativeRoot if protocol == Protocol::Messages => ErrorForm::NativeRoot,
            RefusalShape::NativeRoot | RefusalShape::Protocol => ErrorForm::Of(protocol),
        }
    }

    /// The backends that share the load of an operation; empty if the provider does not serve the operation.
    pub fn origins_for(&self, operation: Operation) -> Vec<WeightedOrigin> {
        match self.endpoints.get(operation) {
            None => Vec::new(),
            Some(template) if self.origins.is_empty() => vec![WeightedOrigin::only(template.origin.clone())],
            Some(_) => self.origins.clone(),
        }
    }

    /// Hosts and ports of all backends.
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

    /// The protocols that it has endpoints for, in a fixed order. An endpoint for token counting alone does not count.
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
    /// Statuses by which the provider refuses the credential or its account, unless an error rule says otherwise.
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
    /// Makes a credential that is sent as `scheme` followed by `secret`.
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

/// One backend of a provider, with its weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedOrigin {
    /// Scheme, host and port.
    pub origin: Origin,
    /// Its share of the requests, at least 1.
    pub weight: u16,
    /// A path that is free to request and answers 200 while the backend works.
    pub health_path: Option<String>,
}

impl WeightedOrigin {
    /// The only backend, with weight 1.
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
    /// Whether it applies to a requested name. Upper and lower case are the same.
    pub fn applies_to(&self, protocol: Protocol, asked: &str) -> bool {
        let protocols = self.protocols.as_ref();
        let asked = asked.to_lowercase();
        protocols.is_none_or(|only| only.contains(&protocol))
            && self.patterns.iter().any(|pattern| matches(pattern, &asked))
    }
}

/// Timeouts of a provider. `None`: that of `[upstream]` applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderTimeouts {
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
