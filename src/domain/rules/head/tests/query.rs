//! Tests of query edits.

use crate::domain::rules::head::*;
use crate::domain::rules::{compile::compile, head::tests::rule_file};

fn compiled(tables: &str) -> Result<QueryEdits, String> {
    compile(&rule_file(tables))
        .map(|compiled| compiled.provider.query)
        .map_err(|errors| errors[0].to_string())
}

#[test]
fn query_edits_come_in_their_order() {
    let edits = compiled(
        "[query]\nremove = [\"beta\", \"a b\"]\nset = { alt = \"sse\", \"x&y\" = \"1=2 é+\" }\ndefault = { v = \"1\" }\n",
    )
    .unwrap();
    let run = |query| edit_query(&edits, query).map(Cow::into_owned);
    let added = "alt=sse&x%26y=1%3D2%20%C3%A9%2B";
    assert_eq!(run(None).unwrap(), format!("{added}&v=1"));
    assert_eq!(run(Some("beta=true")).unwrap(), format!("{added}&v=1"));
    assert_eq!(
        run(Some("b%65ta&c=%2f&v=&a+b=1&alt=json&a%20b&&alt")).unwrap(),
        format!("c=%2f&v=&&{added}")
    );
}

#[test]
fn a_query_without_edits_is_not_copied_and_may_vanish() {
    let none = QueryEdits::default();
    assert!(matches!(edit_query(&none, Some("a=1")), Some(Cow::Borrowed("a=1"))));
    assert_eq!(edit_query(&none, None), None);
    let remove = compiled("[query]\nremove = [\"beta\"]\n").unwrap();
    assert!(matches!(edit_query(&remove, Some("a=1")), Some(Cow::Borrowed("a=1"))));
    assert_eq!(edit_query(&remove, Some("beta=1&beta=2")), None);
}

#[test]
fn a_credential_is_no_query_edit() {
    for edit in [
        "set = { key = \"x\" }",
        "remove = [\"key\"]",
        "default = { key = \"x\" }",
    ] {
        let error = compiled(&format!("[query]\n{edit}\n")).unwrap_err();
        assert!(
            error.starts_with("p.toml:8: key `query`: `key` carries a credential"),
            "{error}"
        );
    }
    assert!(
        compiled("[query]\nset = { \"\" = \"x\" }\n")
            .unwrap_err()
            .contains("is empty")
    );
}
