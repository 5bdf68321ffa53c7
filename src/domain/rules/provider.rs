//! Providers, as defined by their files and the configuration.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header::InvalidHeaderValue};

use crate::domain::{
    faults::retry::RetryPolicy,
    keys::secret::Secret,
    rules::{
        body::BodyRules,
        condition::matches,
        endpoint::{EndpointTemplates, Origin},
        head::{HeadEdits, QueryEdits},
        raw::{ErrorMeaning, ErrorShape, MissingSecret, OnClientGone, RefusalShape},
    },
    wire::{
        operation::Operation,
        protocol::{ErrorForm, Protocol, provider_error},
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

/// Recognises an error of the provider by its status and content. All given conditions have to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRule {
    /// The error's status.
    pub status: u16,
    /// A machine-readable word of the error: its code, type or status, or a reason in its details.
    pub code: Option<String>,
    /// A pattern for its message; `*` matches any text.
    pub message: Option<String>,
    /// A text that its body contains.
    pub contains: Option<String>,
    /// Whether it refuses the credential or the request.
    pub means: ErrorMeaning,
}

/// The `[[error]]` entries of one file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorRules(pub Vec<ErrorRule>);

impl ErrorRules {
    /// Whether the body of an error of this status has to be read to know the error's meaning.
    pub fn needs_body(&self, status: u16) -> bool {
        self.0.iter().any(|rule| rule.status == status)
    }

    /// The meaning of an error, by the first rule that matches. `body` is the decoded body as the provider sent it; `None` if
    /// it cannot be read.
    pub fn meaning(&self, status: u16, body: Option<&[u8]>) -> Option<ErrorMeaning> {
        if !self.needs_body(status) {
            return None;
        }
        let body = body?;
        let said = provider_error::read(body).unwrap_or_default();
        let fits = |rule: &&ErrorRule| {
            let code = rule.code.as_ref();
            let (message, contains) = (rule.message.as_deref(), rule.contains.as_deref());
            rule.status == status
                && code.is_none_or(|code| said.words.contains(code))
                && message.is_none_or(|pattern| said.message.as_ref().is_some_and(|said| matches(pattern, said)))
                && contains.is_none_or(|text| memchr::memmem::find(body, text.as_bytes()).is_some())
        };
        self.0.iter().find(fits).map(|rule| rule.means)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: ErrorRule = ErrorRule {
        status: 403,
        code: None,
        message: None,
        contains: None,
        means: ErrorMeaning::RequestRefused,
    };

    fn rules(rules: &[ErrorRule]) -> ErrorRules {
        ErrorRules(rules.to_vec())
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_code_is_a_whole_word_wherever_an_error_has_its_words() {
        let one = rules(&[ErrorRule {
            code: text("gone"),
            ..NONE
        }]);
        for body in [
            r#"{"error":{"code":"gone"}}"#,
            r#"{"error":{"type":"gone"}}"#,
            r#"{"error":{"status":"gone"}}"#,
            r#"{"code":"gone"}"#,
            r#"{"type":"gone","message":"m"}"#,
            r#"{"code":"gone","error":"m"}"#,
            r#"[{"error":{"details":[{"@type":"t"},{"reason":"gone"}]}}]"#,
            r#"{"error":{"details":{"error_code":"gone"}}}"#,
        ] {
            assert_eq!(one.meaning(403, Some(body.as_bytes())), Some(NONE.means), "{body}");
            assert_eq!(one.meaning(400, Some(body.as_bytes())), None, "{body}");
        }
        // What a client may have brought in is no word of the error.
        for body in [
            r#"{"error":{"code":"gone_by","message":"gone"}}"#,
            r#"{"error":{"code":"other","details":[{"field":"gone"}]}}"#,
            "gone",
            "",
        ] {
            assert_eq!(one.meaning(403, Some(body.as_bytes())), None, "{body}");
        }
        let number = rules(&[ErrorRule {
            code: text("1113"),
            ..NONE
        }]);
        for body in [r#"{"error":{"code":1113}}"#, r#"{"error":{"code":"1113"}}"#] {
            assert_eq!(number.meaning(403, Some(body.as_bytes())), Some(NONE.means), "{body}");
        }
    }

    #[test]
    fn a_message_fits_from_its_beginning_to_its_end() {
        let one = rules(&[ErrorRule {
            message: text("No access to the File * here."),
            ..NONE
        }]);
        let meaning = |message: &str| {
            let body = format!(r#"{{"error":{{"code":403,"message":"{message}"}}}}"#);
            one.meaning(403, Some(body.as_bytes()))
        };
        assert_eq!(meaning("No access to the File abc here."), Some(NONE.means));
        assert_eq!(meaning("Unknown name: No access to the File abc here."), None);
        assert_eq!(meaning("No access to the File abc here. Or so"), None);
    }

    #[test]
    fn the_first_rule_of_which_all_holds_says_it() {
        let several = rules(&[
            ErrorRule {
                code: text("a"),
                contains: text("both"),
                ..NONE
            },
            ErrorRule {
                contains: text("<html>"),
                means: ErrorMeaning::CredentialRefused,
                ..NONE
            },
        ]);
        for (body, means) in [
            (r#"{"code":"a","message":"both"}"#, Some(ErrorMeaning::RequestRefused)),
            (
                r#"{"code":"a","message":"<html>"}"#,
                Some(ErrorMeaning::CredentialRefused),
            ),
            (r#"{"code":"b","message":"both"}"#, None),
            ("<html>blocked</html>", Some(ErrorMeaning::CredentialRefused)),
        ] {
            assert_eq!(several.meaning(403, Some(body.as_bytes())), means, "{body}");
        }
        assert_eq!(several.meaning(403, None), None);
        assert!(several.needs_body(403) && !several.needs_body(401));
    }
}
