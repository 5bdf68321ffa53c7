//! A real redis-server on a free port, with its files in a temporary folder.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;

use tempfile::TempDir;

use super::port::free_port;
use super::process::Process;
use super::tools::program;
use super::wait::{DEADLINE, wait_within};

/// A running server.
pub(crate) struct RedisServer {
    port: u16,
    process: Option<Process>,
    folder: TempDir,
    arguments: Vec<String>,
}

/// Loses nothing that it has acknowledged, also when it is killed.
const DURABLE: [&str; 6] = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
const FILE: &str = "redis.conf";

impl RedisServer {
    /// Starts one; None when there is no redis-server on this machine.
    pub(crate) fn start() -> Option<RedisServer> {
        RedisServer::launch(&[], "")
    }

    /// Starts one with further arguments, and this text in its configuration file.
    pub(crate) fn launch(arguments: &[&str], file: &str) -> Option<RedisServer> {
        program("redis-server")?;
        for _ in 0..10 {
            // Another process may take the port between these two lines: then the server ends and the next port is tried.
            let port = free_port();
            let mut server = RedisServer {
                port,
                process: None,
                folder: TempDir::new().unwrap(),
                arguments: arguments.iter().map(ToString::to_string).collect(),
            };
            std::fs::write(server.folder.path().join(FILE), file).unwrap();
            if server.up() {
                return Some(server);
            }
        }
        panic!("redis-server did not start on any of ten free ports");
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sends the server a signal (`STOP`, `CONT`).
    pub(crate) fn signal(&self, name: &str) {
        self.process.as_ref().unwrap().signal(name);
    }

    /// The address as weir's configuration wants it.
    pub(crate) fn node(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Kills the server as `kill -9` does.
    pub(crate) fn down(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts the server again on the same port with the same files. False when it did not start.
    pub(crate) fn up(&mut self) -> bool {
        let mut command = Command::new("redis-server");
        command
            .arg(self.folder.path().join(FILE))
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(self.folder.path());
        if !self.arguments.iter().any(|argument| argument == "--sentinel") {
            command.args(DURABLE);
        }
        command.args(&self.arguments);
        let mut process = Process::start(&command, self.folder.path(), "redis");
        let up = wait_within(DEADLINE, || {
            if process.ended().is_some() {
                return Some(false);
            }
            self.try_command(&["PING"])
                .filter(|answer| answer.contains("PONG"))
                .map(|_| true)
        });
        self.process = Some(process);
        up == Some(true)
    }

    /// Sends one command and returns the raw answer.
    pub(crate) fn command(&self, words: &[&str]) -> String {
        self.try_command(words)
            .unwrap_or_else(|| panic!("redis did not answer {words:?}"))
    }

    /// What it says of its role; nothing while it is down.
    pub(crate) fn replication(&self) -> String {
        self.try_command(&["INFO", "replication"]).unwrap_or_default()
    }

    /// Every byte the server keeps: its append-only files.
    pub(crate) fn stored_bytes(&self) -> Vec<u8> {
        super::weir::all_bytes_below(self.folder.path())
    }

    /// Sends one command and returns the raw answer; None when the server is away.
    pub(crate) fn try_command(&self, words: &[&str]) -> Option<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        socket.set_read_timeout(Some(DEADLINE)).ok()?;
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        // QUIT ends the answer, so that it can be read to the end of the connection. A sentinel does not know it.
        text.push_str("*1\r\n$4\r\nQUIT\r\n");
        socket.write_all(text.as_bytes()).ok()?;
        socket.shutdown(Shutdown::Write).ok()?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    }
}
