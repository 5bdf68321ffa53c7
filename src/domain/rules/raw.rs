//! A provider file as written: the shapes that the strict parser fills.

use std::{collections::BTreeMap, fmt, marker::PhantomData, path::Path};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use toml::Spanned;

use crate::domain::{
    settings::{SettingFault, SettingKind, flag, list_of, map_of, one_of, settings, text, within},
    wire::protocol::Protocol,
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

/// `[headers]`: applied in the order remove, rename, set, default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawHeaders {
    /// Names to drop.
    pub remove: Vec<Spanned<String>>,
    /// Old name to new name.
    pub rename: BTreeMap<String, Spanned<String>>,
    /// Values that replace what the client sent.
    pub set: BTreeMap<String, Spanned<String>>,
    /// Values for headers that the client did not send.
    pub default: BTreeMap<String, Spanned<String>>,
}

/// `[query]`: applied in the order remove, set, default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawQuery {
    /// Names to drop.
    pub remove: Vec<Spanned<String>>,
    /// Values that replace what the client sent.
    pub set: BTreeMap<String, Spanned<String>>,
    /// Values for parameters that the client did not send.
    pub default: BTreeMap<String, Spanned<String>>,
}

/// What a `[[body]]` or `[[response]]` edit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawBodyOp {
    /// Sets the member to `value`; a missing member is added at the end of its object.
    Set,
    /// Removes the member or array element.
    Remove,
    /// Renames the member to `to`, unless the object already has a member of that name.
    Rename,
    /// Replaces a number outside `min` to `max` by the bound it exceeds.
    Clamp,
    /// Replaces a string that is a key of `values` by its value.
    Map,
    /// Refuses the request: for a number outside `min` to `max`, for a string of the list `values`, or without these keys for
    /// any value. Only in `[[body]]`.
    Refuse,
}

/// `[[body]]` and `[[response]]`: one edit. `op` decides which of the optional keys belong to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBodyEdit {
    /// The operation.
    pub op: Spanned<RawBodyOp>,
    /// The path: names of nested object members, joined by dots; `[]` after a name means each element of that array.
    pub path: Spanned<String>,
    /// Only for requests of these protocols; without it, for all.
    pub protocols: Option<Vec<Protocol>>,
    /// Only where all of these conditions hold.
    #[serde(default)]
    pub when: OneOrMore<RawCondition>,
    /// For `set`.
    pub value: Option<toml::Value>,
    /// For `rename`.
    pub to: Option<String>,
    /// For `clamp` and `refuse`.
    pub min: Option<toml::Value>,
    /// For `clamp` and `refuse`.
    pub max: Option<toml::Value>,
    /// For `map`, a table; for `refuse`, a list.
    pub values: Option<toml::Value>,
    /// For `refuse`: the message to the client.
    pub message: Option<String>,
}

/// `when = { .. }`: a test of the model, a header or a field. Exactly one of the first four keys is given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCondition {
    /// The requested model; `*` matches any characters.
    pub model: Option<String>,
    /// A header of the request.
    pub header: Option<String>,
    /// A member of the object that contains the edited member; for a path that ends in `[]`, a member of the element itself.
    pub field: Option<String>,
    /// A member of the whole body or event.
    pub root_field: Option<String>,
    /// For a header: one of its values.
    pub value: Option<String>,
    /// For a header: part of one of its values.
    pub contains: Option<String>,
    /// For a field: its value.
    pub equals: Option<toml::Value>,
    /// For a field: its possible values.
    #[serde(rename = "in")]
    pub one_of: Option<Vec<toml::Value>>,
    /// For a field: whether it is present.
    pub present: Option<bool>,
}

/// A table, or a list of such tables.
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

/// `[[credential]]`: one of several secrets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCredential {
    /// Its name in logs and metrics.
    pub name: String,
    /// Where the secret is.
    pub secret: SecretRef,
    /// Its share of the requests; without it, 1.
    pub weight: Option<u16>,
}

/// `[[origin]]`: one of several backends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOrigin {
    /// `scheme://host[:port]`
    pub url: String,
    /// Its share of the requests; without it, 1.
    pub weight: Option<u16>,
    /// A path that is free to request and answers 200 while the backend works. Without it, the backend counts as healthy when a
    /// connection can be established.
    pub health_path: Option<String>,
}

/// `[retry]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRetry {
    /// Statuses after which the request is sent again. Without it, 500, 502 to 504, 520 to 524, 527 and 529.
    pub statuses: Option<Spanned<Vec<u16>>>,
    /// How many times one request is sent to this provider, the first included. Without it, 2.
    pub attempts: Option<Spanned<u8>>,
    /// The pause before the second attempt, in milliseconds; it doubles each time and is jittered. Without it, 250.
    pub backoff_ms: Option<Spanned<u32>>,
    /// The longest such pause, in milliseconds. Without it, 4000.
    pub backoff_max_ms: Option<Spanned<u32>>,
    /// How much all attempts after the first may add to the provider's load, in percent. Without it, 10.
    pub budget_percent: Option<Spanned<u16>>,
}

/// The shape of errors and of weir's own refusals at this provider (docs/interface.md, Errors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalShape {
    /// That of the protocol.
    #[default]
    Protocol,
    /// `code`, `message` and `type` at the root, without a wrapper (docs/interface.md, Errors: provider 3).
    NativeRoot,
}

/// What an error of the provider means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorMeaning {
    /// The credential that weir sent was refused, or its account has no money. The client gets a refusal of weir's own.
    CredentialRefused,
    /// The request was refused because of its content: the client gets the error, and the credential is not blamed.
    RequestRefused,
}

/// `[[error]]`: an error whose status does not show its meaning.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawErrorRule {
    pub status: u16,
    /// A machine-readable word of the error: its code, type or status, or a reason in its details.
    pub code: Option<String>,
    /// Its message; `*` matches any text.
    pub message: Option<String>,
    /// A text that its body contains.
    pub contains: Option<String>,
    /// The meaning of the error.
    pub means: ErrorMeaning,
}

/// `[fallback]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFallback {
    /// Names of the family; `*` matches any text.
    pub patterns: Vec<String>,
    /// The model that answers for them, one of this file.
    pub model: String,
    /// Only for requests of these protocols; without it, for all.
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
    /// `credential:NAME`: a systemd credential (`LoadCredential=`), a file under `$CREDENTIALS_DIRECTORY`.
    Credential(String),
}

/// The text is not a secret reference. It is not repeated here, because it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is given by reference: env:NAME, file:PATH or credential:NAME")]
pub struct SecretRefError;

impl SecretRef {
    /// Parses `env:NAME`, `file:PATH` or `credential:NAME`.
    ///
    /// # Errors
    /// Any other text, and names that no environment or credential folder can have.
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
    /// Resolves a relative path against the folder of `file`, which contains the reference.
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

/// The kind of settings that hold secret references. An invalid value may be a secret, so errors repeat neither the value nor
/// its type.
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

/// A secret that was not found where its reference points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSecret {
    /// The reference.
    pub secret: SecretRef,
    /// Whether the source exists but is empty.
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
