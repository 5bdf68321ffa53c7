//! A real Prometheus on a free port, with the shipped configuration and rules, and promtool.

use std::path::Path;
use std::process::{Command, Output};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value as Json;
use tempfile::TempDir;

use super::client::Client;
use super::port::free_port;
use super::process::Process;
use super::request::Request;
use super::tools::{program, repository};
use super::wait::{DEADLINE, wait_for, wait_within};
use super::weir::Weir;

/// Where the files for Prometheus are shipped.
pub(crate) const SHIPPED: &str = "conf/prometheus";

/// The address in the shipped configuration that stands for a node.
const TARGET: &str = "127.0.0.1:9464";

/// A running Prometheus that scrapes one gateway four times a second.
pub(crate) struct Prometheus {
    _process: Process,
    _folder: TempDir,
    port: u16,
}

impl Prometheus {
    /// Starts one; None when there is no Prometheus on this machine.
    pub(crate) fn start(weir: &Weir) -> Option<Prometheus> {
        program("prometheus")?;
        let folder = TempDir::new().unwrap();
        let conf = shipped("prometheus.yml");
        assert!(conf.contains(TARGET) && conf.contains("scrape_interval: 15s"), "{conf}");
        let conf = conf.replace(TARGET, &weir.ops.to_string()).replace("15s", "250ms");
        std::fs::write(folder.path().join("prometheus.yml"), conf).unwrap();
        std::fs::write(folder.path().join("alerts.yml"), impatient(&shipped("alerts.yml"))).unwrap();
        for _ in 0..10 {
            // Another process may take the port before Prometheus does: then it ends and the next port is tried.
            let port = free_port();
            if let Some(process) = launch(folder.path(), port) {
                return Some(Prometheus {
                    _process: process,
                    _folder: folder,
                    port,
                });
            }
        }
        panic!("prometheus did not start on any of ten free ports");
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What the API answers under `data`.
    #[track_caller]
    pub(crate) fn api(&self, path: &str) -> Json {
        let answer = get(self.port, path).unwrap_or_else(|| panic!("prometheus does not listen"));
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The samples that an expression has now: labels and value of each. Fails on an expression that is not accepted.
    #[track_caller]
    pub(crate) fn query(&self, expression: &str) -> Vec<Json> {
        let encoded = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        let data = self.api(&format!("/api/v1/query?query={encoded}"));
        data["result"].as_array().unwrap().clone()
    }

    /// Waits until an expression has samples, and returns them.
    #[track_caller]
    pub(crate) fn samples(&self, expression: &str) -> Vec<Json> {
        wait_for(&format!("samples of {expression}"), || {
            Some(self.query(expression)).filter(|found| !found.is_empty())
        })
    }
}

/// Runs promtool; None when it is not on this machine.
pub(crate) fn promtool(words: &[&str]) -> Option<Output> {
    let folder = repository().join(SHIPPED);
    let mut command = Command::new(program("promtool")?);
    Some(command.args(words).current_dir(folder).output().unwrap())
}

/// A file that is shipped for Prometheus.
pub(crate) fn shipped(name: &str) -> String {
    std::fs::read_to_string(repository().join(SHIPPED).join(name)).unwrap()
}

/// The same rules, but everything has to last for a second only.
fn impatient(rules: &str) -> String {
    let lines = rules.lines().map(|line| match line.trim_start().strip_prefix("for: ") {
        Some(_) => "        for: 1s",
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// None when it ends instead of listening.
fn launch(folder: &Path, port: u16) -> Option<Process> {
    let mut command = Command::new(program("prometheus")?);
    command
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut process = Process::start(&command, folder, "prometheus");
    let ready = wait_within(DEADLINE, || match process.ended() {
        Some(_) => Some(false),
        None => get(port, "/api/v1/status/runtimeinfo").map(|answer| answer["status"] == "success"),
    });
    let is_ready = ready.unwrap_or_else(|| panic!("prometheus does not answer: {}", process.err()));
    // It says why it ended only there; anything but the port is a fault of the test.
    assert!(
        is_ready || process.err().contains("address already in use"),
        "{}",
        process.err()
    );
    is_ready.then_some(process)
}

/// The answer to a GET; None while nobody listens, or Prometheus is not ready.
fn get(port: u16, path: &str) -> Option<Json> {
    std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    let answer = Client::connect(([127, 0, 0, 1], port).into()).exchange(&Request::get(path));
    (answer.status != 503).then(|| answer.json())
}
