//! The real gateway: a generated configuration, free ports, readiness, keys made by the CLI, a clean end.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::client::{Client, Response};
use super::postgres::{POSTGRES_URL, PostgresServer};
use super::process::Process;
use super::redis::RedisServer;
use super::request::{Request, Upload};
use super::rules::RuleFolder;
use super::tools::weir_program;
use super::wait::{wait_for, wait_until};

/// The providers the shipped rules know; the tests switch off those they do not point anywhere.
const PROVIDERS: [&str; 16] = [
    "anthropic",
    "openai",
    "gemini",
    "deepseek",
    "mimo",
    "minimax",
    "moonshot",
    "zai",
    "qwen",
    "openrouter",
    "groq",
    "cerebras",
    "mistral",
    "xai",
    "together",
    "fireworks",
];
/// The provider key of every test: it must be seen by the provider and by nobody else.
pub(crate) const PROVIDER_KEY: &str = "provider-canary-7Qx2VhL0sTz9";
/// The account of every key that a test does not make elsewhere.
pub(crate) const ACCOUNT: &str = "tests";
/// How long Redis may be silent: far above what a loaded machine with two cores needs, as every wait of these tests.
const REDIS_BUDGET_MS: i64 = 5_000;
const PROVIDER_KEY_VARIABLE: &str = "WEIR_TEST_PROVIDER_KEY";

/// What a gateway is started with.
pub(crate) struct WeirBuilder {
    settings: toml::Table,
    environment: Vec<(String, String)>,
    panics: Panics,
    open_files_max: Option<u32>,
    program: PathBuf,
    outputs: Option<Outputs>,
    rules: Option<RuleFolder>,
}

/// Where messages and the access log go instead of files beside the others.
struct Outputs {
    messages: PathBuf,
    access: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Fail,
    Expected,
}

/// A running gateway.
pub(crate) struct Weir {
    process: Process,
    folder: TempDir,
    _rules: Option<RuleFolder>,
    /// Processes that were started before it and are not waited for.
    earlier: Vec<Process>,
    /// The processes that have taken its place, the last one last.
    pub(super) successors: Vec<u32>,
    start: Start,
    panics: Panics,
    keys: std::sync::Mutex<Vec<String>>,
    funded: std::sync::Once,
    pub(crate) gateway: SocketAddr,
    pub(crate) ops: SocketAddr,
    pub(crate) stability: SocketAddr,
}

/// How a gateway is started.
struct Start {
    program: PathBuf,
    environment: Vec<(String, String)>,
}

/// A key as `weir key create --json` tells it.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) text: String,
}

impl WeirBuilder {
    /// A gateway with an embedded store and every provider off.
    pub(crate) fn new() -> WeirBuilder {
        PROVIDERS.iter().fold(WeirBuilder::bare(), |builder, name| {
            builder.set(&format!("provider.{name}.enabled"), false)
        })
    }

    /// A gateway with an embedded store and the providers as their files have them.
    pub(crate) fn bare() -> WeirBuilder {
        let builder = WeirBuilder {
            settings: toml::Table::new(),
            environment: Vec::new(),
            panics: Panics::Fail,
            open_files_max: None,
            program: weir_program(),
            outputs: None,
            rules: None,
        };
        let builder = builder
            .set("gateway.listen", "127.0.0.1:0")
            .set("ops.listen", "127.0.0.1:0")
            .set("stability.listen", "127.0.0.1:0");
        builder
            .set("gateway.threads", 2)
            .set("gateway.drain_seconds", 20)
            .set("store.engine", "embedded")
    }

    /// Points every shipped provider at `base_url`.
    pub(crate) fn all_providers(self, base_url: &str) -> WeirBuilder {
        PROVIDERS
            .iter()
            .fold(self, |builder, name| builder.provider(name, base_url))
    }

    /// Points one provider at `base_url`, with [`PROVIDER_KEY`] as its secret.
    pub(crate) fn provider(self, name: &str, base_url: &str) -> WeirBuilder {
        self.set(&format!("provider.{name}.enabled"), true)
            .set(&format!("provider.{name}.base_url"), base_url)
            .set(
                &format!("provider.{name}.secret"),
                format!("env:{PROVIDER_KEY_VARIABLE}"),
            )
    }

    /// Gives these providers a credential that shares no byte with a recorded answer: of an event that has not come to its end
    /// and may be an error, what may be the credential's waits for more.
    pub(crate) fn unlike_credential(self, providers: &[&str]) -> WeirBuilder {
        let builder = self.variable("WEIR_TEST_UNLIKE_KEY", "#$%&()+;<=>?");
        providers.iter().fold(builder, |builder, name| {
            builder.set(&format!("provider.{name}.secret"), "env:WEIR_TEST_UNLIKE_KEY")
        })
    }

    /// Keeps everything in this Redis.
    pub(crate) fn redis(self, server: &RedisServer) -> WeirBuilder {
        self.redis_at(vec![server.node()])
    }

    /// Keeps everything in the Redis at these addresses. It may be silent for longer than as shipped: a busy machine may leave
    /// it unanswered for a while, and that is no outage.
    pub(crate) fn redis_at(self, nodes: Vec<String>) -> WeirBuilder {
        self.set("store.engine", "redis")
            .set("store.redis.nodes", nodes)
            .set("store.redis.budget_ms", REDIS_BUDGET_MS)
    }

    /// Names this Postgres in `[log.postgres]`, as the role that weir has there.
    pub(crate) fn postgres(self, server: &PostgresServer) -> WeirBuilder {
        self.set("log.postgres.url", format!("env:{POSTGRES_URL}"))
            .variable(POSTGRES_URL, &server.url_of_weir())
    }

    /// Sets `table.key` or `table.table.key`.
    pub(crate) fn set(mut self, path: &str, value: impl Into<toml::Value>) -> WeirBuilder {
        let (tables, key) = path.rsplit_once('.').unwrap();
        let mut table = &mut self.settings;
        for name in tables.split('.') {
            let entry = table
                .entry(name)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            table = entry.as_table_mut().unwrap();
        }
        table.insert(key.to_owned(), value.into());
        self
    }

    /// Sets a top-level key, such as the array of `[[model]]`.
    pub(crate) fn set_top(mut self, name: &str, value: impl Into<toml::Value>) -> WeirBuilder {
        self.settings.insert(name.to_owned(), value.into());
        self
    }

    /// Sets an environment variable of the gateway.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> WeirBuilder {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the files that the gateway may open.
    pub(crate) fn open_files_max(mut self, limit: u32) -> WeirBuilder {
        self.open_files_max = Some(limit);
        self
    }

    /// Has standard error and the access log written there.
    pub(crate) fn outputs_at(mut self, messages: &Path, access: &Path) -> WeirBuilder {
        self.outputs = Some(Outputs {
            messages: messages.to_owned(),
            access: access.to_owned(),
        });
        self
    }

    /// Keeps a folder of rule files as long as the gateway.
    pub(crate) fn keeping(mut self, rules: RuleFolder) -> WeirBuilder {
        self.rules = Some(rules);
        self
    }

    /// Runs this program instead of the one that was built.
    pub(crate) fn program(mut self, program: &Path) -> WeirBuilder {
        self.program = program.to_owned();
        self
    }

    /// This test makes the gateway panic: it is no failure to find that in its log.
    pub(crate) fn panics_expected(mut self) -> WeirBuilder {
        self.panics = Panics::Expected;
        self
    }

    /// Starts it and waits until it serves.
    #[track_caller]
    pub(crate) fn start(mut self) -> Weir {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        self = self
            .set("store.embedded.path", path("store"))
            .set("admin.socket", path("admin.sock"));
        if !self.settings.contains_key("journal") {
            self = self
                .set("journal.path", path("journal"))
                .set("journal.segment_bytes", 1 << 22);
        }
        let access = match &self.outputs {
            Some(outputs) => {
                std::os::unix::fs::symlink(&outputs.messages, path("weir.stderr")).unwrap();
                outputs.access.to_str().unwrap().to_owned()
            }
            None => path("access.jsonl"),
        };
        self = self.set("admin.audit", path("audit.jsonl")).set("log.access", access);
        self.environment
            .push((PROVIDER_KEY_VARIABLE.to_owned(), PROVIDER_KEY.to_owned()));
        std::fs::write(
            folder.path().join("weir.toml"),
            toml::to_string(&self.settings).unwrap(),
        )
        .unwrap();
        set_up(folder.path(), &self.environment);
        let start = Start {
            program: self.program,
            environment: self.environment,
        };
        let (process, [gateway, ops, stability]) = serve(folder.path(), &start, self.open_files_max);
        let keys = std::sync::Mutex::default();
        Weir {
            process,
            folder,
            _rules: self.rules,
            earlier: Vec::new(),
            successors: Vec::new(),
            start,
            panics: self.panics,
            keys,
            funded: std::sync::Once::new(),
            gateway,
            ops,
            stability,
        }
    }
}

/// Runs `weir store init` in `folder`; a store that is away is left to the test.
fn set_up(folder: &Path, environment: &[(String, String)]) {
    let mut command = Command::new(weir_program());
    command.args(["store", "init", "--conf"]).arg(folder.join("weir.toml"));
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let _ = command.output().unwrap();
}

/// Runs `weir serve` in `folder` and waits for its ready file: the gateway's, the ops and the stability address.
#[track_caller]
fn serve(folder: &Path, start: &Start, open_files_max: Option<u32>) -> (Process, [SocketAddr; 3]) {
    let ready = folder.join("ready.json");
    let _ = std::fs::remove_file(&ready);
    let binary = start.program.as_os_str();
    let mut command = Command::new(open_files_max.map_or(binary, |_| "sh".as_ref()));
    if let Some(limit) = open_files_max {
        command
            .args(["-c", &format!("ulimit -n {limit} && exec \"$0\" \"$@\"")])
            .arg(binary);
    }
    command
        .args(["serve", "--conf"])
        .arg(folder.join("weir.toml"))
        .arg("--ready-file")
        .arg(&ready);
    command.envs(start.environment.iter().map(|(name, value)| (name, value)));
    let mut process = Process::start(&command, folder, "weir");
    let ready = wait_for("the gateway's ready file", || {
        if let Some(status) = process.ended() {
            let conf = std::fs::read_to_string(folder.join("weir.toml")).unwrap_or_default();
            panic!(
                "weir serve ended ({status}):\n{}{}\n{conf}",
                process.out(),
                process.err()
            );
        }
        serde_json::from_str::<Json>(&std::fs::read_to_string(&ready).ok()?).ok()
    });
    let address = |name: &str| {
        ready[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {ready}"))
            .parse()
            .unwrap()
    };
    (process, [address("gateway"), address("ops"), address("stability")])
}

impl Weir {
    /// A gateway with an embedded store and every provider at `base_url`.
    #[track_caller]
    pub(crate) fn start(base_url: &str) -> Weir {
        WeirBuilder::new().all_providers(base_url).start()
    }

    /// Runs `weir store init`, for a store that was away when the gateway was started.
    pub(crate) fn set_up_store(&self) {
        set_up(self.folder.path(), &self.start.environment);
    }

    /// A new connection to the gateway.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.gateway)
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub(crate) fn exchange(&self, request: &Request) -> Response {
        self.connect().exchange(request)
    }

    /// A GET at the ops listener.
    #[track_caller]
    pub(crate) fn ops_get(&self, path: &str) -> Response {
        Client::connect(self.ops).exchange(&Request::get(path))
    }

    /// The Prometheus text.
    #[track_caller]
    pub(crate) fn metrics(&self) -> String {
        self.ops_get("/metrics").text()
    }

    /// A new key that may do everything.
    #[track_caller]
    pub(crate) fn key(&self) -> Key {
        self.key_with(&[])
    }

    /// A new key, with further flags of `weir key create`.
    #[track_caller]
    pub(crate) fn key_with(&self, flags: &[&str]) -> Key {
        self.fund();
        let mut words = vec!["key", "create", "--account", ACCOUNT, "--name", "a test's key"];
        words.extend_from_slice(flags);
        let made = self.cli_json(&words);
        let text = |name: &str| {
            made[name]
                .as_str()
                .unwrap_or_else(|| panic!("no {name} in the new key"))
                .to_owned()
        };
        let key = Key {
            id: text("id"),
            text: text("key"),
        };
        self.keys.lock().unwrap().push(key.text.clone());
        key
    }

    /// Makes the account that every test's keys belong to, with more money than any test spends. Another node may have made
    /// it before.
    #[track_caller]
    pub(crate) fn fund(&self) {
        self.funded.call_once(|| {
            let words = ["account", "create", "--id", ACCOUNT, "--balance-usd", "1000"];
            let made = self.cli(&words, &["--json"]);
            let said = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(
                made.status.success() || said.contains("already exists"),
                "no account: {said}"
            );
        });
    }

    /// A key whose time has just passed.
    #[track_caller]
    pub(crate) fn expired_key(&self) -> String {
        let end = jiff::Timestamp::now() + Duration::from_secs(2);
        let key = self.key_with(&["--expires", &end.to_string()]).text;
        wait_until("the key's last second to pass", || {
            jiff::Timestamp::now() > end + Duration::from_secs(1)
        });
        key
    }

    /// Runs `weir WORDS --json --admin unix:...` and reads its answer.
    #[track_caller]
    pub(crate) fn cli_json(&self, words: &[&str]) -> Json {
        self.try_cli_json(words).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same again and again until it works: a busy machine may leave the store unanswered for a moment.
    #[track_caller]
    pub(crate) fn cli_json_at_last(&self, words: &[&str]) -> Json {
        wait_for(&format!("weir {words:?}"), || self.try_cli_json(words).ok())
    }

    /// The same, or why it failed.
    pub(super) fn try_cli_json(&self, words: &[&str]) -> Result<Json, String> {
        let output = self.cli(words, &["--json"]);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        if !output.status.success() {
            return Err(format!("weir {words:?} failed ({}): {out}{err}", output.status));
        }
        // One object, or one per line where there may be many.
        let mut values: Vec<Json> = out
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("weir {words:?} --json: {error}")))
            .collect();
        Ok(if values.len() == 1 {
            values.remove(0)
        } else {
            Json::Array(values)
        })
    }

    /// Runs `weir WORDS --admin unix:... FLAGS`.
    pub(crate) fn cli(&self, words: &[&str], flags: &[&str]) -> Output {
        let admin = format!("unix:{}", self.folder.path().join("admin.sock").display());
        let mut command = Command::new(weir_program());
        command
            .args(words)
            .args(["--admin", &admin])
            .args(flags)
            .output()
            .unwrap()
    }

    /// The access log's lines so far.
    pub(crate) fn access_lines(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(self.folder.path().join("access.jsonl")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Waits for the access line of a request by its id, as the answer's header gave it.
    #[track_caller]
    pub(crate) fn access_line(&self, request_id: &str) -> Json {
        wait_for("the access log line of a request", || {
            self.access_lines()
                .into_iter()
                .find(|line| line["request_id"] == request_id)
        })
    }

    /// Waits for the access log to have this many lines and returns them.
    #[track_caller]
    pub(crate) fn access_lines_at_least(&self, count: usize) -> Vec<Json> {
        wait_for("lines in the access log", || {
            Some(self.access_lines()).filter(|lines| lines.len() >= count)
        })
    }

    /// Where the gateway keeps its files: configuration, store, logs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The admin socket.
    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.folder.path().join("admin.sock")
    }

    /// A call of the admin API on its socket: the status, and the answer's JSON.
    #[track_caller]
    pub(crate) fn admin(&self, method: &str, target: &str, body: &str) -> (u16, Json) {
        let request = Request::new(method, target).header("connection", "close").json(body);
        let mut socket = UnixStream::connect(self.admin_socket()).unwrap();
        socket.write_all(&request.bytes(Upload::Length)).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// The process.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills the gateway as `kill -9` does and starts it again with the same files.
    #[track_caller]
    pub(crate) fn kill_and_restart(&mut self) {
        self.process.kill();
        let (process, [gateway, ops, stability]) = serve(self.folder.path(), &self.start, None);
        (self.process, self.gateway, self.ops, self.stability) = (process, gateway, ops, stability);
    }

    /// Ends the gateway, and starts another program in its place with the same environment.
    #[track_caller]
    pub(crate) fn replace_by(&mut self, mut command: Command) {
        self.process.signal("TERM");
        assert!(self.process.wait_ended().success());
        command.envs(self.start.environment.iter().map(|(name, value)| (name, value)));
        self.process = Process::start(&command, self.folder.path(), "weir");
    }

    /// Starts another process with the same files, beside those that run.
    #[track_caller]
    pub(crate) fn start_another(&mut self) {
        let (process, [gateway, ops, stability]) = serve(self.folder.path(), &self.start, None);
        self.earlier.push(std::mem::replace(&mut self.process, process));
        (self.gateway, self.ops, self.stability) = (gateway, ops, stability);
    }

    /// Sets an environment variable of the gateway for its next start.
    pub(crate) fn next_variable(&mut self, name: &str, value: &str) {
        self.start.environment.retain(|(known, _)| known != name);
        self.start.environment.push((name.to_owned(), value.to_owned()));
    }

    /// What the gateway wrote to stdout, stderr and its access log.
    pub(crate) fn logs(&self) -> String {
        let access = std::fs::read(self.folder.path().join("access.jsonl")).unwrap_or_default();
        format!(
            "{}{}{}",
            self.process.out(),
            self.process.err(),
            String::from_utf8_lossy(&access)
        )
    }
}

impl Drop for Weir {
    fn drop(&mut self) {
        self.end_successors();
        let logs = self.logs();
        if std::thread::panicking() {
            eprintln!("--- the gateway's last lines, and those of its access log ---");
            for text in [format!("{}{}", self.process.out(), self.process.err()), logs] {
                let tail: Vec<&str> = text.lines().rev().take(30).collect();
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
            return;
        }
        // Holds for every test: nothing that must stay secret is ever written, and no hook panics by itself.
        for secret in self
            .keys
            .lock()
            .unwrap()
            .iter()
            .map(String::as_str)
            .chain([PROVIDER_KEY])
        {
            assert!(!logs.contains(secret), "a log holds a secret");
        }
        assert!(
            self.panics == Panics::Expected || !logs.contains("panicked at"),
            "the gateway panicked:\n{logs}"
        );
    }
}

/// The bytes of every file below a folder, one after the other.
pub(crate) fn all_bytes_below(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            bytes.extend(all_bytes_below(&entry.path()));
        } else if kind.is_file() {
            bytes.extend(std::fs::read(entry.path()).unwrap_or_default());
        }
    }
    bytes
}
