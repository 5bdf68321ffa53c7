//! The house rules that lints cannot hold: who may use whom, who reads the clock, how long files are.
//!
//! These tests read the source tree as text. They look at code only: comments, and what stands below `#[cfg(test)]` or
//! in a `tests.rs`, may do as it needs.
#![expect(
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "the offsets come from searches in the same text"
)]

mod circles;
mod directions;
mod guards;
mod imports;
mod names;
mod source;
mod tokens;
mod walk;

use source::{Source, has_word, import_root, package, sources};
use tokens::{Token, tokens, without_tests};

/// The most lines of code in a file of `src/`, without comments and tests.
const CODE_LINES_MAX: usize = 400;

/// What the pure core may use besides itself.
const DOMAIN_IMPORTS: [&str; 23] = [
    "std",
    "serde",
    "serde_json",
    // What a type is in JSON, derived beside serde's traits.
    "schemars",
    "toml",
    "http",
    "bytes",
    "memchr",
    "smol_str",
    "strsim",
    "sha2",
    "hmac",
    "base64",
    "crc32fast",
    "serde_spanned",
    "toml_datetime",
    "rand",
    "thiserror",
    "smallvec",
    "jiff",
    "percent_encoding",
    "ahash",
    // SHA-1, for the handshake of WebSocket.
    "ring",
];

/// Ways out of the pure core that need no import of a crate.
const DOMAIN_BANS: [&str; 9] = [
    "std::fs",
    "std::env",
    "std::io::stdin",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "std::thread",
    "async fn",
    ".await",
];

fn none(complaints: &[String], rule: &str) {
    assert!(complaints.is_empty(), "{rule}:\n{}", complaints.join("\n"));
}

#[test]
fn the_domain_is_pure() {
    let mut complaints = Vec::new();
    for source in sources(&["src"])
        .into_iter()
        .filter(|source| source.module() == "domain")
    {
        complaints.extend(source.complaints(|line| {
            if let Some(root) = import_root(line) {
                let child = source.text.contains(&format!("mod {root};"))
                    || source.text.contains(&format!("macro_rules! {root} "));
                let own = child || ["crate", "self", "super"].contains(&root);
                return (!own && !DOMAIN_IMPORTS.contains(&root)).then(|| format!("imports {root}"));
            }
            let path = [
                "tokio::",
                "pingora",
                "redis::",
                "axum::",
                "hyper::",
                "redb::",
                "tracing::",
            ]
            .iter()
            .find(|path| line.contains(**path));
            path.or(DOMAIN_BANS.iter().find(|ban| line.contains(**ban)))
                .map(|ban| format!("uses {ban}"))
        }));
    }
    none(&complaints, "domain/ has no I/O, no async and no foreign types");
}

#[test]
fn only_the_clock_reads_the_clock() {
    let readers = [
        "Instant::now(",
        "SystemTime::now(",
        "Timestamp::now(",
        "Zoned::now(",
        ".elapsed(",
    ];
    let mut complaints = Vec::new();
    for source in sources(&["src"])
        .into_iter()
        .filter(|source| source.path != "src/edges/clock.rs")
    {
        complaints.extend(source.complaints(|line| {
            let reader = readers.iter().find(|reader| line.contains(**reader))?;
            Some(format!(
                "`{reader}` reads the clock, take the time as an argument or use crate::edges::clock"
            ))
        }));
    }
    none(&complaints, "crate::edges::clock is the only reader of the clock");
}

#[test]
fn only_the_top_makes_runtimes() {
    let mut complaints = Vec::new();
    for source in sources(&["src"])
        .into_iter()
        .filter(|source| !["main", "wiring", "cli"].contains(&source.module()) && !source.path.contains("/tests/"))
    {
        complaints.extend(source.complaints(|line| {
            [
                "runtime::Builder",
                "Builder::new_multi_thread",
                "Builder::new_current_thread",
                "Runtime::new",
            ]
            .iter()
            .any(|maker| line.contains(maker))
            .then(|| "makes a runtime".to_owned())
        }));
    }
    none(&complaints, "only main, wiring and cli may make a runtime");
}

#[test]
fn files_are_short_and_named_after_what_they_hold() {
    let mut complaints = Vec::new();
    for source in sources(&["src"]) {
        let lines = source.code_lines();
        if lines > CODE_LINES_MAX {
            complaints.push(format!("{}: {lines} lines of code, split it by noun", source.path));
        }
        let parts = source.path.split(['/', '.']);
        if parts
            .into_iter()
            .any(|part| ["utils", "util", "helpers", "misc", "mod"].contains(&part))
        {
            complaints.push(format!("{}: name it after what it holds", source.path));
        }
    }
    none(&complaints, "files have at most 400 lines of code and one noun");
}

#[test]
fn nothing_is_left_for_later() {
    let words = ["TODO", "FIXME", "XXX"];
    let macros = ["todo!(", "unimplemented!("];
    let mut complaints = Vec::new();
    for source in sources(&["src", "tests", "benches"])
        .into_iter()
        .filter(|source| !source.path.starts_with("tests/integration/house"))
    {
        for (index, line) in source.text.lines().enumerate() {
            let left = words
                .iter()
                .find(|word| has_word(line, word))
                .or(macros.iter().find(|name| line.contains(**name)));
            let ignored = line.trim_start().starts_with("#[ignore").then_some(&"#[ignore]");
            if let Some(what) = left.or(ignored) {
                complaints.push(format!("{}:{}: {what}", source.path, index + 1));
            }
        }
    }
    none(&complaints, "finish it or write an issue");
}

#[test]
fn every_file_says_what_it_is() {
    let silent = |source: &Source| !source.text.starts_with("//! ");
    let complaints: Vec<String> = sources(&["src", "tests", "benches"])
        .into_iter()
        .filter(silent)
        .map(|source| source.path)
        .collect();
    none(&complaints, "a file starts with a `//!` line");
}

#[test]
fn every_exception_from_a_lint_has_a_reason() {
    let mut complaints = Vec::new();
    for source in sources(&["src", "tests", "benches"])
        .into_iter()
        .filter(|source| !source.path.starts_with("tests/integration/house"))
    {
        for start in ["#[expect(", "#![expect(", "#[allow(", "#![allow("] {
            for (at, _) in source.text.match_indices(start) {
                let attribute = source.text[at..].split(")]").next().unwrap_or_default();
                if !attribute.contains("reason = \"") {
                    complaints.push(format!("{}: {attribute})]", source.path));
                }
            }
        }
    }
    none(&complaints, "#[expect(lint, reason = \"...\")]");
}

/// The most fields of a struct of the gateway: one that carries more is a bag.
const FIELDS_MAX: usize = 10;

#[test]
fn structs_of_the_gateway_are_no_bags() {
    let mut complaints = Vec::new();
    for source in sources(&["src"])
        .into_iter()
        .filter(|source| source.module() == "gateway" && !source.path.contains("tests"))
    {
        let (code, _) = without_tests(&tokens(&source.text));
        for (name, fields) in structs(&code).into_iter().filter(|(_, fields)| *fields > FIELDS_MAX) {
            complaints.push(format!("{}: {name} has {fields} fields", source.path));
        }
    }
    none(&complaints, "a struct of the request path has at most 10 fields");
}

/// Every struct with named fields, and how many.
fn structs(code: &[Token]) -> Vec<(String, usize)> {
    let starts = code.iter().enumerate().filter(|(_, token)| token.text == "struct");
    let struct_at = |(at, _): (usize, &Token)| {
        let name = code.get(at + 1)?.text.clone();
        let (mut depth, mut fields) = (0_usize, 0);
        for token in &code[at + 2..] {
            match token.text.as_str() {
                ";" if depth == 0 => return None,
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 1 => return Some((name, fields)),
                "}" | ")" | "]" => depth -= 1,
                ":" if depth == 1 => fields += 1,
                _ => {}
            }
        }
        None
    };
    starts.filter_map(struct_at).collect()
}

#[test]
fn nothing_is_decided_by_an_errors_text() {
    let sign = ["to_string", "(", ")", ".", "contains", "("];
    let mut complaints = Vec::new();
    for source in sources(&["src"])
        .into_iter()
        .filter(|source| !source.path.contains("tests"))
    {
        let (code, _) = without_tests(&tokens(&source.text));
        let at = code
            .windows(sign.len())
            .find(|window| window.iter().zip(sign).all(|(token, text)| token.text == text));
        if let Some(first) = at.and_then(|window| window.first()) {
            complaints.push(format!("{}:{}", source.path, first.line));
        }
    }
    none(&complaints, "errors have kinds; their texts are for people");
}

#[test]
fn a_reader_finds_the_way_in() {
    let missing = ["LICENSE", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"]
        .iter()
        .filter(|name| !package().join(name).is_file())
        .map(|name| (*name).to_owned());
    none(&missing.collect::<Vec<_>>(), "missing at the top of the tree");
}
