//! Providers, as their provider files and weir.toml define them.

use std::time::Duration;

use http::{HeaderName, HeaderValue, header::InvalidHeaderValue};

use crate::domain::{
    faults::RetryPolicy,
    keys::secret::Secret,
    rules::{
        body::BodyRules,
        condition::matches,
        endpoint::{EndpointTemplates, Origin},
        head::{HeadEdits, QueryEdits},
        raw::{ErrorMeaning, ErrorShape, MissingSecret, OnClientGone, RefusalShape},
    },
    translation::ChatTraits,
    wire::{
        UpstreamProtocol,
        operation::{Operation, UpstreamOperation},
        protocol::{ErrorForm, Protocol, provider_error},
    },
};

/// A provider of the catalogue, compiled from its provider file.
#[derive(Debug)]
pub struct Provider {
    /// The provider's name in configuration, logs and metrics.
    pub name: String,
    /// The provider's name as displayed to users.
    pub display_name: String,
    /// How weir sends a credential to the provider.
    pub auth: Auth,
    /// The credentials whose secrets were found. If there are none, the provider is off.
    pub credentials: Vec<Credential>,
    /// The provider's secrets that weir could not read, because their sources are absent or empty.
    pub missing_secrets: Vec<MissingSecret>,
    /// The URL of each operation that the provider serves.
    pub endpoints: EndpointTemplates,
    /// The backends whose scheme, host and port replace those of the endpoints. If there are none, the endpoints keep their own
    /// scheme, host and port.
    pub origins: Vec<WeightedOrigin>,
    /// The timeouts that replace those of `[upstream]` in weir.toml.
    pub timeouts: ProviderTimeouts,
    /// The statuses after which a request is sent again, the number of attempts, and the pauses between them.
    pub retry: RetryPolicy,
    /// Whether the provider's error bodies reach the client unchanged or rewritten.
    pub errors: ErrorShape,
    /// The shape of the errors that clients get for requests to this provider, including weir's own refusals.
    pub refusals: RefusalShape,
    /// The rules that determine the meaning of an error if its status is not sufficient.
    pub error_rules: ErrorRules,
    /// Whether the provider is stateless: it does not store Responses requests, so later requests cannot refer to them.
    pub stateless: bool,
    /// The model that serves requests for unlisted names of a model family.
    pub fallback: Option<Fallback>,
    /// Whether an answer is read to its end after its client has disconnected.
    pub on_client_gone: OnClientGone,
    /// Edits of the request's headers.
    pub headers: HeadEdits,
    /// Edits of the request's query.
    pub query: QueryEdits,
    /// Edits of the request's body.
    pub body: BodyRules,
    /// Edits of the answer's body.
    pub response: BodyRules,
    /// The differences between the provider's `chat/completions` endpoint and the common form.
    pub(crate) chat: ChatTraits,
}

impl Provider {
    /// Whether the provider serves requests: it has a credential, and weir.toml does not disable it.
    pub fn is_on(&self) -> bool {
        !self.credentials.is_empty()
    }

    /// Returns the reason why the provider is off; `None` if it is on.
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

    /// Whether an error with this status means that the provider refuses the credential or its account. `body` is the error's
    /// body, as for [`ErrorRules::meaning`].
    pub fn refuses_credential(&self, status: u16, body: Option<&[u8]>) -> bool {
        match self.error_rules.meaning(status, body) {
            Some(ErrorMeaning::CredentialRefused) => true,
            Some(ErrorMeaning::RequestRefused) => false,
            None => self.auth.refused_statuses.contains(&status),
        }
    }

    /// Returns the form of the errors that clients of a protocol get for requests to this provider, including weir's own
    /// refusals.
    pub fn error_form(&self, protocol: Protocol) -> ErrorForm {
        match self.refusals {
            RefusalShape::NativeRoot if protocol == Protocol::Messages => ErrorForm::NativeRoot,
            RefusalShape::NativeRoot | RefusalShape::Protocol => ErrorForm::Of(protocol),
        }
    }

    /// Returns the backends that share the requests for an operation; none if the provider does not serve the operation.
    pub fn origins_for(&self, operation: impl Into<UpstreamOperation>) -> Vec<WeightedOrigin> {
        match self.endpoints.get(operation) {
            None => Vec::new(),
            Some(template) if self.origins.is_empty() => vec![WeightedOrigin::only(template.origin.clone())],
            Some(_) => self.origins.clone(),
        }
    }

    /// Returns the host and port of each backend of the provider.
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

    /// Returns the operation to which requests in other protocols are translated. Of the operations that the provider serves, it
    /// is the one for which a translation loses the least reasoning and the fewest tools. For Gemini, it is always the streaming
    /// operation. `None` if the provider has no endpoint that generates answers.
    pub(crate) fn translation_operation(&self) -> Option<UpstreamOperation> {
        let preferred = [
            UpstreamOperation::Client(Operation::Messages),
            UpstreamOperation::Client(Operation::Responses),
            UpstreamOperation::Client(Operation::StreamGenerateContent),
            UpstreamOperation::ChatCompletions,
        ];
        preferred
            .into_iter()
            .find(|operation| self.endpoints.get(*operation).is_some())
    }

    /// Returns the protocols in which the provider serves requests, in a fixed order. A protocol whose only endpoint counts
    /// tokens is not included.
    pub fn protocols(&self) -> Vec<Protocol> {
        let generates = |protocol: &Protocol| {
            self.endpoints.iter().any(|(operation, _)| {
                operation.protocol() == UpstreamProtocol::from(*protocol) && !operation.is_token_count()
            })
        };
        [Protocol::Messages, Protocol::Responses, Protocol::Gemini]
            .into_iter()
            .filter(generates)
            .collect()
    }
}

/// How a credential is sent to a provider: in the header `header`, as `scheme` followed by the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// The name of the header that contains the credential.
    pub header: HeaderName,
    /// The text before the secret, including its space: `"Bearer "`, or empty.
    pub scheme: &'static str,
    /// The statuses with which the provider refuses the credential or its account, unless an error rule states another meaning.
    pub refused_statuses: Vec<u16>,
}

/// One credential of a provider.
#[derive(Clone, Debug)]
pub struct Credential {
    /// The credential's name in logs and metrics.
    pub name: String,
    /// The credential's share of the requests, relative to the other credentials; at least 1.
    pub weight: u16,
    /// The secret. It contains only characters that are valid in a header.
    pub secret: Secret,
    /// The value of the header that contains the credential, marked as sensitive.
    pub header: HeaderValue,
}

impl Credential {
    /// Creates a credential that is sent as `scheme` followed by `secret`.
    ///
    /// # Errors
    /// The secret contains characters that a header cannot have.
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

/// One backend of a provider, with its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WeightedOrigin {
    /// The backend's scheme, host and port.
    pub origin: Origin,
    /// The backend's share of the requests, relative to the other backends; at least 1.
    pub weight: u16,
    /// The path of a health check. A request to this path costs nothing, and a working backend answers it with status 200. `None`
    /// means that the check only establishes a connection.
    pub health_path: Option<String>,
}

impl WeightedOrigin {
    /// Returns `origin` as the only backend of a provider, with weight 1.
    pub fn only(origin: Origin) -> Self {
        Self {
            origin,
            weight: 1,
            health_path: None,
        }
    }
}

/// The model that serves requests for unlisted names of a model family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// Patterns for the names of the family, in lower case; `*` matches any text.
    pub patterns: Vec<String>,
    /// The public name of the model that serves the requests.
    pub model: String,
    /// The protocols of the requests to which the fallback applies; `None` means all protocols.
    pub protocols: Option<Vec<Protocol>>,
}

impl Fallback {
    /// Whether the fallback applies to requests for the model name `asked` in this protocol. The name is compared without regard
    /// to case.
    pub fn applies_to(&self, protocol: Protocol, asked: &str) -> bool {
        let protocols = self.protocols.as_ref();
        let asked = asked.to_lowercase();
        protocols.is_none_or(|only| only.contains(&protocol))
            && self.patterns.iter().any(|pattern| matches(pattern, &asked))
    }
}

/// A provider's own timeouts. If one is `None`, the timeout of `[upstream]` in weir.toml applies instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProviderTimeouts {
    /// The timeout for establishing a connection.
    pub connect: Option<Duration>,
    /// The timeout for the first byte of a streamed answer.
    pub first_byte: Option<Duration>,
    /// The timeout for the first byte of a non-streaming answer.
    pub first_byte_unary: Option<Duration>,
    /// The timeout between two reads of the answer.
    pub idle: Option<Duration>,
    /// The timeout from the first attempt to the last byte of the answer.
    pub total: Option<Duration>,
}

/// A rule that states the meaning of a provider's errors with a certain status and content. All conditions that are not `None`
/// must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRule {
    /// The status that the error must have.
    pub status: u16,
    /// A value that the error must have as its code, type or status, or as a reason in its details.
    pub code: Option<String>,
    /// A pattern that the error's message must match; `*` matches any text.
    pub message: Option<String>,
    /// A string that the error's body must contain.
    pub contains: Option<String>,
    /// The meaning of the errors that match: the provider refuses the credential or the request.
    pub means: ErrorMeaning,
}

/// The `[[error]]` rules of a provider file, in the file's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorRules(pub Vec<ErrorRule>);

impl ErrorRules {
    /// Whether the meaning of an error with this status depends on its body.
    pub fn needs_body(&self, status: u16) -> bool {
        self.0.iter().any(|rule| rule.status == status)
    }

    /// Returns the meaning of an error, as the first matching rule states it; `None` if no rule matches. `body` is the decoded
    /// body as the provider sent it; `None` if it cannot be read.
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
        // Text that a client may have sent is not one of the error's machine-readable values.
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
