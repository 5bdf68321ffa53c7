//! The processes of a phase: one sample provider, and in front of it each proxy that is compared.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{bare, process::Process, row::Subject};

/// The program.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// The model that the bench asks for, in any protocol; its name orders nothing from the sample provider.
pub(crate) const MODEL: &str = "bench";

/// The providers behind weir, each with the protocol that its model is asked for in. All are the sample provider.
const PROVIDERS: [(&str, &str); 3] = [("anthropic", "messages"), ("openai", "responses"), ("gemini", "gemini")];

/// The variable with the provider's credential, and the credential.
const SECRET_NAME: &str = "WEIR_BENCH_PROVIDER_SECRET";
const SECRET: &str = "bench-provider-secret";

/// What it costs: every request is held, charged and settled.
const PRICE: &str = "tiers = [{ input = \"3\", output = \"15\" }]\n";

/// How the provider answers: always the same bytes.
#[derive(Clone, Copy)]
pub(crate) struct Script {
    /// Text deltas of an answer.
    pub(crate) deltas: usize,
    /// Bytes of text in each.
    pub(crate) delta_bytes: usize,
    /// Between two of them.
    pub(crate) gap: Duration,
}

/// Whether weir with the Redis store takes part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedisRow {
    /// It does.
    In,
    /// It does not.
    Out,
}

/// One proxy.
pub(crate) struct Proxy {
    /// Which one.
    pub(crate) subject: Subject,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Where it tells how stable the models are; its own address for a proxy that does not.
    pub(crate) stability: SocketAddr,
    /// Where operators look at it; its own address for a proxy that has no console.
    pub(crate) console: SocketAddr,
    /// Its process.
    pub(crate) process: Process,
    /// The folder with its files.
    pub(crate) home: PathBuf,
    /// The key that it takes.
    pub(crate) key: String,
}

/// Makes the command that starts a proxy: of its program and its folder.
pub(crate) type Launch = fn(&Path, &Path) -> Command;

/// All processes of a phase. Dropping it kills them.
pub(crate) struct Fleet {
    /// Where the provider listens.
    pub(crate) provider: SocketAddr,
    /// How it answers.
    pub(crate) script: Script,
    /// The proxies, the bare one first.
    pub(crate) proxies: Vec<Proxy>,
    /// Where Redis listens, if there is one.
    pub(crate) redis: Option<SocketAddr>,
    _others: Vec<Process>,
    folder: TempDir,
}

/// How the answer is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// In one piece.
    Unary,
    /// As a stream.
    Stream,
    /// Not at all: how many tokens the request has is asked, which costs nothing.
    Count,
}

impl Fleet {
    /// Starts everything; returns when everything accepts connections.
    pub(crate) fn start(script: Script, redis: RedisRow) -> Self {
        Self::launch(script, redis, |program, _| Command::new(program))
    }

    /// Starts everything, the proxies by `launch`.
    pub(crate) fn launch(script: Script, redis: RedisRow, launch: Launch) -> Self {
        let folder = TempDir::with_prefix("weir-passthrough-").expect("a temporary folder");
        let mut sample = Process::start("sample-provider", &mut sample_provider(script), folder.path());
        let provider = sample.announced_address();
        let mut others = vec![sample];
        let mut proxies = vec![bare_proxy(provider, &folder.path().join("bare"), launch)];
        let embedded = "engine = \"embedded\"\n[store.embedded]\npath = \"store\"";
        proxies.push(Weir::of(Subject::Embedded, embedded).start(provider, folder.path(), launch));
        let mut redis_address = None;
        if redis == RedisRow::In {
            let (server, address) = redis_server(folder.path());
            redis_address = Some(address);
            others.push(server);
            let store = format!("engine = \"redis\"\n[store.redis]\nnodes = [\"{address}\"]");
            proxies.push(Weir::of(Subject::Redis, &store).start(provider, folder.path(), launch));
        }
        Self {
            provider,
            script,
            proxies,
            redis: redis_address,
            _others: others,
            folder,
        }
    }

    /// Where everything has its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Proxy {
    /// The request that this proxy takes, as it goes over the wire.
    pub(crate) fn request(&self, form: Form) -> Vec<u8> {
        request(form, &self.key)
    }
}

/// The request for the provider itself, which takes any key.
pub(crate) fn direct_request(form: Form) -> Vec<u8> {
    request(form, "any-key")
}

fn request(form: Form, key: &str) -> Vec<u8> {
    let mut body = json!({
        "model": MODEL,
        "system": "You are a terse assistant.",
        "messages": [{ "role": "user", "content": "Tell me what a weir does, in a few words." }],
    });
    let mut path = "/v1/messages/count_tokens";
    if form != Form::Count {
        path = "/v1/messages";
        body["max_tokens"] = 4096.into();
        body["stream"] = (form == Form::Stream).into();
    }
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway.test\r\nx-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n\
         accept: application/json\r\nuser-agent: weir-passthrough\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Whether a redis-server can be started here.
pub(crate) fn has_redis_server() -> bool {
    let version = Command::new("redis-server")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// Says the same to everybody.
pub(crate) fn sample_provider(script: Script) -> Command {
    let mut command = Command::new(WEIR);
    command
        .args([
            "sample-provider",
            "--listen",
            "127.0.0.1:0",
            "--no-token-count",
            "--threads",
            "1",
        ])
        .args(["--deltas", &script.deltas.to_string()])
        .args(["--delta-bytes", &script.delta_bytes.to_string()])
        .args(["--gap-ms", &script.gap.as_millis().to_string()]);
    command
}

/// Starts the bare proxy, with its files in a folder.
pub(crate) fn bare_proxy(provider: SocketAddr, home: &Path, launch: Launch) -> Proxy {
    fs::create_dir_all(home).expect("a folder in the temporary folder");
    let mut command = launch(&std::env::current_exe().expect("the path of this executable"), home);
    command.args([
        bare::COMMAND,
        "--listen",
        "127.0.0.1:0",
        "--upstream",
        &provider.to_string(),
    ]);
    let mut process = Process::start("bare", &mut command, home);
    let address = process.announced_address();
    Proxy {
        subject: Subject::Bare,
        address,
        stability: address,
        console: address,
        process,
        home: home.to_owned(),
        key: "any-key".to_owned(),
    }
}

/// A weir that is to be started.
pub(crate) struct Weir<'a> {
    pub(crate) subject: Subject,
    /// Of its folder, below the fleet's.
    pub(crate) name: &'a str,
    /// Its table `[store]` and the engine's; a path in it is below the folder.
    pub(crate) store: &'a str,
    /// Further tables.
    pub(crate) more: &'a str,
    /// The key, where the store has one. Else the store is set up, and an account and a key are made.
    pub(crate) key: Option<&'a str>,
    /// Further options of the key that is made.
    pub(crate) limits: &'a [&'a str],
}

impl<'a> Weir<'a> {
    /// The only one with a store that is empty.
    pub(crate) fn of(subject: Subject, store: &'a str) -> Self {
        Self {
            subject,
            name: subject.name(),
            store,
            more: "",
            key: None,
            limits: &[],
        }
    }

    /// Starts it; returns when it accepts connections.
    pub(crate) fn start(&self, provider: SocketAddr, folder: &Path, launch: Launch) -> Proxy {
        let home = folder.join(self.name);
        // What weir writes is elsewhere than its configuration, which it watches.
        fs::create_dir_all(home.join("etc")).expect("a folder in the temporary folder");
        let admin = home.join("admin.sock");
        let price = |(_, protocol)| format!("[[price]]\nname = \"{}\"\n{PRICE}", model_of(protocol));
        let prices = format!("version = \"bench\"\n{}", PROVIDERS.map(price).concat());
        fs::write(home.join("etc/prices.toml"), prices).expect("a file in the temporary folder");
        let conf = home.join("etc/weir.toml");
        fs::write(&conf, self.configuration(provider, &home)).expect("a file in the temporary folder");
        let ready = home.join("ready.json");
        if self.subject == Subject::Redis && self.key.is_none() {
            let set_up = Command::new(WEIR)
                .args(["store", "init", "--conf"])
                .arg(&conf)
                .env(SECRET_NAME, SECRET)
                .output();
            let set_up = set_up.expect("weir store can be started");
            let said = String::from_utf8_lossy(&set_up.stderr);
            assert!(set_up.status.success(), "weir store init: {said}");
        }
        let mut command = launch(Path::new(WEIR), &home);
        command.env(SECRET_NAME, SECRET);
        command.arg("serve").arg("--conf").arg(&conf);
        command.arg("--ready-file").arg(&ready);
        let mut process = Process::start(self.name, &mut command, &home);
        let [address, stability, console] = process.wait_for("to write its ready file", || {
            let told: Value = serde_json::from_str(&fs::read_to_string(&ready).ok()?).ok()?;
            let at = |name: &str| told.get(name)?.as_str()?.parse().ok();
            Some([at("gateway")?, at("stability")?, at("console")?])
        });
        process.wait_until_accepting(address);
        let key = match self.key {
            Some(key) => key.to_owned(),
            None => {
                create_account(&admin);
                created_key(&admin, self.limits)
            }
        };
        Proxy {
            subject: self.subject,
            address,
            stability,
            console,
            process,
            key,
            home,
        }
    }

    fn configuration(&self, provider: SocketAddr, home: &Path) -> String {
        let home = home.display();
        let store = self.store.replace("path = \"", &format!("path = \"{home}/"));
        format!(
            "[gateway]\nlisten = \"127.0.0.1:0\"\nthreads = 1\n\
             [upstream]\npool_size = {pool}\n\
             [store]\n{store}\n\
             [ops]\nlisten = \"127.0.0.1:0\"\n\
             [stability]\nlisten = \"127.0.0.1:0\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             [console]\nlisten = \"127.0.0.1:0\"\n\
             [admin]\nsocket = \"{home}/admin.sock\"\naudit = \"{home}/audit.jsonl\"\n\
             [journal]\npath = \"{home}/journal\"\n\
             [prices]\nfile = \"{home}/etc/prices.toml\"\n\
             [log]\naccess = \"{home}/access.jsonl\"\nlevel = \"warn\"\n{more}\n{providers}",
            more = self.more,
            providers = providers(provider),
            pool = bare::POOL_SIZE,
        )
    }
}

fn providers(provider: SocketAddr) -> String {
    let each = PROVIDERS.map(|(name, protocol)| {
        let model = model_of(protocol);
        format!(
            "[provider.{name}]\nbase_url = \"http://{provider}\"\nsecret = \"env:{SECRET_NAME}\"\n\
             [[model]]\nname = \"{model}\"\nproviders = [\"{name}\"]\nprotocols = [\"{protocol}\"]\n"
        )
    });
    each.concat()
}

/// The model that is asked for in a protocol.
pub(crate) fn model_of(protocol: &str) -> String {
    match protocol {
        "messages" => MODEL.to_owned(),
        other => format!("{MODEL}-{other}"),
    }
}

fn create_account(admin: &Path) {
    let created = Command::new(WEIR)
        .args([
            "account",
            "create",
            "--id",
            "bench",
            "--balance-usd",
            "1000000",
            "--admin",
        ])
        .arg(format!("unix:{}", admin.display()))
        .output()
        .expect("weir account can be started");
    let said = String::from_utf8_lossy(&created.stderr);
    assert!(created.status.success(), "weir account create: {said}");
}

fn created_key(admin: &Path, limits: &[&str]) -> String {
    let created = Command::new(WEIR)
        .args(["key", "create", "--account", "bench", "--name", "bench", "--json"])
        .args(limits)
        .arg("--admin")
        .arg(format!("unix:{}", admin.display()))
        .output()
        .expect("weir key can be started");
    let shown: Option<Value> = serde_json::from_slice(&created.stdout).ok();
    let key = shown.as_ref().and_then(|shown| shown.get("key")?.as_str());
    key.unwrap_or_else(|| panic!("weir key create: {}", String::from_utf8_lossy(&created.stderr)))
        .to_owned()
}

/// Starts a server on a free port.
pub(crate) fn redis_server(folder: &Path) -> (Process, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let mut command = Command::new("redis-server");
    command.args([
        "--bind",
        "127.0.0.1",
        "--port",
        &address.port().to_string(),
        "--save",
        "",
        "--appendonly",
        "no",
    ]);
    command.arg("--dir").arg(folder);
    let mut server = Process::start("redis-server", &mut command, folder);
    server.wait_until_accepting(address);
    (server, address)
}
