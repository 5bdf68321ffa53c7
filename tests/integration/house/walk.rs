//! ARCHITECTURE.md follows one streaming request through the source, and one turn on a WebSocket. Each function that it names has
//! to exist.

use std::{collections::BTreeSet, fs};

use super::source::package;

/// The section about a request.
const REQUEST: &str = "One streaming request";
/// The section about a request on a socket.
const TURN: &str = "One turn on a WebSocket";

/// The most functions that the walk of a request names, and the most files that they are in: what can be read in one sitting.
const FUNCTIONS_MAX: usize = 40;
const FILES_MAX: usize = 30;

/// The most numbered lines of the walk of a turn.
const TURN_LINES_MAX: usize = 10;

/// The text of a section.
fn section<'d>(document: &'d str, title: &str) -> &'d str {
    document
        .split("\n## ")
        .find(|section| section.starts_with(title))
        .unwrap_or_else(|| panic!("the section \"{title}\""))
}

/// The functions that a section names, as file and name.
fn walk(document: &str, title: &str) -> Vec<(String, String)> {
    let quoted = section(document, title).split('`').skip(1).step_by(2);
    let named = quoted.filter_map(|quoted| quoted.split_once(".rs::"));
    named
        .map(|(file, function)| (format!("{file}.rs"), function.to_owned()))
        .collect()
}

#[test]
fn each_function_of_the_walk_exists_and_is_named_once() {
    let document = fs::read_to_string(package().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let walks = [walk(&document, REQUEST), walk(&document, TURN)];
    assert!(
        walks.iter().all(|walk| walk.len() > 10),
        "a walk names its functions: {walks:?}"
    );
    let mut seen = BTreeSet::new();
    let mut complaints = Vec::new();
    for (file, function) in walks.iter().flatten() {
        let text = fs::read_to_string(package().join("src").join(file)).unwrap_or_default();
        let defined = [format!("fn {function}("), format!("fn {function}<")];
        if !defined.iter().any(|defined| text.contains(defined)) {
            complaints.push(format!("src/{file} has no function `{function}`"));
        }
        if !seen.insert((file, function)) {
            complaints.push(format!("{file}::{function} is named twice"));
        }
    }
    assert!(
        complaints.is_empty(),
        "ARCHITECTURE.md, the walks:\n{}",
        complaints.join("\n")
    );
}

#[test]
fn the_walk_is_short_enough_for_one_sitting() {
    let document = fs::read_to_string(package().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let walk = walk(&document, REQUEST);
    let files: BTreeSet<&str> = walk.iter().map(|(file, _)| file.as_str()).collect();
    assert!(walk.len() <= FUNCTIONS_MAX, "{} functions", walk.len());
    assert!(files.len() <= FILES_MAX, "{} files", files.len());
}

#[test]
fn the_walk_of_a_turn_has_few_lines() {
    let document = fs::read_to_string(package().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let lines = section(&document, TURN).lines();
    let steps = lines
        .skip_while(|line| !line.starts_with("1. "))
        .filter(|line| !line.is_empty());
    let count = steps.count();
    assert!((1..=TURN_LINES_MAX).contains(&count), "{count} lines");
}

#[test]
fn only_quoted_functions_of_the_section_are_steps() {
    let document =
        "# A\n\n## One streaming request\n\n`a/b.rs::c`, then `a/b.rs` and\n`d.rs::e`.\n\n## B\n\n`f.rs::g`\n";
    let step = |file: &str, function: &str| (file.to_owned(), function.to_owned());
    assert_eq!(walk(document, REQUEST), [step("a/b.rs", "c"), step("d.rs", "e")]);
}
