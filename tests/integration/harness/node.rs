//! Node and the npm packages that `tests/run` installs, and programs that are ended when they take too long.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::tools::repository;

/// Node, as `tests/run` installs it.
pub(crate) fn node() -> Option<PathBuf> {
    let node = repository().join(".venv/bin/node");
    node.is_file().then_some(node)
}

/// The `node_modules` of a folder of the repository, as `tests/run` makes it.
pub(crate) fn node_modules(folder: &str) -> Option<PathBuf> {
    let modules = repository().join(folder).join("node_modules");
    modules.join(".made-from").is_file().then_some(modules)
}

/// What a program did.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl Finished {
    /// Whether it was ended because it took too long.
    pub(crate) fn timed_out(&self) -> bool {
        matches!(self.status.code(), Some(124 | 137))
    }
}

/// Runs `words` in `folder` with nothing but `environment`, its output in files beside. It and what it started is
/// killed after `limit`.
#[track_caller]
pub(crate) fn run(words: &[&str], environment: &[(&str, String)], folder: &Path, limit: Duration) -> Finished {
    let files = tempfile::TempDir::new().unwrap();
    let (out, err) = (files.path().join("out"), files.path().join("err"));
    let started = Instant::now();
    // A group of its own is killed as a whole: the agents' commands are wrappers around other programs.
    let status = Command::new("/usr/bin/timeout")
        .args(["--kill-after=2", &limit.as_secs().to_string()])
        .args(words)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap())
        .stderr(File::create(&err).unwrap())
        .status()
        .unwrap();
    let text = |file: &Path| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    Finished {
        status,
        out: text(&out),
        err: text(&err),
        took: started.elapsed(),
    }
}
