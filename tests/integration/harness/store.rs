//! The gateway's store as a whole: whether it is there, and what `weir store` does with it.

use std::process::{Command, Output};

use super::wait::wait_until;
use super::weir::Weir;

impl Weir {
    /// Waits until the gateway says that its store is there, or that it is not.
    #[track_caller]
    pub(crate) fn wait_for_store(&self, is_there: bool) {
        let line = format!("weir_store_up {}", u8::from(is_there));
        wait_until(&line, || self.metrics().lines().any(|found| found == line));
    }

    /// A figure without labels.
    #[track_caller]
    pub(crate) fn figure(&self, name: &str) -> i64 {
        let metrics = self.metrics();
        let mut lines = metrics.lines().filter_map(|line| line.split_once(' '));
        let (_, value) = lines.find(|(found, _)| *found == name).unwrap();
        value.parse().unwrap()
    }

    /// Runs `weir store WORDS` with the gateway's configuration.
    pub(crate) fn store_command(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("store").args(words).arg("--conf");
        command.arg(self.folder().join("weir.toml")).output().unwrap()
    }
}
