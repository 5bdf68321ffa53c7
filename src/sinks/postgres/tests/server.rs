//! A real Postgres for tests, alone in its folder, gone when the test ends.

use std::{
    env, fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio_postgres::{NoTls, types::ToSql};

use crate::{
    config::log::PostgresTls, domain::keys::secret::Secret, sinks::postgres::PostgresSettings, store::contract::until,
};

/// Whom the server runs as where the tests run as root, which it refuses to run as.
const UNPRIVILEGED: &str = "nobody";
/// Where Debian has the programs of its versions.
const DEBIAN: &str = "/usr/lib/postgresql";
const SUPERUSER: &str = "postgres";

/// A running server, with a database for the tests.
pub(super) struct Server {
    child: Child,
    programs: PathBuf,
    folder: TempDir,
    port: u16,
}

impl Server {
    /// A new one; `None`, with a word, where there is no Postgres to start.
    pub(super) async fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            let required = [("CI", "true"), ("WEIR_REQUIRE_TOOLS", "1")];
            let is_required = required
                .iter()
                .any(|(name, value)| env::var(name).as_deref() == Ok(value));
            assert!(!is_required, "postgres is not installed, and tools are required here");
            eprintln!("skipped: postgres is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        if let Some((user, group)) = unprivileged() {
            chown(folder.path(), Some(user), Some(group)).unwrap();
        }
        let made = command(&programs.join("initdb"))
            .args([
                "--auth",
                "trust",
                "--username",
                SUPERUSER,
                "--encoding",
                "UTF8",
                "--no-locale",
                "--no-sync",
            ])
            .arg("--pgdata")
            .arg(folder.path().join("data"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(&programs, folder.path(), port);
        let mut server = Self {
            child,
            programs,
            folder,
            port,
        };
        server.is_up().await;
        Some(server)
    }

    /// Has it speak TLS, with this certificate.
    pub(super) async fn with_tls(&mut self, certificate: &str, key: &str) {
        let data = self.folder.path().join("data");
        let owner = fs::metadata(&data).unwrap();
        for (name, content) in [("server.crt", certificate), ("server.key", key)] {
            let path = data.join(name);
            fs::write(&path, content).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(&path, mode).unwrap();
            chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        self.sql("ALTER SYSTEM SET ssl = on").await;
        self.kill();
        self.restart().await;
    }

    /// Ends it as a crash does.
    pub(super) fn kill(&mut self) {
        // What serves a connection would serve it for a moment longer than the process that has started it lives.
        let id = self.child.id();
        let workers = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        for worker in workers
            .split_whitespace()
            .filter_map(|id| Pid::from_raw(id.parse().ok()?))
        {
            // It may have ended by itself.
            let _ = kill_process(worker, Signal::KILL);
        }
    }

    /// Starts it again on what it had written.
    pub(super) async fn restart(&mut self) {
        self.child = spawn(&self.programs, self.folder.path(), self.port);
        self.is_up().await;
    }

    async fn is_up(&mut self) {
        until("postgres answers", async || {
            // What its predecessor has left running keeps a new one from starting for a moment.
            if self.child.try_wait().unwrap().is_some() {
                self.child = spawn(&self.programs, self.folder.path(), self.port);
            }
            let answer = tokio_postgres::connect(&self.url(SUPERUSER), NoTls).await;
            answer.is_ok()
        })
        .await;
    }

    /// A connection string over the unix socket.
    pub(super) fn url(&self, user: &str) -> String {
        let folder = self.folder.path().display();
        format!("host={folder} port={} user={user} dbname=postgres", self.port)
    }

    /// One over TCP.
    pub(super) fn tcp_url(&self, host: &str) -> String {
        format!("postgres://{SUPERUSER}@{host}:{}/postgres", self.port)
    }

    /// Settings that reach it as this user.
    pub(super) fn settings(&self, user: &str) -> PostgresSettings {
        settings(&self.url(user))
    }

    /// Settings of the superuser.
    pub(super) fn own(&self) -> PostgresSettings {
        self.settings(SUPERUSER)
    }

    /// How the statement of a question would be run, where the table is larger than it is here.
    pub(super) async fn plan(&self, statement: &str, values: &[&(dyn ToSql + Sync)]) -> String {
        let (client, connection) = tokio_postgres::connect(&self.url(SUPERUSER), NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        client.batch_execute("SET enable_seqscan = off").await.unwrap();
        let lines = client.query(&format!("EXPLAIN {statement}"), values).await.unwrap();
        driver.abort();
        let lines: Vec<String> = lines.iter().map(|line| line.get(0)).collect();
        lines.join("\n")
    }

    /// Runs statements as the superuser; answers with the first column of each row.
    pub(super) async fn sql(&self, statements: &str) -> Vec<String> {
        let (client, connection) = tokio_postgres::connect(&self.url(SUPERUSER), NoTls).await.unwrap();
        let driver = tokio::spawn(connection);
        let answer = client.simple_query(statements).await.unwrap();
        driver.abort();
        let rows = answer.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        });
        rows.collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Settings with ample limits.
pub(super) fn settings(url: &str) -> PostgresSettings {
    PostgresSettings {
        url: Secret::new(url),
        tls: PostgresTls::Disable,
        ca: None,
        connect: Duration::from_secs(20),
        write: Duration::from_secs(30),
        read: Duration::from_secs(30),
        keep_days: 180,
    }
}

fn programs() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    env::split_paths(&path)
        .chain(debian)
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// The user and group that the server gets where the tests are root's.
fn unprivileged() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(UNPRIVILEGED))
        .unwrap();
    let mut ids = line.split(':').skip(2).map(|id| id.parse().unwrap());
    Some((ids.next().unwrap(), ids.next().unwrap()))
}

/// The program as whom it may run, and gone with the thread that starts it.
fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some((user, group)) = unprivileged() {
        command.args([
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".to_owned(),
        ]);
    }
    command.arg(program).current_dir("/").stdin(Stdio::null());
    command
}

fn spawn(programs: &Path, folder: &Path, port: u16) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    command(&programs.join("postgres"))
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args([
            "-p",
            &port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "shared_buffers=16MB",
        ])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
