//! The processes of a phase: one sample provider, and in front of it each proxy that is compared.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    bare,
    node::Weir,
    process::Process,
    request::{Form, MODEL, request},
    row::Subject,
};

/// The program.
pub(crate) const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// The provider's ledger, in the fleet's folder.
const LEDGER: &str = "ledger.jsonl";

/// A weir's tables of the embedded store.
pub(crate) const EMBEDDED: &str = "engine = \"embedded\"\n[store.embedded]\npath = \"store\"";

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
    /// The model that it is asked for.
    pub(crate) model: &'static str,
    /// Lines of a head that it needs beside those that all get, each with its end.
    pub(crate) headers: String,
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

impl Fleet {
    /// Starts everything; returns when everything accepts connections.
    pub(crate) fn start(script: Script, redis: RedisRow) -> Self {
        Self::launch(script, redis, |program, _| Command::new(program))
    }

    /// Starts everything, the proxies by `launch`.
    pub(crate) fn launch(script: Script, redis: RedisRow, launch: Launch) -> Self {
        let folder = TempDir::with_prefix("weir-passthrough-").expect("a temporary folder");
        Self::behind(&mut sample_provider(script), script, redis, launch, folder)
    }

    /// The same with a provider that writes down what it bills. Each weir is asked for a model of its own, by which its bills are
    /// found.
    pub(crate) fn billed(script: Script, redis: RedisRow) -> Self {
        let folder = TempDir::with_prefix("weir-passthrough-").expect("a temporary folder");
        let mut provider = sample_provider(script);
        provider.arg("--ledger").arg(folder.path().join(LEDGER));
        let launch: Launch = |program, _| Command::new(program);
        let mut fleet = Self::behind(&mut provider, script, redis, launch, folder);
        for proxy in &mut fleet.proxies {
            proxy.model = proxy.subject.model();
        }
        fleet
    }

    /// What the provider has written down, if it does.
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder().join(LEDGER)
    }

    fn behind(provider: &mut Command, script: Script, redis: RedisRow, launch: Launch, folder: TempDir) -> Self {
        let mut sample = Process::start("sample-provider", provider, folder.path());
        let provider = sample.announced_address();
        let mut others = vec![sample];
        let mut proxies = vec![bare_proxy(provider, &folder.path().join("bare"), launch)];
        proxies.push(Weir::of(Subject::Embedded, EMBEDDED).start(provider, folder.path(), launch));
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
        let mut request = request(form, self.model, &self.key);
        let line = request
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a request line");
        request.splice(line + 2..line + 2, self.headers.bytes());
        request
    }
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
        model: MODEL,
        headers: String::new(),
    }
}

/// Where nothing listens.
pub(crate) fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.expect("a free port")
}

/// Starts a server on a free port.
pub(crate) fn redis_server(folder: &Path) -> (Process, SocketAddr) {
    let address = free_address();
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
