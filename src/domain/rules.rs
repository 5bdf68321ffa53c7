//! Provider files: differences between providers are data, one TOML file each, checked and compiled once.

pub mod apply;
pub mod body;
pub mod compile;
pub mod condition;
pub mod endpoint;
pub mod error;
pub mod explain;
pub mod head;
mod number;
pub(in crate::domain) mod pattern;
pub mod provider;
pub mod query;
pub mod raw;
pub mod response;
pub mod secret_ref;

pub use apply::{EditError, edit_body};
pub use body::BodyRules;
pub use condition::RequestFacts;
pub use endpoint::Origin;
pub use error::{ErrorRule, ErrorRules};
pub use explain::{Change, Explanation, Passage, Question};
pub use head::{Head, HeadEdits, edit_head};
pub use provider::{Auth, Credential, Fallback, Provider, Timeouts, WeightedOrigin};
pub use query::{QueryEdits, edit_query};
pub use raw::{ClientGoneAction, ErrorMeaning, ErrorShape, OnClientGone, RawModel, RefusalShape};
pub use response::ResponseRewriter;

/// A provider file before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    /// Its name in errors, such as `lua-free-rules/openai.toml`.
    pub name: String,
    /// The TOML text.
    pub text: String,
}

/// The provider files that are compiled into the program.
pub fn shipped() -> Vec<RuleFile> {
    let file = |name: &str, text: &str| RuleFile {
        name: format!("lua-free-rules/{name}"),
        text: text.to_owned(),
    };
    vec![
        file("anthropic.toml", include_str!("../../lua-free-rules/anthropic.toml")),
        file("deepseek.toml", include_str!("../../lua-free-rules/deepseek.toml")),
        file("gemini.toml", include_str!("../../lua-free-rules/gemini.toml")),
        file("mimo.toml", include_str!("../../lua-free-rules/mimo.toml")),
        file("minimax.toml", include_str!("../../lua-free-rules/minimax.toml")),
        file("moonshot.toml", include_str!("../../lua-free-rules/moonshot.toml")),
        file("openai.toml", include_str!("../../lua-free-rules/openai.toml")),
        file("qwen.toml", include_str!("../../lua-free-rules/qwen.toml")),
        file("zai.toml", include_str!("../../lua-free-rules/zai.toml")),
    ]
}

#[cfg(test)]
mod tests;
