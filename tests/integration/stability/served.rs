//! From billed requests to what everybody reads: through journal, store and snapshot of a running gateway.

use serde_json::{Value as Json, json};

use super::http::{SUMMARY, side};
use crate::harness::browser::Browser;
use crate::harness::request::{Request, Wire};
use crate::harness::sample::SampleProvider;
use crate::harness::tools::skip;
use crate::harness::{DEEPSEEK_MODEL, MESSAGES_MODEL, Weir, WeirBuilder, wait_until};

/// Ten streams that end well and two answers that do not; what the client did wrong does not count.
fn traffic(weir: &Weir) {
    let key = weir.key().text;
    for _ in 0..10 {
        let prompt = "Tell me of weirs. [[sample: deltas=20 gap_ms=2]]";
        assert_eq!(weir.exchange(&Wire::Messages.streaming(&key, prompt)).status, 200);
    }
    for (order, status) in [("status=400", 400), ("status=500", 500), ("status=500", 500)] {
        let prompt = format!("Tell me of weirs. [[sample: {order}]]");
        assert_eq!(weir.exchange(&Wire::Messages.request(&key, &prompt)).status, status);
    }
}

/// A gateway whose readers are not limited, after its traffic, when the record has all of it.
fn read_by_everybody(provider: &SampleProvider) -> Weir {
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("stability.refresh_seconds", 1)
        .set("stability.requests_per_minute", 1_000_000)
        .set("stability.burst", 1_000_000)
        .start();
    traffic(&weir);
    wait_until("the record to have all of it", || {
        let rate = &row(&side(&weir, &Request::get(SUMMARY)).json(), MESSAGES_MODEL)["success_rate"];
        *rate == json!(83.33)
    });
    weir
}

fn row(summary: &Json, model: &str) -> Json {
    let rows = summary["data"].as_array().unwrap();
    rows.iter().find(|row| row["model_name"] == model).unwrap().clone()
}

#[test]
fn what_was_billed_is_what_everybody_reads() {
    let provider = SampleProvider::start();
    let weir = read_by_everybody(&provider);
    let summary = side(&weir, &Request::get(SUMMARY)).json();
    assert_eq!(summary["success"], true);
    assert_eq!(
        row(&summary, DEEPSEEK_MODEL),
        json!({
            "model_name": DEEPSEEK_MODEL, "success_rate": 0.0, "avg_latency_ms": 0.0, "avg_tps": 0.0, "confidence": "low",
        }),
    );
    assert_eq!(row(&summary, MESSAGES_MODEL)["confidence"], "medium");
    let detail = Request::get(&format!("/web/v1/model-stability/{MESSAGES_MODEL}"));
    let told = side(&weir, &detail).json()["data"].clone();
    let figure = |name: &str| told["summary"][name].as_f64().unwrap();
    assert!(figure("avg_ttft_ms") > 0.0 && figure("avg_tps") > 0.0, "{told}");
    // Ten streams of 20 deltas 2 ms apart, among twelve requests.
    assert!(figure("avg_latency_ms") > 30.0, "{told}");
    let series = told["series"].as_array().unwrap();
    assert_eq!(series.len(), 24);
    let step = |pair: &[Json]| pair[1]["ts"].as_i64().unwrap() - pair[0]["ts"].as_i64().unwrap();
    assert!(series.windows(2).all(|pair| step(pair) == 3600), "{told}");
    // The requests may lie on both sides of a full hour.
    let (empty, recent) = series.split_at(22);
    assert!(
        empty
            .iter()
            .all(|point| point["success_rate"] == 0.0 && point["confidence"] == "low")
    );
    assert!(
        recent.iter().any(|point| point["success_rate"].as_f64().unwrap() > 0.0),
        "{told}"
    );
    assert_eq!(
        weir.exchange(&detail).json()["data"]["summary"],
        told["summary"],
        "the gateway's port says the same"
    );
}

#[test]
fn a_browser_sees_the_record_on_both_ports() {
    let Some(mut browser) = Browser::start() else {
        skip!("Chromium is not there: tests/run installs it");
    };
    let provider = SampleProvider::start();
    let weir = read_by_everybody(&provider);
    for address in [weir.stability, weir.gateway] {
        browser.open(&format!("http://{address}/status"));
        let rows =
            browser.text("[...document.querySelectorAll('table tbody tr')].map(row => row.innerText).join('\\n')");
        assert!(rows.contains(MESSAGES_MODEL) && rows.contains("83.33 %"), "{rows}");
        assert!(rows.contains("Unstable"), "{rows}");
        browser.open(&format!("http://{address}/status/{MESSAGES_MODEL}"));
        assert_eq!(browser.text("document.querySelector('h1').innerText"), MESSAGES_MODEL);
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
}
