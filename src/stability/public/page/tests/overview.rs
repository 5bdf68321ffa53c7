//! Which models the overview shows, in which order and with which words.

use super::*;

/// The table's rows of models as text, without tags and titles of bars.
fn rows(page: &str) -> Vec<String> {
    let table = page.split("<table").nth(1).unwrap_or_default();
    let table = table.split("</table>").next().unwrap();
    let row = |html: &str| {
        let text = html.split("<svg").next().unwrap();
        tags::text(&format!("<tr{}", text))
    };
    let rows = table.split("<tr").skip(1);
    rows.filter(|row| row.contains("scope=\"row\"")).map(row).collect()
}

#[test]
fn a_row_says_the_label_on_both_sides_of_every_threshold() {
    for (requests, successes, label, confidence, rate) in [
        (10_000, 10_000, "Operational", "High", "100 %"),
        (10_000, 9_990, "Operational", "High", "99.90 %"),
        (10_000, 9_989, "Healthy", "High", "99.89 %"),
        (10_000, 9_900, "Healthy", "High", "99.00 %"),
        (10_000, 9_899, "Degraded", "High", "98.99 %"),
        (10_000, 9_500, "Degraded", "High", "95.00 %"),
        (10_000, 9_499, "Unstable", "High", "94.99 %"),
        (100, 0, "Unstable", "High", "0.00 %"),
        (99, 99, "Operational", "Medium", "100 %"),
        (10, 10, "Operational", "Medium", "100 %"),
        (9, 9, "Not enough data", "Low", "100 %"),
        (9, 0, "Not enough data", "Low", "0.00 %"),
    ] {
        let model = with_last_hour("heron", counted(requests, successes));
        let expected = format!("heron | {label} | {confidence} | {rate} | 1.2 s | 340 ms | 58 tok/s");
        if requests != 99 && requests != 9 {
            assert_eq!(rows(&overview(std::slice::from_ref(&model))), [expected]);
        } else {
            let row = rows(&overview(std::slice::from_ref(&model))).remove(0);
            assert!(
                row.starts_with(&format!("heron | {label} | {confidence} | {rate} | 1.2 s")),
                "{row}"
            );
        }
        let page = tags::text(&detail(&model));
        assert!(
            page.contains(&format!("heron | {label} | Confidence: {confidence} |")),
            "{page}"
        );
        let bar = format!("13:00 UTC: {label}, {rate}");
        assert!(page.contains(&bar), "{page}");
    }
}

#[test]
fn a_model_without_requests_is_named_apart() {
    let silent = with_last_hour("heron", StabilityCounters::default());
    let page = overview(&[silent.clone(), with_every_hour("wader", counted(50, 50))]);
    assert_eq!(rows(&page).len(), 1);
    let text = tags::text(&page);
    assert!(
        text.contains("No Data | No requests in the last 24 hours: 1 of 2 models | heron |"),
        "{text}"
    );
    let text = tags::text(&detail(&silent));
    assert!(
        text.contains("heron | No Data | No requests in the last 24 hours |"),
        "{text}"
    );
    assert!(
        text.contains("Latency | \u{2014} | First token | \u{2014} | Speed | \u{2014} |"),
        "{text}"
    );
}

#[test]
fn an_empty_catalogue_is_said_to_be_empty() {
    let text = tags::text(&overview(&[]));
    assert!(text.contains("There are no models yet."), "{text}");
    assert!(text.contains("Too little traffic for a verdict"), "{text}");
}

#[test]
fn what_was_not_measured_is_a_dash() {
    let mut unary = counted(500, 500);
    (
        unary.ttft_ms,
        unary.ttft_count,
        unary.output_tokens,
        unary.generation_ms,
    ) = (0, 0, 0, 0);
    let page = overview(&[with_last_hour("heron", unary)]);
    assert_eq!(
        rows(&page),
        ["heron | Operational | High | 100 % | 1.2 s | \u{2014} | \u{2014}"]
    );
}

#[test]
fn what_is_wrong_comes_first_and_the_rest_by_name() {
    let page = overview(&[
        with_every_hour("d-few", counted(0, 0)),
        with_last_hour("c-few", counted(3, 3)),
        with_every_hour("f-good", counted(1000, 1000)),
        with_every_hour("e-good", counted(1000, 992)),
        with_every_hour("b-degraded", counted(1000, 960)),
        with_every_hour("z-unstable", counted(1000, 100)),
        with_every_hour("a-unstable", counted(1000, 900)),
    ]);
    let rows = rows(&page);
    let names: Vec<&str> = rows.iter().map(|row| row.split(' ').next().unwrap()).collect();
    assert_eq!(
        names,
        ["a-unstable", "z-unstable", "b-degraded", "e-good", "f-good", "c-few"]
    );
    let text = tags::text(&page);
    let glance = "2 models are unstable | 1 | Operational | 1 | Healthy | 1 | Degraded | 2 | Unstable | 1 | Not enough data | 1 | No Data |";
    assert!(text.contains(glance), "{text}");
}

#[test]
fn the_verdict_is_that_of_the_worst_model() {
    let verdict = |models: &[ModelWindow]| {
        let page = overview(models);
        let verdict = page.split("class=\"verdict\">").nth(1).unwrap();
        verdict.split('<').next().unwrap().to_owned()
    };
    let [good, degraded, unstable, few] = [
        with_every_hour("good", counted(1000, 1000)),
        with_every_hour("degraded", counted(1000, 960)),
        with_every_hour("unstable", counted(1000, 100)),
        with_last_hour("few", counted(9, 0)),
    ];
    assert_eq!(verdict(std::slice::from_ref(&few)), "Too little traffic for a verdict");
    assert_eq!(
        verdict(&[good.clone(), few]),
        "All measured models are operational or healthy"
    );
    assert_eq!(verdict(&[good.clone(), degraded.clone()]), "1 model is degraded");
    assert_eq!(verdict(&[degraded.clone(), degraded.clone()]), "2 models are degraded");
    assert_eq!(verdict(&[good, degraded, unstable]), "1 model is unstable");
}
