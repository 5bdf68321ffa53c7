//! Tests of the counters, of what is published of them, and of the window.

use super::*;

fn counted(requests: u64, successes: u64) -> StabilityCounters {
    StabilityCounters {
        requests,
        successes,
        ..StabilityCounters::default()
    }
}

#[test]
fn a_full_hour_belongs_to_what_it_begins() {
    assert_eq!(Hour::from_unix_ms(3_599_999), Hour::from_number(0));
    assert_eq!(Hour::from_unix_ms(3_600_000), Hour::from_number(1));
    assert_eq!(Hour::from_unix_ms(-1), Hour::from_number(-1));
    assert_eq!(
        Hour::from_unix_ms(1_763_733_599_999).plus(1),
        Hour::from_unix_ms(1_763_733_600_000)
    );
}

#[test]
fn the_window_is_this_hour_and_the_23_before_it() {
    let window: Vec<i64> = Hour::from_number(100).window().map(Hour::number).collect();
    assert_eq!(window, (77..=100).collect::<Vec<_>>());
}

#[test]
fn both_sides_of_every_confidence_threshold() {
    for (requests, confidence) in [
        (0, Confidence::Low),
        (9, Confidence::Low),
        (10, Confidence::Medium),
        (99, Confidence::Medium),
        (100, Confidence::High),
        (u64::MAX, Confidence::High),
    ] {
        assert_eq!(counted(requests, 0).stats().confidence, confidence, "{requests}");
    }
}

#[test]
fn both_sides_of_every_health_threshold() {
    for (requests, successes, health) in [
        (0, 0, Health::NoData),
        (1, 1, Health::NotEnoughData),
        (9, 9, Health::NotEnoughData),
        (10, 10, Health::Operational),
        (10_000, 9_990, Health::Operational),
        (10_000, 9_989, Health::Healthy),
        (1_000_000, 999_000, Health::Operational),
        (1_000_000, 998_999, Health::Healthy),
        (10_000, 9_900, Health::Healthy),
        (10_000, 9_899, Health::Degraded),
        (10_000, 9_500, Health::Degraded),
        (10_000, 9_499, Health::Unstable),
        (10, 0, Health::Unstable),
    ] {
        assert_eq!(
            counted(requests, successes).health(),
            health,
            "{successes} of {requests}"
        );
    }
}

#[test]
fn a_rate_of_100_says_that_nothing_failed() {
    assert!(counted(1_000_000_000, 999_999_999).stats().success_rate < 100.0);
    assert!((counted(3, 3).stats().success_rate - 100.0).abs() < f64::EPSILON);
    assert!((counted(3, 2).stats().success_rate - 66.66).abs() < f64::EPSILON);
}

#[test]
fn nothing_counted_is_zero_and_low() {
    let figures = StabilityCounters::default().stats();
    let json = serde_json::to_string(&figures).unwrap();
    assert_eq!(
        json,
        r#"{"success_rate":0.0,"avg_latency_ms":0.0,"avg_ttft_ms":0.0,"avg_tps":0.0,"confidence":"low"}"#
    );
}

#[test]
fn figures_are_finite_at_the_largest_counts() {
    let largest = StabilityCounters {
        requests: u64::MAX,
        successes: u64::MAX,
        latency_ms: u64::MAX,
        ttft_ms: u64::MAX,
        ttft_count: 1,
        output_tokens: u64::MAX,
        generation_ms: 1,
    };
    let mut sum = largest;
    sum.add(&largest);
    for figures in [largest.stats(), sum.stats()] {
        for figure in [
            figures.success_rate,
            figures.avg_latency_ms,
            figures.avg_ttft_ms,
            figures.avg_tps,
        ] {
            assert!(figure.is_finite(), "{figure}");
        }
        assert!(figures.success_rate <= 100.0);
    }
}

#[test]
fn means_are_rounded_to_the_nearest() {
    let counters = StabilityCounters {
        requests: 3,
        successes: 3,
        latency_ms: 1000,
        ttft_ms: 200,
        ttft_count: 3,
        output_tokens: 200,
        generation_ms: 3000,
    };
    let figures = counters.stats();
    let near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
    assert!(near(figures.avg_latency_ms, 333.3), "{figures:?}");
    assert!(near(figures.avg_ttft_ms, 66.7), "{figures:?}");
    assert!(near(figures.avg_tps, 66.67), "{figures:?}");
}

#[test]
fn a_window_has_every_model_and_every_hour() {
    let now = Hour::from_number(1000);
    let bucket = |requests| ModelCounters::from([("served".to_owned(), counted(requests, requests))]);
    let buckets = BTreeMap::from([
        (now, bucket(1)),
        (now.plus(-23), bucket(2)),
        (now.plus(-24), bucket(4)),
        (now.plus(1), bucket(8)),
    ]);
    let window = StabilityWindow::new(now, ["idle", "also/idle"], &buckets);
    let names: Vec<&str> = window.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["also/idle", "idle", "served"]);
    assert!(window.models.iter().all(|model| model.hours.len() == 24));
    let served = window.find("served").unwrap();
    assert_eq!(
        served.total.requests, 3,
        "the hour before the window and the one after it do not count"
    );
    assert_eq!((served.hours[0].1.requests, served.hours[23].1.requests), (2, 1));
    assert_eq!(window.find("idle").unwrap().total, StabilityCounters::default());
    assert_eq!(window.find("unknown"), None);
}
