//! The source tree as text, and the little grammar that the house rules need.
#![expect(
    clippy::expect_used,
    clippy::string_slice,
    reason = "helpers of tests: a tree that cannot be read fails the test, and the offsets come from searches in the same text"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::tokens::{tokens, without_tests};

/// One file of the tree, its path relative to the package.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

impl Source {
    /// The top-level module of a file in `src/`: `domain` for `src/domain/wire/sse.rs`.
    pub(super) fn module(&self) -> &str {
        let rest = self.path.strip_prefix("src/").unwrap_or(&self.path);
        rest.split(['/', '.']).next().unwrap_or(rest)
    }

    /// Whether it is compiled for tests alone.
    fn is_for_tests(&self) -> bool {
        let suite = self.path.split('/').any(|folder| folder == "contract") || self.path.ends_with("/contract.rs");
        suite || self.path.ends_with("tests.rs") || self.path.contains("tests/")
    }

    /// The numbers of the lines that have code: neither a comment alone nor an item for tests.
    fn numbers_of_code_lines(&self) -> BTreeSet<usize> {
        if self.is_for_tests() {
            return BTreeSet::new();
        }
        let (code, _) = without_tests(&tokens(&self.text));
        code.iter().flat_map(|token| token.line..=token.last).collect()
    }

    /// How many lines have code.
    pub(super) fn code_lines(&self) -> usize {
        self.numbers_of_code_lines().len()
    }

    /// Code lines with their numbers, an import of several lines as one: without comments and what is only for tests.
    fn code(&self) -> Vec<(usize, String)> {
        let numbers = self.numbers_of_code_lines();
        let lines = self.text.lines().enumerate();
        let mut code: Vec<(usize, String)> = Vec::new();
        for (index, line) in lines.filter(|(index, _)| numbers.contains(&(index + 1))) {
            let line = line.split("//").next().unwrap_or(line);
            match code.last_mut() {
                Some((_, before)) if import_root(before).is_some() && !before.contains(';') => {
                    before.push_str(line.trim())
                }
                _ if line.trim().is_empty() => {}
                _ => code.push((index + 1, line.to_owned())),
            }
        }
        code
    }

    /// `path:line: what` for each code line that `wrong` finds fault with.
    pub(super) fn complaints(&self, wrong: impl Fn(&str) -> Option<String>) -> Vec<String> {
        self.code()
            .iter()
            .filter_map(|(number, line)| Some(format!("{}:{number}: {}", self.path, wrong(line)?)))
            .collect()
    }
}

pub(super) fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below the given folders, sorted; none may be missing a reader's permission.
pub(super) fn sources(folders: &[&str]) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in folders {
        collect(&package().join(folder), &mut found);
    }
    found.sort();
    let read = |path: PathBuf| Source {
        text: fs::read_to_string(&path).expect("readable source"),
        path: path
            .strip_prefix(package())
            .expect("inside the package")
            .display()
            .to_string(),
    };
    found.into_iter().map(read).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the package") {
        let path = entry.expect("an entry").path();
        if path.ends_with("node_modules") {
            // Not ours: the packages that tests/run installs.
        } else if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether `word` stands in `line` on its own, not as a part of a longer name.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_name)
            && !line[at + word.len()..].chars().next().is_some_and(is_name)
    })
}

/// What a `use` line imports from: `crate` for `pub(crate) use crate::domain::wire::usage::Usage;`.
pub(super) fn import_root(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = line
        .strip_prefix("pub(crate) ")
        .or(line.strip_prefix("pub(super) "))
        .or(line.strip_prefix("pub "))
        .unwrap_or(line);
    line.strip_prefix("use ")?
        .trim_start_matches("::")
        .split([':', ';', ' ', '{'])
        .next()
}

#[test]
fn the_rules_see_what_they_are_for() {
    let source = |path: &str, text: &str| Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let file = source(
        "src/domain/a.rs",
        "//! Doc.\nuse tokio::net; // why\n// use redis;\n#[cfg(test)]\nmod tests {\n    use axum::Router;\n}\n",
    );
    assert_eq!(file.code(), [(2, "use tokio::net; ".to_owned())]);
    let listed = source(
        "src/a.rs",
        "use crate::{\n    clock,\n    side::ops, // why\n};\nfn f() {}\n",
    );
    assert_eq!(
        listed.code(),
        [
            (1, "use crate::{clock,side::ops,};".to_owned()),
            (5, "fn f() {}".to_owned())
        ]
    );
    assert_eq!((file.code_lines(), listed.code_lines()), (1, 5));
    let spread = source("src/a.rs", "//! Doc.\n\nconst A: &str = \"b\n\nc\"; // d\n");
    assert_eq!(spread.code_lines(), 3, "all lines of a text");
    assert_eq!(file.module(), "domain");
    assert_eq!(source("src/gateway.rs", "").module(), "gateway");
    assert_eq!(source("src/a/tests.rs", "use x;").code().len(), 0);
    assert_eq!(
        import_root("    pub(crate) use ::serde_json::{Value};"),
        Some("serde_json")
    );
    assert_eq!(import_root("let user = 1;"), None);
    assert!(has_word("// XXX: later", "XXX") && !has_word("tmp.XXXXXX", "XXX"));
}

#[test]
fn code_behind_the_declaration_of_a_test_module_is_seen() {
    let source = Source {
        path: "src/domain/example.rs".to_owned(),
        text: "mod child;\n#[cfg(test)]\nmod tests;\n\nuse tokio::{\n    net,\n};\n#[cfg(test)]\nmod more {\n    use redis;\n}\n".to_owned(),
    };
    let lines: Vec<(usize, String)> = source.code();
    let seen: Vec<(usize, &str)> = lines.iter().map(|(number, line)| (*number, line.as_str())).collect();
    assert_eq!(seen, [(1, "mod child;"), (5, "use tokio::{net,};")]);
}
