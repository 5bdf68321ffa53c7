//! One provider, as its file and weir.toml have it.

use std::time::Duration;

use http::HeaderName;

use crate::domain::{
    catalogue::SecretRef,
    operation::Operation,
    protocol::{ErrorForm, Protocol},
    retry::RetryPolicy,
    rules::{
        body::BodyRules,
        endpoint::{Endpoints, Origin},
        error::ErrorRules,
        head::HeadEdits,
        query::QueryEdits,
        raw::{ErrorMeaning, ErrorShape, OnClientGone, RefusalShape},
    },
    secret::Secret,
};

/// One provider, ready to serve.
#[derive(Debug)]
pub struct Provider {
    /// Its name in configuration, logs and metrics.
    pub name: String,
    /// Its name for people.
    pub display_name: String,
    /// How weir identifies itself.
    pub auth: Auth,
    /// The secrets that are there; with none of them the provider is off.
    pub credentials: Vec<Credential>,
    /// Where secrets were looked for that are not there.
    pub absent_secrets: Vec<SecretRef>,
    /// Where each operation is served.
    pub endpoints: Endpoints,
    /// Places that serve the same, in the place of the endpoints' own; empty: those of the endpoints.
    pub origins: Vec<WeightedOrigin>,
    /// Time limits that differ from `[upstream]`.
    pub timeouts: Timeouts,
    /// What is tried again.
    pub retry: RetryPolicy,
    /// What becomes of its error bodies.
    pub errors: ErrorShape,
    /// The shape of all that is no answer, once this provider is chosen.
    pub refusals: RefusalShape,
    /// Errors that do not mean what their status says.
    pub error_rules: ErrorRules,
    /// Which model answers for names of the family that nobody knows.
    pub fallback: Option<Fallback>,
    /// What happens to a request whose client has left.
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
    /// Whether it serves: not switched off, and a secret is there.
    pub fn is_on(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// Why it is off, and what to do about it; `None` for one that is on.
    pub fn why_off(&self) -> Option<String> {
        if self.is_on() {
            return None;
        }
        let name = &self.name;
        let places: Vec<String> = self.absent_secrets.iter().map(ToString::to_string).collect();
        Some(match places.as_slice() {
            [] => format!("weir.toml says `enabled = false` in [provider.{name}]"),
            places => format!("its secret {} is absent", places.join(" or ")),
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

    /// The protocols it has endpoints of, in a fixed order. Counting tokens alone is no service.
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

/// How weir identifies itself to a provider: `header: scheme secret`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The header.
    pub header: HeaderName,
    /// What stands before the secret, with its space: `"Bearer "` or nothing.
    pub scheme: &'static str,
    /// Statuses by which the provider refuses the credential or its account, unless an error rule knows better.
    pub refused_statuses: Vec<u16>,
}

/// One of a provider's secrets.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Its name in logs and metrics.
    pub name: String,
    /// Its share of the requests, at least 1.
    pub weight: u16,
    /// The secret; checked to be a header value.
    pub secret: Secret,
}

/// One of the places where a provider serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedOrigin {
    /// The place.
    pub origin: Origin,
    /// Its share of the requests, at least 1.
    pub weight: u16,
    /// A path that costs nothing and answers 200 while the place works.
    pub health_path: Option<String>,
}

impl WeightedOrigin {
    /// A place that shares with none.
    pub fn only(origin: Origin) -> Self {
        Self {
            origin,
            weight: 1,
            health_path: None,
        }
    }
}

/// Which model answers for names that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The names; `*` stands for any text.
    pub patterns: Vec<String>,
    /// The public name of the model that answers.
    pub model: String,
    /// Only for requests of these protocols.
    pub protocols: Option<Vec<Protocol>>,
}

impl Fallback {
    /// Whether it answers for a name.
    pub fn fits(&self, protocol: Protocol, asked: &str) -> bool {
        let protocols = self.protocols.as_ref();
        protocols.is_none_or(|only| only.contains(&protocol))
            && self.patterns.iter().any(|pattern| matches(pattern, asked))
    }
}

/// Whether a pattern fits a text: `*` stands for any text, everything else for itself.
pub(in crate::domain) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(first) else {
        return false;
    };
    let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*') {
        // The earliest place leaves the most for what follows.
        match left.split_once(part) {
            Some((_, after)) => left = after,
            None => return false,
        }
    }
    left.ends_with(last)
}

/// Time limits of a provider; `None`: those of `[upstream]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the connection stands.
    pub connect: Option<Duration>,
    /// Until the first byte of a streamed answer.
    pub first_byte: Option<Duration>,
    /// Until the first byte of any other answer.
    pub first_byte_unary: Option<Duration>,
    /// Between two reads.
    pub idle: Option<Duration>,
    /// From the first attempt to the last byte.
    pub total: Option<Duration>,
}
