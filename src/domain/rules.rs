//! Provider files: TOML files that describe how providers differ. weir checks and compiles them when it loads the configuration.

pub(crate) mod apply;
pub(crate) mod body;
pub(crate) mod compile;
pub(crate) mod condition;
pub(crate) mod endpoint;

pub(crate) mod explain;
pub(crate) mod head;

pub(crate) mod provider;

pub(crate) mod raw;
pub(crate) mod response;

pub use crate::domain::rules::apply::{EditError, edit_body};
pub use crate::domain::rules::body::BodyRules;
pub use crate::domain::rules::condition::RequestFacts;
pub(crate) use crate::domain::rules::endpoint::{EndpointTarget, Origin};
pub(crate) use crate::domain::rules::explain::{AppliedEdit, ExplainRequest, Explanation, TextChange};
pub(crate) use crate::domain::rules::head::edit_query;
pub(crate) use crate::domain::rules::head::{EditableHead, edit_head};
pub(crate) use crate::domain::rules::provider::{Credential, Fallback, Provider, WeightedOrigin};
pub(crate) use crate::domain::rules::raw::{ClientGoneAction, ErrorShape, RawModel};
pub use crate::domain::rules::response::ResponseRewriter;

/// The name and text of a provider file, before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFile {
    /// The file's name in error messages, such as `lua-free-rules/openai.toml`.
    pub name: String,
    /// The file's TOML text.
    pub text: String,
}

/// Returns the provider files that are compiled into the program.
pub fn shipped() -> Vec<RuleFile> {
    let file = |name: &str, text: &str| RuleFile {
        name: format!("lua-free-rules/{name}"),
        text: text.to_owned(),
    };
    vec![
        file("anthropic.toml", include_str!("../../lua-free-rules/anthropic.toml")),
        file("cerebras.toml", include_str!("../../lua-free-rules/cerebras.toml")),
        file("deepseek.toml", include_str!("../../lua-free-rules/deepseek.toml")),
        file("fireworks.toml", include_str!("../../lua-free-rules/fireworks.toml")),
        file("gemini.toml", include_str!("../../lua-free-rules/gemini.toml")),
        file("groq.toml", include_str!("../../lua-free-rules/groq.toml")),
        file("mimo.toml", include_str!("../../lua-free-rules/mimo.toml")),
        file("minimax.toml", include_str!("../../lua-free-rules/minimax.toml")),
        file("mistral.toml", include_str!("../../lua-free-rules/mistral.toml")),
        file("moonshot.toml", include_str!("../../lua-free-rules/moonshot.toml")),
        file("openai.toml", include_str!("../../lua-free-rules/openai.toml")),
        file("openrouter.toml", include_str!("../../lua-free-rules/openrouter.toml")),
        file("qwen.toml", include_str!("../../lua-free-rules/qwen.toml")),
        file("together.toml", include_str!("../../lua-free-rules/together.toml")),
        file("xai.toml", include_str!("../../lua-free-rules/xai.toml")),
        file("zai.toml", include_str!("../../lua-free-rules/zai.toml")),
    ]
}

#[cfg(test)]
mod tests;
