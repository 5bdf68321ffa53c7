//! The description of the admin API: the file that has it, and what it says of each question.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Fixture;
use crate::side::admin::routes::{all_routes, description};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/admin-openapi.json");
const ROLES: &str = include_str!("../../../../docs/console.md");

fn described() -> Value {
    description(&all_routes().describing)
}

/// Method, path and what is said of it.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
    });
    operations.collect()
}

#[test]
fn the_file_is_made_of_the_questions() {
    let made = format!("{:#}\n", described());
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(FILE, made).unwrap();
    } else {
        let written = std::fs::read_to_string(FILE).unwrap_or_default();
        assert!(
            made == written,
            "docs/admin-openapi.json differs: write it with WEIR_WRITE=1, and read it"
        );
    }
}

#[test]
fn no_two_questions_share_a_place_or_a_name_and_each_segment_is_a_field() {
    let document = described();
    let operations = operations(&document);
    assert_eq!(
        operations.len(),
        all_routes().describing.len(),
        "each has its own method and path"
    );
    let names: BTreeSet<&str> = operations
        .iter()
        .map(|(.., operation)| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), operations.len());
    for (method, path, operation) in operations {
        let named = path
            .split('/')
            .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let named: BTreeSet<&str> = named.collect();
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        let in_path = parameters.iter().filter(|one| one["in"] == "path");
        let in_path: BTreeSet<&str> = in_path.map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(named, in_path, "{method} {path}");
        assert!(operation["summary"].is_string(), "{method} {path} is documented");
        for one in parameters {
            assert!(one["description"].is_string(), "{method} {path}: {one}");
            assert!(one["in"] != "path" || one["required"] == true, "{method} {path}: {one}");
        }
    }
}

#[test]
fn each_reference_leads_somewhere() {
    fn references<'a>(of: &'a Value, found: &mut BTreeSet<&'a str>) {
        match of {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = described();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 10, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

/// The paths that a role's row in docs/console.md names.
fn paths_of(role: &str) -> Vec<&'static str> {
    let row = ROLES.lines().find(|line| line.starts_with(&format!("| `{role}` |")));
    let parts = row.unwrap().split('`').filter(|part| part.starts_with("/v1/"));
    parts.collect()
}

#[test]
fn each_question_needs_the_role_that_the_documents_say() {
    let (operators, owners) = (paths_of("operator"), paths_of("owner"));
    assert!(!operators.is_empty() && !owners.is_empty());
    let is_below = |path: &str, above: &&str| path == *above || path.starts_with(&format!("{above}/"));
    let document = described();
    for (method, path, operation) in operations(&document) {
        let needed = match method {
            "get" if !owners.iter().any(|above| is_below(path, above)) => "viewer",
            "post" | "patch" | "delete" if operators.iter().any(|above| is_below(path, above)) => "operator",
            _ => "owner",
        };
        assert_eq!(operation["x-role"], needed, "{method} {path}");
    }
}

#[tokio::test]
async fn it_is_served_beside_the_questions() {
    let admin = Fixture::new().await;
    assert_eq!(admin.get("/v1/openapi.json").await, described());
}
