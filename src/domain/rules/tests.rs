//! Tests of `rules`.

mod errors;
mod golden;

use http::HeaderMap;

use super::*;
use crate::domain::wire::operation::{Operation, UpstreamOperation};

#[test]
fn every_shipped_file_compiles() {
    for file in shipped() {
        let compiled = compile::compile(&file).unwrap_or_else(|errors| panic!("{errors:?}"));
        assert_eq!(file.name, format!("lua-free-rules/{}.toml", compiled.provider.name));
        assert!(!compiled.models.is_empty(), "{}", file.name);
        assert!(
            compiled
                .provider
                .endpoints
                .iter()
                .all(|(_, template)| template.origin.https),
            "{}",
            file.name
        );
    }
}

#[test]
fn every_file_of_the_folder_is_shipped() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua-free-rules");
    let mut there: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| format!("lua-free-rules/{}", entry.unwrap().file_name().to_string_lossy()))
        .filter(|name| name.ends_with(".toml"))
        .collect();
    there.sort();
    let shipped: Vec<String> = shipped().into_iter().map(|file| file.name).collect();
    assert_eq!(there, shipped);
}

#[test]
fn only_the_originators_count_tokens() {
    for file in shipped() {
        let provider = compile::compile(&file).unwrap().provider;
        let counts = |operation| provider.endpoints.get(operation).is_some();
        assert_eq!(
            counts(Operation::CountTokens),
            provider.name == "anthropic",
            "{}",
            file.name
        );
        assert_eq!(
            counts(Operation::GeminiCountTokens),
            provider.name == "gemini",
            "{}",
            file.name
        );
    }
}

#[test]
fn every_messages_provider_of_the_table_is_there() {
    let speaks = |operation| {
        let mut names: Vec<String> = shipped()
            .iter()
            .map(|file| compile::compile(file).unwrap().provider)
            .filter(|provider| provider.endpoints.get(operation).is_some())
            .map(|provider| provider.name)
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        speaks(Operation::Messages),
        [
            "anthropic",
            "deepseek",
            "mimo",
            "minimax",
            "moonshot",
            "openrouter",
            "qwen",
            "zai"
        ]
    );
    assert_eq!(speaks(Operation::Responses), ["deepseek", "openai"]);
}

#[test]
fn each_model_without_a_clients_protocol_is_translated() {
    let mut hosts = Vec::new();
    for file in shipped() {
        let compiled = compile::compile(&file).unwrap();
        if compiled.provider.protocols().is_empty() {
            for (_, model) in &compiled.models {
                assert!(model.translate.is_some(), "{} of {}", model.name, file.name);
            }
            hosts.push(compiled.provider.name);
        }
    }
    assert_eq!(hosts, ["cerebras", "fireworks", "groq", "mistral", "together", "xai"]);
}

#[test]
fn the_edits_of_a_request_take_few_walks() {
    let headers = HeaderMap::new();
    for file in shipped() {
        let compiled = compile::compile(&file).unwrap();
        let provider = &compiled.provider;
        for (_, model) in &compiled.models {
            for (operation, _) in provider.endpoints.iter() {
                let is_translated = operation == UpstreamOperation::ChatCompletions;
                let facts = RequestFacts {
                    operation,
                    is_translated,
                    model: &model.name,
                    upstream_model: model.upstream_name.as_deref().unwrap_or(&model.name),
                    headers: &headers,
                };
                // OpenRouter's file sets one member to another value for each model.
                let walks_max = match provider.name.as_str() {
                    "openrouter" => 2,
                    _ if is_translated => 3,
                    _ => 1,
                };
                let walks = provider.body.for_request(&facts).batches.len();
                assert!(walks <= walks_max, "{} at {operation:?}: {walks}", model.name);
            }
        }
    }
}

#[test]
fn the_files_of_local_engines_translate_and_cost_nothing() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/local-engines/rules");
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = RuleFile {
            name: path.to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        };
        let compiled = compile::compile(&file).unwrap_or_else(|errors| panic!("{errors:?}"));
        let provider = &compiled.provider;
        assert!(!compiled.models.is_empty(), "{}", file.name);
        for (_, model) in &compiled.models {
            assert!(model.free && model.translate.is_some(), "{}", model.name);
        }
        assert!(provider.endpoints.get(UpstreamOperation::ChatCompletions).is_some());
        names.push(provider.name.clone());
    }
    names.sort();
    assert_eq!(names, ["llamacpp", "lmstudio", "ollama", "vllm"]);
}

#[test]
fn every_variant_compiles_and_is_of_a_shipped_provider() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua-free-rules/variants");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = RuleFile {
            name: path.to_string_lossy().into_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
        };
        let provider = compile::compile(&file)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
            .provider;
        let replaced = format!("lua-free-rules/{}.toml", provider.name);
        assert!(shipped().iter().any(|file| file.name == replaced), "{}", file.name);
        count += 1;
    }
    assert!(count > 0);
}
