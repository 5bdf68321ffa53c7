//! A real Postgres on a unix socket, with its files in a temporary folder. It refuses to run as root, so it runs as somebody
//! else where the tests are root's.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::process::Process;
use super::tools::program;
use super::wait::{wait_for, wait_until};

/// Whom it runs as where the tests are root's.
const UNPRIVILEGED: &str = "nobody";
/// Where Debian has the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";
/// Its superuser, and the role that weir has.
const SUPERUSER: &str = "postgres";
pub(crate) const WRITER: &str = "weir_writer";
/// The variable that gives a gateway the address of its database.
pub(crate) const POSTGRES_URL: &str = "WEIR_TEST_POSTGRES";
/// The name of its socket; nothing listens on that port.
const PORT: &str = "5432";

/// A running server.
pub(crate) struct PostgresServer {
    process: Option<Process>,
    programs: PathBuf,
    folder: TempDir,
}

impl PostgresServer {
    /// Starts one that has a role for weir; None when there is no Postgres on this machine.
    pub(crate) fn start() -> Option<PostgresServer> {
        let programs = programs()?;
        program("psql")?;
        let folder = TempDir::new().unwrap();
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
        let mut server = PostgresServer {
            process: None,
            programs,
            folder,
        };
        server.up();
        server.psql(&format!("CREATE ROLE {WRITER} LOGIN"));
        Some(server)
    }

    /// Has what is made from now on lie in this folder.
    pub(crate) fn lies_in(&self, folder: &Path) {
        if let Some((user, group)) = unprivileged() {
            chown(folder, Some(user), Some(group)).unwrap();
        }
        self.psql(&format!("CREATE TABLESPACE small LOCATION '{}'", folder.display()));
        self.psql("GRANT CREATE ON TABLESPACE small TO PUBLIC");
        self.psql("ALTER DATABASE postgres SET default_tablespace = small");
    }

    /// A connection string of the superuser.
    pub(crate) fn owner_url(&self) -> String {
        self.url(SUPERUSER)
    }

    /// A connection string of weir's role.
    pub(crate) fn url_of_weir(&self) -> String {
        self.url(WRITER)
    }

    fn url(&self, user: &str) -> String {
        let folder = self.folder.path().display();
        format!("host={folder} port={PORT} user={user} dbname=postgres")
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn down(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts it again on the same files.
    pub(crate) fn up(&mut self) {
        self.process = Some(self.launch());
        wait_until("postgres to answer", || {
            // What its predecessor has left running keeps a new one from starting for a moment.
            if self.process.as_mut().is_some_and(|process| process.ended().is_some()) {
                self.process = Some(self.launch());
            }
            self.try_psql("SELECT 1").is_some()
        });
    }

    fn launch(&self) -> Process {
        let mut command = command(&self.programs.join("postgres"));
        command
            .arg("-D")
            .arg(self.folder.path().join("data"))
            .arg("-k")
            .arg(self.folder.path())
            .args(["-p", PORT, "-c", "listen_addresses=", "-c", "shared_buffers=16MB"]);
        Process::start(&command, self.folder.path(), "postgres")
    }

    /// What psql says to a statement, as its superuser: one line per row.
    #[track_caller]
    pub(crate) fn psql(&self, statement: &str) -> String {
        wait_for("psql's answer", || self.try_psql(statement))
    }

    /// The same; None when it fails.
    pub(crate) fn try_psql(&self, statement: &str) -> Option<String> {
        let url = self.owner_url();
        let options = [
            "--no-psqlrc",
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--set",
            "ON_ERROR_STOP=1",
        ];
        let done = Command::new("psql")
            .arg(url)
            .args(options)
            .args(["--command", statement])
            .output();
        let done = done.unwrap();
        done.status
            .success()
            .then(|| String::from_utf8(done.stdout).unwrap().trim().to_owned())
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.down();
    }
}

fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let on_path = program("initdb").and_then(|initdb| Some(initdb.parent()?.to_owned()));
    let both = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    on_path.into_iter().chain(debian).find(both)
}

/// The user and group that it gets where the tests are root's.
fn unprivileged() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.split(':').next() == Some(UNPRIVILEGED));
    let mut ids = line.unwrap().split(':').skip(2).map(|id| id.parse().unwrap());
    Some((ids.next().unwrap(), ids.next().unwrap()))
}

/// The program as whom it may run. Changing the user forgets with whom it is to end, so that is said here again.
fn command(program: &Path) -> Command {
    let Some((user, group)) = unprivileged() else {
        return Command::new(program);
    };
    let mut command = Command::new("setpriv");
    command
        .args([format!("--reuid={user}"), format!("--regid={group}")])
        .args(["--clear-groups", "--pdeathsig", "KILL"])
        .arg(program)
        .current_dir("/");
    command
}
