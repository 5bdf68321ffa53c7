//! Tests of `cli`.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

use super::*;

mod log_home;
mod money;
mod options;

fn line(text: &str) -> Result<Command, clap::Error> {
    parse(
        std::iter::once("weir")
            .chain(text.split_whitespace())
            .map(OsString::from),
    )
}

fn key_command(text: &str) -> key::KeyCommand {
    match line(text).unwrap() {
        Command::Key(command) => command,
        other => panic!("expected a key command, got {other:?}"),
    }
}

/// The method, the path and the body of a call.
type Call = (String, String, Value);

/// A substitute for a running weir. It gives the answers in order, and records the calls.
struct FakeWeir {
    answers: Vec<(u16, Value)>,
    asked: Vec<Call>,
}

type SharedWeir = Arc<Mutex<FakeWeir>>;

/// Runs a client command against a fake weir. Returns the output and the calls.
async fn run(answers: Vec<(u16, Value)>, command: &str) -> (Result<String, AdminClientError>, Vec<Call>) {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("admin.sock");
    let fake: SharedWeir = Arc::new(Mutex::new(FakeWeir {
        answers,
        asked: Vec::new(),
    }));
    let router = Router::new().fallback(answer).with_state(Arc::clone(&fake));
    let listener = UnixListener::bind(&socket).unwrap();
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut out = Vec::new();
    let result = match line(command).unwrap() {
        Command::Key(command) => run_key(&command, |_| Ok(socket), &mut out).await,
        Command::Account(command) => run_account(&command, |_| Ok(socket), &mut out).await,
        Command::Log(log::LogSubcommand::Read(command)) => run_log(&command, |_| Ok(socket), &mut out).await,
        Command::Provider(command) => run_provider(&command, |_| Ok(socket), &mut out).await,
        other => panic!("not a client command: {other:?}"),
    };
    server.abort();
    let asked = std::mem::take(&mut fake.lock().asked);
    (result.map(|()| String::from_utf8(out).unwrap()), asked)
}

async fn answer(
    State(fake): State<SharedWeir>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, axum::Json<Value>) {
    let mut fake = fake.lock();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    fake.asked.push((method.to_string(), uri.to_string(), body));
    let (status, answer) = fake.answers.remove(0);
    (StatusCode::from_u16(status).unwrap(), axum::Json(answer))
}

/// Returns a JSON object with some fields set.
fn with(mut object: Value, fields: Value) -> Value {
    let (Value::Object(all), Value::Object(set)) = (&mut object, fields) else {
        panic!("two objects")
    };
    all.extend(set);
    object
}

/// Returns a key as in an answer of the API, with these fields.
fn key(fields: Value) -> Value {
    let key = json!({
        "id": "key_0000000000000001", "version": "1-5f3a9c21", "name": "laptop", "account": "me", "state": "active",
        "created_at": "2026-11-21T12:00:00Z", "expires_at": null, "revoked_at": null, "last_used": null, "models": null,
        "hint": "wxyz", "former": null, "quota_usd": null, "quota_nano_usd": null, "reset": "none", "resets_at": null,
        "spent_usd": null, "spent_nano_usd": null, "spent": null, "held_usd": null, "held_nano_usd": null, "running": null,
        "rpm": null, "tpm": null, "concurrency": null, "on_exhausted": "finish", "finish_factor": 2, "notify_percent": null,
    });
    with(key, fields)
}

/// Returns an account as in an answer of the API, with these fields.
fn account(fields: Value) -> Value {
    let account = json!({
        "id": "a", "version": "1-5f3a9c21", "state": "active", "balance_usd": "0.00", "balance_nano_usd": 0,
        "held_usd": "0.00", "held_nano_usd": 0, "spent_usd": "0.00", "spent_nano_usd": 0, "running": 0,
        "low_balance_usd": null, "low_balance_nano_usd": null, "balance_is_low": true, "notify_percent": null, "rpm": null,
        "tpm": null, "concurrency": null, "provider_state": "own", "created_at": "2026-11-21T12:00:00Z",
    });
    with(account, fields)
}

/// Checks that the body has the fields that make the call repeatable, and returns the body without them.
fn without_seed(body: &Value) -> Value {
    let mut body = body.clone();
    let fields = body.as_object_mut().unwrap();
    let operation = fields.shift_remove("operation_id").unwrap();
    let seed = fields.shift_remove("seed").unwrap();
    assert!(operation.as_str().unwrap().starts_with("op_") && seed.as_str().unwrap().len() == 43);
    body
}

fn created() -> Value {
    key(json!({ "key": "weir-canary" }))
}

#[test]
fn the_command_line_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn every_documented_form_is_understood() {
    for text in [
        "serve",
        "serve --conf weir.toml --ready-file ready.json",
        "demo",
        "demo --listen 127.0.0.1:0 --json",
        "check --conf weir.toml --json",
        "key create --account me --name laptop",
        "key create --account me --name laptop --expires 2030-01-01T00:00:00Z --models a,b --json",
        "key list",
        "key list --account me --json --admin unix:/run/weir/admin.sock",
        "key show key_0000000000000001",
        "key update key_0000000000000001 --models all --expires never",
        "key rotate key_0000000000000001 --conf weir.toml",
        "key rotate key_0000000000000001 --overlap 24h --json",
        "key rotate key_0000000000000001 --overlap 0",
        "key end-overlap key_0000000000000001",
        "key update key_0000000000000001 --rpm 60 --if-version 17-5f3a9c21",
        "key revoke --id key_0000000000000001 --if-version 17-5f3a9c21",
        "sign-in list key_0000000000000001 --json",
        "sign-in end --id key_0000000000000001",
        "key revoke key_0000000000000001",
        "key delete key_0000000000000001",
        "key create --account a --name n --quota-usd 12.5 --reset weekly --rpm 60 --tpm none --concurrency 4",
        "key update key_0000000000000001 --quota-usd unlimited --on-exhausted cut --finish-factor 3",
        "key create --account a --name n --quota-usd 5 --notify 50,80,100",
        "key update key_0000000000000001 --notify none",
        "account update --id a --notify default",
        "account create --id a --balance-usd 5 --low-balance-usd 1 --rpm none",
        "account credit --id a --usd 0.000000001",
        "account adjust --id a --usd -0.25 --reason mistake --json",
        "account update --id a --low-balance-usd none --concurrency 7",
        "account suspend --id a --admin unix:/run/weir/admin.sock",
        "account resume --id a",
        "account list",
        "account show --id a --json",
        "log query --account a --key key_0000000000000001 --model m --from 2026-01-01 --until 2026-02-01T00:00:00Z",
        "log query --limit 5 --json",
        "log export --format csv --out log.csv --account a",
        "log export --format jsonl",
        "log query --tag project=blue --status 5xx",
        "log verify --from 2026-11-01 --until 2026-12-01 --account a --mend --json",
        "log verify --from 2026-11-01 --until 2026-12-01 --fill",
        "log move --to files --account a --from 2026-11-01 --until 2026-12-01 --json",
        "log move --to postgres --remove",
        "log export --format parquet --out november.parquet --force",
        "usage --account a --key key_0000000000000001 --model m --tag a=b --by key --from 2026-11-01 --until 2026-12-01",
        "usage --json",
        "store init --conf weir.toml --adopt",
        "store backup --conf weir.toml --out backup.jsonl --json",
        "store restore --from backup.jsonl",
        "store prune --conf weir.toml --before 2026-05-25 --json",
        "models --json",
        "sample-provider --listen 127.0.0.1:0",
    ] {
        assert!(line(text).is_ok(), "{text}: {}", line(text).unwrap_err());
    }
}

#[test]
fn bad_usage_is_an_error_and_help_is_not() {
    for text in [
        "",
        "sevre",
        "serve --port 1",
        "demo --listen localhost",
        "key create --name n",
        "key create --account a --name n --only-key --json",
        "key create --account a --name n --reset yearly",
        "key create --account a --name n --rpm fast",
        "key revoke key_0000000000000001 --if-version 17",
        "account create",
        "store backup",
        "store restore --conf weir.toml",
        "account adjust --id a --usd -1",
        "account credit --id a --usd --json",
        "log export --out log.csv",
        "log verify --from 2026-11-01",
        "log verify --from soon --until 2026-11-01",
        "usage --by hour",
        "key show",
        "key list --admin /run/weir/admin.sock",
        "key list --admin unix:",
    ] {
        let error = line(text).unwrap_err();
        // `weir` alone prints its help, as an error.
        assert!(error.use_stderr(), "{text}: {error}");
    }
    for text in ["--help", "--version", "key --help", "key create --help"] {
        assert!(!line(text).unwrap_err().use_stderr(), "{text}");
    }
}

#[test]
fn the_configuration_has_one_default_place() {
    let Command::Serve(args) = line("serve").unwrap() else {
        panic!("not serve")
    };
    assert_eq!(args.conf, Path::new(DEFAULT_PATH));
}

#[test]
fn the_admin_socket_is_the_one_named_or_the_configuration_s() {
    let named = key_command("key list --admin unix:/tmp/a.sock --conf weir.toml");
    let socket = admin_client::socket(named.client(), |_| Err("not asked for".to_owned())).unwrap();
    assert_eq!(socket, Path::new("/tmp/a.sock"));
    let configured = key_command("key list --conf weir.toml");
    let socket = admin_client::socket(configured.client(), |conf| {
        assert_eq!(conf, Some(Path::new("weir.toml")));
        Ok(PathBuf::from("/run/weir/admin.sock"))
    });
    assert_eq!(socket.unwrap(), Path::new("/run/weir/admin.sock"));
}

#[tokio::test]
async fn a_new_key_is_printed_once_with_a_warning() {
    let (out, asked) = run(vec![(201, created())], "key create --account me --name laptop").await;
    let out = out.unwrap();
    assert_eq!(out.matches("weir-canary").count(), 1, "{out}");
    assert!(
        out.contains("not shown again") && out.contains("models         all") && out.contains("expires_at     never")
    );
    let body = json!({ "account": "me", "name": "laptop" });
    assert_eq!((&*asked[0].0, &*asked[0].1, asked.len()), ("POST", "/v1/keys", 1));
    assert_eq!(without_seed(&asked[0].2), body);
}

#[tokio::test]
async fn a_new_key_is_one_json_object_for_scripts() {
    let (out, _) = run(vec![(201, created())], "key create --account me --name laptop --json").await;
    let out = out.unwrap();
    let printed: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&printed["id"], &printed["key"]),
        (&json!("key_0000000000000001"), &json!("weir-canary"))
    );
    assert_eq!(out.lines().count(), 1);
}

#[tokio::test]
async fn an_update_sends_only_what_was_given() {
    for (flags, body) in [
        ("--name desk", json!({ "name": "desk" })),
        ("--models a,b", json!({ "models": ["a", "b"] })),
        (
            "--models all --expires never",
            json!({ "expires_at": null, "models": null }),
        ),
    ] {
        let command = format!("key update key_0000000000000001 {flags}");
        let (out, asked) = run(vec![(200, key(json!({})))], &command).await;
        out.unwrap();
        assert_eq!(
            asked,
            [("PATCH".to_owned(), "/v1/keys/key_0000000000000001".to_owned(), body)]
        );
    }
}

#[tokio::test]
async fn a_list_goes_through_all_pages_one_object_per_line() {
    let page = |name: &str, next: Value| (200, json!({ "keys": [key(json!({ "name": name }))], "next": next }));
    let pages = vec![page("one", json!("key_0000000000000001")), page("two", Value::Null)];
    let (out, asked) = run(pages, "key list --account a.b --json").await;
    let names: Vec<Value> = out
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert!(asked[0].1.contains("account=a.b") && !asked[0].1.contains("after="));
    assert!(asked[1].1.contains("after=key_0000000000000001"));
}

#[tokio::test]
async fn a_refusal_is_told_in_the_api_s_own_words() {
    let refusal = json!({ "error": { "code": "not_found", "message": "no key has this id" } });
    let (out, _) = run(vec![(404, refusal)], "key show key_0000000000000001").await;
    assert_eq!(out.unwrap_err().to_string(), "no key has this id");
}
