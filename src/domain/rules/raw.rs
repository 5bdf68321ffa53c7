//! The content of a provider file as written. This module has a type for each table of the file. The strict TOML parser creates
//! the values of these types. The types for conditions, header edits and query edits are in the modules of the corresponding
//! compiled types.

use std::{collections::BTreeMap, fmt, marker::PhantomData, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use toml::Spanned;

use crate::domain::{
    rules::{
        condition::RawCondition,
        head::{RawHeaders, RawQuery},
    },
    settings::{SettingFault, SettingKind, flag, list_of, map_of, one_of, settings, text, within},
    translation::{ChatReasoning, ChatTraits, ReasoningBack, call_ids::CallIdForm, losses::TranslationMode},
    wire::{UpstreamProtocol, protocol::Protocol},
};

/// One provider file, parsed but not yet checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawProvider {
    /// The provider's name in configuration, logs and metrics.
    pub name: Spanned<String>,
    /// The name displayed to users; if it is `None`, `name` is displayed.
    pub display_name: Option<String>,
    /// How weir authenticates to the provider: a secret, and the header that contains it.
    pub auth: RawAuth,
    /// The URL of each operation that the provider serves.
    pub endpoints: RawEndpoints,
    /// The differences between the provider's `chat/completions` endpoint and the common form.
    #[serde(default)]
    pub chat: RawChat,
    /// Timeouts that replace those of `[upstream]` in weir.toml.
    #[serde(default)]
    pub timeouts: RawTimeouts,
    /// Several credentials that share the requests, instead of `auth.secret`.
    #[serde(default)]
    pub credential: Vec<Spanned<RawCredential>>,
    /// Several backends that serve the same models. They replace the scheme, host and port of the endpoints.
    #[serde(default)]
    pub origin: Vec<Spanned<RawOrigin>>,
    /// When and how often weir sends a failed request to the provider again.
    #[serde(default)]
    pub retry: RawRetry,
    /// Whether the provider's error bodies reach the client unchanged or rewritten.
    #[serde(default)]
    pub errors: ErrorShape,
    /// The shape of the errors that clients get for requests to this provider, including weir's own refusals.
    #[serde(default)]
    pub refusals: RefusalShape,
    /// Rules that determine the meaning of an error if its status is not sufficient.
    #[serde(default)]
    pub error: Vec<Spanned<RawErrorRule>>,
    /// Whether the provider is stateless: it does not store Responses requests, so later requests cannot refer to them.
    #[serde(default)]
    pub stateless: bool,
    /// The model that serves requests for unlisted names of a model family.
    pub fallback: Option<Spanned<RawFallback>>,
    /// Whether an answer is read to its end after its client has disconnected.
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

/// `[auth]`: the secret, by reference, and the header that contains it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAuth {
    /// The reference to the secret; `None` if `[[credential]]` lists several.
    pub secret: Option<SecretRef>,
    /// The usual header to send the secret in; `None` if `header` names another one.
    pub style: Option<AuthStyle>,
    /// The name of the header whose value is the secret without a prefix; `None` if `style` is given.
    pub header: Option<Spanned<String>>,
    /// The statuses with which the provider refuses the credential or its account. If this is `None`, they are 401, 402 and 403.
    pub refused_statuses: Option<Spanned<Vec<u16>>>,
}

/// The usual headers in which providers expect the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum AuthStyle {
    /// The header `x-api-key: SECRET`.
    #[serde(rename = "x-api-key")]
    XApiKey,
    /// The header `authorization: Bearer SECRET`.
    #[serde(rename = "bearer")]
    Bearer,
    /// The header `x-goog-api-key: SECRET`.
    #[serde(rename = "x-goog-api-key")]
    XGoogApiKey,
}

/// `[endpoints]`: the URL of each operation; `None` for an operation that the provider does not serve. In a request, `{model}` in
/// the URL is replaced by the provider's name for the model.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEndpoints {
    /// The URL for `POST /v1/messages`.
    pub messages: Option<Spanned<String>>,
    /// The URL for `POST /v1/messages/count_tokens`.
    pub count_tokens: Option<Spanned<String>>,
    /// The URL for `POST /v1/responses`, or a table with that URL and `websocket`.
    pub responses: Option<Spanned<RawResponsesEndpoint>>,
    /// The URL for `:generateContent`.
    pub generate_content: Option<Spanned<String>>,
    /// The URL for `:streamGenerateContent`.
    pub stream_generate_content: Option<Spanned<String>>,
    /// The URL for `:countTokens`.
    pub gemini_count_tokens: Option<Spanned<String>>,
    /// The URL for `POST .../chat/completions`, which only translated requests use.
    pub chat_completions: Option<Spanned<String>>,
}

/// `responses` in `[endpoints]`: a URL, or the table `[endpoints.responses]`.
#[derive(Debug)]
pub(crate) struct RawResponsesEndpoint {
    /// The URL for `POST /v1/responses`.
    pub url: String,
    /// Whether the provider also serves Responses over WebSocket at this URL.
    pub websocket: bool,
}

impl<'de> Deserialize<'de> for RawResponsesEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct EndpointTable {
            url: String,
            #[serde(default)]
            websocket: bool,
        }

        struct UrlOrTable;
        impl<'de> Visitor<'de> for UrlOrTable {
            type Value = RawResponsesEndpoint;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a URL or a table with `url` and `websocket`")
            }

            fn visit_str<E: serde::de::Error>(self, url: &str) -> Result<Self::Value, E> {
                Ok(RawResponsesEndpoint {
                    url: url.to_owned(),
                    websocket: false,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let EndpointTable { url, websocket } = EndpointTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RawResponsesEndpoint { url, websocket })
            }
        }
        deserializer.deserialize_any(UrlOrTable)
    }
}

/// `[chat]`: the differences between a `chat/completions` endpoint and the common form.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawChat {
    /// The member of messages and deltas that contains the model's reasoning; the default for `None` is `reasoning_content`.
    pub reasoning: Option<ChatReasoning>,
    /// The reasoning that weir sends back to the provider. The default for `None` is the reasoning of turns that have tool calls
    /// and follow the user's last text.
    pub reasoning_back: Option<ReasoningBack>,
    /// Whether the provider accepts system messages after the first message; the default for `None` is true.
    pub system_inside: Option<bool>,
    /// Whether the provider accepts a message of the user directly after the results of tool calls; the default for `None` is
    /// true.
    pub user_after_results: Option<bool>,
    /// The form that the provider requires for the ids of tool calls; `None` means any form.
    pub call_ids: Option<CallIdForm>,
}

impl RawChat {
    /// Returns the compiled traits. A setting that is `None` has its default.
    pub(super) fn traits(&self) -> ChatTraits {
        ChatTraits {
            reasoning: self.reasoning.unwrap_or_default(),
            reasoning_back: self.reasoning_back.unwrap_or_default(),
            system_inside: self.system_inside.unwrap_or(true),
            user_after_results: self.user_after_results.unwrap_or(true),
            call_ids: self.call_ids.unwrap_or_default(),
        }
    }
}

/// `[timeouts]`: timeouts that replace those of `[upstream]` in weir.toml, where they are explained. Each number is at least 1.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTimeouts {
    /// The timeout for establishing a connection, in milliseconds.
    pub connect_ms: Option<Spanned<u32>>,
    /// The timeout for the first byte of a streamed answer, in seconds.
    pub first_byte_seconds: Option<Spanned<u32>>,
    /// The timeout for the first byte of a non-streaming answer, in seconds.
    pub first_byte_unary_seconds: Option<Spanned<u32>>,
    /// The timeout between two reads of the answer, in seconds.
    pub idle_seconds: Option<Spanned<u32>>,
    /// The timeout from the first attempt to the last byte of the answer, in seconds.
    pub total_seconds: Option<Spanned<u32>>,
}

/// How a provider's error bodies reach the client. weir first masks anything in them that resembles a credential
/// (docs/interface.md, Errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorShape {
    /// An error body passes unchanged if it has the form that the client expects. Otherwise it is rewritten into that form.
    #[default]
    Native,
    /// An error body is always rewritten into the form that the client expects.
    Reshape,
}

/// The action for an answer whose client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientGoneAction {
    /// weir closes the connection to the provider at once.
    Abort,
    /// weir reads the answer to its end to learn the usage. The limits for this are `client_gone_finish_*` of `[upstream]`.
    Finish,
}

/// `[on_client_gone]`: the action for an answer whose client has disconnected. [`OnClientGone::action`] has the defaults for
/// `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnClientGone {
    /// The action for streamed answers.
    pub stream: Option<ClientGoneAction>,
    /// The action for non-streaming answers.
    pub unary: Option<ClientGoneAction>,
}

impl OnClientGone {
    /// Returns the action for an answer whose client has disconnected. By default, weir reads an answer to its end in two cases:
    /// the answer is non-streaming, or its model has `hidden_reasoning`. In these cases, usually only the end of the answer
    /// reports the usage. weir aborts all other answers, because it knows their usage from the content that has arrived.
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
    /// `[[model]]`: the definition of a model. It has `providers` in weir.toml, but not in a provider file.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RawModel {
        /// The model's public name, which clients send in requests.
        name: String = text().example("house-model").stand_in(String::new()),
        /// The name displayed to users. Default: the public name.
        display_name: Option<String> = text().optional("House Model"),
        /// Other names that clients can send for the model.
        #[serde(default)]
        aliases: Vec<String> = list_of(text()).unset(Vec::new()).example(vec!["house"]),
        /// The providers that serve the model, the preferred one first. If a provider fails before the first byte of an answer,
        /// the next one takes over ([retry]). While a provider is known to fail, requests go to the next one at once. Only in
        /// weir.toml.
        #[serde(default)]
        providers: Vec<String> = list_of(text()).unset(Vec::new()).example(vec!["anthropic"]),
        /// The provider's name for the model. Default: the public name.
        upstream_name: Option<String> = text().optional("claude-haiku-4-5"),
        /// The model's name at each provider that does not use `upstream_name`. Only in weir.toml.
        #[serde(default)]
        upstream_names: BTreeMap<String, String> = map_of(text())
            .unset(BTreeMap::new())
            .example(BTreeMap::from([("anthropic".to_owned(), "claude-haiku-4-5")])),
        /// The protocols in which the model is served: messages, responses, gemini. Default: all protocols of its providers.
        protocols: Option<Vec<Protocol>> =
            list_of(one_of("protocol", Protocol::ALL.map(|protocol| (protocol.as_str(), protocol)))).optional(vec!["messages"]),
        /// How weir translates requests in protocols that the model's providers do not speak. If the translation would lose
        /// content that changes the answer, strict refuses the request, and lossy drops this content and reports the loss.
        /// Default: no translation.
        translate: Option<TranslationMode> = one_of(
            "mode of translation",
            TranslationMode::ALL.map(|mode| (mode.as_str(), mode)),
        )
        .optional("strict"),
        /// Maximum number of input tokens.
        context_tokens: Option<u64> = within(1..=1_000_000_000_u64).optional(200_000),
        /// Maximum number of output tokens.
        output_tokens: Option<u64> = within(1..=1_000_000_000_u64).optional(64_000),
        /// The name of the model's price in the price list. Default: the model's public name. weir refuses the configuration if a
        /// model has no price at an enabled provider.
        price: Option<String> = text().optional("claude-haiku-4-5"),
        /// Whether requests for the model cost nothing.
        #[serde(default)]
        free: bool = flag(false),
        /// Whether the model can reason without including the reasoning in its answers. Only the usage at the end of such an
        /// answer reports all output tokens, so weir reads the model's streams to their end even if the client has disconnected.
        #[serde(default)]
        hidden_reasoning: bool = flag(false),
        /// When the model was released: a date or an RFC 3339 time.
        created: Option<String> = text().optional("2026-11-21"),
    }
}

/// The operation of a `[[body]]` or `[[response]]` edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawBodyOp {
    /// Sets the member to `value`; a missing member is added at the end of its object.
    Set,
    /// Removes the member or array element.
    Remove,
    /// Renames the member to `to`, unless the object already has a member of that name.
    Rename,
    /// Replaces a number that is less than `min` with `min`, and a number that is greater than `max` with `max`.
    Clamp,
    /// Replaces a string with the value that the table `values` has for it. Strings that are not keys of the table stay
    /// unchanged.
    Map,
    /// Refuses the request if the member is a number less than `min` or greater than `max`, or a string in the list `values`. An
    /// edit with none of `min`, `max` and `values` refuses any value. Only in `[[body]]`.
    Refuse,
}

/// `[[body]]` or `[[response]]`: one edit. The operation `op` determines which of the optional members can be given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBodyEdit {
    /// The operation on the members or elements at `path`.
    pub op: Spanned<RawBodyOp>,
    /// The path of the members to edit: names of nested object members, joined by dots. `[]` after the name of an array means
    /// each element of the array.
    pub path: Spanned<String>,
    /// The protocols of the requests to which the edit applies; `None` means all protocols.
    pub protocols: Option<Vec<UpstreamProtocol>>,
    /// The conditions for the edit, which must all hold.
    #[serde(default)]
    pub when: OneOrMore<RawCondition>,
    /// For `set`: the new value.
    pub value: Option<toml::Value>,
    /// For `rename`: the new name.
    pub to: Option<String>,
    /// For `clamp` and `refuse`: the least number that is allowed.
    pub min: Option<toml::Value>,
    /// For `clamp` and `refuse`: the greatest number that is allowed.
    pub max: Option<toml::Value>,
    /// For `map`: a table of strings and their replacements. For `refuse`: a list of the strings to refuse.
    pub values: Option<toml::Value>,
    /// For `refuse`: the message to the client.
    pub message: Option<String>,
}

/// A list of tables. A list of one table can also be written as that table.
#[derive(Debug)]
pub(crate) struct OneOrMore<T>(pub Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tables<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table `{ .. }` or a list of tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| OneOrMore(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut tables: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(table) = tables.next_element()? {
                    all.push(table);
                }
                Ok(OneOrMore(all))
            }
        }
        deserializer.deserialize_any(Tables(PhantomData))
    }
}

/// `[[credential]]`: one of a provider's several credentials.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCredential {
    /// The credential's name in logs and metrics.
    pub name: String,
    /// The reference to the credential's secret.
    pub secret: SecretRef,
    /// The credential's share of the requests, relative to the other credentials; the default for `None` is 1.
    pub weight: Option<u16>,
}

/// `[[origin]]`: one of a provider's several backends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOrigin {
    /// The backend's scheme, host and optional port: `scheme://host[:port]`.
    pub url: String,
    /// The backend's share of the requests, relative to the other backends; the default for `None` is 1.
    pub weight: Option<u16>,
    /// The path of a health check. A request to this path costs nothing, and a working backend answers it with status 200. `None`
    /// means that the backend is considered healthy if a connection can be established.
    pub health_path: Option<String>,
}

/// `[retry]`: when and how often weir sends a failed request again.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRetry {
    /// The statuses after which a request is sent again. The default for `None` is 500, 502 to 504, 520 to 524, 527 and 529.
    pub statuses: Option<Spanned<Vec<u16>>>,
    /// The maximum number of times that a request is sent to this provider, including the first time; the default for `None` is
    /// 2.
    pub attempts: Option<Spanned<u8>>,
    /// The pause before the second attempt, in milliseconds; the default for `None` is 250. The pause doubles before each further
    /// attempt and is jittered.
    pub backoff_ms: Option<Spanned<u32>>,
    /// The maximum pause between two attempts, in milliseconds; the default for `None` is 4000.
    pub backoff_max_ms: Option<Spanned<u32>>,
    /// The maximum load that repeated attempts add to the provider, in percent of the first attempts; the default for `None` is
    /// 10.
    pub budget_percent: Option<Spanned<u16>>,
}

/// The shape of the errors that clients get for requests to this provider, including weir's own refusals (docs/interface.md,
/// Errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalShape {
    /// The error shape of the request's protocol.
    #[default]
    Protocol,
    /// An object with `code`, `message` and `type` at the root. In docs/interface.md, Errors, this is the shape of provider 3.
    NativeRoot,
}

/// The meaning of a provider's error, which an `[[error]]` rule states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorMeaning {
    /// The provider refused weir's credential, or the credential's account has no money left. The client gets a refusal of weir's
    /// own.
    CredentialRefused,
    /// The provider refused the request because of its content. The client gets the provider's error, and the credential does not
    /// cool down.
    RequestRefused,
}

/// `[[error]]`: a rule that states the meaning of an error if its status is not sufficient.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawErrorRule {
    pub status: u16,
    /// A value that the error must have as its code, type or status, or as a reason in its details.
    pub code: Option<String>,
    /// A pattern that the error's message must match; `*` matches any text.
    pub message: Option<String>,
    /// A string that the error's body must contain.
    pub contains: Option<String>,
    /// The meaning of the errors that match.
    pub means: ErrorMeaning,
}

/// `[fallback]`: the model that serves requests for unlisted names of a model family.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFallback {
    /// Patterns for the names of the family; `*` matches any text.
    pub patterns: Vec<String>,
    /// The public name of a model of this file. This model serves the requests for the names of the family.
    pub model: String,
    /// The protocols of the requests to which the fallback applies; `None` means all protocols.
    pub protocols: Option<Vec<Protocol>>,
}

/// A reference to a secret. Configuration files contain references, never the secrets themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum SecretRef {
    /// `env:NAME`: an environment variable.
    Env(String),
    /// `file:PATH`: the content of a file, without its last line break.
    File(String),
    /// `credential:NAME`: a systemd credential (`LoadCredential=`), which is a file in the folder `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

/// The error for a string that is not a reference to a secret. The error does not contain the string, which could be the secret
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a reference to a secret: env:NAME, file:PATH or credential:NAME")]
pub struct SecretRefError;

impl SecretRef {
    /// Parses a reference of the form `env:NAME`, `file:PATH` or `credential:NAME`.
    ///
    /// # Errors
    /// The text has another form, or a name that no environment variable or systemd credential can have.
    pub fn parse(text: &str) -> Result<Self, SecretRefError> {
        match text.split_once(':') {
            Some(("env", name)) if is_name(name, "_") => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() && !path.contains('\0') => Ok(Self::File(path.to_owned())),
            Some(("credential", name)) if is_name(name, "_-.") && !name.starts_with('.') => {
                Ok(Self::Credential(name.to_owned()))
            }
            Some(_) | None => Err(SecretRefError),
        }
    }
}

impl SecretRef {
    /// Resolves a relative path against the folder of `file`, and returns the resulting reference. `file` is the file that
    /// contains the reference.
    pub(crate) fn relative_to(&self, file: &str) -> Self {
        match self {
            Self::File(path) => {
                let folder = Path::new(file).parent().unwrap_or_else(|| Path::new(""));
                Self::File(folder.join(path).to_string_lossy().into_owned())
            }
            Self::Env(_) | Self::Credential(_) => self.clone(),
        }
    }
}

/// Returns the kind of settings whose values are references to secrets. An invalid value could be a secret, so errors contain
/// neither the value nor its type.
pub(crate) fn secret() -> SettingKind<SecretRef> {
    SettingKind::of(|given| match given.text().ok().map(SecretRef::parse) {
        Some(Ok(SecretRef::File(path))) => {
            let path = given.folder().join(path);
            Ok(SecretRef::File(path.to_string_lossy().into_owned()))
        }
        Some(Ok(other)) => Ok(other),
        Some(Err(_)) | None => Err(SettingFault::Because(SecretRefError.to_string())),
    })
}

/// A secret that weir could not read, because its source is absent or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSecret {
    /// The reference to the secret.
    pub secret: SecretRef,
    /// Whether the source exists but is empty. Otherwise it is absent.
    pub is_empty: bool,
}

impl fmt::Display for MissingSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_empty { "empty" } else { "absent" };
        write!(f, "{} is {state}", self.secret)
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Credential(name) => write!(f, "credential:{name}"),
        }
    }
}

impl std::str::FromStr for SecretRef {
    type Err = SecretRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for SecretRef {
    type Error = SecretRefError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

fn is_name(name: &str, extra: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || extra.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_parse_and_print_as_written() {
        for text in ["env:OPENAI_API_KEY", "file:/etc/weir/key", "credential:openai.key"] {
            assert_eq!(SecretRef::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_relative_path_is_one_beside_its_file() {
        let beside = |text: &str, file: &str| SecretRef::parse(text).unwrap().relative_to(file).to_string();
        assert_eq!(
            beside("file:a.key", "/etc/weir/rules/one.toml"),
            "file:/etc/weir/rules/a.key"
        );
        assert_eq!(beside("file:../a.key", "rules/one.toml"), "file:rules/../a.key");
        assert_eq!(beside("file:a.key", "one.toml"), "file:a.key");
        assert_eq!(beside("file:/a.key", "/etc/weir/rules/one.toml"), "file:/a.key");
        for other in ["env:A", "credential:a"] {
            assert_eq!(beside(other, "/etc/weir/rules/one.toml"), other);
        }
    }

    #[test]
    fn a_secret_itself_is_refused_without_an_echo() {
        for text in [
            "sk-ant-secret",
            "env:",
            "env:A B",
            "file:",
            "credential:../x",
            "credential:a/b",
            "",
            "http://x",
        ] {
            assert_eq!(SecretRef::parse(text), Err(SecretRefError), "{text}");
        }
        assert!(!SecretRefError.to_string().contains("secret-"));
    }
}
