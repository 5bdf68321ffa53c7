//! What options mean, and how a mistake in them is told.

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
        let (_, asked) = run(vec![(200, json!({}))], command).await;
        assert_eq!(asked[0].1, "/v1/accounts/a");
    }
    for command in ["key show key_1", "key show --id key_1"] {
        let (_, asked) = run(vec![(200, json!({}))], command).await;
        assert_eq!(asked[0].1, "/v1/keys/key%5F1");
    }
    for text in [
        "key show",
        "account show",
        "key show a --id b",
        "account suspend a --id a",
    ] {
        assert!(line(text).is_err(), "{text}");
    }
}

#[tokio::test]
async fn an_error_speaks_of_options() {
    for (message, told) in [
        ("quota_usd: zero or more", "--quota-usd: zero or more"),
        ("expires_at: a time", "--expires: a time"),
        ("no key has this id: key_1", "no key has this id: key_1"),
    ] {
        let refusal = json!({ "error": { "code": "invalid", "message": message } });
        let (out, _) = run(vec![(400, refusal)], "key update key_1 --name n").await;
        assert_eq!(out.unwrap_err().to_string(), told);
    }
}

#[tokio::test]
async fn a_new_key_is_printed_alone_for_a_variable() {
    let created = json!({ "id": "key_1", "key": "sk-weir-abc" });
    let (out, _) = run(vec![(201, created)], "key create --account a --name n --only-key").await;
    assert_eq!(out.unwrap(), "sk-weir-abc\n");
}

#[tokio::test]
async fn an_update_of_nothing_is_a_mistake_before_anybody_is_asked() {
    for command in ["key update key_1", "account update --id a"] {
        let (out, asked) = run(vec![], command).await;
        assert!(
            matches!(out, Err(AdminClientError::Usage(_))) && asked.is_empty(),
            "{command}"
        );
    }
}

#[tokio::test]
async fn an_export_replaces_a_file_only_when_told_and_names_the_one_it_fails_on() {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("log.jsonl");
    std::fs::write(&out, "precious").unwrap();
    let command = |path: &Path, force: &str| format!("log export --format jsonl --out {}{force}", path.display());
    let empty = || vec![(200, json!({ "rows": [], "next": null }))];
    let (refused, asked) = run(empty(), &command(&out, "")).await;
    assert!(refused.unwrap_err().to_string().contains("--force") && asked.is_empty());
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    run(empty(), &command(&out, " --force")).await.0.unwrap();
    assert_eq!(std::fs::read(&out).unwrap(), b"{\"rows\":[],\"next\":null}");
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
    let (some, _) = run(unknown(json!([{ "model": "m" }])), "log query --model m --json").await;
    assert_eq!(some.unwrap().lines().count(), 1);
}
