//! Tests of `rules`.

mod errors;
mod golden;

use super::*;
use crate::domain::wire::operation::Operation;

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
        ["anthropic", "deepseek", "mimo", "minimax", "moonshot", "qwen", "zai"]
    );
    assert_eq!(speaks(Operation::Responses), ["deepseek", "openai"]);
}

#[test]
fn the_longest_shipped_list_takes_one_walk() {
    for file in shipped() {
        let provider = compile::compile(&file).unwrap().provider;
        assert!(provider.body.batches.len() <= 1, "{}", file.name);
    }
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
