//! Real Redis servers for tests: a single server with its own port, or a master with its replicas and the sentinels that watch
//! them. The servers end with the test.

pub(crate) mod cluster;

use std::{
    env,
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use ::redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, aio::MultiplexedConnection};
use tempfile::TempDir;
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use crate::store::{
    KeyStore,
    contract::{DEADLINE, id, until},
    redis::{AdoptPolicy, RedisMode, RedisSettings, RedisStore},
};

const PROGRAM: &str = "redis-server";
const FILE: &str = "redis.conf";
/// The maximum number of ports that are tried. Another process may take a free port before the server does.
const PORTS_MAX: usize = 5;
/// The timeout of a read in tests that do not test timeouts.
pub(crate) const AMPLE_BUDGET: Duration = Duration::from_secs(10);
/// The total timeout of a call, even while the server answers earlier calls.
const QUEUE: Duration = Duration::from_secs(5);
/// The timeout for a running process to answer.
const ASK_MAX: Duration = Duration::from_secs(5);

/// A running `redis-server` process.
pub(crate) struct TestServer {
    child: Child,
    port: u16,
    arguments: Vec<String>,
    folder: TempDir,
}

/// A store on a test server. Its connections are maintained until it is dropped.
pub(crate) struct Joined {
    pub(crate) store: Arc<RedisStore>,
    running: JoinHandle<()>,
    _shutdown: watch::Sender<bool>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl TestServer {
    /// Starts a server that loses all data when it ends. Returns `None`, with a message, if Redis cannot be started.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(&["--appendonly", "no"]).await
    }

    /// Starts a server that still has its data after [`TestServer::restart`].
    pub(crate) async fn start_durable() -> Option<Self> {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    /// Starts a server with these arguments in addition to the default ones.
    pub(crate) async fn start_with(more: &[&str]) -> Option<Self> {
        // Rows are not compressed, so that a test can search for a text in the output of DUMP.
        let defaults = [
            "--save",
            "",
            "--rdbcompression",
            "no",
            "--repl-diskless-sync-delay",
            "0",
        ];
        let arguments = defaults.iter().chain(more).map(ToString::to_string).collect();
        Self::launch(arguments, "").await
    }

    /// Starts a process with these arguments, and with a configuration file if `file` is not empty.
    async fn launch(arguments: Vec<String>, file: &str) -> Option<Self> {
        if !is_installed() {
            let required = [("CI", "true"), ("WEIR_REQUIRE_TOOLS", "1")];
            let is_required = required
                .iter()
                .any(|(name, value)| env::var(name).as_deref() == Ok(value));
            assert!(!is_required, "{PROGRAM} is not installed, and tools are required here");
            eprintln!("skipped: {PROGRAM} is not installed");
            return None;
        }
        for _ in 0..PORTS_MAX {
            let port = free_port();
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(FILE), file).unwrap();
            let child = spawn(port, &arguments, &folder);
            let mut server = Self {
                child,
                port,
                arguments: arguments.clone(),
                folder,
            };
            if server.is_ready().await {
                return Some(server);
            }
        }
        panic!("{PROGRAM} did not start on any of {PORTS_MAX} ports");
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn node(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Waits until this process answers. Returns `false` if it has ended because its port was taken.
    async fn is_ready(&mut self) -> bool {
        let mut ended = false;
        until("redis-server answers", async || {
            ended = self.child.try_wait().unwrap().is_some();
            ended || self.answers_itself().await
        })
        .await;
        !ended
    }

    async fn answers_itself(&self) -> bool {
        let line = format!("process_id:{}\r\n", self.child.id());
        self.info_has("server", &line).await
    }

    /// Kills the process, like a crash.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again on the same port, with the data that it had written.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.port, &self.arguments, &self.folder);
        assert!(self.is_ready().await, "the port was taken in the meantime");
    }

    /// Sends the process the signal `name`, in the form of an option of `kill`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Sends the server a command over a new connection, and returns the answer.
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).await.unwrap()
    }

    /// Whether a section of INFO contains this line. Returns `false` if the server does not answer. This can happen because
    /// sentinels close the connections of a server whose role they change.
    pub(crate) async fn info_has(&self, section: &str, line: &str) -> bool {
        let info: RedisResult<String> = self.try_ask(&["INFO", section]).await;
        info.is_ok_and(|info| info.contains(line))
    }

    pub(crate) async fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let asked = async {
            let config = AsyncConnectionConfig::new().set_response_timeout(Some(ASK_MAX));
            let mut connection: MultiplexedConnection =
                client.get_multiplexed_async_connection_with_config(&config).await?;
            ::redis::cmd(words[0])
                .arg(&words[1..])
                .query_async(&mut connection)
                .await
        };
        timeout(ASK_MAX, asked).await.expect("the test's Redis hangs")
    }

    /// Sends a command that is answered late or not at all.
    pub(crate) fn ask_in_background(&self, words: &[&str]) -> JoinHandle<()> {
        let client = Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let (name, rest) = words.split_first().unwrap();
        let mut command = ::redis::cmd(name);
        command.arg(rest);
        tokio::spawn(async move {
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            // The result of the command does not matter.
            let _ = command.exec_async(&mut connection).await;
        })
    }

    /// Returns the ids of the connections that get pushes.
    pub(crate) async fn push_clients(&self) -> Vec<String> {
        let clients: String = self.ask(&["CLIENT", "LIST"]).await;
        let word = |line: &str, name: &str| {
            let mut words = line.split(' ').filter_map(|word| word.split_once('='));
            words.find(|(key, _)| *key == name).unwrap().1.to_owned()
        };
        let pushed = clients.lines().filter(|line| word(line, "flags").contains('t'));
        pushed.map(|line| word(line, "id")).collect()
    }

    pub(crate) fn settings(&self, namespace: &str, budget: Duration) -> RedisSettings {
        settings(RedisMode::Standalone, vec![self.node()], namespace, budget)
    }

    /// Returns a connected store without tight timeouts.
    pub(crate) async fn join(&self, namespace: &str) -> Joined {
        self.join_within(namespace, AMPLE_BUDGET).await
    }

    /// Returns a connected store whose reads have this timeout.
    pub(crate) async fn join_within(&self, namespace: &str, budget: Duration) -> Joined {
        Joined::with(&self.settings(namespace, budget)).await
    }

    /// Returns a store without tight timeouts that connects to the given port on 127.0.0.1 instead of the server's own port.
    pub(crate) async fn join_at(&self, namespace: &str, port: u16) -> Joined {
        let settings = self.settings(namespace, AMPLE_BUDGET);
        let nodes = vec![format!("127.0.0.1:{port}")];
        Joined::with(&RedisSettings { nodes, ..settings }).await
    }
}

impl Joined {
    /// Returns a store that is being connected.
    pub(crate) fn begin(settings: &RedisSettings) -> Self {
        let store = Arc::new(RedisStore::open(settings).unwrap());
        let (shutdown, stop) = watch::channel(false);
        let runner = Arc::clone(&store);
        let running = tokio::spawn(async move { runner.run(stop).await });
        Self {
            store,
            running,
            _shutdown: shutdown,
        }
    }

    /// Returns a connected store.
    pub(crate) async fn with(settings: &RedisSettings) -> Self {
        let joined = Self::begin(settings);
        let connected = timeout(
            DEADLINE,
            until("the store is connected and set up", async || {
                joined.store.init(AdoptPolicy::Refuse).await.is_ok() && joined.store.by_id(&id(0)).await.is_ok()
            }),
        );
        connected.await.unwrap();
        joined
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // The process may have ended already, which is equally good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_installed() -> bool {
    let version = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

fn settings(mode: RedisMode, nodes: Vec<String>, namespace: &str, budget: Duration) -> RedisSettings {
    RedisSettings {
        mode,
        nodes,
        username: None,
        password: None,
        database: 0,
        tls: false,
        ca_file: None,
        namespace: namespace.to_owned(),
        budget,
        queue: QUEUE,
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn spawn(port: u16, arguments: &[String], folder: &TempDir) -> Child {
    Command::new(PROGRAM)
        .arg(folder.path().join(FILE))
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

const MASTER_NAME: &str = "main";

/// The servers of a test with sentinels. The first server is the master at the start.
pub(crate) struct Watched {
    pub(crate) servers: Vec<TestServer>,
    pub(crate) sentinels: Vec<TestServer>,
}

impl Watched {
    /// Starts a master, a number of replicas, and sentinels that know all of them and each other.
    pub(crate) async fn start(replicas: usize, sentinels: usize) -> Option<Self> {
        let master = TestServer::start().await?;
        let port = master.port().to_string();
        let mut servers = vec![master];
        for _ in 0..replicas {
            servers.push(TestServer::start_with(&["--replicaof", "127.0.0.1", &port]).await?);
        }
        for replica in servers.iter().skip(1) {
            until("the replica is in step", async || {
                replica.info_has("replication", "master_link_status:up").await
            })
            .await;
        }
        let quorum = sentinels / 2 + 1;
        let file = format!(
            "sentinel monitor {MASTER_NAME} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {MASTER_NAME} 500\n\
             sentinel failover-timeout {MASTER_NAME} 5000\n"
        );
        let mut watched = Self {
            servers,
            sentinels: Vec::new(),
        };
        for _ in 0..sentinels {
            let sentinel = TestServer::launch(vec!["--sentinel".to_owned()], &file).await?;
            watched.sentinels.push(sentinel);
        }
        for sentinel in &watched.sentinels {
            until("the sentinel knows all", async || {
                let info: String = sentinel.ask(&["INFO", "sentinel"]).await;
                info.contains(&format!("slaves={replicas},sentinels={sentinels}"))
            })
            .await;
        }
        Some(watched)
    }

    pub(crate) fn settings(&self, namespace: &str, budget: Duration) -> RedisSettings {
        let mode = RedisMode::Sentinel {
            master_name: MASTER_NAME.to_owned(),
            username: None,
            password: None,
        };
        let nodes = self.sentinels.iter().map(TestServer::node).collect();
        settings(mode, nodes, namespace, budget)
    }

    pub(crate) async fn join(&self, namespace: &str, budget: Duration) -> Joined {
        Joined::with(&self.settings(namespace, budget)).await
    }

    /// Makes a sentinel change the master. The sentinel refuses until it has seen that the replica is in a good state.
    pub(crate) async fn fail_over(&self) {
        until("the sentinel begins a failover", async || {
            let begun = self.sentinels[0].try_ask::<String>(&["SENTINEL", "FAILOVER", MASTER_NAME]);
            begun.await.is_ok()
        })
        .await;
    }
}
