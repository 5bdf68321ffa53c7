//! What providers report is what is charged, to the nano-USD.

use crate::harness::books::cost;
use crate::harness::request::{ALL_WIRES, Wire};
use crate::harness::rules::RuleFolder;
use crate::harness::sample::SampleProvider;
use crate::harness::{Weir, wait_until};

#[test]
fn every_answer_is_charged_as_the_provider_billed_it() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let orders = ["deltas=3", "deltas=40", "cache_read=700 cache_write=300 deltas=5"];
    let mut sent = 0;
    for wire in ALL_WIRES {
        for order in orders {
            let prompt = format!("Tell me of weirs. [[sample: {order}]]");
            assert_eq!(weir.exchange(&wire.request(&key, &prompt)).status, 200);
            assert_eq!(weir.exchange(&wire.streaming(&key, &prompt)).status, 200);
            sent += 2;
        }
    }
    let books = weir.books_as_billed(&provider, 0);
    assert_eq!(books.rows.len(), sent);
    assert!(books.rows.iter().all(|row| cost(row) > 0));
}

#[test]
fn what_is_the_clients_fault_has_no_row_and_what_is_the_providers_has_one() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let mut billed = 0;
    for wire in ALL_WIRES {
        for (status, has_row) in [
            (400, false),
            (404, false),
            (413, false),
            (422, false),
            (500, true),
            (429, true),
        ] {
            let prompt = format!("[[sample: status={status}]]");
            let answer = weir.exchange(&wire.request(&key, &prompt));
            assert_eq!(answer.status, status, "{wire:?}");
            billed += usize::from(has_row);
        }
        assert_eq!(weir.exchange(&wire.request("wrong", "hi")).status, 401);
        assert_eq!(
            weir.exchange(&wire.request_for("no-such-model", &key, "hi")).status,
            404
        );
    }
    let books = weir.books(billed);
    assert_eq!(books.charged(), 0, "errors without usage cost nothing");
}

#[test]
fn missing_usage_is_estimated_and_zero_is_zero() {
    let provider = SampleProvider::start();
    let weir = Weir::start(&provider.base_url());
    let key = weir.key().text;
    let say = |wire: Wire, order: &str| {
        let prompt = format!("Tell me of weirs. [[sample: deltas=40 delta_bytes=40 usage={order}]]");
        assert_eq!(weir.exchange(&wire.streaming(&key, &prompt)).status, 200);
    };
    for wire in ALL_WIRES {
        say(wire, "none");
    }
    let books = weir.books(3);
    for row in &books.rows {
        assert_eq!(row["usage_source"], "estimated", "{row}");
        assert!(cost(row) > 0, "{row}");
    }
    for wire in ALL_WIRES {
        say(wire, "zero");
    }
    let books = weir.books(6);
    let zero = books.rows.iter().filter(|row| row["usage_source"] == "reported");
    assert_eq!(zero.filter(|row| cost(row) == 0).count(), 3);
}

#[test]
fn a_client_that_leaves_pays_for_what_it_got() {
    let provider = SampleProvider::start();
    let rules = RuleFolder::aborting();
    let weir = rules.weir_at(&provider.base_url()).start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        let mut client = weir.connect();
        let request = wire.streaming(&key, "Tell me. [[sample: deltas=500 delta_bytes=40 gap_ms=5]]");
        client.write(&request.bytes(crate::harness::request::Upload::Length));
        let mut head = client.head_to("POST");
        for _ in 0..20 {
            client.piece(&mut head);
        }
    }
    wait_until("the clients' leaving to be noticed", || weir.account()["running"] == 0);
    let books = weir.books(3);
    for row in &books.rows {
        assert_eq!(row["outcome"], "client_gone", "{row}");
        assert_ne!(row["usage_source"], "reported", "{row}");
        assert!(cost(row) > 0, "{row}");
    }
}
