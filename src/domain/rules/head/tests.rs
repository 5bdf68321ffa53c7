//! Tests of header edits.

mod query;

use super::*;
use crate::domain::rules::{RuleFile, compile::compile};

/// The file of a provider with these tables.
fn rule_file(tables: &str) -> RuleFile {
    let head =
        "name = \"p\"\n[auth]\nsecret = \"env:X\"\nstyle = \"bearer\"\n[endpoints]\nmessages = \"https://h/m\"\n";
    RuleFile {
        name: "p.toml".to_owned(),
        text: format!("{head}{tables}"),
    }
}

fn compiled(tables: &str) -> HeadEdits {
    compile(&rule_file(tables))
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .provider
        .headers
}

#[test]
fn header_edits_come_in_their_order() {
    let edits = compiled(
        "[headers]\nremove = [\"gone\"]\nrename = { old = \"new\", missing = \"kept\" }\n\
         set = { fixed = \"1\" }\ndefault = { there = \"d\", absent = \"d\" }\n",
    );
    let mut head = HeaderMap::new();
    for (name, value) in [
        ("gone", "x"),
        ("old", "1"),
        ("old", "2"),
        ("new", "x"),
        ("kept", "k"),
        ("fixed", "x"),
        ("there", "t"),
    ] {
        head.append(name, HeaderValue::from_static(value));
    }
    edit_head(&edits, &mut head);
    let values = |name: &str| {
        head.get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert!(values("gone").is_empty() && values("old").is_empty());
    assert_eq!(values("new"), ["1", "2"]);
    assert_eq!((values("kept"), values("fixed")), (vec!["k"], vec!["1"]));
    assert_eq!((values("there"), values("absent")), (vec!["t"], vec!["d"]));
}
