//! Tests of `strict_toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the errors matter")]
struct File {
    name: String,
    limit_bytes: Option<u64>,
    mode: Option<Mode>,
    part: Option<Part>,
    #[serde(default)]
    list: Vec<Part>,
    table: Option<BTreeMap<String, Part>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only the errors matter")]
struct Part {
    model: String,
    size: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    Abort,
    Finish,
}

fn refused(text: &str) -> FileError {
    parse_all::<File>("a.toml", text).errors.remove(0)
}

#[test]
fn unknown_key_names_file_line_and_nearest() {
    let error = refused("name = \"x\"\nlimit_byte = 3\n");
    assert_eq!(
        error.to_string(),
        "a.toml:2: key `limit_byte` is unknown, did you mean `limit_bytes`?"
    );
    assert_eq!((error.line, error.key.as_deref()), (Some(2), Some("limit_byte")));
}

#[test]
fn unknown_key_in_nested_tables_has_its_own_line() {
    let error = refused("name = \"x\"\n\n[part]\nmodel = \"m\"\nsise = 3\n");
    assert_eq!(
        error.to_string(),
        "a.toml:5: key `sise` is unknown, did you mean `size`?"
    );
    let error = refused("name = \"x\"\n[[list]]\nmodel = \"m\"\n[[list]]\nmodle = \"m\"\n");
    assert_eq!(
        error.to_string(),
        "a.toml:5: key `modle` is unknown, did you mean `model`?"
    );
    let error = refused("name = \"x\"\n[table.t]\nmodel = \"m\"\nmodle = \"m\"\n");
    assert_eq!(
        error.to_string(),
        "a.toml:4: key `modle` is unknown, did you mean `model`?"
    );
}

#[test]
fn unknown_table_is_found() {
    let error = refused("name = \"x\"\n[prat]\nmodel = \"m\"\n");
    assert_eq!(
        error.to_string(),
        "a.toml:2: key `prat` is unknown, did you mean `part`?"
    );
}

#[test]
fn unknown_key_far_from_everything_lists_what_is_valid() {
    let error = refused("name = \"x\"\n[part]\nqqqqqqqq = 1\nmodel = \"m\"");
    assert!(
        error.message.ends_with("is unknown, valid here: model, size"),
        "{error}"
    );
}

#[test]
fn values_are_never_quoted() {
    let error = refused("name = \"x\"\nlimit_bytes = \"sk-secret-123\"\n");
    assert_eq!(
        error.to_string(),
        "a.toml:2: key `limit_bytes`: expected u64, found string"
    );
    let error = refused("name = \"x\"\nlimit_bytes = -5\n");
    assert!(!error.to_string().contains("-5"), "{error}");
    let error = refused("name = sk-secret-123\n");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn what_is_given_twice_is_named() {
    for (text, line, key) in [
        ("name = \"x\"\nname = \"y\"\n", 2, "name"),
        (
            "name = \"x\"\n[part]\nmodel = \"m\"\n[part]\nmodel = \"m\"\n",
            4,
            "part",
        ),
        ("name = \"x\"\npart = { model = \"m\", model = \"n\" }\n", 2, "model"),
        (
            "name = \"x\"\nlist = [{ model = \"m\", \"model\" = \"n\" }]\n",
            2,
            "model",
        ),
        ("name = \"x\"\npart.model = \"m\"\npart.model = \"n\"\n", 3, "model"),
        ("name = \"x\"\n[table.t]\nmodel = \"m\"\n[table.t]\n", 4, "t"),
    ] {
        let error = refused(text);
        assert_eq!(
            error.to_string(),
            format!("a.toml:{line}: key `{key}`: defined twice, keep one definition with all its settings"),
            "{text}"
        );
        assert_eq!(error.key.as_deref(), Some(key));
    }
}

#[test]
fn a_text_without_quotes_is_to_be_quoted() {
    for value in ["5", "-1.5", "true", "2026-11-21", "0x1f"] {
        let error = refused(&format!("name = {value}\n"));
        assert!(
            error
                .to_string()
                .starts_with("a.toml:1: key `name`: expected a string, found "),
            "{error}"
        );
        assert!(error.to_string().ends_with(": quote it"), "{error}");
    }
    for value in ["[1]", "{ a = 1 }"] {
        let error = refused(&format!("name = {value}\n"));
        assert!(!error.to_string().contains("quote it"), "{error}");
    }
    let error = refused("name = \"x\"\nlimit_bytes = 1.5\n");
    assert!(!error.to_string().contains("quote it"), "{error}");
}

#[test]
fn unknown_value_of_a_choice_names_the_nearest() {
    let error = refused("name = \"x\"\nmode = \"abbort\"\n");
    assert_eq!(
        error.to_string(),
        "a.toml:2: key `mode`: value `abbort` is unknown, did you mean `abort`?"
    );
    assert!(
        parse_all::<File>("a.toml", "name = \"x\"\nmode = \"finish\"\n")
            .errors
            .is_empty()
    );
}

#[test]
fn missing_key_is_named() {
    let error = refused("limit_bytes = 3\n");
    assert!(error.message.contains("key `name` is missing"), "{error}");
}

#[test]
fn syntax_error_has_a_line() {
    assert_eq!(refused("name = \"x\"\n= 3\n").line, Some(2));
    assert_eq!(refused("name = \"x\"\nname = \"y\"\n").line, Some(2));
}

#[test]
fn nearest_needs_likeness() {
    assert_eq!(nearest("modle", ["model", "name"].into_iter()), Some("model"));
    assert_eq!(nearest("zzz", ["model", "name"].into_iter()), None);
    assert_eq!(nearest("ab", ["x", "y"].into_iter()), None);
}
