//! Stand-ins for neighbours that have not landed; goes away with them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A problem in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The key.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl FileError {
    /// A fault at a byte span of the text.
    pub fn at(file: &str, text: &str, span: std::ops::Range<usize>, key: &str, message: impl Into<String>) -> Self {
        let line = 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
        Self {
            file: file.to_owned(),
            line: Some(line),
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }
}

/// Parses a file strictly.
pub(super) fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, FileError> {
    toml::from_str(text).map_err(|error| FileError {
        file: file.to_owned(),
        line: error
            .span()
            .map(|span| text.bytes().take(span.start).filter(|b| *b == b'\n').count() + 1),
        key: None,
        message: error.message().to_owned(),
    })
}

/// A reference to a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file.
    File(String),
    /// A systemd credential.
    Credential(String),
}

impl std::str::FromStr for SecretRef {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.to_owned())),
            Some(("credential", name)) if !name.is_empty() => Ok(Self::Credential(name.to_owned())),
            _ => Err("a secret is given by reference: env:NAME, file:PATH or credential:NAME"),
        }
    }
}

impl std::fmt::Display for SecretRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Credential(name) => write!(f, "credential:{name}"),
        }
    }
}

/// One provider of weir.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderOverride {
    /// Replaces scheme, host and port of every endpoint.
    pub base_url: Option<String>,
    /// Replaces the secret reference.
    pub secret: Option<SecretRef>,
    /// Switches the provider off.
    pub enabled: Option<bool>,
}

/// One `[[model]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawModel {
    /// The public name.
    pub name: String,
    /// The name shown.
    pub display_name: Option<String>,
    /// The providers, in order.
    #[serde(default)]
    pub providers: Vec<String>,
    /// The provider's name of the model.
    pub upstream_name: Option<String>,
    /// The protocols it is served through.
    pub protocols: Option<Vec<String>>,
    /// The size of its context.
    pub context_tokens: Option<u64>,
    /// The price reference.
    pub price: Option<String>,
    /// Whether it costs nothing.
    pub free: Option<bool>,
}

/// What weir.toml says about the catalogue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogueSettings {
    /// Providers, by name.
    pub overrides: BTreeMap<String, ProviderOverride>,
    /// Models.
    pub models: Vec<RawModel>,
}
