//! How a key is put into each SDK and agent, ready to paste.

use maud::{Markup, html};
use serde::Serialize;
use serde_json::Value;

/// What stands in the place of a key's text: a variable of the shell.
const PLACEHOLDER: &str = "$WEIR_KEY";
/// What is asked in an example where a key may ask for any model: one that people know.
const MODEL: &str = "claude-haiku-4-5";

/// A way to use a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Snippet {
    /// The SDK or agent.
    pub(crate) name: &'static str,
    /// What the text is written in: `sh`, `python`, `javascript`, or `text` where it is of several kinds.
    pub(crate) language: &'static str,
    /// What to paste.
    pub(crate) text: String,
}

/// The ways to use a key that may ask for these models, at the gateway with this address. They never have the key's text.
pub(crate) fn of_key(base: &str, models: Option<&[String]>) -> Vec<Snippet> {
    let model = models.and_then(|models| models.first()).map_or(MODEL, String::as_str);
    all(base, PLACEHOLDER, model).into()
}

/// The ways to use a key. Without one, a variable of the shell stands in its place.
pub(super) fn section(base: &str, key: Option<&str>, model: &str) -> Markup {
    html! {
        section class="snippets" aria-labelledby="snippets" {
            h2 id="snippets" { "Use it" }
            @for (number, snippet) in (0_usize..).zip(all(base, key.unwrap_or(PLACEHOLDER), model)) {
                details class="card" open[number == 0] {
                    summary { (snippet.name) }
                    pre tabindex="0" { code { (snippet.text) } }
                }
            }
        }
    }
}

/// What is asked in an example: the first model that a key may ask for, or one that people know.
pub(super) fn model(allowed: &[Value]) -> String {
    let first = allowed.first().and_then(Value::as_str);
    first.unwrap_or(MODEL).to_owned()
}

fn all(base: &str, key: &str, model: &str) -> [Snippet; 8] {
    let snippet = |(name, language, text)| Snippet { name, language, text };
    [
        (
            "curl",
            "sh",
            format!(
                "curl {base}/v1/messages -H \"x-api-key: {key}\" -H 'anthropic-version: 2023-06-01' \\\n  \
                 -H 'content-type: application/json' \\\n  \
                 -d '{{\"model\":\"{model}\",\"max_tokens\":100,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
            ),
        ),
        (
            "Claude Code",
            "sh",
            format!("export ANTHROPIC_BASE_URL={base}\nexport ANTHROPIC_AUTH_TOKEN={key}\nclaude"),
        ),
        (
            "Codex",
            "text",
            format!(
                "# ~/.codex/config.toml\nmodel_provider = \"weir\"\n\n[model_providers.weir]\nname = \"weir\"\n\
                 base_url = \"{base}/v1\"\nenv_key = \"WEIR_KEY\"\nwire_api = \"responses\"\n\n# in the shell\nexport WEIR_KEY={key}\ncodex"
            ),
        ),
        (
            "Gemini CLI",
            "sh",
            format!("export GOOGLE_GEMINI_BASE_URL={base}\nexport GEMINI_API_KEY={key}\ngemini"),
        ),
        (
            "anthropic (Python)",
            "python",
            format!("from anthropic import Anthropic\n\nclient = Anthropic(base_url=\"{base}\", api_key=\"{key}\")"),
        ),
        (
            "openai (Python)",
            "python",
            format!("from openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}/v1\", api_key=\"{key}\")"),
        ),
        (
            "google-genai (Python)",
            "python",
            format!(
                "from google import genai\n\nclient = genai.Client(api_key=\"{key}\", http_options={{\"base_url\": \"{base}\"}})"
            ),
        ),
        (
            "Node",
            "javascript",
            format!(
                "new Anthropic({{ baseURL: \"{base}\", apiKey: \"{key}\" }})           // @anthropic-ai/sdk\n\
                 new OpenAI({{ baseURL: \"{base}/v1\", apiKey: \"{key}\" }})           // openai\n\
                 new GoogleGenAI({{ apiKey: \"{key}\", httpOptions: {{ baseUrl: \"{base}\" }} }})  // @google/genai"
            ),
        ),
    ]
    .map(snippet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_snippet_has_the_address_and_the_key() {
        for Snippet { name, text, .. } in all("http://127.0.0.1:8080", "weir-key", "m") {
            assert!(
                text.contains("http://127.0.0.1:8080") && text.contains("weir-key"),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn what_is_told_has_the_placeholder_and_a_model_that_the_key_may_ask_for() {
        for (models, asked) in [(None, MODEL), (Some(vec!["m".to_owned(), "n".to_owned()]), "m")] {
            let told = of_key("https://weir.example.com", models.as_deref());
            assert_eq!(told, all("https://weir.example.com", PLACEHOLDER, asked));
            assert!(told[0].text.contains(&format!("\"model\":\"{asked}\"")), "{told:?}");
        }
    }
}
