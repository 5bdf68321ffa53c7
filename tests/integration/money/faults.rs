//! Providers that break off, fall silent, or report nonsense: one row each, its source and status as the table in
//! `src/domain/wire/tokens/bill.rs` says, and never more than the answer can have cost.

use serde_json::Value as Json;

use crate::harness::books::cost;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::{Weir, WeirBuilder};

/// What an order makes of the row.
struct Expected {
    order: &'static str,
    stream: bool,
    outcome: &'static str,
    status: u16,
    /// Where the figures may come from.
    sources: &'static [&'static str],
    /// Whether something passed that is charged.
    charged: Charged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charged {
    Something,
    Nothing,
    /// Nothing, unless the provider has reported its input by then.
    Perhaps,
}

const fn expected(
    order: &'static str,
    stream: bool,
    outcome: (&'static str, u16),
    sources: &'static [&'static str],
    charged: Charged,
) -> Expected {
    let (outcome, status) = outcome;
    Expected {
        order,
        stream,
        outcome,
        status,
        sources,
        charged,
    }
}

const CUT: (&str, u16) = ("provider_cut", 502);
const SILENT: (&str, u16) = ("provider_timeout", 504);
const OK: (&str, u16) = ("ok", 200);
const BROKEN: &[&str] = &["partial", "estimated"];

const ALL: [Expected; 16] = [
    expected("cut_after=0", true, CUT, BROKEN, Charged::Perhaps),
    expected("cut_after=7", true, CUT, BROKEN, Charged::Something),
    expected("cut_after=7 half_event=true", true, CUT, BROKEN, Charged::Something),
    expected("cut_after=7 close=reset", true, CUT, BROKEN, Charged::Something),
    expected("cut_after=7", false, CUT, BROKEN, Charged::Perhaps),
    expected("stall_after=0", true, SILENT, BROKEN, Charged::Perhaps),
    expected("stall_after=7", true, SILENT, BROKEN, Charged::Something),
    expected("stall_after=7", false, SILENT, BROKEN, Charged::Perhaps),
    expected(
        "in_band_error_after=7",
        true,
        ("in_band_error", 502),
        BROKEN,
        Charged::Something,
    ),
    expected("usage=none", true, OK, &["estimated"], Charged::Something),
    expected("usage=none", false, OK, &["estimated"], Charged::Something),
    expected("usage=absurd", true, OK, BROKEN, Charged::Something),
    expected("usage=absurd", false, OK, BROKEN, Charged::Something),
    expected("usage=negative", true, OK, BROKEN, Charged::Perhaps),
    expected("usage=zero", true, OK, &["reported"], Charged::Nothing),
    expected(
        "status=529",
        false,
        ("provider_error", 529),
        &["estimated"],
        Charged::Nothing,
    ),
];

fn ask(weir: &Weir, wire: Wire, key: &str, stream: bool, order: &str) -> Option<String> {
    let prompt = format!("Tell me of weirs. [[sample: deltas=30 delta_bytes=40 {order}]]");
    let request = if stream {
        wire.streaming(key, &prompt)
    } else {
        wire.request(key, &prompt)
    };
    let mut client = weir.connect();
    client.write(&request.bytes(crate::harness::request::Upload::Length));
    let head = client.try_head_to("POST")?;
    let id = head.header("x-weir-request-id").map(str::to_owned);
    client.rest(head);
    id
}

#[test]
fn whatever_a_provider_does_there_is_one_row_and_a_bounded_charge() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        // Short, but longer than a busy machine keeps all of them waiting who ask at once.
        .set("upstream.idle_seconds", 3)
        .set("upstream.first_byte_unary_seconds", 3)
        .start();
    // A key for each case: its rows are found by it.
    let cases: Vec<(Wire, &Expected, crate::harness::weir::Key)> = ALL_WIRES
        .into_iter()
        .flat_map(|wire| ALL.iter().map(move |expected| (wire, expected)))
        .map(|(wire, expected)| (wire, expected, weir.key()))
        .collect();
    let sound = weir.key();
    for wire in ALL_WIRES {
        ask(&weir, wire, &sound.text, true, "");
    }
    std::thread::scope(|scope| {
        for (wire, expected, key) in &cases {
            let weir = &weir;
            scope.spawn(move || ask(weir, *wire, &key.text, expected.stream, expected.order));
        }
    });
    let books = weir.books(cases.len() + ALL_WIRES.len());
    let of = |key: &str| -> Vec<&Json> { books.rows.iter().filter(|row| row["key_id"] == key).collect() };
    let whole = |wire: Wire| {
        let rows = of(&sound.id);
        cost(rows.iter().find(|row| row["provider"] == wire.provider()).unwrap())
    };
    for (wire, expected, key) in &cases {
        let rows = of(&key.id);
        let what = format!("{wire:?} {} stream={}: {rows:?}", expected.order, expected.stream);
        let [row] = rows[..] else { panic!("{what}") };
        assert_eq!(row["outcome"], expected.outcome, "{what}");
        assert_eq!(row["status"], expected.status, "{what}");
        assert!(
            expected.sources.contains(&row["usage_source"].as_str().unwrap()),
            "{what}"
        );
        let (cost, whole) = (cost(row), whole(*wire));
        match expected.charged {
            Charged::Something => assert!(cost > 0, "{what}"),
            Charged::Nothing => assert_eq!(cost, 0, "{what}"),
            Charged::Perhaps => {}
        }
        // An estimate may be off, but not by much.
        assert!(cost <= whole * 2, "{what}: the whole answer costs {whole}");
        if expected.outcome != "ok" {
            assert!(cost <= whole, "{what}: the whole answer costs {whole}");
        }
    }
}

#[test]
fn a_credential_that_a_provider_refuses_costs_nothing_and_has_its_row() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    for wire in ALL_WIRES {
        ask(&weir, wire, &key, false, "status=401");
    }
    let books = weir.books(ALL_WIRES.len());
    for row in &books.rows {
        assert_eq!(row["outcome"], "credential_refused", "{row}");
        assert_eq!(row["status"], 503, "{row}");
        assert_eq!(cost(row), 0, "{row}");
    }
}
