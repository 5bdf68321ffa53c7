//! An agent that speaks the Agent Client Protocol (<https://agentclientprotocol.com>): one process with one session, which gets
//! its prompts as JSON-RPC on its standard input.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::wait::wait_within;

/// The version of the protocol.
const VERSION: u64 = 1;
/// How long the process may take to end once its input has ended.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// A running agent with a session.
pub(crate) struct AcpAgent {
    process: Child,
    requests: Option<ChildStdin>,
    messages: Receiver<Json>,
    errors: PathBuf,
    session: String,
    requested: u64,
    limit: Duration,
}

impl AcpAgent {
    /// Starts `words` in `folder` with nothing but `environment`, and a session in the same folder. Each of its answers may take
    /// `limit`; its errors go to the file `errors`.
    #[track_caller]
    pub(crate) fn start(
        words: &[String],
        environment: &[(&str, String)],
        folder: &Path,
        errors: &Path,
        limit: Duration,
    ) -> AcpAgent {
        // A group of its own ends as a whole: the agents' commands are wrappers around other programs.
        let mut process = Command::new("/usr/bin/timeout")
            .args(["--kill-after=2", &(limit * 5).as_secs().to_string()])
            .args(words)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(errors).unwrap())
            .spawn()
            .unwrap();
        let requests = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // A line that is no JSON is none of the protocol's.
                if let Ok(message) = serde_json::from_str::<Json>(&line) {
                    let _ = sender.send(message);
                }
            }
        });
        let mut agent = AcpAgent {
            process,
            requests,
            messages,
            errors: errors.to_owned(),
            session: String::new(),
            requested: 0,
            limit,
        };
        agent.open_session(folder);
        agent
    }

    #[track_caller]
    fn open_session(&mut self, folder: &Path) {
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}});
        let ours = json!({"protocolVersion": VERSION, "clientCapabilities": capabilities});
        let (agreed, _) = self.request("initialize", &ours);
        assert!(agreed.is_ok(), "{agreed:?} {}", self.written_errors());
        let (opened, _) = self.request("session/new", &json!({"cwd": folder, "mcpServers": []}));
        let opened = opened.unwrap_or_else(|error| panic!("{error} {}", self.written_errors()));
        self.session = opened["sessionId"].as_str().unwrap().to_owned();
    }

    /// Sends a prompt and waits for the end of the turn: the text that the agent has shown, or why the turn has failed.
    #[track_caller]
    pub(crate) fn ask(&mut self, prompt: &str) -> Result<String, String> {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": prompt}]});
        let (ended, shown) = self.request("session/prompt", &params);
        match ended {
            Ok(end) if end["stopReason"] == "end_turn" => Ok(shown),
            Ok(end) => Err(format!("{shown}\n{end}\n{}", self.written_errors())),
            Err(error) => Err(format!("{shown}\n{error}\n{}", self.written_errors())),
        }
    }

    /// The result of a method or its error, and the text that the agent shows meanwhile.
    #[track_caller]
    fn request(&mut self, method: &str, params: &Json) -> (Result<Json, Json>, String) {
        self.requested += 1;
        let id = self.requested;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let sent = self.requests.as_mut().map(|requests| writeln!(requests, "{request}"));
        assert!(matches!(sent, Some(Ok(()))), "{method}: {}", self.written_errors());
        let until = Instant::now() + self.limit;
        let mut shown = String::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(message) = self.messages.recv_timeout(left) else {
                panic!("no answer to {method} in {:?}: {}", self.limit, self.written_errors());
            };
            if message["id"] == id && message.get("method").is_none() {
                let error = message.get("error").filter(|error| !error.is_null());
                return (error.cloned().map_or_else(|| Ok(message["result"].clone()), Err), shown);
            }
            assert!(message.get("id").is_none(), "the agent asks for something: {message}");
            let update = &message["params"]["update"];
            if update["sessionUpdate"] == "agent_message_chunk" {
                shown.push_str(update["content"]["text"].as_str().unwrap_or_default());
            }
        }
    }

    fn written_errors(&self) -> String {
        let bytes = std::fs::read(&self.errors).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for AcpAgent {
    fn drop(&mut self) {
        drop(self.requests.take());
        if wait_within(LEAVE_LIMIT, || self.process.try_wait().ok().flatten()).is_none() {
            // `timeout` ends the whole group with it.
            let id = self.process.id().to_string();
            let _ = Command::new("sh").args(["-c", "kill -s TERM \"$0\"", &id]).status();
            let _ = self.process.wait();
        }
    }
}
