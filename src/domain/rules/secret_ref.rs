//! References to secrets: where a secret is, never the secret itself.

use std::path::Path;

use serde::Deserialize;

use crate::domain::settings::{SettingFault, SettingKind};

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

impl std::fmt::Display for MissingSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = if self.is_empty { "empty" } else { "absent" };
        write!(f, "{} is {state}", self.secret)
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
