//! Tests of `[console.openid]` in `config::console`.

use super::*;
use crate::domain::sign_in::Role;

/// Returns a complete section that also contains `more`.
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
    assert!(with("\"owner\"", "\"root\"").contains("no such role, give viewer, operator or owner"));
    let said = one_error(&section("scopes = [\"a b\"]"));
    assert!(said.contains("console.openid.scopes"), "{said}");
    let (nobody, _) = whole.split_once("[console.openid.roles]").unwrap();
    assert!(one_error(nobody).contains("nobody may sign in"));
}

#[test]
fn browsers_have_to_find_back() {
    let whole = section("");
    let off = one_error(&whole.replace("listen = \"127.0.0.1:8083\"", ""));
    assert!(off.contains("has no effect without a listener"), "{off}");
    let certificate = "[[console.tls.certificate]]\nchain = \"c\"\nkey = \"env:K\"\n";
    let everywhere = format!("{}{certificate}", whole.replace("127.0.0.1:8083", "0.0.0.0:8083"));
    let lost = one_error(&everywhere);
    assert!(lost.contains("set [console] url"), "{lost}");
    let url = "[console]\nurl = \"https://console.example\"";
    assert!(parse(&everywhere.replacen("[console]", url, 1)).is_ok());
}

#[test]
fn a_template_is_for_people_whom_the_provider_vouches_for() {
    let whole = |more: &str| format!("{}[sign_in.template]\naccount = \"people\"\n{more}", section(""));
    let text = whole("quota_usd = \"20\"\nreset = \"monthly\"\nconcurrency = 4\nmodels = [\"m\"]\ngroups = [\"g\"]\n");
    let template = parse(&text).unwrap().sign_in.template.unwrap();
    assert_eq!(template.account, "people");
    assert_eq!(
        template.terms.quota.map(|quota| quota.to_string()).as_deref(),
        Some("20.00")
    );
    assert_eq!(
        (
            template.terms.reset.as_str(),
            template.terms.rates.concurrency,
            template.terms.rates.rpm
        ),
        ("monthly", Some(4), None)
    );
    let one = |text: &str| Some(vec![text.to_owned()]);
    assert_eq!((template.models, template.groups), (one("m"), one("g")));
    for (wrong, said) in [
        ("quota_usd = \"-1\"", "zero or more"),
        ("quota_usd = \"many\"", "sign_in.template.quota_usd"),
        ("reset = \"monthly\"", "only a quota can be reset"),
        (
            "quota_usd = \"1\"\nreset = \"hourly\"",
            "none, daily, weekly or monthly",
        ),
        ("rpm = 0", "sign_in.template.rpm"),
    ] {
        let error = one_error(&whole(wrong));
        assert!(error.contains(said), "{wrong}: {error}");
    }
    let nobody = one_error(&whole("").replace("account = \"people\"", ""));
    assert!(nobody.contains("key `sign_in.template.account` is missing"), "{nobody}");
    let alone = one_error("[sign_in.template]\naccount = \"people\"");
    assert!(alone.contains("set [console.openid]"), "{alone}");
}
