//! The conditions of those alerts that look back over some minutes, as far as one node knows them by itself.

use std::time::{Duration, Instant};

use super::{
    histogram::{below, by_bucket},
    ring::Ring,
    series::{
        Fits::{Among, Beside, Is},
        Series, Sum,
    },
};

/// Between two samples of a sum.
pub(super) const STEP: Duration = Duration::from_secs(30);
const DAY: Duration = Duration::from_secs(86_400);

/// A condition on what sums were.
pub(super) struct Trend {
    /// The name of its alert, by which the operations guide has more.
    pub(super) alert: &'static str,
    pub(super) of: Of,
    /// How far it looks back.
    pub(super) minutes: u32,
    /// What it is to people. `{}` is the value, `{label}` the labels.
    said: &'static str,
}

/// What is looked at, and when it needs attention.
pub(super) enum Of {
    /// A counter that has grown by more than that.
    Growth(Sum, u32),
    /// A counter that grows by more than that in a second.
    Rate(Sum, u32),
    /// What one has grown by as a part of what another has; only if the other has grown enough to tell.
    Share {
        part: Sum,
        whole: Sum,
        over: f64,
        enough: Enough,
    },
    /// What so large a part of the observations of a histogram's buckets are below; only of at least so many.
    Quantile {
        quantile: f64,
        buckets: Sum,
        over: f64,
        at_least: u32,
    },
    /// A gauge that is below zero a day from now, while another rises.
    RunsOut { left: Sum, rises: Sum },
    /// A gauge in billionths that is over one and was less.
    RisenOverOne(Sum),
}

/// What is enough to tell a share.
pub(super) enum Enough {
    Events(u32),
    PerSecond(u32),
}

const FAILED: Sum = Sum {
    of: &[
        Series {
            metric: "weir_requests_total",
            fits: &[
                Among(
                    "outcome",
                    &[
                        "in_band_error",
                        "provider_cut",
                        "provider_timeout",
                        "provider_unreachable",
                        "credential_refused",
                    ],
                ),
                Beside("provider", &["none", "other"]),
            ],
        },
        Series {
            metric: "weir_requests_total",
            fits: &[
                Is("outcome", "provider_error"),
                Is("status_class", "5xx"),
                Beside("provider", &["none", "other"]),
            ],
        },
    ],
    by: &["provider"],
};
const ASKED: Sum = Sum {
    of: &[Series {
        metric: "weir_requests_total",
        fits: &[Beside("provider", &["none", "other"])],
    }],
    by: &["provider"],
};

/// All series of a metric, each apart.
const fn each(of: &'static [Series; 1]) -> Sum {
    Sum { of, by: &[] }
}

const fn of_node(of: &'static [Series; 1]) -> Sum {
    Sum { of, by: &["instance"] }
}

const fn all(metric: &'static str) -> Series {
    Series { metric, fits: &[] }
}

const fn refused(reason: &'static [super::series::Fits; 1]) -> Series {
    Series {
        metric: "weir_refusals_total",
        fits: reason,
    }
}

/// The graver of two on the same sums first.
pub(super) const TRENDS: [Trend; 18] = [
    Trend {
        alert: "WeirPanics",
        of: Of::Growth(each(&[all("weir_panics_total")]), 0),
        minutes: 15,
        said: "{} panics were caught in 15 minutes: the log says where",
    },
    Trend {
        alert: "WeirProviderDown",
        of: Of::Share {
            part: FAILED,
            whole: ASKED,
            over: 0.5,
            enough: Enough::Events(20),
        },
        minutes: 5,
        said: "most requests to a provider fail, {} in 5 minutes: {label}",
    },
    Trend {
        alert: "WeirProviderFailing",
        of: Of::Share {
            part: FAILED,
            whole: ASKED,
            over: 0.1,
            enough: Enough::Events(20),
        },
        minutes: 5,
        said: "requests to a provider fail, {} in 5 minutes: {label}",
    },
    Trend {
        alert: "WeirFirstTokenSlow",
        of: Of::Quantile {
            quantile: 0.95,
            buckets: Sum {
                of: &[all("gen_ai_server_time_to_first_token_seconds_bucket")],
                by: &["le", "gen_ai_response_model"],
            },
            over: 10.0,
            at_least: 20,
        },
        minutes: 10,
        said: "a model begins its answers late, 95 % of them within {} seconds: {label}",
    },
    Trend {
        alert: "WeirProviderCredentialRefused",
        of: Of::Growth(
            Sum {
                of: &[all("weir_provider_credential_refused_total")],
                by: &["provider"],
            },
            0,
        ),
        minutes: 10,
        said: "a provider has refused weir's own credential {} times in 10 minutes: {label}",
    },
    Trend {
        alert: "WeirProviderUnresolved",
        of: Of::Growth(each(&[all("weir_resolver_failures_total")]), 3),
        minutes: 10,
        said: "a provider's name could not be resolved {} times in 10 minutes: {label}",
    },
    Trend {
        alert: "WeirStoreSlow",
        of: Of::Quantile {
            quantile: 0.99,
            buckets: Sum {
                of: &[all("weir_admission_duration_seconds_bucket")],
                by: &["le", "instance"],
            },
            over: 0.05,
            at_least: 100,
        },
        minutes: 5,
        said: "the store admits requests slowly, 99 % of them within {} seconds",
    },
    Trend {
        alert: "WeirKeyCacheCold",
        of: Of::Share {
            part: of_node(&[Series {
                metric: "weir_key_cache_total",
                fits: &[Is("event", "miss")],
            }]),
            whole: of_node(&[Series {
                metric: "weir_key_cache_total",
                fits: &[Among("event", &["hit", "negative_hit", "offline_hit", "miss"])],
            }]),
            over: 0.5,
            enough: Enough::PerSecond(1),
        },
        minutes: 10,
        said: "most keys are looked up in the store: {} in 10 minutes",
    },
    Trend {
        alert: "WeirUnknownKeys",
        of: Of::Rate(of_node(&[refused(&[Is("reason", "key_unknown")])]), 5),
        minutes: 5,
        said: "clients ask with keys that do not exist, {} times a second",
    },
    Trend {
        alert: "WeirUnknownKeysLimited",
        of: Of::Rate(
            of_node(&[Series {
                metric: "weir_key_cache_total",
                fits: &[Among("event", &["limited_address", "limited_all"])],
            }]),
            5,
        ),
        minutes: 5,
        said: "more made-up keys come than are looked up: {} a second are not",
    },
    Trend {
        alert: "WeirBodyMemoryExhausted",
        of: Of::Growth(of_node(&[refused(&[Is("reason", "body_budget_exhausted")])]), 0),
        minutes: 5,
        said: "{} requests were refused for lack of memory for bodies in 5 minutes",
    },
    Trend {
        alert: "WeirConnectionsRefused",
        of: Of::Rate(
            Sum {
                of: &[Series {
                    metric: "weir_connections_closed_total",
                    fits: &[Beside("reason", &["idle", "requests"])],
                }],
                by: &["instance", "listener"],
            },
            5,
        ),
        minutes: 5,
        said: "clients' connections are turned away, {} a second: {label}",
    },
    Trend {
        alert: "WeirJournalWriteFailures",
        of: Of::Growth(each(&[all("weir_journal_write_failures_total")]), 0),
        minutes: 10,
        said: "the journal could not be written {} times in 10 minutes",
    },
    Trend {
        alert: "WeirJournalDiskFilling",
        of: Of::RunsOut {
            left: each(&[all("weir_journal_disk_free_bytes")]),
            rises: each(&[all("weir_journal_bytes")]),
        },
        minutes: 60,
        said: "the journal's disk is full within a day if it goes on as in the last hour",
    },
    Trend {
        alert: "WeirOverspendBoundExceeded",
        of: Of::RisenOverOne(each(&[Series {
            metric: "weir_overspend_bound_nano_usd",
            fits: &[Is("part", "request")],
        }])),
        minutes: 60,
        said: "a request cost {} USD more than was held for it",
    },
    Trend {
        alert: "WeirLogSinkDropped",
        of: Of::Growth(each(&[all("weir_log_sink_dropped_rows_total")]), 0),
        minutes: 60,
        said: "{} rows of the log will not get where it is at home: {label}",
    },
    Trend {
        alert: "WeirAccessLogDropped",
        of: Of::Growth(each(&[all("weir_access_log_dropped_total")]), 0),
        minutes: 5,
        said: "{} lines of the access log were lost in 5 minutes",
    },
    Trend {
        alert: "WeirDiagnosticsDropped",
        of: Of::Growth(each(&[all("weir_diagnostics_dropped_total")]), 0),
        minutes: 5,
        said: "{} messages for standard error were lost in 5 minutes",
    },
];

impl Trend {
    /// Empty rings for its sums, in the order in which [`Trend::found`] wants them.
    pub(super) fn rings(&self) -> Vec<(&Sum, Ring)> {
        let ring = |sum| (sum, Ring::new(self.window(), STEP));
        match &self.of {
            Of::Growth(sum, _) | Of::Rate(sum, _) | Of::RisenOverOne(sum) => vec![ring(sum)],
            Of::Quantile { buckets, .. } => vec![ring(buckets)],
            Of::Share { part, whole, .. } => vec![ring(part), ring(whole)],
            Of::RunsOut { left, rises } => vec![ring(left), ring(rises)],
        }
    }

    /// Where it holds by what a scrape says now and the rings of before: the labels, and the value to be shown.
    pub(super) fn found(&self, scrape: &str, rings: &[(&Sum, Ring)], now: Instant) -> Vec<(String, String)> {
        let seconds = self.window().as_secs_f64();
        let grown = |place: usize| {
            let (sum, ring) = rings.get(place)?;
            let read = sum.read(scrape).into_iter();
            let grown = read.filter_map(|(labels, value)| {
                let growth = ring.growth(&labels, value, now)?;
                Some((labels, growth))
            });
            Some(grown.collect::<Vec<(String, f64)>>())
        };
        let first = || grown(0).unwrap_or_default().into_iter();
        match &self.of {
            Of::Growth(_, over) => first()
                .filter(|(_, grown)| *grown > f64::from(*over))
                .map(|(labels, grown)| (labels, format!("{grown:.0}")))
                .collect(),
            Of::Rate(_, over) => first()
                .map(|(labels, grown)| (labels, grown / seconds))
                .filter(|(_, rate)| *rate > f64::from(*over))
                .map(|(labels, rate)| (labels, format!("{rate:.0}")))
                .collect(),
            Of::Share { over, enough, .. } => {
                let whole = grown(1).unwrap_or_default();
                let is_enough = |whole: f64| match enough {
                    Enough::Events(events) => whole >= f64::from(*events),
                    Enough::PerSecond(rate) => whole / seconds > f64::from(*rate),
                };
                let share = |(labels, part): (String, f64)| {
                    let (_, whole) = whole.iter().find(|(of, whole)| *of == labels && is_enough(*whole))?;
                    let share = part / whole;
                    (share > *over).then(|| (labels, format!("{:.0} %", share * 100.0)))
                };
                first().filter_map(share).collect()
            }
            Of::Quantile {
                quantile,
                over,
                at_least,
                ..
            } => {
                let slow = |(labels, buckets): (String, Vec<(f64, f64)>)| {
                    let value = below(*quantile, buckets, f64::from(*at_least))?;
                    (value > *over).then(|| (labels, format!("{value:.2}")))
                };
                by_bucket(first()).into_iter().filter_map(slow).collect()
            }
            Of::RunsOut { .. } => {
                let rises = grown(1).unwrap_or_default().iter().any(|(_, grown)| *grown > 0.0);
                let left = rings.first().map(|(sum, ring)| (sum.read(scrape), ring));
                let ends = left.into_iter().flat_map(|(left, ring)| {
                    left.into_iter().filter(|(labels, value)| {
                        ring.foreseen(labels, *value, now, DAY).is_some_and(|left| left < 0.0)
                    })
                });
                ends.filter(|_| rises)
                    .map(|(labels, _)| (labels, String::new()))
                    .collect()
            }
            Of::RisenOverOne(_) => {
                let now_and_ring = rings.first().map(|(sum, ring)| (sum.read(scrape), ring));
                let risen = now_and_ring.into_iter().flat_map(|(values, ring)| {
                    values
                        .into_iter()
                        .filter(|(labels, value)| value / 1e9 > 1.0 && ring.has_changed(labels, *value, now))
                });
                risen
                    .map(|(labels, value)| (labels, format!("{:.2}", value / 1e9)))
                    .collect()
            }
        }
    }

    /// The sentence for where it holds.
    pub(super) fn sentence(&self, labels: &str, shown: &str) -> String {
        let sentence = self.said.replace("{label}", labels).replace("{}", shown);
        format!("{sentence} ({})", self.alert)
    }

    fn window(&self) -> Duration {
        Duration::from_secs(u64::from(self.minutes) * 60)
    }
}
