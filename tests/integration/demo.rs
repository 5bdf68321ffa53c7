//! `weir demo`: one command, nothing to install, nothing left behind.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::process::Process;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::{Client, Request, wait_for};

/// A running demo and what it told.
pub(crate) struct Demo {
    pub(crate) process: Process,
    pub(crate) told: Json,
    folder: TempDir,
}

impl Demo {
    /// Starts `weir demo --json` on a free port, with temporary files below a folder of its own.
    pub(crate) fn start() -> Demo {
        let folder = TempDir::new().unwrap();
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(["demo", "--json", "--listen", "127.0.0.1:0"])
            .env("TMPDIR", &temporary);
        let mut process = Process::start(&command, folder.path(), "demo");
        let line = wait_for("the demo's line", || {
            if let Some(status) = process.ended() {
                panic!("weir demo ended ({status}): {}{}", process.out(), process.err());
            }
            process.out().split_once('\n').map(|(line, _)| line.to_owned())
        });
        let told = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Demo { process, told, folder }
    }

    /// A text it told.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.told[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name} in {}", self.told))
    }

    /// A new connection to its gateway.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(
            self.text("base_url")
                .trim_start_matches("http://")
                .trim_end_matches('/')
                .parse()
                .unwrap(),
        )
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path().join("tmp"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

#[test]
fn the_demo_answers_every_protocol_unary_and_streaming() {
    let demo = Demo::start();
    let key = demo.text("key").to_owned();
    for wire in ALL_WIRES {
        let answer = demo.connect().exchange(&wire.request(&key, "Say hello."));
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        let body = answer.json();
        let text = match wire {
            Wire::Messages => &body["content"][0]["text"],
            Wire::Responses => &body["output"][0]["content"][0]["text"],
            Wire::Gemini => &body["candidates"][0]["content"]["parts"][0]["text"],
        };
        assert!(text.as_str().is_some_and(|text| !text.is_empty()), "{wire:?}: {body}");
        let stream = demo.connect().exchange(&wire.streaming(&key, "Say hello."));
        assert!(stream.status == 200 && stream.complete, "{wire:?}: {}", stream.text());
        let end = match wire {
            Wire::Messages => "message_stop",
            Wire::Responses => "response.completed",
            Wire::Gemini => "finishReason",
        };
        assert!(stream.text().contains(end), "{wire:?}: {}", stream.text());
    }
    let mut count = Wire::Messages.request(&key, "Say hello.");
    count.target = "/v1/messages/count_tokens".to_owned();
    let counted = demo.connect().exchange(&count).json();
    assert!(
        counted["input_tokens"].as_u64().is_some_and(|tokens| tokens > 0),
        "{counted}"
    );
    assert_eq!(
        demo.connect().exchange(&Wire::Messages.request("wrong", "hi")).status,
        401
    );
}

#[test]
fn the_demo_shows_how_its_models_behave() {
    let demo = Demo::start();
    let address = demo
        .text("stability_url")
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let summary = wait_for("the record", || {
        let answer = Client::connect(address).exchange(&Request::get("/web/v1/model-stability/summary"));
        (answer.status == 200).then(|| answer.json())
    });
    assert!(
        summary["data"].as_array().is_some_and(|rows| rows.len() >= 4),
        "{summary}"
    );
    assert_eq!(Client::connect(address).exchange(&Request::get("/status")).status, 200);
}

#[test]
fn every_model_the_demo_lists_answers() {
    let demo = Demo::start();
    let key = demo.text("key").to_owned();
    let bearer = format!("Bearer {key}");
    let list = demo
        .connect()
        .exchange(&Request::get("/v1/models").header("authorization", &bearer))
        .json();
    let models: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert!(models.len() >= 4, "{models:?}");
    for model in models {
        let served = ALL_WIRES
            .iter()
            .filter(|wire| demo.connect().exchange(&wire.request_for(model, &key, "hi")).status == 200)
            .count();
        assert!(served >= 1, "{model} answers in no protocol");
    }
}

#[test]
fn the_demo_leaves_nothing_behind() {
    let mut demo = Demo::start();
    assert!(
        !demo.leftovers().is_empty(),
        "the demo keeps its files where TMPDIR says"
    );
    let socket = PathBuf::from(demo.text("admin_socket").trim_start_matches("unix:"));
    assert!(socket.exists());
    demo.process.signal("TERM");
    let status = demo.process.wait_ended();
    assert!(status.success(), "{status}: {}", demo.process.err());
    assert!(
        demo.leftovers().is_empty() && !socket.exists(),
        "{:?}",
        demo.leftovers()
    );
}

#[test]
fn the_demo_in_words_shows_a_key_and_a_curl_command_per_protocol() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["demo", "--listen", "127.0.0.1:0"]);
    let mut process = Process::start(&command, folder.path(), "demo");
    let text = wait_for("three curl commands", || {
        assert!(process.ended().is_none(), "{}{}", process.out(), process.err());
        Some(process.out()).filter(|text| text.matches("curl").count() >= 3 && text.ends_with('\n'))
    });
    for path in ["/v1/messages", "/v1/responses", "/v1beta/models/", "/status\n"] {
        assert!(text.contains(path), "{path}: {text}");
    }
}

#[test]
fn the_demo_names_the_program_as_it_was_called() {
    let folder = TempDir::new().unwrap();
    let program = env!("CARGO_BIN_EXE_weir");
    let mut command = Command::new(program);
    command.args(["demo", "--listen", "127.0.0.1:0"]);
    let mut process = Process::start(&command, folder.path(), "demo");
    let told = wait_for("the demo's text", || {
        assert!(process.ended().is_none(), "{}{}", process.out(), process.err());
        process.out().contains("Agents:").then(|| process.out())
    });
    let opened = told.lines().find(|line| line.contains("opened by: ")).unwrap();
    let (_, called) = opened.split_once("opened by: ").unwrap();
    let words: Vec<&str> = called.split(' ').collect();
    assert_eq!(words[0], program, "{opened}");
    let link = Command::new(words[0]).args(&words[1..]).output().unwrap();
    assert!(link.status.success(), "{link:?}");
}
