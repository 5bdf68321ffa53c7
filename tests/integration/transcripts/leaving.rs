//! Clients that leave.

use std::time::Duration;

use super::answers::word;
use super::play;
use super::stage::{Case, Stage};
use crate::harness::answer::Answer;
use crate::harness::leaving::{Visit, Way};
use crate::harness::provider::Recorded;
use crate::harness::recordings::{events, unary};
use crate::harness::request::{ALL_WIRES, Upload, Wire, wire_of};
use crate::harness::rules::RuleFolder;
use crate::harness::wait_until;

pub(super) fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![("leaving", cases()), ("aborted", streams())]
}

/// Waits until weir has seen that its client is gone, which `mark` says for this request.
fn cases() -> Vec<Case> {
    let mut cases = streams();
    cases.push(Case::new(
        "before-the-answer",
        |_, request, answer| {
            answer.wait_peer_left(Duration::from_millis(500));
            answer.json(unary(wire_of(&request.target)));
        },
        |stage| {
            let mut client = stage.weir.connect();
            client.write(&Wire::Messages.request(&stage.key, "hi").bytes(Upload::Length));
            wait_until("the request at the provider", || stage.attempts() == 1);
            "(left)\n".to_owned()
        },
    ));
    cases.push(Case::of_weir("within-the-body", |stage| {
        let whole = Wire::Messages.request(&stage.key, "hi").bytes(Upload::Length);
        let mut client = stage.weir.connect();
        client.write(&whole[..whole.len() - 5]);
        wait_until("the request to run", || {
            stage.weir.metrics().contains("\nweir_requests_in_flight 1\n")
        });
        "(left)\n".to_owned()
    }));
    cases
}

/// Each protocol's stream, left behind its first event.
fn streams() -> Vec<Case> {
    let mut cases = Vec::new();
    for wire in ALL_WIRES {
        for (name, way) in [
            ("closed", Way::Closed),
            ("reset", Way::Reset),
            ("cancelled", Way::H2Cancelled),
        ] {
            let script = |_: usize, request: &Recorded, answer: &mut Answer<'_>| {
                let events = events(wire_of(&request.target));
                answer.sse();
                answer.chunk(events[0]);
                // It goes on when weir has heard that its client is gone, or ends here with weir's connection.
                if answer.wait_peer_left(Duration::from_secs(1)).is_none() {
                    answer.chunk(events[1..].concat());
                    answer.end();
                }
            };
            cases.push(Case::new(format!("{}-{name}", word(wire)), script, move |stage| {
                let mut visit = Visit::begin(stage.weir.gateway, &wire.streaming(&stage.key, "hi"), way);
                visit.read_to(events(wire)[0].len());
                String::from_utf8_lossy(&visit.leave()).into_owned() + "(left)\n"
            }));
        }
    }
    cases
}

#[test]
fn in_the_midst_is_as_its_transcripts() {
    let mut stage = Stage::shipped(|builder| builder);
    play("leaving", &mut stage, &cases());
}

#[test]
fn where_a_provider_is_cut_off_is_as_its_transcripts() {
    let rules = RuleFolder::aborting();
    let mut stage = Stage::start(|url| {
        let builder = rules.weir_at(url);
        (Some(rules), builder)
    });
    play("aborted", &mut stage, &streams());
}
