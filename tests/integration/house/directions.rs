//! Who may use whom, and that nobody uses each other.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::circles::{Circle, circles};
use super::imports::{Imports, Use};
use super::none;
use super::source::sources;

/// The rooms of `src/`, the lowest first, each with those that it may use. `wiring` is where all of them meet, and uses
/// whatever it builds.
const MAY_USE: [(&str, &[&str]); 20] = [
    ("domain", &[]),
    ("edges", &[]),
    ("telemetry", &["domain", "edges"]),
    // Settings, and what is kept.
    ("config", &["domain"]),
    ("store", &["domain", "edges"]),
    ("journal", &["config", "domain", "edges"]),
    // What is known of providers, money, the public record, and the log's other places.
    ("providers", &["config", "domain", "edges", "store", "telemetry"]),
    ("money", &["config", "domain", "edges", "journal", "store"]),
    ("stability", &["domain", "edges", "journal", "store"]),
    ("sign_in", &["domain", "edges", "store"]),
    ("sinks", &["config", "domain", "edges", "journal", "store"]),
    // How clients come in.
    ("front", &["config", "domain", "edges", "providers", "telemetry"]),
    // The admin API: its questions, and their answers.
    ("api", &["domain"]),
    (
        "admin",
        &["api", "domain", "edges", "money", "sign_in", "sinks", "store"],
    ),
    // What is served.
    (
        "side",
        &[
            "admin",
            "api",
            "edges",
            "front",
            "journal",
            "stability",
            "store",
            "telemetry",
        ],
    ),
    (
        "console",
        &[
            "admin",
            "api",
            "domain",
            "edges",
            "front",
            "side",
            "sign_in",
            "stability",
            "store",
        ],
    ),
    (
        "gateway",
        &[
            "api",
            "config",
            "console",
            "domain",
            "edges",
            "front",
            "money",
            "providers",
            "stability",
            "store",
            "telemetry",
        ],
    ),
    ("sample_provider", &["domain", "edges"]),
    ("cli", &["api", "config", "domain", "edges", "sample_provider"]),
    // What only benches and fuzz targets call.
    ("parts", &["domain"]),
];

static USES: LazyLock<Vec<Use>> = LazyLock::new(|| Imports::of(sources(&["src"])).uses());

#[test]
fn every_room_uses_only_what_it_may() {
    let rooms = |name: &str| MAY_USE.iter().find(|(room, _)| *room == name).map(|(_, may)| *may);
    let mut complaints = Vec::new();
    let mut used = BTreeSet::new();
    for edge in USES.iter() {
        let (from, to) = (edge.from[0].as_str(), edge.to[0].as_str());
        used.insert((from.to_owned(), to.to_owned()));
        if from != to && from != "wiring" && !rooms(from).is_some_and(|may| may.contains(&to)) {
            complaints.push(format!("{}: {from} must not use {to}", edge.place));
        }
    }
    for (room, may) in MAY_USE {
        let needless = may
            .iter()
            .filter(|other| !used.contains(&(room.to_owned(), (**other).to_owned())));
        complaints.extend(needless.map(|other| format!("{room} does not use {other}: take it out of MAY_USE")));
    }
    none(&complaints, "MAY_USE says who may use whom");
}

#[test]
fn every_room_has_its_line() {
    let free = ["lib", "main", "wiring"];
    let rooms: BTreeSet<String> = sources(&["src"])
        .iter()
        .map(|source| source.module().to_owned())
        .filter(|room| !free.contains(&room.as_str()))
        .collect();
    let named: BTreeSet<String> = MAY_USE.iter().map(|(room, _)| (*room).to_owned()).collect();
    assert_eq!(rooms, named, "src/ and MAY_USE have the same rooms");
    for (room, may) in MAY_USE {
        let above = MAY_USE.iter().skip_while(|(other, _)| *other != room);
        let upward: Vec<&str> = above
            .map(|(other, _)| *other)
            .filter(|other| may.contains(other))
            .collect();
        assert!(upward.is_empty(), "{room} stands below {upward:?} in MAY_USE");
    }
}

#[test]
fn nobody_uses_each_other() {
    let complaint = |circle: &Circle| {
        let uses = circle.uses.iter();
        let uses = uses.map(|edge| format!("\n    {} uses {}", edge.place, edge.to.join("::")));
        format!("{}{}", circle.name, uses.collect::<String>())
    };
    let complaints: Vec<String> = circles(&USES).iter().map(complaint).collect();
    none(
        &complaints,
        "modules that use each other are one module, or share a third",
    );
}
