//! Providers that answer wrongly, too much or without an end (`tests/hostile/providers.toml`): the client always hears how it
//! ended, weir waits for nobody beyond a limit, and its memory stays within bounds.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;

use serde::Deserialize;

use super::pieces::{self, Piece, bytes};
use super::report::{self, Tried};
use crate::harness::answer::Answer;
use crate::harness::client::Response;
use crate::harness::packed::{CODINGS, packed};
use crate::harness::request::Wire;
use crate::harness::shapes::in_band_error;
use crate::harness::tools::note;
use crate::harness::wait::DEADLINE;
use crate::harness::weir::PROVIDER_KEY;
use crate::harness::{RecordingProvider, Weir, WeirBuilder};

/// The time limits of this test, in seconds: for the first byte, for silence, and for a whole answer. A provider that does not
/// want to wait is quicker on a busy machine, too.
const SHORT_SECONDS: i64 = 2;
const TOTAL_SECONDS: i64 = 6;
/// How many cases are tried at one time: most of what they take is waiting.
const LANES: usize = 4;
/// What a bomb becomes.
const BOMB_BYTES: usize = 64 << 20;
/// The most memory of the process, in bytes: what it has in other tests, and what it may hold of an answer.
const MEMORY_MAX: usize = 384 << 20;
/// What stands in the file of cases for the credential that weir sends, in full and in two halves.
const WORDS: [(&str, &str); 3] = [
    ("CREDENTIAL", PROVIDER_KEY),
    ("CREDEN", PROVIDER_KEY.split_at(13).0),
    ("TIAL", PROVIDER_KEY.split_at(13).1),
];
/// A request that is answered as it should be.
const GOOD: &str = "good";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    asks: Vec<Asks>,
    says: Vec<Piece>,
    #[serde(default)]
    stays: bool,
    #[serde(default)]
    endless: bool,
    /// The coding of a body that becomes [`BOMB_BYTES`].
    bomb: Option<String>,
    /// Without it any status is right.
    status: Option<u16>,
    /// Without it any end is right.
    body: Option<Body>,
    #[serde(default)]
    next: bool,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Asks {
    Unary,
    Stream,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Body {
    Whole,
    Cut,
    InBand,
}

impl Case {
    /// What stands in the prompt of its requests.
    fn mark(&self) -> String {
        format!("case '{}'", self.name)
    }

    /// `bombs` has one of each coding, made before: that takes longer than weir waits.
    fn answer(&self, bombs: &BTreeMap<&str, Vec<u8>>, answer: &mut Answer<'_>) {
        answer.raw(&bytes(&self.says, &WORDS));
        if let Some(coding) = &self.bomb {
            answer.raw(&bombs[coding.as_str()]);
        }
        // What was said begins with a head where there is one; its end is what goes on.
        let again = self.says.last().map(|piece| bytes(std::slice::from_ref(piece), &WORDS));
        while self.endless && answer.is_open() {
            answer.raw(again.as_ref().unwrap());
        }
        if self.next {
            // The connection stays, for the next request if weir dares.
            return;
        }
        if self.stays {
            answer.wait_peer_left(DEADLINE);
        }
        answer.cut();
    }

    #[track_caller]
    fn assert_told(&self, asks: Asks, answer: &Response) {
        let what = format!("{}, {asks:?}: {} {:.300}", self.name, answer.status, answer.text());
        assert!(self.status.is_none_or(|status| status == answer.status), "{what}");
        assert!(!answer.text().contains(PROVIDER_KEY), "{what}");
        let is_refusal = || answer.json()["error"]["message"].is_string();
        match self.body {
            None => {}
            Some(Body::Whole) if answer.status >= 500 => assert!(answer.complete && is_refusal(), "{what}"),
            Some(Body::Whole) => assert!(answer.complete, "{what}"),
            // Found before the head has gone, it is an error; after it, only the end of the connection can tell.
            Some(Body::Cut) => assert!(!answer.complete || answer.status == 502 && is_refusal(), "{what}"),
            Some(Body::InBand) => {
                assert!(answer.complete, "{what}");
                assert!(in_band_error(Wire::Messages, &answer.text()).is_some(), "{what}");
            }
        }
    }

    fn told(&self) -> String {
        let status = self.status.map_or("told".to_owned(), |status| status.to_string());
        let body = match self.body {
            None => "passed on unread beyond a limit",
            Some(Body::Whole) => "whole",
            Some(Body::Cut) => "the connection breaks or 502",
            Some(Body::InBand) => "an error at its end",
        };
        let next = if self.next { ", the next answer is its own" } else { "" };
        format!("{status}, {body}{next}")
    }
}

#[test]
fn whatever_a_provider_says_the_client_hears_how_it_ended() {
    let cases = Arc::new(pieces::file::<Table>("providers").case);
    let scripts = Arc::clone(&cases);
    let plain = vec![b' '; BOMB_BYTES];
    let bombs = BTreeMap::from(CODINGS.map(|coding| (coding, packed(coding, &plain))));
    let provider = RecordingProvider::start(move |request, answer| {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let case = scripts.iter().find(|case| text.contains(&case.mark()));
        match case {
            Some(case) => case.answer(&bombs, answer),
            None => answer.json(&format!("{{\"model\":\"any\",\"answer\":\"{GOOD}\"}}")),
        }
    });
    let mut weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("upstream.first_byte_seconds", SHORT_SECONDS)
        .set("upstream.first_byte_unary_seconds", SHORT_SECONDS)
        .set("upstream.idle_seconds", SHORT_SECONDS)
        .set("upstream.total_seconds", TOTAL_SECONDS)
        .start();
    let key = weir.key().text;
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let (weir, key, cases) = (&weir, &key, &cases);
                scope.spawn(move || try_some(weir, key, cases.iter().skip(lane).step_by(LANES)))
            })
            .collect();
        lanes.into_iter().for_each(|lane| lane.join().unwrap().end());
    });
    assert_eq!(weir.exchange(&Wire::Messages.request(&key, GOOD)).status, 200);
    let memory = weir.process().peak_memory();
    note(&format!("hostile providers: {} MiB at most", memory >> 20));
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}

/// Tries each of these.
fn try_some<'a>(weir: &Weir, key: &str, cases: impl Iterator<Item = &'a Case>) -> Tried {
    let mut tried = Tried::new("providers");
    for case in cases {
        tried.case(&case.name, &case.told(), || {
            for asks in &case.asks {
                let request = match asks {
                    Asks::Unary => Wire::Messages.request(key, &case.mark()),
                    Asks::Stream => Wire::Messages.streaming(key, &case.mark()),
                };
                case.assert_told(*asks, &weir.exchange(&request));
                if case.next {
                    let next = weir.exchange(&Wire::Messages.request(key, GOOD));
                    assert_eq!(next.status, 200, "behind {}", case.name);
                    assert_eq!(next.json()["answer"], GOOD, "behind {}", case.name);
                }
            }
            case.asks.len()
        });
    }
    tried
}

/// A provider that answers and closes while a large request is still on its way: the client gets that answer, or a refusal.
#[test]
fn an_answer_before_the_request_has_been_read_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let answer = b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            let _ = socket.read(&mut [0; 100]);
            let _ = socket.write_all(answer);
            let _ = socket.shutdown(Shutdown::Both);
        }
    });
    let weir = Weir::start(&format!("http://{address}"));
    let key = weir.key().text;
    let request = Wire::Messages.request(&key, &"long ".repeat(1 << 20));
    for _ in 0..3 {
        let answer = weir.exchange(&request);
        assert!(
            answer.complete && matches!(answer.status, 400 | 502),
            "{} {}",
            answer.status,
            answer.text()
        );
    }
    report::came(
        "providers",
        "an answer before the request has been read",
        3,
        "400 or 502, whole",
    );
}
