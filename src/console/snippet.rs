//! How a key is put into each SDK and agent, ready to paste.

use maud::{Markup, html};
use serde_json::Value;

/// The ways to use a key. Without one, a variable of the shell stands in its place.
pub(super) fn section(base: &str, key: Option<&str>, model: &str) -> Markup {
    html! {
        section class="snippets" aria-labelledby="snippets" {
            h2 id="snippets" { "Use it" }
            @for (number, (name, text)) in (0_usize..).zip(all(base, key.unwrap_or("$WEIR_KEY"), model)) {
                details class="card" open[number == 0] {
                    summary { (name) }
                    pre tabindex="0" { code { (text) } }
                }
            }
        }
    }
}

/// What is asked in an example: the first model that a key may ask for, or one that people know.
pub(super) fn model(allowed: &[Value]) -> String {
    let first = allowed.first().and_then(Value::as_str);
    first.unwrap_or("claude-haiku-4-5").to_owned()
}

fn all(base: &str, key: &str, model: &str) -> [(&'static str, String); 8] {
    [
        (
            "curl",
            format!(
                "curl {base}/v1/messages -H \"x-api-key: {key}\" -H 'anthropic-version: 2023-06-01' \\\n  \
                 -H 'content-type: application/json' \\\n  \
                 -d '{{\"model\":\"{model}\",\"max_tokens\":100,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
            ),
        ),
        (
            "Claude Code",
            format!("export ANTHROPIC_BASE_URL={base}\nexport ANTHROPIC_AUTH_TOKEN={key}\nclaude"),
        ),
        (
            "Codex",
            format!(
                "# ~/.codex/config.toml\nmodel_provider = \"weir\"\n\n[model_providers.weir]\nname = \"weir\"\n\
                 base_url = \"{base}/v1\"\nenv_key = \"WEIR_KEY\"\nwire_api = \"responses\"\n\n# in the shell\nexport WEIR_KEY={key}\ncodex"
            ),
        ),
        (
            "Gemini CLI",
            format!("export GOOGLE_GEMINI_BASE_URL={base}\nexport GEMINI_API_KEY={key}\ngemini"),
        ),
        (
            "anthropic (Python)",
            format!("from anthropic import Anthropic\n\nclient = Anthropic(base_url=\"{base}\", api_key=\"{key}\")"),
        ),
        (
            "openai (Python)",
            format!("from openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}/v1\", api_key=\"{key}\")"),
        ),
        (
            "google-genai (Python)",
            format!(
                "from google import genai\n\nclient = genai.Client(api_key=\"{key}\", http_options={{\"base_url\": \"{base}\"}})"
            ),
        ),
        (
            "Node",
            format!(
                "new Anthropic({{ baseURL: \"{base}\", apiKey: \"{key}\" }})           // @anthropic-ai/sdk\n\
                 new OpenAI({{ baseURL: \"{base}/v1\", apiKey: \"{key}\" }})           // openai\n\
                 new GoogleGenAI({{ apiKey: \"{key}\", httpOptions: {{ baseUrl: \"{base}\" }} }})  // @google/genai"
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_snippet_has_the_address_and_the_key() {
        for (name, text) in all("http://127.0.0.1:8080", "weir-key", "m") {
            assert!(
                text.contains("http://127.0.0.1:8080") && text.contains("weir-key"),
                "{name}: {text}"
            );
        }
    }
}
