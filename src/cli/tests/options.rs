//! Tests of the options' meanings, and of errors in options.

use super::*;

#[test]
fn a_bare_path_is_told_of_conf() {
    for text in ["serve weir.toml", "check weir.toml"] {
        let told = line(text).unwrap_err().to_string();
        assert!(told.contains("--conf FILE"), "{told}");
    }
    let told = line("serve --prot 1").unwrap_err().to_string();
    assert!(!told.contains("--conf FILE"), "{told}");
}

#[test]
fn days_are_counted_or_named() {
    for good in ["--days 2", "--from 2026-11-01 --until 2026-11-02"] {
        assert!(line(&format!("log verify {good}")).is_ok(), "{good}");
    }
    for wrong in [
        "",
        "--days 0",
        "--days 181",
        "--from 2026-11-01",
        "--days 2 --from 2026-11-01",
        "--until 2026-11-02 --days 2",
    ] {
        assert!(line(&format!("log verify {wrong}")).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn an_id_is_given_the_same_way_to_keys_and_accounts() {
    for command in ["account show a", "account show --id a"] {
        let (_, asked) = run(vec![(200, account(json!({})))], command).await;
        assert_eq!(asked[0].1, "/v1/accounts/a");
    }
    for command in ["key show key_0000000000000001", "key show --id key_0000000000000001"] {
        let (_, asked) = run(vec![(200, key(json!({})))], command).await;
        assert_eq!(asked[0].1, "/v1/keys/key_0000000000000001");
    }
    for command in [
        "account credit a --usd 5",
        "account credit --id a --usd 5",
        "account adjust a --usd -5 --reason mistake",
        "account suspend a",
    ] {
        let (_, asked) = run(vec![(200, json!({}))], command).await;
        assert!(asked[0].1.starts_with("/v1/accounts/a/"), "{command}: {asked:?}");
    }
    for text in [
        "key show",
        "account show",
        "key show a --id b",
        "account suspend a --id a",
        "account credit --usd 5",
        "account credit a --id a --usd 5",
    ] {
        assert!(line(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn an_error_speaks_of_options() {
    for (field, message, told) in [
        (json!("quota_usd"), "zero or more", "--quota-usd: zero or more"),
        (json!("expires_at"), "a time", "--expires: a time"),
        (Value::Null, "no key has this id: key_1", "no key has this id: key_1"),
    ] {
        let refusal = json!({ "error": { "code": "invalid", "field": field, "message": message } });
        let (out, _) = run(vec![(400, refusal)], "key update key_0000000000000001 --name n").await;
        assert_eq!(out.unwrap_err().to_string(), told);
    }
}

#[tokio::test]
async fn a_new_key_is_printed_alone_for_a_variable() {
    let created = key(json!({ "key": "sk-weir-abc" }));
    for command in [
        "key create --account a --name n --only-key",
        "key rotate key_0000000000000001 --only-key --overlap 1h",
    ] {
        let (out, _) = run(vec![(201, created.clone())], command).await;
        assert_eq!(out.unwrap(), "sk-weir-abc\n", "{command}");
    }
    assert!(line("key rotate key_0000000000000001 --only-key --json").is_err());
}

#[tokio::test]
async fn days_and_moments_begin_with_from_everywhere() {
    let empty = || vec![(200, json!({ "rows": [], "next": null }))];
    let (_, asked) = run(empty(), "log query --from 2026-11-01 --until 2026-11-02 --json").await;
    assert!(
        asked[0]
            .1
            .contains("?from=2026-11-01T00%3A00%3A00Z&until=2026-11-02T00%3A00%3A00Z"),
        "{asked:?}"
    );
    for command in [
        "log query",
        "log export --format csv",
        "log verify --until 2026-11-02",
        "usage",
    ] {
        let text = format!("{command} --from 2026-11-01");
        assert!(line(&text).is_ok(), "{text}");
        assert!(line(&text.replace("--from", "--since")).is_err(), "{text}");
    }
}

#[test]
fn an_overlap_is_a_duration() {
    let help = line("key rotate --help").unwrap_err().to_string();
    assert!(
        help.contains("--overlap <DURATION>") && !help.contains("<TIME"),
        "{help}"
    );
}

#[tokio::test]
async fn what_a_key_has_spent_is_told_in_words() {
    let spent = json!({
        "day_usd": "0.50", "day_nano_usd": 500_000_000, "week_usd": "1.25", "week_nano_usd": 1_250_000_000,
        "month_usd": "3.00", "month_nano_usd": 3_000_000_000_u64, "all_usd": "10.00", "all_nano_usd": 10_000_000_000_u64,
    });
    let spent = key(json!({ "spent": spent }));
    let (out, _) = run(vec![(200, spent.clone())], "key show key_0000000000000001").await;
    let out = out.unwrap();
    assert!(
        out.contains("spent          0.50 USD today, 1.25 USD this week, 3.00 USD this month, 10.00 USD in total\n"),
        "{out}"
    );
    let (out, _) = run(vec![(200, spent.clone())], "key show key_0000000000000001 --json").await;
    assert_eq!(serde_json::from_str::<Value>(&out.unwrap()).unwrap(), spent);
    let (out, _) = run(vec![(200, key(json!({})))], "key show key_0000000000000001").await;
    assert!(out.unwrap().contains("spent          unknown\n"));
}

#[tokio::test]
async fn when_somebody_is_told_is_shown_as_it_is_typed_for_keys_and_accounts() {
    for (chosen, shown) in [
        (Value::Null, "default"),
        (json!([]), "none"),
        (json!([50, 100]), "50,100"),
    ] {
        let chosen = json!({ "notify_percent": chosen });
        for (command, answer) in [
            ("key show key_0000000000000001", key(chosen.clone())),
            ("account show a", account(chosen.clone())),
        ] {
            let (out, _) = run(vec![(200, answer)], command).await;
            let out = out.unwrap();
            let told = out.lines().find_map(|line| line.strip_prefix("notify_percent"));
            assert_eq!(told.map(str::trim), Some(shown), "{command}: {out}");
        }
    }
}

#[tokio::test]
async fn a_provider_whose_host_has_no_address_is_not_called_on() {
    let provider = |backends: Value, unresolved: Value| {
        json!({
            "name": "p", "display_name": "P", "configured": true, "why_off": null, "enabled": true,
            "credentials": [{ "name": "default", "cooldown_seconds": 0 }], "backends_ejected": 0,
            "backends": backends, "unresolved": unresolved, "open_circuits": [],
        })
    };
    let place = json!([{ "address": "127.0.0.1:9", "origin": "http://h:9", "ejected_seconds": 0 }]);
    for (provider, told) in [
        (
            provider(json!([]), json!(["api.example"])),
            "p                 unresolved  default; api.example is not resolved",
        ),
        (
            provider(place.clone(), json!(["other.example"])),
            "p                 on          default; other.example is not resolved",
        ),
        (provider(place, json!([])), "p                 on          default"),
    ] {
        let (out, _) = run(vec![(200, json!({ "providers": [provider] }))], "provider list").await;
        let out = out.unwrap();
        assert_eq!(out.lines().last(), Some(told), "{out}");
    }
}

#[tokio::test]
async fn an_update_of_nothing_is_a_mistake_before_anybody_is_asked() {
    for command in ["key update key_0000000000000001", "account update --id a"] {
        let (out, asked) = run(vec![], command).await;
        assert!(
            matches!(out, Err(AdminClientError::Usage(_))) && asked.is_empty(),
            "{command}"
        );
    }
}

#[tokio::test]
async fn an_export_has_the_form_that_format_names_and_refuses_json() {
    let (refused, asked) = run(Vec::new(), "log export --format csv --json").await;
    assert!(refused.unwrap_err().to_string().contains("--format jsonl") && asked.is_empty());
}

#[tokio::test]
async fn an_export_replaces_a_file_only_when_told_and_names_the_one_it_fails_on() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("log.jsonl");
    fs::write(&out, "precious").unwrap();
    let command = |path: &Path, force: &str| format!("log export --format jsonl --out {}{force}", path.display());
    let empty = || vec![(200, json!({ "rows": [], "next": null }))];
    let (refused, asked) = run(empty(), &command(&out, "")).await;
    assert!(refused.unwrap_err().to_string().contains("--force") && asked.is_empty());
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    run(empty(), &command(&out, " --force")).await.0.unwrap();
    assert_eq!(fs::read(&out).unwrap(), b"{\"rows\":[],\"next\":null}");
    let nowhere = folder.path().join("none/log.jsonl");
    let told = run(empty(), &command(&nowhere, "")).await.0.unwrap_err().to_string();
    assert!(told.contains(&nowhere.display().to_string()), "{told}");
}

#[tokio::test]
async fn a_model_that_nobody_knows_is_told_only_where_no_row_has_it() {
    let unknown = |rows: Value| {
        vec![(
            200,
            json!({ "rows": rows, "next": null, "unknown_model": "no such model" }),
        )]
    };
    let (none, _) = run(unknown(json!([])), "log query --model m --json").await;
    assert_eq!(none.unwrap_err().to_string(), "no such model");
    let (some, _) = run(unknown(json!([money::row("r", "m")])), "log query --model m --json").await;
    assert_eq!(some.unwrap().lines().count(), 1);
}
