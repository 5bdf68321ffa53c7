//! Examples of how to use a key, for each SDK and agent that supports a protocol of the key's models. The examples can be pasted
//! and run.

use maud::{Markup, html};
use serde::Serialize;

use crate::{
    api::node::ModelView,
    domain::{catalogue::Catalogue, wire::protocol::Protocol},
};

/// An example of how to use a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Snippet {
    /// The name of the SDK or agent.
    pub(crate) name: &'static str,
    /// The language of the example: `sh`, `python`, `javascript`, or `text` for an example in several languages.
    pub(crate) language: &'static str,
    /// The text to be pasted.
    pub(crate) text: String,
}

/// Returns the examples for a key at the gateway with the address `base`. The examples do not contain the key's secret.
pub(crate) fn of_key(base: &str, examples: &Examples) -> Vec<Snippet> {
    all(&SnippetContext { base, key: None }, examples)
}

/// Renders the examples for a key. Without `key`, the examples read the key from an environment variable.
pub(super) fn section(base: &str, key: Option<&str>, examples: &Examples) -> Markup {
    let snippets = all(&SnippetContext { base, key }, examples);
    html! {
        section class="snippets" aria-labelledby="snippets" {
            h2 id="snippets" { "Use it" }
            @if snippets.is_empty() {
                p class="card" role="status" { "None of the models that this key may request is served now." }
            } @else if key.is_none() {
                p { "The key is read from the environment: " code { "export WEIR_KEY=…" } }
            }
            @for (number, snippet) in (0_usize..).zip(&snippets) {
                details class="card" open[number == 0] {
                    summary { (snippet.name) }
                    pre tabindex="0" { code { (snippet.text) } }
                }
            }
        }
    }
}

/// The gateway and the key for which an example is written.
struct SnippetContext<'a> {
    /// The address of the gateway.
    base: &'a str,
    /// The key's secret. `None` if the example reads the environment variable `WEIR_KEY`.
    key: Option<&'a str>,
}

impl SnippetContext<'_> {
    /// Returns the key for use in a shell, within double quotes.
    fn in_shell(&self) -> &str {
        self.key.unwrap_or("$WEIR_KEY")
    }

    /// Returns the Python import and the Python expression for the key.
    fn in_python(&self) -> (&'static str, String) {
        match self.key {
            Some(key) => ("", format!("\"{key}\"")),
            None => ("import os\n", "os.environ[\"WEIR_KEY\"]".to_owned()),
        }
    }

    /// Returns the JavaScript expression for the key.
    fn in_node(&self) -> String {
        self.key
            .map_or_else(|| "process.env.WEIR_KEY".to_owned(), |key| format!("\"{key}\""))
    }
}

/// A function that writes the example of an SDK or agent for a model.
type SnippetWriter = fn(&SnippetContext<'_>, &str) -> String;

/// All SDKs and agents. Agents come first, because most keys are used by an agent.
const SDKS_AND_AGENTS: [(&str, &str, Protocol, SnippetWriter); 9] = [
    ("Claude Code", "sh", Protocol::Messages, claude_code),
    ("Codex", "text", Protocol::Responses, codex),
    ("Gemini CLI", "sh", Protocol::Gemini, gemini_cli),
    ("anthropic (Python)", "python", Protocol::Messages, anthropic_python),
    ("openai (Python)", "python", Protocol::Responses, openai_python),
    ("google-genai (Python)", "python", Protocol::Gemini, genai_python),
    (
        "@anthropic-ai/sdk (Node)",
        "javascript",
        Protocol::Messages,
        anthropic_node,
    ),
    ("openai (Node)", "javascript", Protocol::Responses, openai_node),
    ("@google/genai (Node)", "javascript", Protocol::Gemini, genai_node),
];

fn all(place: &SnippetContext<'_>, examples: &Examples) -> Vec<Snippet> {
    let curl = examples.first().map(|(protocol, model)| Snippet {
        name: "curl",
        language: "sh",
        text: curl(place, protocol, model),
    });
    let others = SDKS_AND_AGENTS.iter().filter_map(|(name, language, protocol, write)| {
        let text = write(place, examples.model_for(*protocol)?);
        Some(Snippet { name, language, text })
    });
    curl.into_iter().chain(others).collect()
}

fn curl(place: &SnippetContext<'_>, protocol: Protocol, model: &str) -> String {
    let (base, key) = (place.base, place.in_shell());
    let (path, headers, body) = match protocol {
        Protocol::Messages => (
            "/v1/messages".to_owned(),
            format!("-H \"x-api-key: {key}\" -H 'anthropic-version: 2023-06-01'"),
            format!(
                "{{\"model\":\"{model}\",\"max_tokens\":100,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}"
            ),
        ),
        Protocol::Responses => (
            "/v1/responses".to_owned(),
            format!("-H \"authorization: Bearer {key}\""),
            format!("{{\"model\":\"{model}\",\"input\":\"Hello\"}}"),
        ),
        Protocol::Gemini => (
            format!("/v1beta/models/{model}:generateContent"),
            format!("-H \"x-goog-api-key: {key}\""),
            "{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":\"Hello\"}]}]}".to_owned(),
        ),
    };
    format!("curl {base}{path} {headers} \\\n  -H 'content-type: application/json' \\\n  -d '{body}'")
}

fn claude_code(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, key) = (place.base, place.in_shell());
    // Without this setting, the agent would choose another model for auxiliary tasks, such as titles.
    format!(
        "export ANTHROPIC_BASE_URL={base}\nexport ANTHROPIC_AUTH_TOKEN=\"{key}\"\n\
         export ANTHROPIC_MODEL={model} ANTHROPIC_DEFAULT_HAIKU_MODEL={model}\nclaude"
    )
}

fn codex(place: &SnippetContext<'_>, model: &str) -> String {
    let base = place.base;
    let export = place
        .key
        .map(|key| format!("export WEIR_KEY=\"{key}\"\n"))
        .unwrap_or_default();
    format!(
        "# ~/.codex/config.toml\nmodel = \"{model}\"\nmodel_provider = \"weir\"\n\n[model_providers.weir]\nname = \"weir\"\n\
         base_url = \"{base}/v1\"\nenv_key = \"WEIR_KEY\"\nwire_api = \"responses\"\n\n# in the shell\n{export}codex"
    )
}

fn gemini_cli(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, key) = (place.base, place.in_shell());
    format!("export GOOGLE_GEMINI_BASE_URL={base}\nexport GEMINI_API_KEY=\"{key}\"\ngemini --model {model}")
}

fn anthropic_python(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, (import, key)) = (place.base, place.in_python());
    format!(
        "{import}from anthropic import Anthropic\n\nclient = Anthropic(base_url=\"{base}\", api_key={key})\n\
         message = client.messages.create(\n    model=\"{model}\",\n    max_tokens=100,\n    \
         messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}],\n)\nprint(message.content)"
    )
}

fn openai_python(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, (import, key)) = (place.base, place.in_python());
    format!(
        "{import}from openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}/v1\", api_key={key})\n\
         response = client.responses.create(model=\"{model}\", input=\"Hello\")\nprint(response.output_text)"
    )
}

fn genai_python(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, (import, key)) = (place.base, place.in_python());
    format!(
        "{import}from google import genai\n\nclient = genai.Client(api_key={key}, http_options={{\"base_url\": \"{base}\"}})\n\
         response = client.models.generate_content(model=\"{model}\", contents=\"Hello\")\nprint(response.text)"
    )
}

fn anthropic_node(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, key) = (place.base, place.in_node());
    format!(
        "import Anthropic from \"@anthropic-ai/sdk\";\n\n\
         const client = new Anthropic({{ baseURL: \"{base}\", apiKey: {key} }});\n\
         const message = await client.messages.create({{\n  model: \"{model}\",\n  max_tokens: 100,\n  \
         messages: [{{ role: \"user\", content: \"Hello\" }}],\n}});\nconsole.log(message.content);"
    )
}

fn openai_node(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, key) = (place.base, place.in_node());
    format!(
        "import OpenAI from \"openai\";\n\nconst client = new OpenAI({{ baseURL: \"{base}/v1\", apiKey: {key} }});\n\
         const response = await client.responses.create({{ model: \"{model}\", input: \"Hello\" }});\n\
         console.log(response.output_text);"
    )
}

fn genai_node(place: &SnippetContext<'_>, model: &str) -> String {
    let (base, key) = (place.base, place.in_node());
    format!(
        "import {{ GoogleGenAI }} from \"@google/genai\";\n\n\
         const client = new GoogleGenAI({{ apiKey: {key}, httpOptions: {{ baseUrl: \"{base}\" }} }});\n\
         const response = await client.models.generateContent({{ model: \"{model}\", contents: \"Hello\" }});\n\
         console.log(response.text);"
    )
}

/// The well-known and fast models that examples use for a key that can use any model. If none of them is served, examples use the
/// first served model.
const KNOWN: [&str; 3] = ["claude-haiku-4-5", "gpt-5.5", "gemini-3.8-flash"];

/// The name of a served model, with its protocols.
type ServedModel = (String, Vec<Protocol>);

/// The model that examples use in each protocol. Contains only the protocols that the key can use now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Examples {
    /// The protocols with their models. The protocol of the key's first model comes first.
    models: Vec<(Protocol, String)>,
}

impl Examples {
    /// Chooses the models for a key. `allowed` contains the models that the key can use, or is `None` if the key can use all
    /// models. `is_off` returns whether a provider is switched off.
    pub(crate) fn new(catalogue: &Catalogue, is_off: impl Fn(&str) -> bool, allowed: Option<&[String]>) -> Self {
        let models = catalogue.served_models();
        let served = models.map(|model| (model.name.clone(), model.protocols_served(&is_off)));
        Self::from_served(&served.collect::<Vec<ServedModel>>(), allowed)
    }

    fn from_served(served: &[ServedModel], allowed: Option<&[String]>) -> Self {
        let names: Vec<&str> = match allowed {
            Some(allowed) => allowed.iter().map(String::as_str).collect(),
            None => KNOWN
                .into_iter()
                .chain(served.iter().map(|(name, _)| name.as_str()))
                .collect(),
        };
        let mut examples = Self::default();
        for name in names {
            let Some((_, protocols)) = served.iter().find(|(known, _)| known == name) else {
                continue;
            };
            for protocol in protocols {
                if examples.model_for(*protocol).is_none() && needs_no_quoting(*protocol, name) {
                    examples.models.push((*protocol, name.to_owned()));
                }
            }
        }
        examples
    }

    /// Chooses the models for a key from the admin API's list of models.
    pub(super) fn from_model_views(allowed: Option<&[String]>, models: &[ModelView]) -> Self {
        let served = models.iter().map(|model| (model.name.clone(), model.protocols.clone()));
        Self::from_served(&served.collect::<Vec<ServedModel>>(), allowed)
    }

    /// Returns the model for a protocol. `None` if the key can use no model in this protocol.
    pub(crate) fn model_for(&self, protocol: Protocol) -> Option<&str> {
        let mut models = self.models.iter();
        let (_, model) = models.find(|(one, _)| *one == protocol)?;
        Some(model)
    }

    /// Returns the first protocol with its model. `None` if the key can use no model.
    pub(super) fn first(&self) -> Option<(Protocol, &str)> {
        let (protocol, model) = self.models.first()?;
        Some((*protocol, model))
    }
}

/// Returns whether a model's name needs no quoting in any example: in a shell, in a program and, for Gemini, in a path.
fn needs_no_quoting(protocol: Protocol, name: &str) -> bool {
    let in_paths = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let elsewhere = |byte: u8| matches!(byte, b':' | b'/' | b'@') && protocol != Protocol::Gemini;
    name.bytes().all(|byte| in_paths(byte) || elsewhere(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::node::ModelView;

    const BASE: &str = "http://127.0.0.1:8080";

    fn examples(served: &[(&str, Protocol)]) -> Examples {
        let one = |(name, protocol): &(&str, Protocol)| ModelView {
            name: (*name).to_owned(),
            protocols: vec![*protocol],
            ..ModelView::default()
        };
        let models: Vec<ModelView> = served.iter().map(one).collect();
        Examples::from_model_views(None, &models)
    }

    fn in_all() -> Examples {
        examples(&[
            ("m", Protocol::Messages),
            ("r", Protocol::Responses),
            ("g", Protocol::Gemini),
        ])
    }

    #[test]
    fn every_snippet_has_the_address_the_key_and_a_model_of_its_protocol() {
        let place = SnippetContext {
            base: BASE,
            key: Some("weir-key"),
        };
        let made = all(&place, &in_all());
        assert_eq!(made.len(), SDKS_AND_AGENTS.len() + 1);
        for (Snippet { name, text, .. }, (_, _, protocol, _)) in made.iter().skip(1).zip(&SDKS_AND_AGENTS) {
            let model = in_all();
            let model = model.model_for(*protocol).unwrap();
            let names = [format!("\"{model}\""), format!("={model} "), format!("--model {model}")];
            assert!(
                text.contains(BASE) && text.contains("weir-key") && names.iter().any(|name| text.contains(name)),
                "{name}: {text}"
            );
        }
    }

    #[test]
    fn only_ways_whose_protocol_the_key_can_use_are_told_and_curl_asks_in_it() {
        for (protocol, path, ways) in [
            (
                Protocol::Messages,
                "/v1/messages ",
                ["Claude Code", "anthropic (Python)", "@anthropic-ai/sdk (Node)"],
            ),
            (
                Protocol::Responses,
                "/v1/responses ",
                ["Codex", "openai (Python)", "openai (Node)"],
            ),
            (
                Protocol::Gemini,
                "/v1beta/models/x:generateContent ",
                ["Gemini CLI", "google-genai (Python)", "@google/genai (Node)"],
            ),
        ] {
            let told = of_key(BASE, &examples(&[("x", protocol)]));
            let names: Vec<&str> = told.iter().map(|one| one.name).collect();
            assert_eq!(names, [&["curl"], &ways[..]].concat());
            assert!(told[0].text.starts_with(&format!("curl {BASE}{path}")), "{told:?}");
        }
        assert_eq!(of_key(BASE, &Examples::default()), []);
        let said = section(BASE, None, &Examples::default()).into_string();
        assert!(said.contains("None of the models"), "{said}");
    }

    #[test]
    fn a_key_whose_text_is_not_told_is_read_from_the_environment_as_each_language_does() {
        for Snippet { name, language, text } in of_key(BASE, &in_all()) {
            let read = match language {
                "python" => "os.environ[\"WEIR_KEY\"]",
                "javascript" => "process.env.WEIR_KEY",
                "text" => "env_key = \"WEIR_KEY\"",
                _ => "$WEIR_KEY\"",
            };
            assert!(text.contains(read), "{name}: {text}");
        }
    }

    fn served(models: &[(&str, &[Protocol])]) -> Vec<ServedModel> {
        let one = |(name, protocols): &(&str, &[Protocol])| ((*name).to_owned(), protocols.to_vec());
        models.iter().map(one).collect()
    }

    fn names(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn each_protocol_has_the_first_model_of_the_key_that_is_served_in_it() {
        let served = served(&[
            ("both", &[Protocol::Messages, Protocol::Responses]),
            ("g", &[Protocol::Gemini]),
            ("r", &[Protocol::Responses]),
        ]);
        let examples = |allowed: &[&str]| Examples::from_served(&served, names(allowed).as_deref());
        assert_eq!(
            examples(&["gone", "r", "both"]).first(),
            Some((Protocol::Responses, "r"))
        );
        assert_eq!(
            examples(&["gone", "r", "both"]).model_for(Protocol::Messages),
            Some("both")
        );
        assert_eq!(examples(&["r"]).model_for(Protocol::Messages), None);
        assert_eq!(examples(&["g"]).first(), Some((Protocol::Gemini, "g")));
        assert_eq!(examples(&["gone"]), Examples::default());
        assert_eq!(examples(&["gone"]).first(), None);
    }

    #[test]
    fn a_key_for_all_models_is_told_of_known_ones_and_only_of_those_that_are_served() {
        let known = served(&[
            ("a", &[Protocol::Messages]),
            (KNOWN[0], &[Protocol::Messages]),
            ("b", &[Protocol::Gemini]),
        ]);
        let examples = Examples::from_served(&known, None);
        assert_eq!(examples.first(), Some((Protocol::Messages, KNOWN[0])));
        assert_eq!(examples.model_for(Protocol::Gemini), Some("b"));
        assert_eq!(examples.model_for(Protocol::Responses), None);
        let other = served(&[("a", &[Protocol::Responses])]);
        assert_eq!(
            Examples::from_served(&other, None).first(),
            Some((Protocol::Responses, "a"))
        );
    }

    #[test]
    fn a_name_that_would_have_to_be_quoted_is_in_no_example() {
        let both = [Protocol::Messages, Protocol::Gemini];
        let of = |name: &str| {
            let examples = Examples::from_served(&served(&[(name, &both)]), None);
            both.map(|protocol| examples.model_for(protocol).is_some())
        };
        assert_eq!(of("a-1.5_b"), [true, true]);
        for name in ["a/b", "a:b", "a@b"] {
            assert_eq!(of(name), [true, false], "{name}");
        }
        for name in ["a[1m]", "a b", "a'b", "a\"b", "a$b", "a\\b", "caf\u{e9}"] {
            assert_eq!(of(name), [false, false], "{name}");
        }
    }

    #[test]
    fn the_answers_of_the_admin_api_say_the_same() {
        let model = |name: &str, protocols: &[Protocol]| ModelView {
            name: name.to_owned(),
            protocols: protocols.to_vec(),
            ..ModelView::default()
        };
        let models = [
            model("m", &[Protocol::Messages]),
            model("n", &[Protocol::Responses, Protocol::Gemini]),
        ];
        let bound = Examples::from_model_views(Some(&["n".to_owned()]), &models);
        assert_eq!(
            (bound.model_for(Protocol::Messages), bound.first()),
            (None, Some((Protocol::Responses, "n")))
        );
        let any = Examples::from_model_views(None, &models);
        assert_eq!(any.model_for(Protocol::Messages), Some("m"));
    }
}
