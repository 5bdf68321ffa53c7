//! `weir sample-provider` as a process of its own, with its ledger.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::process::Process;
use super::wait::wait_for;

/// A running sample provider.
pub(crate) struct SampleProvider {
    _process: Process,
    folder: TempDir,
    base_url: String,
}

impl SampleProvider {
    /// Starts one on a free port.
    pub(crate) fn start() -> SampleProvider {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(["sample-provider", "--listen", "127.0.0.1:0", "--ledger"])
            .arg(folder.path().join("ledger.jsonl"));
        let mut process = Process::start(&command, folder.path(), "sample");
        let base_url = wait_for("the sample provider's address", || {
            assert!(
                process.ended().is_none(),
                "the sample provider ended: {}{}",
                process.out(),
                process.err()
            );
            http_address(&process.out()).or_else(|| http_address(&process.err()))
        });
        SampleProvider {
            _process: process,
            folder,
            base_url,
        }
    }

    /// Where it listens: `http://127.0.0.1:PORT`.
    pub(crate) fn base_url(&self) -> String {
        self.base_url.clone()
    }

    /// The ledger's file.
    pub(crate) fn ledger_path(&self) -> PathBuf {
        self.folder.path().join("ledger.jsonl")
    }

    /// What it would have billed so far: the ledger's closing lines, one per answer.
    pub(crate) fn bills(&self) -> Vec<Json> {
        let text = std::fs::read_to_string(self.ledger_path()).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &Json| line["event"] == "end")
            .collect()
    }
}

/// The first `127.0.0.1:PORT` of a whole line of output, as a URL.
fn http_address(output: &str) -> Option<String> {
    let whole = output.rsplit_once('\n')?.0;
    let at = whole.find("127.0.0.1:")?;
    let address: String = whole[at..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
        .collect();
    let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
    (port != 0).then(|| format!("http://127.0.0.1:{port}"))
}
