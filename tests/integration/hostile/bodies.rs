//! Bodies that nobody should have to read (`tests/hostile/bodies.toml`): what is wrong is refused in words of its protocol, what
//! is only large is served, and neither costs more than the largest body that may be.

use std::time::{Duration, Instant};

use serde::Deserialize;

use super::pieces::{self, Piece, bytes};
use super::report::Tried;
use crate::harness::packed::packed;
use crate::harness::request::{ALL_WIRES, Upload, Wire};
use crate::harness::shapes::assert_bad_request;
use crate::harness::tools::note;
use crate::harness::{MESSAGES_MODEL, RecordingProvider, Request, Weir};

/// The most that one body may take to be answered, however busy the machine: a bomb that is decoded to its end takes minutes.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The most that the process may grow: a few times the 32 MiB that a body may have. A growing buffer is copied, and the
/// allocator keeps some.
const GROWTH_BYTES_MAX: usize = 256 << 20;
/// Small enough for bodies of a few bytes to come in several, large enough for large ones not to take for ever.
const CHUNKS: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    refused: Option<u16>,
    /// The bodies are brought into this coding.
    coding: Option<String>,
    /// The bodies are in this coding already, or so their client says.
    coded_as: Option<String>,
    /// The length that is announced instead of the body's.
    announces: Option<u64>,
    bodies: Vec<Vec<Piece>>,
}

impl Case {
    fn requests(&self, key: &str) -> Vec<Request> {
        let model = format!("\"model\":\"{MESSAGES_MODEL}\"");
        let request = Request::post("/v1/messages").header("x-api-key", key);
        let request = match self.coding.as_ref().or(self.coded_as.as_ref()) {
            Some(coding) => request.header("content-encoding", coding),
            None => request,
        };
        let body = |pieces: &Vec<Piece>| {
            let plain = bytes(pieces, &[("{model}", model.as_str())]);
            match &self.coding {
                Some(coding) => packed(coding, &plain),
                None => plain,
            }
        };
        let all = self.bodies.iter().map(body);
        all.map(|body| request.clone().body(&body)).collect()
    }

    fn told(&self) -> String {
        match self.refused {
            Some(status) => format!("{status}, nothing passed on"),
            None => "200, passed on".to_owned(),
        }
    }

    /// The bytes of a request in each of its forms.
    fn forms(&self, request: &Request) -> Vec<Vec<u8>> {
        if let Some(announced) = self.announces {
            let head = String::from_utf8(request.head_bytes(Upload::Length)).unwrap();
            let head = head.replace("content-length: 0", &format!("content-length: {announced}"));
            return vec![head.into_bytes()];
        }
        let chunk = request.body.len().div_ceil(CHUNKS).max(11);
        vec![request.bytes(Upload::Length), request.bytes(Upload::Chunked(chunk))]
    }
}

/// The bodies that are small, for fuzzing.
pub(crate) fn small() -> Vec<Vec<u8>> {
    let all = table().into_iter().filter(|case| case.coding.is_none());
    let bodies = all.flat_map(|case| case.requests("k")).map(|request| request.body);
    bodies.filter(|body| body.len() < 1000).collect()
}

fn table() -> Vec<Case> {
    pieces::file::<Table>("bodies").case
}

#[test]
fn what_cannot_be_one_request_is_refused_and_reaches_no_provider() {
    let provider = RecordingProvider::least();
    let mut weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, "hi")).status, 200);
    let (before, mut served) = (weir.process().peak_memory(), 1);
    let mut tried = Tried::new("bodies");
    for case in table() {
        tried.case(&case.name, &case.told(), || {
            let requests = case.requests(&key);
            let forms: Vec<_> = requests.iter().flat_map(|request| case.forms(request)).collect();
            for (number, form) in forms.iter().enumerate() {
                let began = Instant::now();
                let mut client = weir.connect();
                client.write(form);
                let answer = client.response_to("POST");
                let what = format!("{} {number}: {}", case.name, answer.text());
                assert_eq!(answer.status, case.refused.unwrap_or(200), "{what}");
                assert!(began.elapsed() < ANSWER_MAX, "{what}: {:?}", began.elapsed());
                if answer.status == 400 {
                    assert_bad_request(Wire::Messages, &answer);
                }
                served += usize::from(case.refused.is_none());
                assert_eq!(provider.count(), served, "{what}");
            }
            forms.len()
        });
    }
    tried.end();
    let grown = weir.process().peak_memory().saturating_sub(before);
    note(&format!("hostile bodies: grown by {} MiB", grown >> 20));
    assert!(grown < GROWTH_BYTES_MAX, "{grown} bytes");
}

#[test]
fn every_protocol_refuses_what_is_no_object_in_its_own_words() {
    let provider = RecordingProvider::least();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for body in ["", "[]", "{", r#"{"contents":[]}x"#] {
            let request = wire.request(&key, "x").body(body.as_bytes());
            assert_bad_request(wire, &weir.exchange(&request));
        }
    }
    assert_bad_request(
        Wire::Gemini,
        &weir.exchange(&Wire::Gemini.request(&key, "x").body(b"{}")),
    );
    let lines = weir.access_lines_at_least(13);
    assert!(lines.iter().all(|line| line["outcome"] == "refused"), "{lines:?}");
    assert_eq!(provider.connections(), 0);
}
