//! How many requests run and how many connections stand at a time.

use crate::harness::client::Client;
use crate::harness::crowd::Crowd;
use crate::harness::request::{ALL_WIRES, Request, Upload, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::wait::DEADLINE;
use crate::harness::{WeirBuilder, wait_until};

const RUNNING_MAX: i64 = 2;

#[test]
fn a_request_beyond_those_that_may_run_is_told_to_come_back_and_the_others_go_on() {
    let provider = SampleProvider::start();
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("connections.running_max", RUNNING_MAX)
        .set("upstream.client_gone_finish_seconds", 1)
        .start();
    let key = weir.key().text;
    let mut running: Vec<_> = (0..RUNNING_MAX)
        .map(|_| {
            let mut client = weir.connect();
            let request = Wire::Messages.streaming(&key, "[[sample: deltas=9 stall_after=2]]");
            client.write(&request.bytes(Upload::Length));
            assert_eq!(client.head_to("POST").status, 200);
            client
        })
        .collect();
    for wire in ALL_WIRES {
        let answer = weir.exchange(&wire.request(&key, "hi"));
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (503, Some("1")),
            "{wire:?}"
        );
        assert!(
            answer.text().contains("no room for another running request"),
            "{}",
            answer.text()
        );
    }
    assert_eq!(weir.ops_get("/livez").status, 200);
    assert!(weir.metrics().contains(r#"reason="too_many_running""#));
    drop(running.pop());
    wait_until("a place among those that run", || {
        weir.exchange(&Wire::Messages.request(&key, "hi")).status == 200
    });
}

#[test]
fn the_public_service_has_so_many_connections_and_the_oldest_idle_one_gives_way() {
    let weir = WeirBuilder::new().set("stability.connections_max", 4).start();
    let crowd = Crowd::new(weir.stability);
    // One address may have half of them.
    let mut first: Vec<_> = [2, 2, 3, 4].map(|last| Client::over(crowd.connect(last))).into();
    let figure = |name: &str| weir.metrics().contains(name);
    wait_until("four to be counted", || {
        figure("weir_connections{listener=\"stability\"} 4\n")
    });
    let mut newest = Client::over(crowd.connect(5));
    newest.write(&Request::get("/status").bytes(Upload::Length));
    assert_eq!(newest.head_to("GET").status, 200);
    assert!(first[0].closed_within(DEADLINE));
    wait_until("it to be counted", || {
        figure("weir_connections_closed_total{listener=\"stability\",reason=\"gave_way\"} 1\n")
            && figure("weir_connections{listener=\"stability\"} 4\n")
    });
}
