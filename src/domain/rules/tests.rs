//! Tests of `rules`.

use super::*;
use crate::domain::operation::Operation;

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
        .collect();
    there.sort();
    let shipped: Vec<String> = shipped().into_iter().map(|file| file.name).collect();
    assert_eq!(there, shipped);
}

#[test]
fn only_the_originators_count_tokens() {
    let counts = |name: &str| {
        let file = shipped().into_iter().find(|file| file.name.ends_with(name)).unwrap();
        let endpoints = compile::compile(&file).unwrap().provider.endpoints;
        endpoints.of(Operation::CountTokens).is_some() || endpoints.of(Operation::GeminiCountTokens).is_some()
    };
    assert!(counts("anthropic.toml") && counts("gemini.toml"));
    assert!(!counts("deepseek.toml") && !counts("openai.toml"));
}
