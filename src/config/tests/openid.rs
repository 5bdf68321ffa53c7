//! Tests of `config::openid`.

use super::*;
use crate::domain::role::Role;

/// A whole section, with `more` in it.
fn section(more: &str) -> String {
    format!(
        "[console]\nlisten = \"127.0.0.1:8083\"\n[console.openid]\nissuer = \"https://login.example\"\nclient_id = \"weir\"\n{more}\n\
         [console.openid.roles]\n\"the ops\" = \"operator\"\nowners = \"owner\"\n"
    )
}

#[test]
fn groups_have_roles_and_the_rest_has_defaults() {
    let openid = parse(&section("")).unwrap().console.openid.unwrap();
    let roles = [
        ("owners".to_owned(), Role::Owner),
        ("the ops".to_owned(), Role::Operator),
    ];
    assert_eq!(openid.roles, roles);
    assert_eq!((openid.groups_claim.as_str(), openid.client_secret), ("groups", None));
    assert_eq!(openid.scopes, ["openid", "profile", "email"]);
    let openid = parse(&section("scopes = [\"groups\"]\nclient_secret = \"env:S\""))
        .unwrap()
        .console
        .openid
        .unwrap();
    assert_eq!(openid.scopes, ["openid", "groups"], "which is always asked for");
    assert_eq!(openid.client_secret, Some(SecretRef::Env("S".to_owned())));
    assert_eq!(parse("").unwrap().console.openid, None);
}

#[test]
fn a_provider_that_could_be_read_on_its_way_or_lets_nobody_in_is_refused() {
    let whole = section("");
    let with = |from: &str, to: &str| one_error(&whole.replace(from, to));
    for issuer in [
        "http://login.example",
        "login.example",
        "https://a@login.example",
        "https://login.example?x",
        "",
    ] {
        let said = with("https://login.example", issuer);
        assert!(said.starts_with("weir.toml:4: key `console.openid.issuer`"), "{said}");
    }
    assert!(parse(&whole.replace("https://login.example", "http://127.0.0.1:9000/realm")).is_ok());
    assert!(with("\"weir\"", "\"\"").contains("console.openid.client_id"));
    assert!(with("\"owner\"", "\"root\"").contains("`root` is no role"));
    let said = one_error(&section("scopes = [\"a b\"]"));
    assert!(said.contains("console.openid.scopes"), "{said}");
    let (nobody, _) = whole.split_once("[console.openid.roles]").unwrap();
    assert!(one_error(nobody).contains("nobody may sign in"));
}

#[test]
fn browsers_have_to_find_back() {
    let whole = section("");
    let off = one_error(&whole.replace("listen = \"127.0.0.1:8083\"", ""));
    assert!(off.contains("has no listener"), "{off}");
    let certificate = "[[console.tls.certificate]]\nchain = \"c\"\nkey = \"env:K\"\n";
    let everywhere = format!("{}{certificate}", whole.replace("127.0.0.1:8083", "0.0.0.0:8083"));
    let lost = one_error(&everywhere);
    assert!(lost.contains("set [console] url"), "{lost}");
    let url = "[console]\nurl = \"https://console.example\"";
    assert!(parse(&everywhere.replacen("[console]", url, 1)).is_ok());
}
