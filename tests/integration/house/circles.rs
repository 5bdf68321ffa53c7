//! Circles among the uses of files, folder by folder.
//!
//! In each folder, a child is its file together with its own folder. A circle is a set of children that reach each other: parts that
//! need each other are one thing in one file, or the part that they share has a file of its own. The file that declares the children
//! is one module with them: `journal.rs` and `journal/frame.rs` may use each other.
#![expect(
    clippy::indexing_slicing,
    reason = "helpers of tests: the lengths are those of the paths"
)]

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Use;

/// Children of one folder that reach each other.
pub(super) struct Circle {
    /// `journal: {reader, tail}`.
    pub(super) name: String,
    /// The uses that make it.
    pub(super) uses: Vec<Use>,
}

/// Every circle, sorted by its folder.
pub(super) fn circles(uses: &[Use]) -> Vec<Circle> {
    let folders: BTreeSet<&[String]> = uses
        .iter()
        .flat_map(|edge| (0..=edge.from.len()).map(|length| &edge.from[..length]))
        .collect();
    folders.into_iter().flat_map(|folder| inside(folder, uses)).collect()
}

fn inside(folder: &[String], uses: &[Use]) -> Vec<Circle> {
    let child = |module: &[String]| -> Option<String> { module.strip_prefix(folder)?.first().cloned() };
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut edges = Vec::new();
    for edge in uses {
        if let (Some(from), Some(to)) = (child(&edge.from), child(&edge.to))
            && from != to
        {
            graph.entry(from.clone()).or_default().insert(to.clone());
            edges.push((from, to, edge));
        }
    }
    let reach: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|from| (from, reached(&graph, from))).collect();
    let reaches = |from: &String, to: &String| reach.get(from).is_some_and(|reached| reached.contains(to));
    let mut found: Vec<Circle> = Vec::new();
    let mut seen: BTreeSet<&String> = BTreeSet::new();
    for start in graph.keys().filter(|start| reaches(start, start)) {
        if seen.contains(start) {
            continue;
        }
        let members: BTreeSet<&String> = graph
            .keys()
            .filter(|to| reaches(start, to) && reaches(to, start))
            .collect();
        let names: Vec<&str> = members.iter().map(|name| name.as_str()).collect();
        let within = |(from, to, _): &&(String, String, &Use)| members.contains(from) && members.contains(to);
        let uses = edges
            .iter()
            .filter(within)
            .map(|(_, _, edge)| (*edge).clone())
            .collect();
        found.push(Circle {
            name: format!("{}: {{{}}}", folder.join("::"), names.join(", ")),
            uses,
        });
        seen.extend(members);
    }
    found
}

/// What can be reached from `start`, itself only if there is a way back.
fn reached<'a>(graph: &'a BTreeMap<String, BTreeSet<String>>, start: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = graph.get(start).into_iter().flatten().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(graph.get(next).into_iter().flatten());
        }
    }
    found
}

#[test]
fn a_circle_is_found_at_every_height_and_a_facade_is_none() {
    use super::imports::Imports;
    use super::source::Source;
    let files = |files: &[(&str, &str)]| {
        let source = |(path, text): &(&str, &str)| Source {
            path: format!("src/{path}.rs"),
            text: (*text).to_owned(),
        };
        circles(&Imports::of(files.iter().map(source).collect()).uses())
    };
    let names = |found: &[Circle]| found.iter().map(|circle| circle.name.clone()).collect::<Vec<_>>();
    // The parent passes on what its child defines; others take it from the parent, siblings too.
    let facade = [
        ("a", "mod b;\nmod c;\npub use b::Item;"),
        ("a/b", "pub struct Item;"),
        ("a/c", "use super::Item;\nfn f(_: Item) {}"),
        ("d", "fn f(_: crate::a::Item) {}"),
    ];
    assert!(names(&files(&facade)).is_empty());
    // It uses the child, which uses an item of the parent: they are one module.
    let parent = [
        ("a", "mod b;\npub struct Own;\nfn f() { b::make(); }"),
        ("a/b", "use super::Own;\npub fn make() -> Own { Own }"),
    ];
    assert!(names(&files(&parent)).is_empty());
    let siblings = [
        ("a", "mod b;\nmod c;"),
        ("a/b", "use super::c;\npub struct Own;\nfn f() { c::make(); }"),
        ("a/c", "use super::b::Own;\npub fn make() -> Own { Own }"),
    ];
    assert_eq!(names(&files(&siblings)), ["a: {b, c}"]);
    assert_eq!(files(&siblings)[0].uses[0].place, "src/a/b.rs:3");
    // Two folders, over different files.
    let folders = [
        ("a", "mod b;\nmod c;"),
        ("a/b", "use crate::d::e;\nfn f() { e::g() }"),
        ("a/c", "pub fn h() {}"),
        ("d", "mod e;\nmod f;"),
        ("d/e", "pub fn g() {}"),
        ("d/f", "use crate::{a::c::h as other};\nfn g() { other() }"),
    ];
    assert_eq!(names(&files(&folders)), [": {a, d}"]);
    // What is compiled for tests alone does not count.
    let tests = [
        ("a", "mod b;\npub struct Own;\nfn f() { b::make(); }"),
        (
            "a/b",
            "pub fn make() {}\n#[cfg(test)]\nmod tests { use crate::a::Own; }",
        ),
    ];
    assert!(names(&files(&tests)).is_empty());
}
