//! Upgrades of a running gateway: the processes that take its place, which no test has started itself.

use std::path::Path;
use std::process::{Command, Output};

use super::wait::{wait_until, wait_within};
use super::weir::Weir;

/// How long a process may take to obey SIGTERM before it is killed.
const TERM_PATIENCE: std::time::Duration = std::time::Duration::from_millis(700);

impl Weir {
    /// Runs `weir upgrade`.
    pub(crate) fn try_upgrade(&self) -> Output {
        self.cli(&["upgrade"], &["--json"])
    }

    /// Has another process take its place; the id of that one.
    #[track_caller]
    pub(crate) fn upgrade(&mut self) -> u32 {
        let output = self.try_upgrade();
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(output.status.success(), "{out}{err}");
        let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
        let pid = u32::try_from(answer["pid"].as_u64().unwrap()).unwrap();
        self.successors.push(pid);
        pid
    }

    /// The process that serves.
    pub(crate) fn serving_pid(&mut self) -> u32 {
        let first = self.process().id();
        self.successors.last().copied().unwrap_or(first)
    }

    /// Waits until all processes but the one that serves have ended.
    #[track_caller]
    pub(crate) fn wait_for_predecessors(&mut self) {
        if self.successors.is_empty() {
            return;
        }
        assert!(self.process().wait_ended().success());
        let before = self.successors[..self.successors.len() - 1].to_vec();
        wait_until("the processes before to end", || {
            before.iter().all(|pid| !is_running(*pid))
        });
    }

    /// Ends whatever has taken its place, also where a test did not expect that.
    pub(super) fn end_successors(&mut self) {
        let first = self.process().id();
        let folder = self.folder().to_owned();
        for pid in processes().filter(|pid| *pid != first && is_successor(*pid, &folder)) {
            signal("TERM", pid);
            if wait_within(TERM_PATIENCE, || (!is_running(pid)).then_some(())).is_none() {
                signal("KILL", pid);
            }
        }
    }
}

/// All processes of this machine.
fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Sends a signal (`TERM`, `KILL`, ...) to one process.
pub(crate) fn signal(name: &str, pid: u32) {
    let pid = pid.to_string();
    let _ = Command::new("sh")
        .args(["-c", "kill -s \"$0\" \"$1\"", name, &pid])
        .status();
}

/// Whether a process runs; one whose end nobody has asked about yet does not. As long as one of its threads is ending, what it
/// has locked is locked.
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    !matches!(state, None | Some('Z' | 'X')) || threads > 1
}

/// The processes that a process has started, and that run.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{of}/task"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let listed = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.extend(listed.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    children.retain(|pid| is_running(*pid));
    children
}

/// Whether a process was started to take another one's place, with files of this folder.
fn is_successor(pid: u32, folder: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command);
    command.contains("\0--successor\0") && command.contains(folder.to_str().unwrap())
}
