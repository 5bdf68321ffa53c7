//! Circles among the uses of files, folder by folder.
//!
//! In each folder, a child is its file together with its own folder, and the file that declares the children stands for
//! itself: `journal.rs` uses `journal/reader.rs`, which must not use what `journal.rs` defines. A circle is a set of such
//! children that reach each other. Parts that need each other are one thing in one file, or what they share has a file of
//! its own.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Use;

/// Children of one folder that reach each other.
pub(super) struct Circle {
    /// `journal: {reader, tail}`; the file of the folder itself is `journal.rs`.
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
    let child = |module: &[String]| -> Option<String> {
        let rest = module.strip_prefix(folder)?;
        Some(rest.first().cloned().unwrap_or_else(|| {
            let own = folder.last().map_or("", String::as_str);
            format!("{own}.rs")
        }))
    };
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
        let members: BTreeSet<&String> = graph.keys().filter(|to| reaches(start, to) && reaches(to, start)).collect();
        let names: Vec<&str> = members.iter().map(|name| name.as_str()).collect();
        let within = |(from, to, _): &&(String, String, &Use)| members.contains(from) && members.contains(to);
        let uses = edges.iter().filter(within).map(|(_, _, edge)| (*edge).clone()).collect();
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
