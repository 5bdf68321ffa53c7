//! Tests of the documents as text; what a browser makes of them is tested with a browser.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use std::io::Write as _;

use super::*;
use crate::domain::faults::stability::{Hour, StabilityCounters};

mod overview;
mod palette;
mod tags;

const NOW: Hour = Hour::from_number(498_013);
const UPDATED: i64 = 498_013 * 3600 + 2711;

/// So many requests, of which so many succeeded, half of them streams.
fn counted(requests: u64, successes: u64) -> StabilityCounters {
    StabilityCounters {
        requests,
        successes,
        latency_ms: requests * 1234,
        ttft_ms: requests * 170,
        ttft_count: requests / 2,
        output_tokens: requests * 58,
        generation_ms: requests * 1000,
    }
}

/// A model in whose last hour this was counted, and nothing before.
fn with_last_hour(name: &str, last: StabilityCounters) -> ModelWindow {
    let hours = NOW.window().map(|hour| match hour {
        NOW => (hour, last),
        _ => (hour, StabilityCounters::default()),
    });
    ModelWindow {
        name: name.to_owned(),
        total: last,
        hours: hours.collect(),
    }
}

/// A model in each of whose hours this was counted.
fn with_every_hour(name: &str, each: StabilityCounters) -> ModelWindow {
    let mut total = StabilityCounters::default();
    for _ in NOW.window() {
        total.add(&each);
    }
    ModelWindow {
        name: name.to_owned(),
        total,
        hours: NOW.window().map(|hour| (hour, each)).collect(),
    }
}

fn overview(models: &[ModelWindow]) -> String {
    let window = StabilityWindow {
        now: NOW,
        models: models.to_vec(),
    };
    index(&window, UPDATED)
}

fn detail(of: &ModelWindow) -> String {
    model(of, UPDATED)
}

#[test]
fn figures_are_written_for_people() {
    let latency = |ms: f64| measure::LATENCY.format(ms);
    assert_eq!(latency(0.0), "0.0 ms");
    assert_eq!(latency(9.94), "9.9 ms");
    assert_eq!(latency(9.95), "10 ms");
    assert_eq!(latency(340.4), "340 ms");
    assert_eq!(latency(999.4), "999 ms");
    assert_eq!(latency(999.5), "1.0 s");
    assert_eq!(latency(1234.0), "1.2 s");
    assert_eq!(latency(59_949.0), "59.9 s");
    assert_eq!(latency(59_950.0), "1.0 min");
    assert_eq!(latency(725_000.0), "12.1 min");
    assert_eq!(measure::SPEED.format(9.94), "9.9 tok/s");
    assert_eq!(measure::SPEED.format(57.6), "58 tok/s");
    assert_eq!(measure::SUCCESS.format(99.95), "99.95 %");
    assert_eq!(measure::SUCCESS.format(99.99), "99.99 %");
    assert_eq!(measure::SUCCESS.format(100.0), "100 %");
}

#[test]
fn every_strip_has_a_bar_with_a_title_for_each_hour() {
    let model = with_last_hour("heron", counted(1000, 960));
    for page in [overview(std::slice::from_ref(&model)), detail(&model)] {
        let strip = page.split("<svg class=\"strip\"").nth(1).unwrap();
        let strip = strip.split("</svg>").next().unwrap();
        assert_eq!(strip.matches("<path").count(), 24);
        assert_eq!(strip.matches("<title>").count(), 24);
        assert!(strip.contains("<title>14:00 UTC: No Data</title>"), "{strip}");
        assert!(strip.contains("<title>13:00 UTC: Degraded, 96.00 %</title>"), "{strip}");
        assert!(
            strip.contains("Last 24 hours: 1 hour Degraded, 23 hours No Data"),
            "{strip}"
        );
    }
}

#[test]
fn a_chart_has_a_gap_where_nothing_was_measured() {
    let mut model = with_every_hour("heron", counted(200, 200));
    model.hours[7].1 = StabilityCounters::default();
    model.hours[9].1 = counted(4, 4);
    let page = detail(&model);
    let latency = page
        .split("aria-label=\"Latency: 1.2 s in every measured hour\"")
        .nth(1)
        .unwrap()
        .split("</svg>")
        .next()
        .unwrap();
    assert_eq!(latency.matches("class=\"line\"").count(), 2);
    assert_eq!(latency.matches("<circle").count(), 23);
    assert_eq!(latency.matches("class=\"unsure\"").count(), 1);
    assert!(
        latency.contains("<title>23:00 UTC: 1.2 s (low confidence)</title>"),
        "{latency}"
    );
    assert!(
        latency.contains(">2.0 s</text>") && latency.contains(">1.0 s</text>"),
        "{latency}"
    );
}

#[test]
fn a_chart_says_its_range_and_where_nothing_was_measured() {
    let mut model = with_every_hour("heron", counted(200, 200));
    model.hours[3].1.latency_ms = 0;
    model.hours[5].1.latency_ms *= 100;
    for (_, counters) in &mut model.hours {
        counters.ttft_count = 0;
    }
    let page = tags::text(&detail(&model));
    assert!(
        page.contains("Lowest 0.0 ms at 17:00, highest 2.1 min at 19:00"),
        "{page}"
    );
    assert!(page.contains("| 0 | 1.7 min | 3.3 min |"), "{page}");
    let nothing = "| 0 | 14:00 | 20:00 | 02:00 | 08:00 | now | Nothing measured in the last 24 hours";
    assert!(page.contains(nothing), "{page}");
}

#[test]
fn names_with_anything_in_them_are_text() {
    let names = [
        "<img src=x onerror=alert(1)>",
        "\"><script>alert(1)</script>",
        "' onmouseover='alert(1)",
        "</title></style><b>&amp;",
        "meta/llama-4:free?x=1#y%2F",
        "\u{202e}reversed \u{5de}\u{5d5}\u{5d3}\u{5dc}",
        "",
    ];
    for name in names {
        let model = with_every_hour(name, counted(100, 100));
        for page in [overview(std::slice::from_ref(&model)), detail(&model)] {
            tags::balanced(&page);
            assert_eq!(
                page.matches("<img").count() + page.matches("<script").count() + page.matches("<b>&").count(),
                0
            );
            assert!(
                tags::text(&page).contains(&format!("| {name} |").replace("|  |", "|")),
                "{name}: {page}"
            );
        }
    }
    let page = overview(&[with_every_hour("a/b:c d?\u{e9}%<>\"'~_-.", counted(9, 9))]);
    assert!(
        page.contains("href=\"/status/a%2Fb%3Ac%20d%3F%C3%A9%25%3C%3E%22%27~_-.\""),
        "{page}"
    );
}

#[test]
fn a_document_needs_nothing_from_outside_and_obeys_its_policy() {
    let mixed = [
        with_every_hour("heron", counted(1000, 960)),
        with_last_hour("wader", counted(3, 3)),
        with_last_hour("stork", counted(0, 0)),
    ];
    let pages = [overview(&mixed), detail(&mixed[0]), detail(&mixed[2])];
    for page in pages {
        tags::balanced(&page);
        let page = page.replace(ICON, "");
        for banned in [
            "<script", " style=", "http:", "https:", "url(", "@import", "<form", "<base", "<iframe", "<img", " src=",
        ] {
            assert!(!page.contains(banned), "{banned} in {page}");
        }
        for handler in page.split('<').filter(|tag| tag.contains(" on")) {
            let attributes = handler.split('>').next().unwrap();
            assert!(!attributes.contains(" on"), "an event handler: {handler}");
        }
    }
}

#[test]
fn the_policy_holds_the_hash_of_the_style_sheet() {
    let hash = BASE64.encode(Sha256::digest(STYLE));
    assert!(
        CSP.contains(&format!("style-src 'sha256-{hash}';")),
        "put sha256-{hash} into CSP"
    );
    assert!(overview(&[]).contains(&format!("<style>{STYLE}</style>")));
    assert!(!STYLE.contains('\r'), "browsers hash line feeds");
}

#[test]
fn a_count_is_shown_nowhere() {
    let model = with_every_hour("heron", counted(7331, 7331));
    for page in [overview(std::slice::from_ref(&model)), detail(&model)] {
        for count in ["7331", "7,331", "7 331", "175944", "3665", "87960"] {
            assert!(!page.replace(STYLE, "").contains(count), "{count} in {page}");
        }
    }
}

#[test]
fn when_it_was_read_is_told_to_people_and_machines() {
    let page = overview(&[]);
    assert!(
        page.contains("<time datetime=\"2026-10-24T13:45:11Z\">24 October 2026, 13:45:11 UTC</time>"),
        "{page}"
    );
    assert!(
        index(
            &StabilityWindow {
                now: NOW,
                models: vec![]
            },
            i64::MAX
        )
        .contains("updated at an unknown time")
    );
}

#[test]
fn many_models_make_a_small_document() {
    let names = |count: usize| (0..count).map(|number| format!("provider/some-model-{number:03}"));
    let models = |count| {
        names(count)
            .map(|name| with_every_hour(&name, counted(10_000, 9_971)))
            .collect::<Vec<_>>()
    };
    let few = overview(&models(30));
    assert!(few.len() < 100_000, "{} bytes for 30 models", few.len());
    let many = overview(&models(150));
    assert!(many.len() < 360_000, "{} bytes for 150 models", many.len());
    // As it is sent to any browser.
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(many.as_bytes()).unwrap();
    let packed = packer.finish().unwrap().len();
    assert!(packed < 40_000, "{packed} bytes for 150 models, packed");
}

fn any_counters() -> impl Strategy<Value = StabilityCounters> {
    (any::<[u64; 7]>(), 0..64_u32).prop_map(|(any, shift)| StabilityCounters {
        requests: any[0] >> shift,
        successes: any[1] >> shift,
        latency_ms: any[2] >> shift,
        ttft_ms: any[3] >> shift,
        ttft_count: any[4] >> shift,
        output_tokens: any[5] >> shift,
        generation_ms: any[6] >> shift,
    })
}

proptest! {
    #[test]
    fn any_window_makes_a_whole_document(name in "[^N ]*", last in any_counters(), each in any_counters(), hour: i64, updated: i64) {
        let hours = Hour::from_number(hour).window().map(|hour| (hour, each)).collect();
        let one = ModelWindow { name, total: last, hours };
        for page in [index(&StabilityWindow { now: NOW, models: vec![one.clone()] }, updated), model(&one, updated)] {
            tags::balanced(&page);
            let text = tags::text(&page);
            prop_assert!(!text.contains("NaN") && !text.contains(" inf"), "{}", text);
        }
    }

    /// Ten times the traffic, alike in kind, is the same document: no length, no digit and no word tells how much it was.
    #[test]
    fn a_page_tells_nothing_of_how_much_traffic_there_was(hours in proptest::collection::vec((100..5000_u64, 0..100_u64), 24), times in 2..50_u64) {
        let models = [1, times].map(|times| {
            let mut model = with_last_hour("heron", StabilityCounters::default());
            for ((_, counters), (requests, failures)) in model.hours.iter_mut().zip(&hours) {
                *counters = counted(requests * 2 * times, (requests * 2 - failures) * times);
                model.total.add(counters);
            }
            model
        });
        prop_assert_eq!(overview(&models[..1]), overview(&models[1..]));
        prop_assert_eq!(detail(&models[0]), detail(&models[1]));
    }
}
