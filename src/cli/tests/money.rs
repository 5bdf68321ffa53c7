//! Tests of `weir account`, of the limits of keys, and of `weir log`.

use serde_json::{Value, json};

use std::sync::Arc;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
};

use super::{account, created, key, line, run, without_seed};
use crate::cli::{Command, admin_client::AdminClientError, run_account};

pub(super) fn row(request: &str, model: &str) -> Value {
    json!({
        "time": "2026-11-21T12:00:00Z", "time_ms": 1_795_262_400_000_i64, "admitted_ms": 1_795_262_399_000_i64,
        "request_id": request, "account": "a", "key_id": "key_0000000000000001", "protocol": "messages",
        "model_asked": model, "model": model, "provider": "p", "status": 200, "outcome": "done", "stream": true,
        "input_uncached": 10, "cache_read": 5, "output_text": 7, "usage_source": "reported", "price_version": "v1",
        "cost_nano_usd": 1_250_000_000, "latency_ms": 900, "ttft_ms": null,
    })
}

#[tokio::test]
async fn accounts_are_changed_by_what_was_given_alone() {
    for (command, call) in [
        (
            "account create --id a.b --balance-usd 5 --rpm none --operation-id o1",
            (
                "POST",
                "/v1/accounts",
                json!({ "id": "a.b", "balance_usd": "5.00", "rpm": null, "operation_id": "o1" }),
            ),
        ),
        (
            "account credit --id a.b --usd 1.5 --operation-id o2",
            (
                "POST",
                "/v1/accounts/a.b/credit",
                json!({ "usd": "1.50", "operation_id": "o2" }),
            ),
        ),
        (
            "account adjust --id a --usd -0.25 --reason mistake --operation-id o3",
            (
                "POST",
                "/v1/accounts/a/adjust",
                json!({ "usd": "-0.25", "reason": "mistake", "operation_id": "o3" }),
            ),
        ),
        (
            "account update --id a --low-balance-usd none --tpm 9",
            ("PATCH", "/v1/accounts/a", json!({ "low_balance_usd": null, "tpm": 9 })),
        ),
        (
            "account suspend --id a",
            ("POST", "/v1/accounts/a/suspend", Value::Null),
        ),
        ("account show --id a", ("GET", "/v1/accounts/a", Value::Null)),
    ] {
        let (out, asked) = run(vec![(200, account(json!({ "applied": true })))], command).await;
        out.unwrap();
        let (method, path, body) = call;
        assert_eq!(asked, [(method.to_owned(), path.to_owned(), body)], "{command}");
    }
}

/// Runs a command against a weir that accepts calls, but does not answer the first `lost` of them.
async fn run_losing(lost: usize, command: &str) -> (Result<String, AdminClientError>, Vec<Value>) {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let bodies = Arc::clone(&asked);
    let server = tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut call = Vec::new();
            // The body is JSON without inner braces, and is the last part of the call.
            while !call.ends_with(b"}") {
                stream.read_buf(&mut call).await.unwrap();
            }
            let call = String::from_utf8(call).unwrap();
            let body = serde_json::from_str(call.split("\r\n\r\n").nth(1).unwrap()).unwrap();
            bodies.lock().push(body);
            if number >= lost {
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 28\r\n\r\n{\"id\": \"a\", \"applied\": true}";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    let mut out = Vec::new();
    let Command::Account(command) = line(command).unwrap() else {
        panic!("not a command on accounts")
    };
    let result = run_account(&command, |_| Ok(socket), &mut out).await;
    server.abort();
    let asked = std::mem::take(&mut *asked.lock());
    (result.map(|()| String::from_utf8(out).unwrap()), asked)
}

#[tokio::test]
async fn a_credit_whose_answer_is_lost_is_asked_for_once_more_under_the_same_id() {
    for command in [
        "account credit --id a --usd 5",
        "account adjust --id a --usd 5 --reason x",
        "account create --id a --balance-usd 5",
    ] {
        let (out, asked) = run_losing(1, command).await;
        out.unwrap();
        assert_eq!(asked.len(), 2, "{command}");
        assert_eq!(asked[0], asked[1], "{command}");
        let id = asked[0]["operation_id"].as_str().unwrap();
        assert!(id.starts_with("op_"), "{id}");
        let (_, other) = run_losing(0, command).await;
        assert_eq!(other.len(), 1);
        assert_ne!(
            other[0]["operation_id"], asked[0]["operation_id"],
            "each run has its own"
        );
    }
    // A call without an id is not repeated.
    let (out, asked) = run_losing(1, "account update --id a --rpm 5").await;
    assert!(matches!(out, Err(AdminClientError::AnswerLost { .. })), "{out:?}");
    assert_eq!(asked.len(), 1);
}

#[tokio::test]
async fn a_credit_that_is_never_answered_names_the_id_that_makes_it_safe_to_repeat() {
    let (out, asked) = run_losing(9, "account credit --id a --usd 5 --operation-id order-7").await;
    let said = out.unwrap_err().to_string();
    assert!(
        said.contains("may or may not have taken effect") && said.contains("--operation-id order-7"),
        "{said}"
    );
    assert_eq!(asked.len(), 2);
}

#[tokio::test]
async fn a_change_that_is_only_recorded_is_told_so() {
    let answer = || vec![(200, json!({ "id": "a", "applied": false }))];
    let (out, _) = run(answer(), "account credit --id a --usd 5").await;
    assert!(out.unwrap().contains("is recorded and takes effect"));
    let (out, _) = run(answer(), "account credit --id a --usd 5 --json").await;
    assert_eq!(out.unwrap(), "{\"id\":\"a\",\"applied\":false}\n");
}

#[tokio::test]
async fn amounts_are_shown_in_usd() {
    let account = account(json!({ "balance_usd": "12.50", "balance_nano_usd": 12_500_000_000_i64 }));
    let (out, _) = run(vec![(200, account.clone())], "account show --id a").await;
    let out = out.unwrap();
    assert!(out.contains("balance_usd      12.50") && !out.contains("nano"), "{out}");
    let (out, _) = run(
        vec![(200, json!({ "accounts": [account], "next": null }))],
        "account list",
    )
    .await;
    assert!(out.unwrap().lines().nth(1).unwrap().contains("12.50"));
}

#[tokio::test]
async fn limits_of_a_key_are_sent_and_its_blank_quota_is_unlimited() {
    let command = "key create --account me --name laptop --quota-usd 10 --reset daily --rpm 5 --tpm none --on-exhausted cut --finish-factor none";
    let (_, asked) = run(vec![(201, created())], command).await;
    let body = json!({ "account": "me", "name": "laptop", "quota_usd": "10.00",
        "reset": "daily", "on_exhausted": "cut", "finish_factor": null, "rpm": 5, "tpm": null });
    assert_eq!(without_seed(&asked[0].2), body);
    let (out, _) = run(vec![(200, key(json!({})))], "key show key_0000000000000001").await;
    let out = out.unwrap();
    for line in [
        "quota_usd      unlimited",
        "spent_usd      unknown",
        "rpm            none",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let limited = key(json!({ "quota_usd": "1.00", "reset": "weekly" }));
    let (out, _) = run(
        vec![(200, json!({ "keys": [key(json!({})), limited], "next": null }))],
        "key list",
    )
    .await;
    let out = out.unwrap();
    assert!(out.contains("unlimited") && out.contains("1.00 weekly"), "{out}");
    let update = "key update key_0000000000000001 --quota-usd unlimited";
    let (_, asked) = run(vec![(200, key(json!({})))], update).await;
    assert_eq!(asked[0].2, json!({ "quota_usd": null }));
}

#[tokio::test]
async fn the_log_is_read_page_by_page() {
    let pages = || {
        vec![
            (200, json!({ "rows": [row("r1", "m")], "next": "7.1.a" })),
            (200, json!({ "rows": [], "next": "9.0.b" })),
            (200, json!({ "rows": [row("r2", "m")], "next": null })),
        ]
    };
    let (out, asked) = run(pages(), "log query --account a --json").await;
    let out = out.unwrap();
    assert_eq!(out.lines().count(), 2);
    let printed: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&printed["request_id"], &printed["cost_nano_usd"]),
        (&json!("r1"), &json!(1_250_000_000))
    );
    assert!(
        asked[0].1.contains("account=a&hours=24"),
        "{}: the last day",
        asked[0].1
    );
    assert!(asked[1].1.ends_with("&cursor=7.1.a"));
    let (out, _) = run(pages(), "log query --account a").await;
    let line = out.unwrap().lines().nth(1).unwrap().to_owned();
    let shown: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(shown[1..], ["key_0000000000000001", "m", "200", "15", "7", "1.25"]);
    let (out, asked) = run(pages(), "log query --limit 1 --json").await;
    assert_eq!((out.unwrap().lines().count(), asked.len()), (1, 1));
}

#[tokio::test]
async fn the_log_shows_what_each_model_had_of_a_request() {
    let mut shared = row("r1", "m");
    shared["parts"] = json!([
        {"run": "answer", "model": "m", "input_uncached": 6, "output_text": 3, "cost_nano_usd": 250_000_000},
        {"run": "advisor", "model": "n", "input_uncached": 4, "cache_read": 5, "output_text": 4, "cost_nano_usd": 1_000_000_000},
    ]);
    shared["tags"] = json!(["team=a", "run=7"]);
    let pages = || vec![(200, json!({ "rows": [shared, row("r2", "m")], "next": null }))];
    let (out, _) = run(pages(), "log query").await;
    let table = out.unwrap();
    let shown = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = table.lines().map(shown).collect();
    assert_eq!(lines.len(), 5, "{table}");
    assert_eq!(lines[2], ["answer", "m", "6", "3", "0.25"]);
    assert_eq!(lines[3], ["advisor", "n", "9", "4", "1.00"]);
    let (out, _) = run(pages(), "log query --json").await;
    let first: Value = serde_json::from_str(out.unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(first["parts"], shared["parts"]);
}

#[tokio::test]
async fn an_export_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    let command = format!("log export --format csv --status 5xx --out {}", path.display());
    let (out, asked) = run(vec![(200, json!("whatever weir writes"))], &command).await;
    assert_eq!(out.unwrap(), "");
    assert_eq!(asked[0].1, "/v1/log/export/csv?status=5xx", "and no time: all there is");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "\"whatever weir writes\"");
    std::fs::remove_file(&path).unwrap();
    let (out, _) = run(
        vec![(
            503,
            json!({ "error": { "code": "store_unavailable", "message": "away" } }),
        )],
        &command,
    )
    .await;
    assert_eq!(out.unwrap_err().to_string(), "away");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
