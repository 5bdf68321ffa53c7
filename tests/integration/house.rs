//! The house rules that lints cannot hold: who may import whom, who reads the clock, how long files are.
//!
//! These tests read the source tree as text. They look at code only: comments, and what stands below `#[cfg(test)]` or
//! in a `tests.rs`, may do as it needs.
#![expect(clippy::string_slice, reason = "the offsets come from searches in the same text")]

use std::fs;

mod source;

use source::{Source, crate_modules, has_word, import_root, package, sources};

const LINES_MAX: usize = 400;

/// Files that may be longer, each with the reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// What the pure core may use besides itself.
const DOMAIN_IMPORTS: [&str; 15] = [
    "std",
    "serde",
    "serde_json",
    "toml",
    "http",
    "bytes",
    "memchr",
    "strsim",
    "sha2",
    "crc32fast",
    "rand",
    "thiserror",
    "smallvec",
    "jiff",
    "percent_encoding",
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

/// Module by module of `src/`, what it must not know. `wiring` and `main` may know everything.
const IMPORT_BANS: [(&str, &[&str]); 27] = [
    (
        "domain",
        &[
            "access_log",
            "body_budget",
            "cli",
            "clock",
            "config",
            "gateway",
            "journal",
            "key_cache",
            "limiter",
            "live",
            "metrics",
            "pools",
            "public",
            "resolver",
            "sample_provider",
            "sessions",
            "settlement",
            "side",
            "stability",
            "store",
            "switches",
            "tls",
            "usual",
            "wiring",
        ],
    ),
    (
        "clock",
        &["cli", "config", "gateway", "key_cache", "side", "store", "wiring"],
    ),
    ("config", UPPER),
    ("store", UPPER),
    ("journal", UPPER),
    ("settlement", UPPER),
    ("billing", UPPER),
    ("account_changes", UPPER),
    ("key_cache", UPPER),
    ("access_log", UPPER),
    ("body_budget", UPPER),
    ("limiter", UPPER),
    ("tls", UPPER),
    ("metrics", UPPER),
    ("resolver", UPPER),
    ("pools", UPPER),
    ("sessions", UPPER),
    ("switches", UPPER),
    ("usual", UPPER),
    ("live", UPPER),
    ("stability", UPPER),
    ("public", UPPER),
    ("front", UPPER),
    ("gateway", &["cli", "side", "wiring"]),
    ("side", &["cli", "gateway", "wiring"]),
    ("sample_provider", &["cli", "gateway", "side", "store", "wiring"]),
    ("cli", &["gateway", "wiring"]),
];
const UPPER: &[&str] = &["cli", "gateway", "sample_provider", "side", "wiring"];

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
                let child = source.text.contains(&format!("mod {root};"));
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
fn dependencies_point_one_way() {
    let mut complaints = Vec::new();
    for source in sources(&["src"]) {
        let banned = IMPORT_BANS
            .iter()
            .find(|(module, _)| *module == source.module())
            .map_or(&[][..], |(_, banned)| banned);
        complaints.extend(source.complaints(|line| {
            let named = crate_modules(line).into_iter().find(|module| banned.contains(module))?;
            Some(format!("{} must not know {named}", source.module()))
        }));
    }
    none(
        &complaints,
        "main -> wiring -> {gateway, side, cli} -> {store, config, edges} -> domain -> nothing",
    );
}

#[test]
fn every_module_has_its_place_in_the_import_rules() {
    let free = ["lib", "main", "wiring"];
    let mut complaints = Vec::new();
    for source in sources(&["src"]) {
        let module = source.module();
        if !free.contains(&module) && !IMPORT_BANS.iter().any(|(known, _)| *known == module) {
            complaints.push(source.path);
        }
    }
    none(&complaints, "add the module to IMPORT_BANS");
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
        .filter(|source| source.path != "src/clock.rs")
    {
        complaints.extend(source.complaints(|line| {
            let reader = readers.iter().find(|reader| line.contains(**reader))?;
            Some(format!(
                "`{reader}` reads the clock, take the time as an argument or use crate::clock"
            ))
        }));
    }
    none(&complaints, "crate::clock is the only reader of the clock");
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
        let lines = source.text.lines().count();
        if lines > LINES_MAX && !LONG_FILES.iter().any(|(path, _)| *path == source.path) {
            complaints.push(format!("{}: {lines} lines, split it by noun", source.path));
        }
        let parts = source.path.split(['/', '.']);
        if parts
            .into_iter()
            .any(|part| ["utils", "util", "helpers", "misc", "mod"].contains(&part))
        {
            complaints.push(format!("{}: name it after what it holds", source.path));
        }
    }
    none(&complaints, "files have at most 400 lines and one noun");
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

#[test]
fn a_reader_finds_the_way_in() {
    // While the gateway itself is not written, neither is what describes it.
    let gateway = fs::read_to_string(package().join("src/gateway.rs")).expect("src/gateway.rs");
    let wanted: &[&str] = match gateway.trim() {
        "//! To be written." => &["LICENSE"],
        _ => &["LICENSE", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"],
    };
    let missing = wanted
        .iter()
        .filter(|name| !package().join(name).is_file())
        .map(|name| (*name).to_owned());
    none(&missing.collect::<Vec<_>>(), "missing at the top of the tree");
}
