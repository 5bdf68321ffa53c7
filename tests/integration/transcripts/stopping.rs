//! Requests that weir ends itself: it stops, a hook panics, or nothing is left to pay with.

use std::time::Duration;

use super::answers::{answer_well, word};
use super::play;
use super::stage::{Case, Stage, read, read_body};
use crate::harness::answer::Answer;
use crate::harness::provider::Recorded;
use crate::harness::recordings::events;
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::{WeirBuilder, wait_until};

pub(super) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    let panics = PANICS.map(|(name, points)| panics(name, points));
    let mut groups = vec![("stopped", stopped()), ("limit", limits())];
    groups.extend(panics.map(|cases| ("panic", cases)));
    groups
}

/// Sends its first event, and then nothing.
fn first_event(_: usize, request: &Recorded, answer: &mut Answer<'_>) {
    answer.sse();
    answer.chunk(events(wire_of(&request.target))[0]);
    answer.wait_peer_left(Duration::from_secs(60));
}

/// Requests that still run when the time to finish is over.
fn stopped() -> Vec<Case> {
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        cases.push(Case::new(format!("{}-stream", word(wire)), first_event, move |stage| {
            let mut client = stage.weir.connect();
            client.write(&wire.streaming(&stage.key, "hi").bytes(Upload::Length));
            let head = client.head_to("POST");
            stage.weir.process().signal("TERM");
            head.text.clone() + &read_body(&mut client, head)
        }));
        let silent = |_: usize, _: &Recorded, answer: &mut Answer<'_>| {
            answer.wait_peer_left(Duration::from_secs(60));
        };
        cases.push(Case::new(
            format!("{}-before-the-answer", word(wire)),
            silent,
            move |stage| {
                let mut client = stage.weir.connect();
                client.write(&wire.request(&stage.key, "hi").bytes(Upload::Length));
                wait_until("the request at the provider", || stage.attempts() == 1);
                stage.weir.process().signal("TERM");
                read(&mut client, "POST")
            },
        ));
        cases.push(Case::of_weir(format!("{}-within-the-body", word(wire)), move |stage| {
            let whole = wire.request(&stage.key, "hi").bytes(Upload::Length);
            let mut client = stage.weir.connect();
            client.write(&whole[..whole.len() - 5]);
            wait_until("the request to run", || {
                stage.weir.metrics().contains("\nweir_requests_in_flight 1\n")
            });
            stage.weir.process().signal("TERM");
            read(&mut client, "POST")
        }));
    }
    cases
}

/// Answers that nothing is left to pay for.
fn limits() -> Vec<Case> {
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        let long = |_: usize, request: &Recorded, answer: &mut Answer<'_>| {
            let events = events(wire_of(&request.target));
            let first = events.iter().position(|event| event.contains("Hello")).unwrap();
            answer.sse();
            answer.chunk(events[..first].concat() + &events[first].replace("Hello", &"word ".repeat(4_000)));
            // weir looks at what a stream has cost when more of it comes, some time later.
            if answer.wait_peer_left(Duration::from_millis(500)).is_none() {
                answer.chunk(events.iter().find(|event| event.contains("rld")).unwrap());
                answer.wait_peer_left(Duration::from_secs(60));
            }
        };
        cases.push(Case::new(word(wire), long, move |stage| {
            let key = stage
                .weir
                .key_with(&["--quota-usd", "0.0005", "--on-exhausted", "cut"])
                .text;
            stage.ask(&wire.streaming(&key, "hi"))
        }));
    }
    cases
}

/// Where a hook panics: a name, and the fail points.
const PANICS: [(&str, &str); 3] = [
    ("at-its-head", "request_filter=1*panic"),
    ("at-admission", "admission=1*panic"),
    ("at-the-answer", "response_body=1*panic"),
];

fn panics(name: &str, _: &str) -> Vec<Case> {
    let well = |_: usize, request: &Recorded, answer: &mut Answer<'_>| answer_well(request, answer);
    let of = |wire: Wire| {
        Case::new(format!("{}-{name}", word(wire)), well, move |stage| {
            stage.ask(&wire.streaming(&stage.key, "hi"))
        })
    };
    ALL_WIRES.map(of).into()
}

#[test]
fn at_its_end_is_as_its_transcripts() {
    for case in stopped() {
        let mut stage = Stage::shipped(|builder| builder.set("gateway.drain_seconds", 1));
        let came = stage.play_to_the_end(&case);
        super::assert_alike("stopped", &case, &came);
    }
}

#[test]
fn for_want_of_money_is_as_its_transcripts() {
    let mut stage = Stage::shipped(|builder| builder);
    play("limit", &mut stage, &limits());
}

#[test]
fn for_a_panic_is_as_its_transcripts() {
    for (name, points) in PANICS {
        for case in panics(name, points) {
            let build = |builder: WeirBuilder| builder.variable("FAILPOINTS", points).panics_expected();
            play("panic", &mut Stage::shipped(build), &[case]);
        }
    }
}
