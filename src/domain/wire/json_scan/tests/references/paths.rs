//! The walk against a reading of the whole tree by paths, and against the same body with maps of the user's own in it.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Protocol, StateKind, named};
use crate::domain::wire::provider_state::is_in_provider_store;

use Protocol::{Gemini, Messages, Responses};

/// Where state is named: members of one another, arrays left out. `a|b` is either, `a*` any number of them, `?` any, `**` any
/// members of content but those in [`stops`], and `@` the same in an item.
const PATHS: [(Protocol, &str, StateKind); 22] = [
    (Messages, "container", StateKind::Container),
    (Messages, "container skills* id", StateKind::Container),
    (Messages, "container skills* skill_id", StateKind::Skill),
    (Messages, "container skills skills*", StateKind::Container),
    (Messages, "thread previous_message_id", StateKind::Thread),
    (Messages, "diagnostics previous_message_id", StateKind::ComparedMessage),
    (Messages, "messages|system ** file_id|file_ids", StateKind::File),
    (Responses, "previous_response_id", StateKind::Response),
    (Responses, "conversation", StateKind::Conversation),
    (Responses, "conversation id", StateKind::Conversation),
    (Responses, "prompt id", StateKind::Prompt),
    (Responses, "prompt variables ? file_id|file_ids", StateKind::File),
    (
        Responses,
        "prompt_cache_options comparison_response_id",
        StateKind::ComparedResponse,
    ),
    (Responses, "input @ file_id|file_ids", StateKind::File),
    (Responses, "input @ container_id", StateKind::Container),
    (
        Responses,
        "input environment skills* id|container_id",
        StateKind::Container,
    ),
    (Responses, "input environment skills* file_id|file_ids", StateKind::File),
    (Responses, "input environment skills* skill_id", StateKind::Skill),
    (
        Gemini,
        "generateContentRequest* cachedContent",
        StateKind::CachedContent,
    ),
    (
        Gemini,
        "generateContentRequest* contents ** fileUri",
        StateKind::FileUri,
    ),
    (
        Gemini,
        "generateContentRequest* system_instruction ** fileUri",
        StateKind::FileUri,
    ),
    (
        Gemini,
        "generateContentRequest* tools fileSearch fileSearchStoreNames",
        StateKind::FileSearchStore,
    ),
];

/// The same below tools of Responses, wherever these stand.
const OF_TOOLS: [(&str, StateKind); 9] = [
    ("container", StateKind::Container),
    ("vector_store_ids", StateKind::VectorStore),
    ("tunnel_id", StateKind::Tunnel),
    ("file_id|file_ids", StateKind::File),
    ("skill_id", StateKind::Skill),
    ("input_image_mask file_id|file_ids", StateKind::File),
    (
        "container|environment|skills skills* id|container_id",
        StateKind::Container,
    ),
    ("container|environment|skills skills* file_id|file_ids", StateKind::File),
    ("container|environment|skills skills* skill_id", StateKind::Skill),
];

fn paths(protocol: Protocol) -> Vec<(String, StateKind)> {
    let own = PATHS.iter().filter(|(of, ..)| *of == protocol);
    let mut paths: Vec<_> = own.map(|(_, path, kind)| ((*path).to_owned(), *kind)).collect();
    if protocol == Responses {
        for tools in ["tools", "input @ tools"] {
            let of_tools = OF_TOOLS.iter();
            paths.extend(of_tools.map(|(path, kind)| (format!("{tools} tools* {path}"), *kind)));
        }
    }
    paths
}

/// Members whose values are no content: the user's own, tools, and names.
const fn stops(protocol: Protocol) -> &'static [&'static str] {
    match protocol {
        Messages => &["metadata", "args", "schema", "input", "tools", "file_id", "file_ids"],
        Responses => &[
            "metadata",
            "args",
            "schema",
            "input",
            "tools",
            "file_id",
            "file_ids",
            "container_id",
        ],
        Gemini => &["metadata", "args", "schema", "fileUri"],
    }
}

/// Names that stand in these paths, and others.
const KEYS: [&str; 38] = [
    "container",
    "skills",
    "id",
    "skill_id",
    "thread",
    "previous_message_id",
    "diagnostics",
    "messages",
    "system",
    "file_id",
    "file_ids",
    "previous_response_id",
    "conversation",
    "prompt",
    "variables",
    "prompt_cache_options",
    "comparison_response_id",
    "tools",
    "vector_store_ids",
    "tunnel_id",
    "input_image_mask",
    "environment",
    "container_id",
    "input",
    "output",
    "content",
    "generateContentRequest",
    "cachedContent",
    "contents",
    "fileUri",
    "fileSearch",
    "fileSearchStoreNames",
    "system_instruction",
    "metadata",
    "args",
    "schema",
    "source",
    "model_",
];

fn fits(protocol: Protocol, pattern: &[&str], path: &[&str]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return path.is_empty();
    };
    let any_further = |takes: &dyn Fn(&str) -> bool| {
        let fitting = path.iter().take_while(|name| takes(name)).count();
        (0..=fitting).any(|count| fits(protocol, rest, &path[count..]))
    };
    let is_content = |name: &str| !stops(protocol).contains(&name);
    match (*first, first.strip_suffix('*')) {
        ("@", _) if matches!(path.first(), Some(&("id" | "environment"))) => fits(protocol, rest, path),
        ("**" | "@", _) => any_further(&is_content),
        (_, Some(repeated)) => any_further(&|name| name == repeated),
        _ => path.split_first().is_some_and(|(name, after)| {
            (*first == "?" || first.split('|').any(|wanted| wanted == *name)) && fits(protocol, rest, after)
        }),
    }
}

/// A reading of the tree; names in the order of its keys.
fn of_tree(protocol: Protocol, body: &Value) -> Vec<(StateKind, String)> {
    let paths = paths(protocol);
    let patterns: Vec<(Vec<&str>, StateKind)> = paths
        .iter()
        .map(|(path, kind)| (path.split(' ').collect(), *kind))
        .collect();
    let mut found = Vec::new();
    walk(body, &mut Vec::new(), &mut |path, text| {
        let fitting = patterns.iter().find(|(pattern, _)| fits(protocol, pattern, path));
        let is_name = |kind: &StateKind| match kind {
            StateKind::FileUri => is_in_provider_store(text),
            StateKind::Skill => text.starts_with("skill_"),
            _ => !text.is_empty(),
        };
        let kind = fitting.map(|(_, kind)| *kind).filter(is_name);
        found.extend(kind.map(|kind| (kind, text.to_owned())));
    });
    found
}

fn walk<'v>(value: &'v Value, path: &mut Vec<&'v str>, found: &mut impl FnMut(&[&str], &str)) {
    match value {
        Value::Array(elements) => elements.iter().for_each(|element| walk(element, path, found)),
        Value::Object(members) => {
            for (key, value) in members {
                path.push(key);
                walk(value, path, found);
                path.pop();
            }
        }
        Value::String(text) => found(path, text),
        _ => {}
    }
}

fn text() -> impl Strategy<Value = String> {
    let known = vec!["", "x", "skill_x", "files/x", "https://a.test/x", "\u{e9}\"\\"];
    prop::sample::select(known).prop_map(str::to_owned)
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(KEYS.to_vec()).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => text().prop_map(Value::from),
        1 => prop::sample::select(vec![Value::Null, json!(1), json!(false)]),
    ];
    leaf.prop_recursive(6, 60, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(key(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A body of a few members, one of which leads along one of the paths for sure.
fn body(protocol: Protocol) -> impl Strategy<Value = Value> {
    let paths: Vec<String> = paths(protocol).into_iter().map(|(path, _)| path).collect();
    let members = prop::collection::hash_map(key(), value(), 0..5);
    (members, prop::sample::select(paths), text(), any::<bool>()).prop_map(|(members, path, text, in_arrays)| {
        let mut body: Map<String, Value> = members.into_iter().collect();
        let names: Vec<&str> = path
            .split(' ')
            .map(|name| name.split('|').next().unwrap())
            .map(|name| match name {
                "**" | "@" => "source",
                "?" => "any",
                name => name.trim_end_matches('*'),
            })
            .collect();
        let along = names[1..].iter().rev().fold(Value::from(text), |inner, name| {
            let inner = if in_arrays { json!([inner]) } else { inner };
            json!({ *name: inner })
        });
        body.insert(names[0].to_owned(), along);
        Value::Object(body)
    })
}

/// Items are judged by their whole: `items.rs`.
fn without_items(mut found: Vec<(StateKind, String)>) -> Vec<(StateKind, String)> {
    found.retain(|(kind, _)| !matches!(kind, StateKind::Item | StateKind::SummarizedItem));
    let order = |(kind, id): &(StateKind, String)| (kind.field_path(), id.clone());
    found.sort_by_key(order);
    found
}

/// Places of maps of the user's own, by the path of the object that has them.
const MAPS: [(Protocol, &str, &str); 15] = [
    (Messages, "", "metadata"),
    (Messages, "", "tools"),
    (Messages, "messages", "input"),
    (Messages, "messages", "metadata"),
    (Responses, "", "metadata"),
    (Responses, "", "text"),
    (Responses, "", "client_metadata"),
    (Responses, "tools", "headers"),
    (Responses, "tools", "parameters"),
    (Responses, "input", "arguments"),
    (Responses, "input", "metadata"),
    (Gemini, "", "labels"),
    (Gemini, "", "toolConfig"),
    (Gemini, "contents", "partMetadata"),
    (Gemini, "tools", "mcpServers"),
];

/// Puts the map under this name into every object that the top-level member leads to.
fn insert(value: &mut Value, name: &str, map: &Value) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|element| insert(element, name, map)),
        Value::Object(members) => drop(members.insert(name.to_owned(), map.clone())),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_walk_finds_what_the_tree_has(
        (protocol, body) in prop::sample::select(vec![Messages, Responses, Gemini])
            .prop_flat_map(|protocol| (Just(protocol), body(protocol))),
        escaped in any::<bool>(),
    ) {
        let mut text = body.to_string();
        if escaped {
            // Another spelling of the same text.
            text = text.replace('f', "\\u0066").replace("\\u0066alse", "false");
        }
        let (ours, theirs) = (named(protocol, &text), of_tree(protocol, &body));
        prop_assert_eq!(without_items(ours), without_items(theirs), "{:?} {}", protocol, text);
    }

    #[test]
    fn maps_of_the_users_own_change_nothing(
        (protocol, body) in prop::sample::select(vec![Messages, Responses, Gemini])
            .prop_flat_map(|protocol| (Just(protocol), body(protocol))),
        map in value(),
        place in any::<prop::sample::Index>(),
    ) {
        let maps: Vec<_> = MAPS.iter().filter(|(of, ..)| *of == protocol).collect();
        let (_, holder, name) = maps[place.index(maps.len())];
        let map = json!({ "file_id": map, "container": map, "id": "x", "previous_response_id": "x", "fileUri": "files/x" });
        let mut without = body;
        let mut with = without.clone();
        for (body, map) in [(&mut without, json!({})), (&mut with, map)] {
            match *holder {
                "" => insert(body, name, &map),
                holder => {
                    if let Some(of) = body.get_mut(holder) {
                        insert(of, name, &map);
                    }
                }
            }
        }
        prop_assert_eq!(named(protocol, &with.to_string()), named(protocol, &without.to_string()), "{}", with);
    }
}
