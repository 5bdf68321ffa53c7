//! What of metrics is told, and that the alerts say the same.

use super::{
    series::text,
    trend::{Enough, STEP, TRENDS, Trend},
    *,
};
use crate::edges::clock;

const ALERTS: &str = include_str!("../../../conf/prometheus/alerts.yml");
/// What the pages show one by one: accounts, providers, warnings of the store.
const NAMED_ON_THE_PAGES: [&str; 5] = [
    "WeirBalanceLow",
    "WeirProviderCredentialsResting",
    "WeirProviderPassedOver",
    "WeirProviderPlacesEjected",
    "WeirStoreWarning",
];

/// What this node cannot tell of itself: that it does not answer, that processes before this one have ended, and what other
/// nodes have verified.
const NOT_FROM_ONE_NODE: [&str; 3] = ["WeirDown", "WeirRestarts", "WeirLogNotVerified"];

/// The alerts with their expressions, each on one line.
fn alerts() -> Vec<(String, String)> {
    let blocks = ALERTS.split("- alert: ").skip(1);
    let read = |block: &str| {
        let name = block.lines().next().unwrap().to_owned();
        let (_, rest) = block.split_once("expr: ").unwrap();
        let expression: Vec<&str> = rest
            .trim_start_matches(">-")
            .lines()
            .map(str::trim)
            .take_while(|line| !line.starts_with("for:") && !line.starts_with("labels:"))
            .collect();
        (name, expression.join(" ").trim().replace("{job=\"weir\"}", ""))
    };
    blocks.map(read).collect()
}

fn expression(condition: &Condition) -> String {
    let of = match condition.of {
        Of::Value(name) => name.to_owned(),
        Of::Size(name) => format!("abs({name})"),
        Of::Divided(name, 1_000_000_000) => format!("{name} / 1e9"),
        Of::Divided(name, by) => format!("{name} / {by}"),
        Of::Share(part, whole) => format!("{part} / {whole}"),
        Of::Until(name) => format!("{name} - time()"),
    };
    match condition.holds {
        Holds::Over(limit) => format!("{of} > {limit}"),
        Holds::Under(limit) => format!("{of} < {limit}"),
        Holds::UnderDays(days) => format!("{of} < {days} * 86400"),
        Holds::At(wanted) => format!("{of} == {wanted}"),
    }
}

#[test]
fn conditions_and_alerts_are_the_same() {
    let alerts = alerts();
    assert!(alerts.len() > 30, "the alerts were not read");
    for condition in &CONDITIONS {
        let alert = alerts.iter().find(|(name, _)| name == condition.alert);
        let wanted = (condition.alert.to_owned(), expression(condition));
        assert_eq!(alert, Some(&wanted));
    }
    for trend in &TRENDS {
        let alert = alerts.iter().find(|(name, _)| name == trend.alert);
        let wanted = (trend.alert.to_owned(), looks_back(trend));
        assert_eq!(alert, Some(&wanted));
    }
    for (name, expression) in &alerts {
        let now = CONDITIONS.iter().filter(|condition| condition.alert == name).count();
        let back = TRENDS.iter().filter(|trend| trend.alert == name).count();
        let elsewhere = NAMED_ON_THE_PAGES.iter().chain(&NOT_FROM_ONE_NODE);
        let told = now + back + elsewhere.filter(|other| **other == name).count();
        assert_eq!(
            told, 1,
            "{name} ({expression}): the overview is to say it, in one place, or cannot"
        );
    }
}

/// The alert of a trend.
fn looks_back(trend: &Trend) -> String {
    let window = match trend.minutes {
        60 => "1h".to_owned(),
        minutes => format!("{minutes}m"),
    };
    let grown = |sum| text::sum(sum, "increase", &window);
    let rate = |sum| text::sum(sum, "rate", &window);
    match &trend.of {
        trend::Of::Growth(sum, over) => format!("{} > {over}", grown(sum)),
        trend::Of::Rate(sum, over) => format!("{} > {over}", rate(sum)),
        trend::Of::Share {
            part,
            whole,
            over,
            enough,
        } => {
            let enough = match enough {
                Enough::Events(events) => format!("{} >= {events}", grown(whole)),
                Enough::PerSecond(least) => format!("{} > {least}", rate(whole)),
            };
            format!("{} / {} > {over} and {enough}", rate(part), rate(whole))
        }
        trend::Of::Quantile {
            quantile,
            buckets,
            over,
            at_least,
        } => {
            let counted = text::sum(buckets, "increase", &window).replace("_bucket", "_count");
            let counted = counted.replace("by (le, ", "by (");
            format!(
                "histogram_quantile({quantile}, {}) > {over} and {counted} >= {at_least}",
                rate(buckets)
            )
        }
        trend::Of::RunsOut { left, rises } => {
            let left = text::series(&left.of[0], &window);
            format!(
                "predict_linear({left}, 86400) < 0 and {} > 0",
                text::sum(rises, "delta", &window)
            )
        }
        trend::Of::RisenOverOne(sum) => {
            let now = text::series(&sum.of[0], "");
            format!("{now} / 1e9 > 1 and {} > 0", text::sum(sum, "changes", &window))
        }
    }
}

#[test]
fn what_holds_is_said_with_its_figures() {
    let well = "weir_journal_up 1\nweir_store_up 1\nweir_journal_disk_free_bytes 5000000000\n\
        weir_store_memory_used_bytes 8\nweir_store_memory_max_bytes 0\nprocess_open_fds 80\nprocess_max_fds 100\n\
        weir_settlement_oldest_milliseconds 60000\nweir_tls_certificate_end_timestamp_seconds{name=\"a\"} 2000000\n";
    assert_eq!(at_once(well, 0), [""; 0]);
    let ill = "# HELP weir_journal_up 0\nweir_journal_up 0\nweir_clock_offset_seconds -31\nprocess_open_fds 81\n\
        process_max_fds 100\nweir_store_memory_used_bytes 96\nweir_store_memory_max_bytes 100\nweir_settlement_oldest_milliseconds 61000\nweir_grace_committed_nano_usd 1500000000\n\
        weir_tls_certificate_end_timestamp_seconds{name=\"a\"} 86399\nweir_tls_certificate_end_timestamp_seconds{name=\"b\"} 86400\n";
    let said = at_once(ill, 0);
    assert_eq!(
        said,
        [
            "the journal takes no records, so nothing is admitted (WeirJournalDown)",
            "the store lacks charges that are 61 seconds old (WeirSettlementsLate)",
            "keys spend on their grace: 1.50 USD are not charged yet (WeirGraceInUse)",
            "the store's memory is full: 96 % of it is used (WeirStoreMemoryExhausted)",
            "the clock is 31 seconds off from the store's (WeirClockOff)",
            "a certificate ends today, or has ended: name=\"a\" (WeirCertificateEnded)",
            "a certificate ends within two weeks: name=\"b\" (WeirCertificateEnds)",
            "file descriptors run out: 81 % of them are open (WeirDescriptorsLow)",
        ]
    );
}

/// What a history says at the last of these scrapes, which are a step apart.
fn after(scrapes: &[String]) -> Vec<String> {
    let (history, mut at) = (History::default(), clock::instant());
    let (last, before) = scrapes.split_last().unwrap();
    for scrape in before {
        history.note(scrape, at);
        at += STEP;
    }
    needed(last, &history, (0, at))
}

fn scrapes(of: impl Fn(u64) -> String, count: u64) -> Vec<String> {
    (0..count).map(of).collect()
}

#[test]
fn what_grows_is_told_while_it_is_within_the_window() {
    let panics = |count: u64| format!("weir_panics_total {count}\n");
    assert_eq!(after(&[panics(0), panics(0)]), [""; 0]);
    assert_eq!(
        after(&[panics(7), panics(7)]),
        [""; 0],
        "what was before the first sample is past"
    );
    assert_eq!(
        after(&[panics(0), panics(2)]),
        ["2 panics were caught in 15 minutes: the log says where (WeirPanics)"]
    );
    // 15 minutes are 30 steps.
    let once = |number: u64| panics(u64::from(number > 0));
    assert_eq!(after(&scrapes(once, 31)).len(), 1);
    assert_eq!(after(&scrapes(once, 32)), [""; 0]);
    let unresolved = |count: u64| format!("weir_resolver_failures_total{{host=\"a\"}} {count}\n");
    assert_eq!(after(&[unresolved(0), unresolved(3)]), [""; 0]);
    assert_eq!(
        after(&[unresolved(0), unresolved(4)]),
        ["a provider's name could not be resolved 4 times in 10 minutes: host=\"a\" (WeirProviderUnresolved)"]
    );
}

#[test]
fn rates_are_of_the_whole_window() {
    let unknown = |count: u64| format!("weir_refusals_total{{protocol=\"messages\",reason=\"key_unknown\"}} {count}\n");
    assert_eq!(after(&[unknown(0), unknown(1500)]), [""; 0]);
    assert_eq!(
        after(&[unknown(0), unknown(2400)]),
        ["clients ask with keys that do not exist, 8 times a second (WeirUnknownKeys)"]
    );
}

#[test]
fn a_provider_that_fails_is_named_once_by_how_grave_it_is() {
    let line = |provider: &str, outcome: &str, status: &str, count: u64| {
        format!(
            "weir_requests_total{{model=\"m\",outcome=\"{outcome}\",protocol=\"messages\",provider=\"{provider}\",status_class=\"{status}\"}} {count}\n"
        )
    };
    let asked = |ok: u64, cut: u64, broken: u64, client: u64| {
        [
            line("a", "ok", "2xx", ok),
            line("a", "provider_cut", "2xx", cut),
            line("a", "provider_error", "5xx", broken),
            line("a", "provider_error", "4xx", client),
            line("none", "provider_cut", "2xx", 1000 * cut),
        ]
        .concat()
    };
    let said = |last: String| after(&[asked(100, 0, 0, 0), last]);
    assert_eq!(said(asked(100, 10, 9, 0)), [""; 0], "too few to tell");
    assert_eq!(said(asked(190, 5, 5, 0)), [""; 0], "a tenth is not over it");
    assert_eq!(
        said(asked(110, 0, 0, 90)),
        [""; 0],
        "what clients do wrong is no failure"
    );
    assert_eq!(
        said(asked(180, 10, 10, 0)),
        ["requests to a provider fail, 20 % in 5 minutes: provider=\"a\" (WeirProviderFailing)"]
    );
    assert_eq!(
        said(asked(110, 30, 10, 0)),
        ["most requests to a provider fail, 80 % in 5 minutes: provider=\"a\" (WeirProviderDown)"]
    );
}

#[test]
fn slow_beginnings_are_told_by_model() {
    let model = |name: &str, quick: u64, all: u64| {
        let bucket = |le: &str, count: u64| {
            format!(
                "gen_ai_server_time_to_first_token_seconds_bucket{{gen_ai_request_model=\"x\",gen_ai_response_model=\"{name}\",le=\"{le}\"}} {count}\n"
            )
        };
        [bucket("5", quick), bucket("20", all), bucket("+Inf", all)].concat()
    };
    let said = |last: String| after(&[model("a", 50, 50), last]);
    assert_eq!(said(model("a", 69, 69)), [""; 0]);
    assert_eq!(said(model("a", 50, 69)), [""; 0], "too few to tell");
    // 95 of 100 are below 5 + 15 * 45/50 seconds.
    assert_eq!(
        said(model("a", 100, 150)),
        [
            "a model begins its answers late, 95 % of them within 18.50 seconds: gen_ai_response_model=\"a\" (WeirFirstTokenSlow)"
        ]
    );
}

#[test]
fn a_disk_that_fills_and_a_request_that_cost_too_much_are_told() {
    let disk = |free: u64, journal: u64| format!("weir_journal_disk_free_bytes {free}\nweir_journal_bytes {journal}\n");
    // 10 GB a step: a day is 2,880 of them.
    let filling = |number: u64| disk(20_000_000_000_000 - number * 10_000_000_000, number);
    let full = "the journal's disk is full within a day if it goes on as in the last hour (WeirJournalDiskFilling)";
    assert_eq!(after(&scrapes(filling, 61)), [full]);
    assert_eq!(after(&scrapes(filling, 30)), [""; 0], "half an hour is needed to tell");
    let by_others = |number: u64| disk(20_000_000_000_000 - number * 10_000_000_000, 5);
    assert_eq!(after(&scrapes(by_others, 61)), [""; 0], "the journal does not grow");
    let over = |nanos: u64| format!("weir_overspend_bound_nano_usd{{part=\"request\"}} {nanos}\n");
    assert_eq!(after(&[over(1_500_000_000), over(1_500_000_000)]), [""; 0]);
    assert_eq!(
        after(&[over(500_000_000), over(1_500_000_000)]),
        ["a request cost 1.50 USD more than was held for it (WeirOverspendBoundExceeded)"]
    );
}
