//! What needs attention now, by the metrics of this node: the conditions of the alerts (`conf/prometheus/alerts.yml`), at once,
//! without the time for which an alert waits. Those that look at one moment are here, those that look back in `trend`, on what
//! the node remembers of itself (`history`). A test holds that conditions and alerts say the same, and which alerts only
//! Prometheus can tell, because they are of a node that is gone or of several nodes.

mod histogram;
mod history;
mod ring;
mod scrape;
mod series;
mod trend;

use std::time::Instant;

pub(crate) use self::history::History;
use self::scrape::samples;

/// A condition on a metric.
struct Condition {
    /// The name of its alert, by which the operations guide has more.
    alert: &'static str,
    of: Of,
    holds: Holds,
    /// What it is to people. `{}` is the value, `{label}` the metric's labels, if it has any.
    said: &'static str,
}

/// What is looked at.
enum Of {
    Value(&'static str),
    Size(&'static str),
    Divided(&'static str, u32),
    /// One as a part of another; nothing while that is 0.
    Share(&'static str, &'static str),
    /// How long it is until a time in seconds since the Unix epoch.
    Until(&'static str),
}

/// When it needs attention.
enum Holds {
    Over(f64),
    Under(f64),
    UnderDays(u32),
    At(f64),
}

/// Those that the pages cannot show better, name by name: low balances, providers, warnings of the store.
const CONDITIONS: [Condition; 18] = [
    Condition {
        alert: "WeirJournalDown",
        of: Of::Value("weir_journal_up"),
        holds: Holds::At(0.0),
        said: "the journal takes no records, so nothing is admitted",
    },
    Condition {
        alert: "WeirStoreAway",
        of: Of::Value("weir_store_up"),
        holds: Holds::At(0.0),
        said: "the store is away",
    },
    Condition {
        alert: "WeirJournalDiskLow",
        of: Of::Value("weir_journal_disk_free_bytes"),
        holds: Holds::Under(1_073_741_824.0),
        said: "the journal's disk has {} bytes left",
    },
    Condition {
        alert: "WeirJournalStepsLost",
        of: Of::Value("weir_journal_lost_steps_total"),
        holds: Holds::Over(0.0),
        said: "{} charges or changes of accounts are lost: the log names the accounts",
    },
    Condition {
        alert: "WeirJournalDamaged",
        of: Of::Value("weir_journal_damaged_parts"),
        holds: Holds::Over(0.0),
        said: "the journal had {} damaged parts: the log names the files",
    },
    Condition {
        alert: "WeirSettlementsLate",
        of: Of::Divided("weir_settlement_oldest_milliseconds", 1000),
        holds: Holds::Over(60.0),
        said: "the store lacks charges that are {} seconds old",
    },
    Condition {
        alert: "WeirJournalGrowing",
        of: Of::Value("weir_settlements_unacknowledged"),
        holds: Holds::Over(10_000.0),
        said: "{} charges wait for the store",
    },
    Condition {
        alert: "WeirLogSinkBehind",
        of: Of::Value("weir_log_sink_behind_seconds"),
        holds: Holds::Over(7_200.0),
        said: "rows of the log that are {} seconds old are not yet where it is at home: {label}",
    },
    Condition {
        alert: "WeirLogHomeDiffers",
        of: Of::Value("weir_log_differing_days"),
        holds: Holds::Over(0.0),
        said: "{} days of accounts stay in the store because the log's home does not have what their sums say",
    },
    Condition {
        alert: "WeirGraceInUse",
        of: Of::Divided("weir_grace_committed_nano_usd", 1_000_000_000),
        holds: Holds::Over(0.0),
        said: "keys spend on their grace: {} USD are not charged yet",
    },
    Condition {
        alert: "WeirStabilityRecordBehind",
        of: Of::Value("weir_stability_untold_hours"),
        holds: Holds::Over(0.0),
        said: "the public record lacks {} hours of this node",
    },
    Condition {
        alert: "WeirStoreMemoryExhausted",
        of: Of::Share("weir_store_memory_used_bytes", "weir_store_memory_max_bytes"),
        holds: Holds::Over(0.95),
        said: "the store's memory is full: {} of it is used",
    },
    Condition {
        alert: "WeirStoreMemoryLow",
        of: Of::Share("weir_store_memory_used_bytes", "weir_store_memory_max_bytes"),
        holds: Holds::Over(0.8),
        said: "the store's memory is nearly full: {} of it is used",
    },
    Condition {
        alert: "WeirClockOff",
        of: Of::Size("weir_clock_offset_seconds"),
        holds: Holds::Over(30.0),
        said: "the clock is {} seconds off from the store's",
    },
    Condition {
        alert: "WeirConfigReloadFailed",
        of: Of::Value("weir_config_reload_failed"),
        holds: Holds::At(1.0),
        said: "the last reload failed, an older configuration is in force: `weir check` says why",
    },
    Condition {
        alert: "WeirCertificateEnded",
        of: Of::Until("weir_tls_certificate_end_timestamp_seconds"),
        holds: Holds::Under(86_400.0),
        said: "a certificate ends today, or has ended: {label}",
    },
    Condition {
        alert: "WeirCertificateEnds",
        of: Of::Until("weir_tls_certificate_end_timestamp_seconds"),
        holds: Holds::UnderDays(14),
        said: "a certificate ends within two weeks: {label}",
    },
    Condition {
        alert: "WeirDescriptorsLow",
        of: Of::Share("process_open_fds", "process_max_fds"),
        holds: Holds::Over(0.8),
        said: "file descriptors run out: {} of them are open",
    },
];
const DAY_SECONDS: f64 = 86_400.0;

/// What needs attention by a scrape (Prometheus' text format) and those of before: a sentence each. `now` is the moment by both
/// clocks, in seconds since the Unix epoch and the one that only goes on.
pub(crate) fn needed(scrape: &str, history: &History, now: (i64, Instant)) -> Vec<String> {
    let (unix, instant) = now;
    let mut said = at_once(scrape, unix);
    said.extend(history.needed(scrape, instant));
    said
}

/// What of a scrape needs attention, whatever was before.
fn at_once(scrape: &str, now: i64) -> Vec<String> {
    let mut said = Vec::new();
    let mut seen = Vec::new();
    for condition in &CONDITIONS {
        let values = condition.of.values(scrape, now).into_iter();
        for (labels, value) in values.filter(|(_, value)| condition.holds.at(*value)) {
            // The worst is said of each: what has ended also ends soon.
            if seen.contains(&(condition.of.metric(), labels)) {
                continue;
            }
            seen.push((condition.of.metric(), labels));
            let sentence = condition.said.replace("{label}", labels);
            let sentence = sentence.replace("{}", &condition.of.shown(value));
            said.push(format!("{sentence} ({})", condition.alert));
        }
    }
    said
}

impl Of {
    /// What the scrape has, with the labels.
    fn values<'a>(&self, scrape: &'a str, now: i64) -> Vec<(&'a str, f64)> {
        let now = f64::from(u32::try_from(now).unwrap_or(u32::MAX));
        let all = |name, of: &dyn Fn(f64) -> f64| {
            samples(scrape, name)
                .map(|(labels, value)| (labels, of(value)))
                .collect()
        };
        match *self {
            Self::Value(name) => all(name, &|value| value),
            Self::Size(name) => all(name, &f64::abs),
            Self::Divided(name, by) => all(name, &|value| value / f64::from(by)),
            Self::Until(name) => all(name, &|end| end - now),
            Self::Share(part, whole) => {
                let whole = samples(scrape, whole)
                    .map(|(_, whole)| whole)
                    .find(|whole| *whole > 0.0);
                whole.map_or_else(Vec::new, |whole| all(part, &|part| part / whole))
            }
        }
    }

    fn metric(&self) -> &'static str {
        match *self {
            Self::Value(name)
            | Self::Size(name)
            | Self::Divided(name, _)
            | Self::Share(name, _)
            | Self::Until(name) => name,
        }
    }

    fn shown(&self, value: f64) -> String {
        match self {
            Self::Share(..) => format!("{:.0} %", value * 100.0),
            Self::Divided(_, by) if *by > 1000 => format!("{value:.2}"),
            Self::Value(_) | Self::Size(_) | Self::Divided(..) | Self::Until(_) => format!("{value:.0}"),
        }
    }
}

impl Holds {
    fn at(&self, value: f64) -> bool {
        match *self {
            Self::Over(limit) => value > limit,
            Self::Under(limit) => value < limit,
            Self::UnderDays(days) => value < f64::from(days) * DAY_SECONDS,
            // Gauges that are 0 or 1.
            Self::At(wanted) => (value - wanted).abs() < 0.5,
        }
    }
}

#[cfg(test)]
mod tests;
