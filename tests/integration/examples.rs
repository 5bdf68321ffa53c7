//! `examples/` as a reader finds it: the commands of its READMEs, with other addresses, against the sample provider.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::node::{Finished, run};
use crate::harness::process::Process;
use crate::harness::redis::RedisServer;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{repository, skip};
use crate::harness::{Client, RecordingProvider, wait_for, wait_until};

mod clients;

/// How long the commands of one step may take.
const LIMIT: Duration = Duration::from_secs(60);
const FREE_PORT: &str = "\"127.0.0.1:0\"";

/// A copy of one folder of `examples/`.
struct Example {
    folder: TempDir,
    readme: String,
}

impl Example {
    fn copy(name: &str) -> Example {
        let folder = TempDir::new().unwrap();
        copy_files(&repository().join("examples").join(name), folder.path());
        let readme = fs::read_to_string(folder.path().join("README.md")).unwrap();
        Example { folder, readme }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Changes a file of the copy; each text to be replaced has to be there.
    #[track_caller]
    fn replace(&self, name: &str, texts: &[(&str, &str)]) {
        let mut text = fs::read_to_string(self.path(name)).unwrap();
        for (old, new) in texts {
            assert!(text.contains(old), "{name} does not say {old}");
            text = text.replace(old, new);
        }
        fs::write(self.path(name), text).unwrap();
    }

    /// The commands of a numbered step of its README.
    #[track_caller]
    fn step(&self, number: usize) -> String {
        let step = self.readme.split(&format!("\n{number}. ")).nth(1).unwrap();
        step.split("```").nth(1).unwrap().to_owned()
    }

    /// Runs commands in the copy, with weir in `PATH`, and returns what they print. They have to succeed.
    #[track_caller]
    fn shell(&self, script: &str) -> String {
        let environment = [
            ("PATH", path_with(&[])),
            ("HOME", self.folder.path().display().to_string()),
        ];
        let finished = shell(script, &environment, self.folder.path());
        assert!(
            finished.status.success(),
            "{script}\n{}\n{}",
            finished.out,
            finished.err
        );
        finished.out
    }

    /// The same of a command that prints one JSON value per line.
    #[track_caller]
    fn json_lines(&self, command: &str) -> Vec<Json> {
        let out = self.shell(command);
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Starts the gateway by the line `weir serve --conf CONF` of a step and waits until it listens.
    #[track_caller]
    fn serve(&self, step: usize, conf: &str, secret: &str) -> (Process, SocketAddr) {
        let line = format!("weir serve --conf {conf}");
        assert!(self.step(step).lines().any(|found| found.trim() == line), "no {line}");
        let ready = self.path(&format!("{conf}.ready"));
        let script = format!("cd \"$0\" && exec {line} --ready-file \"$1\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(self.folder.path()).arg(&ready);
        command.env("PATH", path_with(&[])).env(secret, "any-key-will-do");
        let mut process = Process::start(&command, self.folder.path(), conf);
        let told: Json = wait_for(&line, || {
            assert!(process.ended().is_none(), "{line} ended: {}", process.err());
            serde_json::from_str(&fs::read_to_string(&ready).ok()?).ok()
        });
        (process, told["gateway"].as_str().unwrap().parse().unwrap())
    }
}

/// Copies a folder without what running the examples in it leaves there.
fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let left = ["appendonlydir", "node_modules", "weir-data"];
        if left.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_files(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// `PATH` with these folders, the one of weir, and the system's.
fn path_with(folders: &[&Path]) -> String {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let mut path = String::new();
    for folder in folders.iter().copied().chain([weir]) {
        path.push_str(&format!("{}:", folder.display()));
    }
    path + "/usr/local/bin:/usr/bin:/bin"
}

fn shell(script: &str, environment: &[(&str, String)], folder: &Path) -> Finished {
    run(&["bash", "-euo", "pipefail", "-c", script], environment, folder, LIMIT)
}

/// The commands, followed by one that prints the key they made: what they print, and the key.
#[track_caller]
fn with_key(example: &Example, script: &str) -> (String, String) {
    let out = example.shell(&format!("{script}\nprintf '\\n%s' \"$WEIR_KEY\""));
    let (told, key) = out.rsplit_once('\n').unwrap();
    (told.to_owned(), key.to_owned())
}

#[test]
fn the_provider_file_is_checked_explained_served_and_billed() {
    let sample = SampleProvider::start();
    let example = Example::copy("provider");
    let base_url = sample.base_url();
    let addresses = [
        ("http://127.0.0.1:9000", &*base_url),
        ("\"127.0.0.1:8080\"", FREE_PORT),
        ("\"127.0.0.1:9464\"", FREE_PORT),
        ("\"127.0.0.1:8081\"", FREE_PORT),
    ];
    example.replace("weir.toml", &addresses);

    let told = example.shell(&example.step(1));
    assert!(told.contains("ok: weir.toml with 17 providers (1 on)"), "{told}");
    for said in ["rules/larkspur.toml:", "body: remove metadata", "+ \"lark-2-20261001\""] {
        assert!(told.contains(said), "{said}: {told}");
    }

    // The sample provider of step 2 runs already.
    let (_weir, gateway) = example.serve(2, "weir.toml", "LARKSPUR_API_KEY");
    let script = example.step(3).replace("127.0.0.1:8080", &gateway.to_string());
    let (told, key) = with_key(&example, &script);
    assert!(
        told.contains("You said") && told.contains("response.completed"),
        "{told}"
    );

    let rows = wait_for("the row of the request", || {
        Some(example.json_lines("weir log query --conf weir.toml --json")).filter(|rows| !rows.is_empty())
    });
    let bills = sample.bills();
    let [row] = &*rows else { panic!("{rows:?}") };
    let [bill] = &*bills else { panic!("{bills:?}") };
    assert_eq!(bill["model"], "lark-2-20261001");
    assert_eq!(
        (&row["model"], &row["provider"]),
        (&"lark-2".into(), &"larkspur".into())
    );
    assert_eq!(row["price_version"], "larkspur-2026-11");
    let tokens = |name: &str| bill[name].as_i64().unwrap();
    // USD 0.5 and USD 2 per 1M tokens.
    let cost = tokens("input_tokens") * 500 + tokens("output_tokens") * 2000;
    assert!(cost > 0 && row["cost_nano_usd"] == cost, "{row} {bill}");
    let table = example.shell(&example.step(4));
    assert!(table.contains("lark-2"), "{table}");

    let mut request = Wire::Responses.request_for("lark-2", &key, "hi");
    request.body = br#"{"model":"lark-2","temperature":1.5,"input":"hi"}"#.to_vec();
    let refused = Client::connect(gateway).exchange(&request);
    assert_eq!(refused.status, 400);
    let said = "`temperature` is 1.5, but this model takes 0.0 to 1.0";
    assert!(refused.text().contains(said), "{}", refused.text());

    // The account at the provider runs out of money. The changed configuration is loaded by itself.
    let out_of_credit = RecordingProvider::start(|_, answer| {
        let body = br#"{"error":{"code":"out_of_credit","message":"Please pay."}}"#;
        answer.full(429, &[("content-type", "application/json")], body);
    });
    example.replace("weir.toml", &[(&base_url, &out_of_credit.base_url())]);
    let refused = wait_for("the other provider's answer", || {
        let answer = Client::connect(gateway).exchange(&Wire::Responses.request_for("lark-2", &key, "hi"));
        (answer.status != 200).then_some(answer)
    });
    assert_eq!(refused.status, 503, "{}", refused.text());
}

#[test]
fn a_local_engine_serves_the_clients_of_all_protocols() {
    let sample = SampleProvider::start();
    let example = Example::copy("local-engines");
    example.replace("rules/vllm.toml", &[("http://127.0.0.1:8000", &sample.base_url())]);
    for port in [8080, 9464, 8081] {
        example.replace("weir.toml", &[(&format!("\"127.0.0.1:{port}\""), FREE_PORT)]);
    }

    let told = example.shell(&example.step(1));
    assert!(told.contains("ok: weir.toml with 4 providers (1 on)"), "{told}");
    for said in [
        "translated from messages to chat (strict)",
        "rules/vllm.toml:",
        "body: map reasoning_effort",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }

    let (_weir, gateway) = example.serve(2, "weir.toml", "VLLM_API_KEY");
    let script = example.step(3).replace("127.0.0.1:8080", &gateway.to_string());
    let (told, key) = with_key(&example, &script);
    assert!(told.contains("\"stop_reason\":\"end_turn\""), "{told}");
    for wire in ALL_WIRES {
        let answer = Client::connect(gateway).exchange(&wire.request_for("vllm/gpt-oss-20b", &key, "hi"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let rows = wait_for("the rows of the requests", || {
        Some(example.json_lines("weir log query --conf weir.toml --json")).filter(|rows| rows.len() == 4)
    });
    for row in rows {
        assert_eq!(
            (&row["provider"], &row["cost_nano_usd"]),
            (&"vllm".into(), &0_i64.into()),
            "{row}"
        );
    }
}

#[test]
fn two_nodes_share_a_redis_its_keys_and_its_log() {
    let example = Example::copy("two-nodes");
    let settings = fs::read_to_string(example.path("redis.conf")).unwrap();
    assert_eq!(example.step(1).trim(), "redis-server redis.conf");
    let Some(redis) = RedisServer::launch(&[], &settings) else {
        skip!("redis-server is not installed")
    };
    let depth = redis.command(&["CONFIG", "GET", "list-compress-depth"]);
    assert!(depth.contains("\r\n1\r\n"), "{depth}");
    let sample = SampleProvider::start();
    // A busy machine may leave Redis unanswered for a while, and that is no outage.
    let nodes = format!("nodes = [\"{}\"]\nbudget_ms = 5000", redis.node());
    let provider = format!(
        "[provider.anthropic]\nbase_url = \"{}\"\n\n[gateway]",
        sample.base_url()
    );
    for (conf, ports) in [("node-a.toml", [8080, 9464, 8081]), ("node-b.toml", [8090, 9474, 8091])] {
        example.replace(
            conf,
            &[("nodes = [\"127.0.0.1:6379\"]", &nodes), ("[gateway]", &provider)],
        );
        for port in ports {
            example.replace(conf, &[(&format!("\"127.0.0.1:{port}\""), FREE_PORT)]);
        }
    }

    example.shell(&example.step(2));
    let (node_a, _) = example.serve(3, "node-a.toml", "ANTHROPIC_API_KEY");
    let (node_b, gateway_b) = example.serve(3, "node-b.toml", "ANTHROPIC_API_KEY");
    let script = example.step(4).replace("127.0.0.1:8090", &gateway_b.to_string());
    let (told, key) = with_key(&example, &script);
    assert!(told.contains("\"stop_reason\":\"end_turn\""), "{told}");

    // The first node tells of the request that the second served.
    let rows = wait_for("the row of the request", || {
        Some(example.json_lines("weir log query --conf node-a.toml --json")).filter(|rows| !rows.is_empty())
    });
    let [row] = &*rows else { panic!("{rows:?}") };
    let bills = sample.bills();
    assert_eq!(bills.len(), 1, "{bills:?}");
    assert_eq!(row["input_uncached"], bills[0]["input_tokens"]);
    assert_eq!(row["output_text"], bills[0]["output_tokens"]);
    let request_id = row["request_id"].as_str().unwrap();
    wait_until("the access line of the second node", || {
        node_b.out().contains(request_id)
    });
    assert!(!node_a.out().contains(request_id));
    let told = example.shell(&example.step(5));
    let spent = row["cost_nano_usd"].as_i64().unwrap();
    assert!(spent > 0 && told.contains("claude-haiku-4-5"), "{told}");
    let account = example.json_lines("weir account show --conf node-b.toml --id me --json");
    assert_eq!(account[0]["spent_nano_usd"], spent);

    let key_id = row["key_id"].as_str().unwrap();
    example.shell(&format!("weir key revoke --conf node-a.toml {key_id}"));
    wait_until("the key to be refused at the second node", || {
        let request = Wire::Messages.request_for("claude-haiku-4-5", &key, "hi");
        Client::connect(gateway_b).exchange(&request).status == 401
    });
}
