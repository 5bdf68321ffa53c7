//! What is shipped for Prometheus and Grafana: rules and configuration that promtool accepts, and that a real Prometheus
//! evaluates over a running weir; a dashboard that asks for nothing that is not there.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use crate::harness::certificates::{Authority, Kind};
use crate::harness::prometheus::{Prometheus, promtool, shipped};
use crate::harness::redis::RedisServer;
use crate::harness::request::ALL_WIRES;
use crate::harness::sample::SampleProvider;
use crate::harness::tools::{program, repository, skip};
use crate::harness::{Weir, WeirBuilder, wait_until};

/// Prompts by which the sample provider makes what the shipped expressions count.
const PROMPTS: [&str; 6] = [
    "hi",
    "hi [[sample: status=529]]",
    "hi [[sample: status=401]]",
    "hi [[sample: status=400]]",
    "hi [[sample: cut_after=1]]",
    "hi [[sample: in_band_error_after=1]]",
];

/// A gateway that has had traffic of every kind, with a provider whose name cannot be resolved.
fn busy(provider: &SampleProvider, authority: &Authority) -> Weir {
    let certificate = authority.files("stability", &["status.test"], Kind::Ecdsa);
    let weir = WeirBuilder::new()
        .all_providers(&provider.base_url())
        .set("stability.tls.certificate", vec![certificate.setting()])
        .set("log.home", "files")
        .set("log.files.path", "log")
        .provider("zai", "http://provider.invalid:9")
        .start();
    let key = weir.key().text;
    for wire in ALL_WIRES {
        for prompt in PROMPTS {
            let _ = weir.exchange(&wire.request(&key, prompt));
            let _ = weir.exchange(&wire.streaming(&key, prompt));
        }
        assert_eq!(weir.exchange(&wire.request("nonsense", "hi")).status, 401);
    }
    weir
}

#[test]
fn promtool_accepts_configuration_and_rules_and_their_tests_pass() {
    for words in [
        ["check", "config", "prometheus.yml"],
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        let Some(said) = promtool(&words) else {
            skip!("promtool is not installed")
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            said.status.success(),
            "promtool {words:?}: {}{}",
            text(&said.stdout),
            text(&said.stderr)
        );
    }
}

#[test]
fn every_alert_is_tested_on_both_sides_of_its_threshold() {
    let (rules, tests) = (shipped("alerts.yml"), shipped("alerts_test.yml"));
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        let name = format!("    name: {alert}\n");
        let (_, test) = tests.split_once(&name).unwrap_or_else(|| panic!("no test of {alert}"));
        let test = test.split("  - interval:").next().unwrap();
        let asked: Vec<&str> = test.split(&format!("alertname: {alert}\n")).skip(1).collect();
        assert!(
            asked.iter().any(|wanted| wanted.contains("exp_labels")),
            "{alert} never fires"
        );
        // Whatever is not expected must not fire: the series called good are below the threshold.
        let has = |word: &str| {
            test.lines()
                .any(|line| line.contains("series: ") && line.contains(word))
        };
        assert!(has("\"bad") && has("\"good"), "{alert} has one side only");
    }
}

#[test]
fn rules_and_dashboard_ask_for_what_weir_has() {
    if program("prometheus").is_none() {
        skip!("prometheus is not installed")
    }
    let provider = SampleProvider::start();
    let authority = Authority::new();
    let weir = busy(&provider, &authority);
    wait_until("a lookup in vain", || {
        weir.metrics().contains("weir_resolver_failures_total{")
    });
    let prometheus = Prometheus::start(&weir).unwrap();
    let up = prometheus.samples("up{job=\"weir\"} == 1");
    assert_eq!(up.len(), 1, "{up:?}");
    let metrics = weir.metrics();
    let rules = loaded_rules(&prometheus);
    for (alert, expression) in &rules {
        assert_known(&metrics, alert, expression);
    }
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        for expression in expressions(panel) {
            assert_known(&metrics, title, &expression);
            // Every matcher and every join fits what weir says of its traffic.
            prometheus.samples(&expression);
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["definition"].as_str() {
            let (metric, label) = label_values(query);
            assert_known(&metrics, "a variable", metric);
            let found = prometheus.samples(&format!("count by ({label}) ({metric})"));
            assert!(
                found.iter().all(|sample| sample["metric"][label].is_string()),
                "{query}"
            );
        }
    }
}

/// The alerts that Prometheus has, with their expressions, when it has evaluated each without an error.
#[track_caller]
fn loaded_rules(prometheus: &Prometheus) -> Vec<(String, String)> {
    let text = |rule: &Json, name: &str| rule[name].as_str().unwrap_or_default().to_owned();
    let mut rules = Vec::new();
    wait_until("every rule to be evaluated", || {
        let data = prometheus.api("/api/v1/rules");
        let groups = data["groups"].as_array().unwrap();
        rules = groups
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap().clone())
            .collect();
        rules.iter().all(|rule| rule["health"] != "unknown")
    });
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        assert!(rule["labels"]["severity"].is_string(), "{rule}");
        assert!(rule["annotations"]["summary"].is_string(), "{rule}");
        assert!(rule["annotations"]["description"].is_string(), "{rule}");
    }
    let names: BTreeSet<String> = rules.iter().map(|rule| text(rule, "name")).collect();
    let count = shipped("alerts.yml").matches("- alert: ").count();
    assert_eq!((names.len(), rules.len()), (count, count), "{names:?}");
    rules
        .iter()
        .map(|rule| (text(rule, "name"), text(rule, "query")))
        .collect()
}

#[test]
fn a_store_that_is_away_raises_an_alarm_until_it_is_back() {
    if program("prometheus").is_none() {
        skip!("prometheus is not installed")
    }
    let Some(mut redis) = RedisServer::start() else {
        skip!("redis-server is not installed")
    };
    let weir = WeirBuilder::new().redis(&redis).start();
    weir.wait_for_store(true);
    let prometheus = Prometheus::start(&weir).unwrap();
    prometheus.samples("weir_store_up == 1");
    let firing = "ALERTS{alertname=\"WeirStoreUnavailable\",alertstate=\"firing\"}";
    assert!(
        prometheus
            .query("ALERTS{alertname=\"WeirStoreUnavailable\"}")
            .is_empty()
    );
    redis.down();
    let alarms = prometheus.samples(firing);
    let labels = &alarms[0]["metric"];
    assert_eq!(labels["instance"], weir.ops.to_string(), "{labels}");
    assert_eq!(labels["severity"], "critical", "{labels}");
    assert!(redis.up());
    wait_until("the end of the alarm", || prometheus.query(firing).is_empty());
}

#[test]
fn the_dashboard_is_whole_and_belongs_to_no_instance() {
    let dashboard = dashboard();
    assert!(dashboard["id"].is_null() && dashboard["uid"].is_null());
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39));
    let names: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["datasource", "instance", "provider", "model"]);
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap_or_default();
        assert!(!title.is_empty(), "{panel}");
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "{title}: its number is another's"
        );
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is beyond the edge");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} lies over another panel");
            }
        }
    }
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        let is_text = |value: &Json| value.as_str().is_some_and(|text| !text.is_empty());
        assert!(is_text(&panel["description"]), "{title} has no description");
        assert!(
            is_text(&panel["fieldConfig"]["defaults"]["unit"]),
            "{title} has no unit"
        );
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().unwrap() {
            assert!(
                is_text(&target["expr"]) && is_text(&target["legendFormat"]),
                "{title}: {target}"
            );
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
        assert!(!expressions(panel).is_empty(), "{title} asks for nothing");
    }
}

fn dashboard() -> Json {
    let text = std::fs::read_to_string(repository().join("conf/grafana/weir.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The panels that show something.
fn panels(dashboard: &Json) -> impl Iterator<Item = &Json> {
    let all = dashboard["panels"].as_array().unwrap();
    all.iter().filter(|panel| panel["type"] != "row")
}

/// A panel's expressions, with "All" chosen in every variable.
fn expressions(panel: &Json) -> Vec<String> {
    let targets = panel["targets"].as_array().unwrap();
    let filled = targets.iter().map(|target| {
        let text = target["expr"].as_str().unwrap().replace("$__rate_interval", "10s");
        let text = ["$instance", "$provider", "$model"]
            .iter()
            .fold(text, |text, name| text.replace(name, ".*"));
        assert!(!text.contains('$'), "a variable is unknown: {text}");
        text
    });
    filled.collect()
}

/// Metric and label of a variable's `label_values(METRIC, LABEL)`.
fn label_values(query: &str) -> (&str, &str) {
    let inner = query
        .strip_prefix("label_values(")
        .and_then(|rest| rest.strip_suffix(')'));
    inner
        .and_then(|inner| inner.rsplit_once(", "))
        .unwrap_or_else(|| panic!("{query}"))
}

/// Fails when a metric of an expression is not in a scrape.
#[track_caller]
fn assert_known(metrics: &str, whose: &str, expression: &str) {
    let names = metrics_of(expression);
    assert!(!names.is_empty(), "{whose} asks for no metric of weir: {expression}");
    for name in names {
        let is_there = metrics
            .lines()
            .filter_map(|line| line.strip_prefix(&name))
            .any(|rest| rest.starts_with(['{', ' ']));
        // Prometheus' own.
        assert!(
            is_there || name == "up",
            "{whose} asks for {name}, which weir does not have"
        );
    }
}

#[test]
fn labels_and_functions_are_no_metrics() {
    let expression =
        "sum by (le, weir_label) (rate(weir_a_total{weir_label=\"weir_b\"}[5m])) / gen_ai_c_sum > 1e9 and up";
    let names: Vec<String> = metrics_of(expression).into_iter().collect();
    assert_eq!(names, ["gen_ai_c_sum", "up", "weir_a_total"]);
}

/// The names of the metrics in an expression: its words but for labels and functions.
fn metrics_of(expression: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut rest = expression;
    let mut behind_grouping = false;
    while let Some(first) = rest.chars().next() {
        let past = |end: char| rest.find(end).map_or(rest.len(), |at| at + 1);
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
        let length = match first {
            '{' => past('}'),
            '[' => past(']'),
            '(' if behind_grouping => past(')'),
            first if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (word, after) = rest.split_at(length);
        if !word.trim().is_empty() {
            behind_grouping = ["by", "without", "on", "ignoring"].contains(&word);
        }
        if word == "up"
            || ["weir_", "gen_ai_", "process_"]
                .iter()
                .any(|start| word.starts_with(start))
        {
            names.insert(word.to_owned());
        }
        rest = after;
    }
    names
}
