//! Provider files: what differs between providers is data, one TOML file each, checked and compiled once.

pub mod apply;
pub mod body;
pub mod compile;
pub mod endpoint;
pub mod raw;

pub use apply::{EditError, Head, edit_body, edit_head};
pub use body::BodyRules;
pub use compile::{Auth, Credential, ErrorRule, Fallback, HeadEdits, Provider, Timeouts, WeightedOrigin};
pub use endpoint::Origin;
pub use raw::{ClientGoneAction, ErrorMeaning, ErrorShape, OnClientGone, RawModel, RefusalShape};

/// A provider file, unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    /// Its name in errors, such as `lua-free-rules/openai.toml`.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// The provider files that are part of the program.
pub fn shipped() -> Vec<RuleFile> {
    let file = |name: &str, text: &str| RuleFile {
        name: format!("lua-free-rules/{name}"),
        text: text.to_owned(),
    };
    vec![
        file("anthropic.toml", include_str!("../../lua-free-rules/anthropic.toml")),
        file("deepseek.toml", include_str!("../../lua-free-rules/deepseek.toml")),
        file("gemini.toml", include_str!("../../lua-free-rules/gemini.toml")),
        file("openai.toml", include_str!("../../lua-free-rules/openai.toml")),
    ]
}

#[cfg(test)]
mod tests;
