//! A real S3-compatible server for tests (moto, from `tests/run`), gone when the test ends.

use std::{
    env,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, StatusCode};

use tokio::time::{sleep, timeout};

use crate::edges::web_client::WebClient;

/// The one bucket that it has.
pub(super) const BUCKET: &str = "weir-log";
/// Python reads much before it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A running server with an empty bucket.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Server {
    /// A new one; `None`, with a word, where there is none to start.
    pub(super) async fn start() -> Option<Self> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv-s3/bin/python");
        if !python.is_file() {
            let required = [("CI", "true"), ("WEIR_REQUIRE_TOOLS", "1")];
            let is_required = required
                .iter()
                .any(|(name, value)| env::var(name).as_deref() == Ok(value));
            assert!(!is_required, "there is no .venv-s3, and tools are required here");
            eprintln!("skipped: no .venv-s3, which tests/run makes");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self { child, port };
        let client = super::client();
        let begun = async {
            while !server.make_bucket(&client).await {
                assert!(server.child.try_wait().unwrap().is_none(), "it has ended");
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(STARTS_WITHIN, begun).await.expect("the server has a bucket");
        Some(server)
    }

    async fn make_bucket(&self, client: &WebClient) -> bool {
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("http://127.0.0.1:{}/{BUCKET}", self.port));
        let made = client.send(request.body(Bytes::new()).unwrap()).await;
        made.is_ok_and(|answer| answer.status() == StatusCode::OK)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
