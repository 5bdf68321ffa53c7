//! Each fact at its limit, what is said of it, and that the alerts say the same.

use super::*;

const ALERTS: &str = include_str!("../../../conf/prometheus/alerts.yml");
const GUIDE: &str = include_str!("../../../docs/console.md");

/// Alerts whose condition has its own line on the overview: accounts, providers, warnings of the store.
const ON_THE_PAGE: [&str; 5] = [
    "WeirBalanceLow",
    "WeirProviderCredentialsCoolingDown",
    "WeirProviderSkipped",
    "WeirProviderBackendsEjected",
    "WeirStoreWarning",
];

/// Alerts that need Prometheus: those on rates, quantiles and forecasts, and the last three, which one process cannot know.
const NEED_PROMETHEUS: [&str; 12] = [
    "WeirProviderDown",
    "WeirProviderFailing",
    "WeirFirstTokenSlow",
    "WeirStoreSlow",
    "WeirKeyCacheCold",
    "WeirUnknownKeys",
    "WeirUnknownKeysLimited",
    "WeirConnectionsRefused",
    "WeirJournalDiskFilling",
    "WeirDown",
    "WeirRestarts",
    "WeirLogNotVerified",
];

/// A fact's alert, how its metric is set, a value at its limit and one beyond.
type Case = (&'static str, fn(&Metrics, i64), i64, i64);

const CASES: &[Case] = &[
    ("WeirJournalDown", |m, v| m.journal.up.set(v), 1, 0),
    ("WeirStoreUnavailable", |m, v| m.store.up.set(v), 1, 0),
    (
        "WeirJournalDiskLow",
        |m, v| m.journal.disk_free.set(v),
        1 << 30,
        (1 << 30) - 1,
    ),
    ("WeirJournalStepsLost", |m, v| m.journal.lost.raise_to(total(v)), 0, 1),
    ("WeirJournalDamaged", |m, v| m.journal.damaged.set(v), 0, 1),
    (
        "WeirJournalWriteFailures",
        |m, v| m.journal.failures.raise_to(total(v)),
        0,
        1,
    ),
    ("WeirSettlementsLate", |m, v| m.journal.oldest_ms.set(v), 60_000, 60_001),
    (
        "WeirJournalGrowing",
        |m, v| m.journal.unacknowledged.set(v),
        10_000,
        10_001,
    ),
    (
        "WeirLogSinkBehind",
        |m, v| m.log.behind_seconds.with_labels(["files".into()]).set(v),
        7_200,
        7_201,
    ),
    (
        "WeirLogSinkDropped",
        |m, v| m.log.dropped.with_labels(["events".into()]).raise_to(total(v)),
        0,
        1,
    ),
    ("WeirGraceInUse", |m, v| m.money.grace_committed.set(v), 0, 1),
    (
        "WeirOverspendBoundExceeded",
        |m, v| {
            m.money
                .overspend_bound
                .with_labels(["grace".into()])
                .set(9_000_000_000_i64);
            m.money.overspend_bound.with_labels(["request".into()]).set(v);
        },
        1_000_000_000,
        1_000_000_001,
    ),
    (
        "WeirStabilityRecordBehind",
        |m, v| m.store.stability_untold_hours.set(v),
        0,
        1,
    ),
    ("WeirStoreMemoryExhausted", memory, 950, 951),
    ("WeirStoreMemoryLow", memory, 800, 801),
    (
        "WeirClockSkew",
        |m, v| m.store.clock_offset.set_milliseconds(v),
        -30_000,
        -30_001,
    ),
    (
        "WeirProviderCredentialRefused",
        |m, v| {
            m.providers
                .credential_refused
                .with_labels(["gemini".into()])
                .raise_to(total(v))
        },
        0,
        1,
    ),
    (
        "WeirProviderUnresolved",
        |m, v| {
            m.providers
                .resolver_failures
                .with_labels(["api.test".into()])
                .raise_to(total(v))
        },
        3,
        4,
    ),
    ("WeirPanics", |m, v| m.program.panics.raise_to(total(v)), 0, 1),
    (
        "WeirBodyMemoryExhausted",
        |m, v| {
            m.requests
                .refusals
                .with_labels(["messages".into(), "key_unknown".into()])
                .inc();
            let refused = m
                .requests
                .refusals
                .with_labels(["messages".into(), "body_budget_exhausted".into()]);
            refused.raise_to(total(v));
        },
        0,
        1,
    ),
    ("WeirConfigReloadFailed", |m, v| m.program.reload_failed.set(v), 0, 1),
    ("WeirCertificateExpired", certificate, 86_400, 86_399),
    ("WeirCertificateExpiring", certificate, 14 * 86_400, 14 * 86_400 - 1),
    (
        "WeirDescriptorsLow",
        |m, v| {
            m.process.max_fds.set(100);
            m.process.open_fds.set(v);
        },
        80,
        81,
    ),
    (
        "WeirAccessLogDropped",
        |m, v| m.log.access_dropped.raise_to(total(v)),
        0,
        1,
    ),
    (
        "WeirDiagnosticsDropped",
        |m, v| m.log.diagnostics_dropped.raise_to(total(v)),
        0,
        1,
    ),
];

fn total(value: i64) -> u64 {
    value.try_into().unwrap()
}

fn memory(metrics: &Metrics, used: i64) {
    metrics.store.memory_max.set(1000);
    metrics.store.memory_used.set(used);
}

fn certificate(metrics: &Metrics, end: i64) {
    let labels = ["gateway".into(), "a.test".into(), "ecdsa".into()];
    metrics.connections.certificate_end.with_labels(labels).set(end);
}

/// Metrics of a node about which there is nothing to say.
fn well() -> Metrics {
    let metrics = Metrics::new(&[], &[]).unwrap();
    metrics.journal.up.set(1);
    metrics.store.up.set(1);
    metrics.journal.disk_free.set(i64::MAX);
    metrics
}

#[test]
fn each_fact_holds_beyond_its_limit_and_not_at_it() {
    let (names, cases): (Vec<&str>, Vec<&str>) = (
        FACTS.iter().map(|fact| fact.alert).collect(),
        CASES.iter().map(|case| case.0).collect(),
    );
    assert_eq!(names, cases, "every fact has its case");
    for (alert, set, at, beyond) in CASES {
        let (metrics, mut alarms, now) = (well(), Alarms::default(), clock::instant());
        let mut holds = |value: i64| {
            set(&metrics, value);
            let name = format!("({alert})");
            let all = sentences(&metrics, &mut alarms, (0, now));
            all.into_iter().any(|sentence| sentence.ends_with(&name))
        };
        assert!(!holds(*at) && holds(*beyond), "{alert}");
    }
    assert_eq!(
        sentences(&well(), &mut Alarms::default(), (0, clock::instant())),
        [""; 0]
    );
}

#[test]
fn growth_needs_attention_for_as_long_as_its_alert_looks_back() {
    let windows = FACTS.iter().filter_map(|fact| match fact.threshold {
        Grown(_, minutes) => Some((fact.alert, Duration::from_secs(u64::from(minutes) * 60))),
        Is(_) | Over(_) | Under(_) | UnderDays(_) => None,
    });
    let mut count = 0;
    for (alert, window) in windows {
        let (_, set, at, beyond) = CASES.iter().find(|case| case.0 == alert).unwrap();
        let (metrics, mut alarms, begin) = (well(), Alarms::default(), clock::instant());
        let mut holds = |after: Duration| !sentences(&metrics, &mut alarms, (0, begin + after)).is_empty();
        set(&metrics, *at);
        assert!(!holds(Duration::ZERO), "{alert}");
        set(&metrics, *beyond);
        let grew = Duration::from_secs(7);
        assert!(holds(grew) && holds(grew + window), "{alert}");
        assert!(!holds(grew + window + Duration::from_secs(1)), "{alert}");
        set(&metrics, beyond + 1);
        assert!(holds(grew + 2 * window), "{alert} once more");
        count += 1;
    }
    assert_eq!(count, 9);
}

#[test]
fn a_sentence_has_value_age_and_labels_and_the_gravest_fact_of_a_series_is_enough() {
    let (metrics, mut alarms, now) = (well(), Alarms::default(), clock::instant());
    let mut after = |minutes: u64| sentences(&metrics, &mut alarms, (0, now + Duration::from_secs(60 * minutes)));
    metrics.money.grace_committed.set(1_500_000_000);
    memory(&metrics, 960);
    certificate(&metrics, 5);
    let other = ["console".into(), "{ago}".into(), "rsa".into()];
    metrics.connections.certificate_end.with_labels(other).set(100_000);
    metrics.program.panics.raise_to(2);
    metrics
        .providers
        .resolver_failures
        .with_labels(["api.test".into()])
        .raise_to(3);
    let common = [
        "keys use their grace: 1.50 USD are not charged yet (WeirGraceInUse)",
        "the store's memory is full: 96 % of it is used (WeirStoreMemoryExhausted)",
    ];
    let ends = [
        "the certificate for a.test (ecdsa) of [gateway] expires today, or has expired (WeirCertificateExpired)",
        "the certificate for {ago} (rsa) of [console] expires within two weeks (WeirCertificateExpiring)",
    ];
    let panic = |ago: &str| format!("a panic was caught {ago} (2 since the start): the log says where (WeirPanics)");
    let now_said = panic("less than a minute ago");
    assert_eq!(after(0), [common[0], common[1], &now_said, ends[0], ends[1]]);
    metrics
        .providers
        .resolver_failures
        .with_labels(["api.test".into()])
        .raise_to(4);
    let unresolved =
        "api.test could not be resolved less than a minute ago (4 since the start) (WeirProviderUnresolved)";
    let minute_said = panic("a minute ago");
    assert_eq!(
        after(1),
        [common[0], common[1], unresolved, &minute_said, ends[0], ends[1]]
    );
    assert!(after(4).contains(&panic("4 minutes ago")));
}

#[tokio::test]
async fn growth_is_seen_without_anybody_who_asks_and_samplers_feed_the_facts() {
    tokio::time::pause();
    let metrics = Arc::new(well());
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let lost = Arc::clone(&count);
    metrics.add_sampler(move |metrics| {
        let lost = lost.load(std::sync::atomic::Ordering::SeqCst);
        metrics.log.access_dropped.raise_to(lost);
    });
    let attention = Arc::new(AttentionMonitor::new(metrics));
    let (stop, stopped) = watch::channel(false);
    let watching = tokio::spawn(Arc::clone(&attention).watch(stopped));
    tokio::time::sleep(INTERVAL / 2).await;
    count.store(1, std::sync::atomic::Ordering::SeqCst);
    assert!(attention.alarms.lock().0.is_empty());
    tokio::time::sleep(INTERVAL).await;
    assert_eq!(attention.alarms.lock().0.len(), 1);
    stop.send(true).unwrap();
    watching.await.unwrap();
    let now = clock::instant() + Duration::from_secs(60);
    let said = attention.sentences(0, now);
    assert!(
        said.iter()
            .any(|one| one.contains("the access log were lost a minute ago (1 since")),
        "{said:?}"
    );
}

/// The alerts with their expressions, each on one line.
fn alerts() -> Vec<(&'static str, String)> {
    let blocks = ALERTS.split("- alert: ").skip(1);
    let read = |block: &'static str| {
        let name = block.lines().next().unwrap();
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

/// A fact in the language of the alerts.
fn expression(fact: &Fact, metrics: &Metrics) -> String {
    let name = |read: MetricReader| read(metrics).metric;
    let value = match fact.signal {
        Value(read) => name(read),
        Magnitude(read) => format!("abs({})", name(read)),
        Divided(read, 1_000_000_000) => format!("{} / 1e9", name(read)),
        Divided(read, by) => format!("{} / {by}", name(read)),
        Share(part, whole) => format!("{} / {}", name(part), name(whole)),
        Until(read) => format!("{} - time()", name(read)),
    };
    match fact.threshold {
        Is(wanted) => format!("{value} == {wanted}"),
        Over(limit) => format!("{value} > {limit}"),
        Under(limit) => format!("{value} < {limit}"),
        UnderDays(days) => format!("{value} < {days} * 86400"),
        Grown(over, minutes) => {
            let window = if minutes == 60 {
                "1h".to_owned()
            } else {
                format!("{minutes}m")
            };
            match fact.signal {
                Value(_) => format!("increase({value}[{window}]) > {over}"),
                Divided(read, _) => format!("{value} > {over} and changes({}[{window}]) > 0", name(read)),
                Magnitude(_) | Share(..) | Until(_) => panic!("{} has no alert of this kind", fact.alert),
            }
        }
    }
}

/// An expression without the sum over one node's or one provider's series around it.
fn without_sum(expression: &str) -> String {
    for by in ["sum by (instance) (", "sum by (provider) ("] {
        if let Some((inner, limit)) = expression.strip_prefix(by).and_then(|rest| rest.rsplit_once(") > ")) {
            return format!("{inner} > {limit}");
        }
    }
    expression.to_owned()
}

#[test]
fn each_alert_is_a_fact_or_on_the_page_or_needs_prometheus() {
    let (metrics, alerts) = (Metrics::new(&[], &[]).unwrap(), alerts());
    assert!(alerts.len() > 30, "the alerts were not read");
    for fact in FACTS {
        let alert = alerts.iter().find(|(name, _)| *name == fact.alert);
        let (_, alert) = alert.unwrap_or_else(|| panic!("there is no alert {}", fact.alert));
        assert_eq!(without_sum(alert), expression(fact, &metrics), "{}", fact.alert);
    }
    for (name, expression) in &alerts {
        let facts = FACTS.iter().map(|fact| fact.alert);
        let places = facts.chain(ON_THE_PAGE).chain(NEED_PROMETHEUS);
        let count = places.filter(|place| place == name).count();
        assert_eq!(
            count, 1,
            "{name} ({expression}): a fact, on the overview, or Prometheus alone"
        );
    }
    for name in NEED_PROMETHEUS {
        assert!(GUIDE.contains(&format!("`{name}`")), "docs/console.md has no {name}");
    }
}
