//! A provider file as written: the shapes that the strict parser fills.

mod edits;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

pub(crate) use self::edits::{RawBodyEdit, RawBodyOp, RawCondition, RawHeaders, RawQuery};
use crate::domain::{
    rules::secret_ref::SecretRef,
    settings::{flag, list_of, map_of, one_of, settings, text, within},
    wire::protocol::Protocol,
};

mod resilience;

pub(crate) use resilience::{
    ErrorMeaning, RawCredential, RawErrorRule, RawFallback, RawOrigin, RawRetry, RefusalShape,
};

/// One provider file, parsed but not yet checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawProvider {
    /// The provider's name in configuration, logs and metrics.
    pub name: Spanned<String>,
    /// The name for people; without it, `name`.
    pub display_name: Option<String>,
    /// How weir identifies itself to the provider.
    pub auth: RawAuth,
    /// Where each operation is served.
    pub endpoints: RawEndpoints,
    /// Time limits that differ from `[upstream]`.
    #[serde(default)]
    pub timeouts: RawTimeouts,
    /// Several secrets that share the load, instead of `auth.secret`.
    #[serde(default)]
    pub credential: Vec<Spanned<RawCredential>>,
    /// Several backends that serve the same models; they replace the endpoints' scheme, host and port.
    #[serde(default)]
    pub origin: Vec<Spanned<RawOrigin>>,
    /// When and how often a failed request is sent again.
    #[serde(default)]
    pub retry: RawRetry,
    /// How the provider's error bodies reach the client.
    #[serde(default)]
    pub errors: ErrorShape,
    /// The shape of errors and of weir's own refusals once this provider is chosen.
    #[serde(default)]
    pub refusals: RefusalShape,
    /// The meaning of errors whose status does not show it.
    #[serde(default)]
    pub error: Vec<Spanned<RawErrorRule>>,
    /// Whether it stores nothing of a Responses request that a later request could name.
    #[serde(default)]
    pub stateless: bool,
    /// The model that answers for unknown names of a family.
    pub fallback: Option<Spanned<RawFallback>>,
    /// What happens to an answer after its client has disconnected.
    #[serde(default)]
    pub on_client_gone: OnClientGone,
    /// Edits of the request's headers.
    #[serde(default)]
    pub headers: RawHeaders,
    /// Edits of the request's query.
    #[serde(default)]
    pub query: RawQuery,
    /// Edits of the request's body, in order.
    #[serde(default)]
    pub body: Vec<Spanned<RawBodyEdit>>,
    /// Edits of the answer's body, in order.
    #[serde(default)]
    pub response: Vec<Spanned<RawBodyEdit>>,
    /// The provider's models.
    #[serde(default)]
    pub model: Vec<Spanned<RawModel>>,
}

/// `[auth]`: the secret, by reference, and the header that carries it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuth {
    /// Where the secret is; without it, `[[credential]]` lists several.
    pub secret: Option<SecretRef>,
    /// One of the usual headers; instead of it, `header` names another.
    pub style: Option<AuthStyle>,
    /// A header that carries the bare secret.
    pub header: Option<Spanned<String>>,
    /// Statuses by which the provider refuses the credential or its account; without it, 401, 402 and 403.
    pub refused_statuses: Option<Spanned<Vec<u16>>>,
}

/// The usual ways to send a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum AuthStyle {
    /// `x-api-key: SECRET`
    #[serde(rename = "x-api-key")]
    XApiKey,
    /// `authorization: Bearer SECRET`
    #[serde(rename = "bearer")]
    Bearer,
    /// `x-goog-api-key: SECRET`
    #[serde(rename = "x-goog-api-key")]
    XGoogApiKey,
}

/// `[endpoints]`: a URL per operation; absent means not served. `{model}` stands for the upstream model name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEndpoints {
    /// `POST /v1/messages`
    pub messages: Option<Spanned<String>>,
    /// `POST /v1/messages/count_tokens`
    pub count_tokens: Option<Spanned<String>>,
    /// `POST /v1/responses`
    pub responses: Option<Spanned<String>>,
    /// `:generateContent`
    pub generate_content: Option<Spanned<String>>,
    /// `:streamGenerateContent`
    pub stream_generate_content: Option<Spanned<String>>,
    /// `:countTokens`
    pub gemini_count_tokens: Option<Spanned<String>>,
}

/// `[timeouts]`, each at least 1; see `[upstream]` of weir.toml for what they limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTimeouts {
    /// Until the connection is established, in milliseconds.
    pub connect_ms: Option<Spanned<u32>>,
    /// Until the first byte of a streamed answer, in seconds.
    pub first_byte_seconds: Option<Spanned<u32>>,
    /// Until the first byte of any other answer, in seconds.
    pub first_byte_unary_seconds: Option<Spanned<u32>>,
    /// Between two reads, in seconds.
    pub idle_seconds: Option<Spanned<u32>>,
    /// From the first attempt to the last byte, in seconds.
    pub total_seconds: Option<Spanned<u32>>,
}

/// How a provider's error bodies reach the client, after anything that resembles a credential is masked (docs/interface.md,
/// Errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorShape {
    /// They pass byte for byte if they have the form that the client expects, and are rewritten into that form if not.
    #[default]
    Native,
    /// They are always rewritten into that form.
    Reshape,
}

/// What happens to an answer after its client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientGoneAction {
    /// The provider's connection is closed at once.
    Abort,
    /// The answer is read to its end, within `[upstream] client_gone_finish_*`, so that its usage is known.
    Finish,
}

/// `[on_client_gone]`; the default of a missing key depends on the answer and its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnClientGone {
    /// For streamed answers.
    pub stream: Option<ClientGoneAction>,
    /// For answers in one piece.
    pub unary: Option<ClientGoneAction>,
}

impl OnClientGone {
    /// What happens to an answer, streamed or in one piece, whose client has disconnected. By default, answers in one piece and
    /// streams of a model with `hidden_reasoning` are read to their end, because usually only their end reports the usage. The
    /// usage of other streams is known from the content that has arrived.
    pub fn action(&self, stream: bool, hidden_reasoning: bool) -> ClientGoneAction {
        let (given, default) = match (stream, hidden_reasoning) {
            (true, false) => (self.stream, ClientGoneAction::Abort),
            (true, true) => (self.stream, ClientGoneAction::Finish),
            (false, _) => (self.unary, ClientGoneAction::Finish),
        };
        given.unwrap_or(default)
    }
}

settings! {
    /// `[[model]]`, in a provider file (without `providers`) and in weir.toml (with it).
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RawModel {
        /// The public name, by which clients request the model.
        name: String = text().example("house-model").stand_in(String::new()),
        /// The name for people. Without it: the public name.
        display_name: Option<String> = text().optional("House Model"),
        /// Other names by which clients may request it.
        #[serde(default)]
        aliases: Vec<String> = list_of(text()).unset(Vec::new()).example(vec!["house"]),
        /// The providers that serve it, the preferred one first. The others take over when it fails before the first byte of an
        /// answer ([retry]), and immediately while it is known to fail. Only in weir.toml.
        #[serde(default)]
        providers: Vec<String> = list_of(text()).unset(Vec::new()).example(vec!["anthropic"]),
        /// The provider's name for it. Without it: the public name.
        upstream_name: Option<String> = text().optional("claude-haiku-4-5"),
        /// The names at single providers that differ from `upstream_name`. Only in weir.toml.
        #[serde(default)]
        upstream_names: BTreeMap<String, String> = map_of(text())
            .unset(BTreeMap::new())
            .example(BTreeMap::from([("anthropic".to_owned(), "claude-haiku-4-5")])),
        /// The protocols it is served through: messages, responses, gemini. Without it: all protocols of its provider.
        protocols: Option<Vec<Protocol>> =
            list_of(one_of("protocol", Protocol::ALL.map(|protocol| (protocol.as_str(), protocol)))).optional(vec!["messages"]),
        /// Maximum number of input tokens.
        context_tokens: Option<u64> = within(1..=1_000_000_000_u64).optional(200_000),
        /// Maximum number of output tokens.
        output_tokens: Option<u64> = within(1..=1_000_000_000_u64).optional(64_000),
        /// The name of its price. Without it: the model's own name. weir refuses a model that has no price at an enabled
        /// provider.
        price: Option<String> = text().optional("claude-haiku-4-5"),
        /// Whether it costs nothing.
        #[serde(default)]
        free: bool = flag(false),
        /// Whether it may reason without showing the reasoning. Only the usage at the end of an answer then reports all that
        /// was generated, so its streams are read to their end when the client leaves.
        #[serde(default)]
        hidden_reasoning: bool = flag(false),
        /// When it was released: a date or an RFC 3339 time.
        created: Option<String> = text().optional("2026-11-21"),
    }
}
