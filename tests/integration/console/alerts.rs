//! The overview and the alerts of Prometheus: those of a real one, and one that is away, late or answers something else.

use super::{builder, signed_in, with_console};
use crate::harness::answer::Answer;
use crate::harness::prometheus::Prometheus;
use crate::harness::tools::{program, skip};
use crate::harness::wait::DEADLINE;
use crate::harness::{RecordingProvider, Weir, wait_until};

/// What the overview says of a Prometheus at this address.
fn attention(url: &str) -> (Weir, String) {
    let weir = builder("http://127.0.0.1:9").set("console.prometheus_url", url).start();
    let text = signed_in(&weir, "viewer").page("/");
    let (_, attention) = text.split_once("Needs attention").unwrap();
    let attention = attention.split("</section>").next().unwrap().to_owned();
    (weir, attention)
}

/// The same of one that answers so.
fn answered(script: impl Fn(&mut Answer<'_>) + Send + Sync + 'static) -> String {
    let prometheus = RecordingProvider::start(move |request, answer| {
        assert_eq!((&*request.method, &*request.target), ("GET", "/api/v1/alerts"));
        script(answer);
    });
    let (_weir, text) = attention(&prometheus.base_url());
    assert_eq!(prometheus.count(), 1);
    text
}

#[track_caller]
fn assert_unknown(text: &str, why: &str) {
    assert!(text.contains("Prometheus</span> its alerts are unknown: "), "{text}");
    assert!(text.contains(why) && !text.contains("Nothing now"), "{text}");
}

#[test]
fn alerts_of_a_real_prometheus_are_on_the_overview() {
    if program("prometheus").is_none() {
        skip!("prometheus is not installed")
    }
    let watched = Weir::start("http://127.0.0.1:9");
    let prometheus = Prometheus::start(&watched).unwrap();
    let instance = watched.ops.to_string();
    prometheus.samples("up{job=\"weir\"} == 1");
    let (weir, before) = attention(&prometheus.url());
    assert!(
        !before.contains("WeirDown") && !before.contains("are unknown"),
        "{before}"
    );
    let tab = signed_in(&weir, "viewer");
    drop(watched);
    let line = |state: &str| {
        format!("{state}</span> <bdi>weir on {instance} cannot be scraped</bdi>: <bdi>WeirDown</bdi> since <time")
    };
    wait_until("an alert on the overview", || tab.page("/").contains(&line("Firing")));
}

#[test]
fn without_its_address_the_overview_says_what_it_lacks() {
    let weir = with_console();
    let text = signed_in(&weir, "viewer").page("/");
    assert!(
        text.contains("need Prometheus: <code>[console] prometheus_url</code>"),
        "{text}"
    );
}

#[test]
fn a_prometheus_that_is_away_is_said_to_be() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (_weir, text) = attention(&format!("http://{closed}"));
    assert_unknown(&text, "cannot connect: ");
}

#[test]
fn a_prometheus_that_is_silent_is_waited_for_within_the_limit_by_all_viewers_together() {
    let silent = RecordingProvider::start(|_, answer| {
        answer.wait_peer_left(DEADLINE);
    });
    let weir = builder("http://127.0.0.1:9")
        .set("console.prometheus_url", silent.base_url())
        .start();
    let tabs = [signed_in(&weir, "viewer"), signed_in(&weir, "owner")];
    let pages = std::thread::scope(|scope| {
        let asked = tabs.each_ref().map(|tab| scope.spawn(|| tab.page("/")));
        asked.map(|page| page.join().unwrap())
    });
    for page in pages {
        assert_unknown(&page, "no answer within 2 s");
    }
    assert_eq!(silent.count(), 1, "one question for both");
}

#[test]
fn an_answer_that_is_too_large_is_not_read_to_its_end() {
    let head = "{\"status\":\"success\",\"data\":{\"alerts\":[]},\"more\":\"";
    let sized = move |length: usize| format!("{head}{}\"}}", "x".repeat(length - head.len() - 2));
    let limit = 1024 * 1024;
    let most = answered(move |answer| answer.json(&sized(limit)));
    assert!(!most.contains("are unknown"), "{most}");
    let more = answered(move |answer| answer.json(&sized(limit + 1)));
    assert_unknown(&more, "the answer has more than 1048576 bytes");
    let endless = answered(|answer| {
        answer.head(200, &[]);
        while answer.is_open() {
            answer.chunk(vec![b' '; 64 * 1024]);
        }
    });
    assert_unknown(&endless, "the answer has more than 1048576 bytes");
}

#[test]
fn an_answer_that_is_none_is_said_to_be_without_its_words() {
    let page = answered(|answer| answer.full(200, &[("content-type", "text/html")], b"<b>canary</b>"));
    assert_unknown(&page, "its response is not a list of alerts");
    let refused = answered(|answer| answer.full(503, &[], b"canary"));
    assert_unknown(&refused, "it responded with status 503");
    let elsewhere = answered(|answer| answer.full(302, &[("location", "/canary")], b""));
    assert_unknown(&elsewhere, "it responded with status 302");
    for text in [page, refused, elsewhere] {
        assert!(!text.contains("canary"), "{text}");
    }
    let broken = answered(|answer| {
        answer.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"status\"");
        answer.cut();
    });
    assert_unknown(&broken, "the connection was lost, or the answer is not HTTP: ");
}
