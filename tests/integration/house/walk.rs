//! ARCHITECTURE.md follows one streaming request through the source. Each function that it names has to exist.

use std::{collections::BTreeSet, fs};

use super::source::package;

/// The most functions that the walk names, and the most files that they are in: what can be read in one sitting.
const FUNCTIONS_MAX: usize = 40;
const FILES_MAX: usize = 30;

/// The functions that the walk names, as file and name.
fn walk(document: &str) -> Vec<(String, String)> {
    let section = document
        .split("\n## ")
        .find(|section| section.starts_with("One streaming request"))
        .expect("the section \"One streaming request\"");
    let quoted = section.split('`').skip(1).step_by(2);
    let named = quoted.filter_map(|quoted| quoted.split_once(".rs::"));
    named
        .map(|(file, function)| (format!("{file}.rs"), function.to_owned()))
        .collect()
}

#[test]
fn each_function_of_the_walk_exists_and_is_named_once() {
    let document = fs::read_to_string(package().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let walk = walk(&document);
    assert!(walk.len() > 10, "the walk names its functions: {walk:?}");
    let mut seen = BTreeSet::new();
    let mut complaints = Vec::new();
    for (file, function) in &walk {
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
        "ARCHITECTURE.md, \"One streaming request\":\n{}",
        complaints.join("\n")
    );
}

#[test]
fn the_walk_is_short_enough_for_one_sitting() {
    let document = fs::read_to_string(package().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let walk = walk(&document);
    let files: BTreeSet<&str> = walk.iter().map(|(file, _)| file.as_str()).collect();
    assert!(walk.len() <= FUNCTIONS_MAX, "{} functions", walk.len());
    assert!(files.len() <= FILES_MAX, "{} files", files.len());
}

#[test]
fn only_quoted_functions_of_the_section_are_steps() {
    let document =
        "# A\n\n## One streaming request\n\n`a/b.rs::c`, then `a/b.rs` and\n`d.rs::e`.\n\n## B\n\n`f.rs::g`\n";
    let step = |file: &str, function: &str| (file.to_owned(), function.to_owned());
    assert_eq!(walk(document), [step("a/b.rs", "c"), step("d.rs", "e")]);
}
