//! The same report of a provider, by the client's own protocol and by translation: the rows have the same usage and the same
//! charge.

use serde_json::Value as Json;

use super::conversation::reported;
use super::stage::{PROVIDER, Stage, Upstream, billed, question};
use super::streams::folded;
use crate::harness::RecordingProvider;
use crate::harness::books::{INPUT, cost};
use crate::harness::recordings::{events, unary};
use crate::harness::request::{ALL_WIRES, Wire};

/// Answers with the recordings of this protocol, in a stream if one is asked for.
fn recorded(wire: Wire) -> RecordingProvider {
    RecordingProvider::start(move |request, answer| {
        let body: Json = serde_json::from_slice(&request.body).unwrap();
        if request.target.contains(":stream") || body["stream"] == true {
            answer.sse();
            events(wire).iter().for_each(|event| answer.chunk(event));
            answer.end();
        } else {
            answer.json(unary(wire));
        }
    })
}

/// Every part of a row's usage.
fn parts(row: &Json) -> Vec<u64> {
    let names = INPUT.into_iter().chain(["output_text", "output_reasoning"]);
    names.map(|name| row[name].as_u64().unwrap_or(0)).collect()
}

#[test]
fn a_translated_request_is_billed_like_one_of_the_providers_own_protocol() {
    for upstream in ALL_WIRES {
        let provider = recorded(upstream);
        let stage = Stage::start(Upstream::Of(upstream), &provider.base_url(), "strict");
        let mut own: Option<(Vec<u64>, i64)> = None;
        // The provider's own protocol first.
        let others = ALL_WIRES.into_iter().filter(|wire| *wire != upstream);
        for wire in [upstream].into_iter().chain(others) {
            for is_stream in [true, false] {
                let answer = stage.ask(wire, is_stream, &question(wire, "hi"));
                let what = format!("{wire:?} at {upstream:?}, stream: {is_stream}: {}", answer.text());
                assert_eq!((answer.status, answer.complete), (200, true), "{what}");
                let row = stage.row(&answer);
                assert_eq!(
                    (&row["usage_source"], &row["provider"]),
                    (&"reported".into(), &PROVIDER.into()),
                    "{what}"
                );
                let (expected, charge) = own.get_or_insert_with(|| (parts(&row), cost(&row))).clone();
                assert!(charge > 0, "{what}");
                assert_eq!((parts(&row), cost(&row)), (expected, charge), "{what}: {row}");
                if wire == upstream {
                    continue;
                }
                let whole = match is_stream {
                    true => folded(wire, &answer.text()),
                    false => answer.json(),
                };
                assert_eq!(reported(wire, &whole), billed(&row), "{what}: {row}");
            }
        }
        stage.weir.books(6);
    }
}
