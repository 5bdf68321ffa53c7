//! The memory of request bodies: given back when no further attempt can need them, however long the answer runs.

use crate::harness::recordings::events;
use crate::harness::request::{Upload, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::{RecordingProvider, Steps, wait_until};

const CLIENTS: usize = 6;
const BODY_BYTES: usize = 4 * 1024 * 1024;

fn file(name: &str, base_url: &str) -> String {
    format!(
        "name = \"{name}\"\n[auth]\nstyle = \"bearer\"\n[[credential]]\nname = \"a\"\nsecret = \"env:SECRET\"\n\
         [endpoints]\nmessages = \"{base_url}/v1/messages\"\n[[model]]\nname = \"{name}-model\"\nfree = true\n"
    )
}

fn resident_bytes(id: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

#[test]
fn a_stream_with_a_second_provider_holds_no_body_once_its_answer_has_begun() {
    let end = Steps::default();
    let ended = end.clone();
    let provider = RecordingProvider::start(move |_, answer| {
        answer.sse();
        answer.chunk(events(Wire::Messages)[0]);
        ended.wait(1);
        events(Wire::Messages)[1..].iter().for_each(|event| answer.chunk(event));
        answer.end();
    });
    let rules = RuleFolder::new(&[
        ("one", &file("one", &provider.base_url())),
        ("two", &file("two", &provider.base_url())),
    ]);
    let model: toml::Table =
        toml::from_str("name = \"either\"\nfree = true\nproviders = [\"one\", \"two\"]\n").unwrap();
    let mut weir = rules
        .weir()
        .variable("SECRET", "secret-in-full")
        .set_top("model", vec![toml::Value::Table(model)])
        .start();
    let key = weir.key().text;
    let request = |text: &str| Wire::Messages.streaming_for("either", &key, text);
    // Whatever the first request of a process needs is there before it is weighed.
    let mut first = weir.connect();
    first.write(&request("hi").bytes(Upload::Length));
    assert_eq!(first.head_to("POST").status, 200);
    let id = weir.process().id();
    let before = resident_bytes(id);
    let large = request(&"a long conversation ".repeat(BODY_BYTES / 20));
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = weir.connect();
            client.write(&large.bytes(Upload::Length));
            assert_eq!(client.head_to("POST").status, 200);
            client
        })
        .collect();
    let most = CLIENTS * BODY_BYTES / 2;
    wait_until("the memory of the bodies to be given back", || {
        resident_bytes(id).saturating_sub(before) < most
    });
    assert!(weir.metrics().contains("weir_body_bytes_buffered 0"));
    end.permit();
    clients.clear();
}
