//! Each type has a name of its own, and the words that the glossary of ARCHITECTURE.md replaces name nothing.

use std::collections::BTreeMap;

use super::{
    none,
    source::{Source, sources},
    tokens::{Token, tokens, without_tests},
};

/// Types that are each other's alternative by a feature of Cargo.
const ALTERNATIVES: [&str; 1] = ["SampleProviderArgs"];

/// Words that say nothing about a type when it is imported alone: participles and general nouns.
const TYPE_WORDS: [&str; 34] = [
    "Asked", "Begun", "Carried", "Charged", "Counted", "Denied", "Ended", "Found", "Given", "Heard", "Held", "Kept",
    "Known", "Leased", "Left", "Lent", "Live", "Looked", "Made", "Mended", "Named", "Offered", "Opened", "Paced",
    "Place", "Places", "Rated", "Refused", "Said", "Seen", "Shown", "Taken", "Told", "Wanted",
];

/// Functions and methods of these names do not say what they do.
const FUNCTION_WORDS: [&str; 12] = [
    "asked", "found", "given", "look", "looked", "note", "rest", "said", "stands", "tell", "told", "whole",
];

/// The names that follow one of these words in code that is not for tests.
fn declared(source: &Source, words: &[&str]) -> Vec<(usize, String)> {
    let (code, _) = without_tests(&tokens(&source.text));
    let pairs = code.windows(2);
    let is_declared = |pair: &&[Token]| words.contains(&pair[0].text.as_str()) && pair[1].is_name();
    pairs
        .filter(is_declared)
        .map(|pair| (pair[1].line, pair[1].text.clone()))
        .collect()
}

fn own_sources() -> Vec<Source> {
    let for_tests = ["tests", "contract", "test_server"];
    let is_own = |source: &Source| !source.path.split(['/', '.', '_']).any(|part| for_tests.contains(&part));
    let is_server = |source: &Source| source.path.contains("test_server");
    sources(&["src"])
        .into_iter()
        .filter(|source| is_own(source) && !is_server(source))
        .collect()
}

#[test]
fn no_two_types_have_one_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in own_sources() {
        let types = declared(&source, &["struct", "enum", "trait", "union"]);
        for (line, name) in types
            .into_iter()
            .filter(|(_, name)| name.starts_with(char::is_uppercase))
        {
            files.entry(name).or_default().push(format!("{}:{line}", source.path));
        }
    }
    let is_twice =
        |(name, places): &(&String, &Vec<String>)| places.len() > 1 && !ALTERNATIVES.contains(&name.as_str());
    let twice = files.iter().filter(is_twice);
    let complaints: Vec<String> = twice
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    none(&complaints, "a type's name is clear when it is imported alone");
}

#[test]
fn retired_words_name_nothing() {
    let mut complaints = Vec::new();
    for source in own_sources() {
        let types = declared(&source, &["struct", "enum", "trait", "union"]);
        let functions = declared(&source, &["fn"]);
        let is_retired = |words: &[&str], name: &str| words.contains(&name);
        let retired = types
            .into_iter()
            .filter(|(_, name)| is_retired(&TYPE_WORDS, name))
            .chain(
                functions
                    .into_iter()
                    .filter(|(_, name)| is_retired(&FUNCTION_WORDS, name)),
            );
        complaints.extend(retired.map(|(line, name)| format!("{}:{line}: {name}", source.path)));
    }
    none(
        &complaints,
        "a type is a noun, a method a verb with its object; the glossary has the words",
    );
}
