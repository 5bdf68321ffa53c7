//! A real S3-compatible server (moto) with an empty bucket, in memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::port::free_port;
use super::process::Process;
use super::tools::python;
use super::wait::wait_within;

/// Its only bucket.
pub(crate) const BUCKET: &str = "weir-log";
/// Python reads much before it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

/// A running server.
pub(crate) struct BucketServer {
    pub(crate) process: Process,
    port: u16,
    _folder: TempDir,
}

impl BucketServer {
    /// Starts one; None where `tests/run` has not made its environment.
    pub(crate) fn start() -> Option<BucketServer> {
        let python = python(".venv-s3")?;
        let (port, folder) = (free_port(), TempDir::new().unwrap());
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        let process = Process::start(&command, folder.path(), "bucket");
        let is_made = |answer: &String| answer.starts_with("HTTP/1.1 200");
        let begun = wait_within(STARTS_WITHIN, || made(port).ok().filter(is_made));
        assert!(begun.is_some(), "the server has no bucket");
        Some(BucketServer {
            process,
            port,
            _folder: folder,
        })
    }

    /// Its port on this machine.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Where it is reached.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// What it answers when it is told to make the bucket.
fn made(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(
        stream,
        "PUT /{BUCKET} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
