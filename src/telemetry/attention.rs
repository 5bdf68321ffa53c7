//! Facts about this node that need an operator's attention. A fact is a condition on the current value of a metric, or on the
//! recent growth of a counter. An alert in `conf/prometheus/alerts.yml` has the same condition. The alert may also wait for some
//! time before it fires; the fact does not. A test compares the facts with the alerts, and lists the alerts that only Prometheus
//! can evaluate.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use self::{
    Signal::{Divided, Magnitude, Share, Until, Value},
    Threshold::{Grown, Is, Over, Under, UnderDays},
};
use crate::{
    edges::clock,
    telemetry::metrics::{MetricReading, MetricSeries, Metrics},
};

/// The interval at which counters are checked for growth, even if nobody reads the facts.
const INTERVAL: Duration = Duration::from_secs(30);
const DAY_SECONDS: f64 = 86_400.0;

/// A condition on a metric.
struct Fact {
    /// The name of the alert that has the same condition. The operations guide explains the alert.
    alert: &'static str,
    signal: Signal,
    threshold: Threshold,
    /// The sentence for users, with placeholders: `{}` is replaced by the value, `{ago}` by the time since the value last grew,
    /// and a label's name in braces by the label's value.
    sentence: &'static str,
}

/// A function that reads a metric.
type MetricReader = fn(&Metrics) -> MetricReading;

/// The value that a fact compares with its limit. It is computed from metrics.
enum Signal {
    Value(MetricReader),
    Magnitude(MetricReader),
    Divided(MetricReader, u32),
    /// The first metric divided by the second metric. There is no value while the second metric is 0.
    Share(MetricReader, MetricReader),
    /// The number of seconds until the Unix time that the metric contains.
    Until(MetricReader),
}

/// The limit at which a value becomes a fact.
enum Threshold {
    Is(f64),
    Over(f64),
    Under(f64),
    UnderDays(u32),
    /// The value is greater than the first number, and has grown within a recent period. The second number is the length of this
    /// period in minutes.
    Grown(f64, u32),
}

/// Declares the facts. The doc comment of a fact is its sentence.
macro_rules! facts {
    ($($(#[doc = $sentence:literal])+ $alert:ident = $signal:expr, $threshold:expr;)*) => {
        const FACTS: &[Fact] = &[$(Fact {
            alert: stringify!($alert),
            signal: $signal,
            threshold: $threshold,
            sentence: concat!($($sentence),+),
        }),*];
    };
}

// Of several facts about one metric, the most severe comes first. Low balances, providers and warnings of the store are not
// facts, because the overview page has separate lines for them.
facts! {
    /// the journal takes no records, so no request is admitted
    WeirJournalDown = Value(|m| m.journal.up.read()), Is(0.0);
    /// the store is unreachable
    WeirStoreUnavailable = Value(|m| m.store.up.read()), Is(0.0);
    /// the journal's disk has {} bytes left
    WeirJournalDiskLow = Value(|m| m.journal.disk_free.read()), Under(1_073_741_824.0);
    /// {} charges or changes of accounts were lost: the log names the accounts
    WeirJournalStepsLost = Value(|m| m.journal.lost.read()), Over(0.0);
    /// the journal had {} damaged parts: the log names the files
    WeirJournalDamaged = Value(|m| m.journal.damaged.read()), Over(0.0);
    /// a record could not be written to the journal {ago} ({} since the start)
    WeirJournalWriteFailures = Value(|m| m.journal.failures.read()), Grown(0.0, 10);
    /// the store lacks charges that are {} seconds old
    WeirSettlementsLate = Divided(|m| m.journal.oldest_ms.read(), 1000), Over(60.0);
    /// {} charges wait for the store
    WeirJournalGrowing = Value(|m| m.journal.unacknowledged.read()), Over(10_000.0);
    /// the log sink {sink} lacks rows that are {} seconds old
    WeirLogSinkBehind = Value(|m| m.log.behind_seconds.read()), Over(7_200.0);
    /// the log sink {sink} lost rows {ago} ({} since the start)
    WeirLogSinkDropped = Value(|m| m.log.dropped.read()), Grown(0.0, 60);
    /// keys use their grace: {} USD are not charged yet
    WeirGraceInUse = Divided(|m| m.money.grace_committed.read(), 1_000_000_000), Over(0.0);
    /// a request cost {} USD more than was held for it, {ago}
    WeirOverspendBoundExceeded
        = Divided(|m| m.money.overspend_bound.read().with_label("part", "request"), 1_000_000_000), Grown(1.0, 60);
    /// the public record lacks this node's counts of {} hours
    WeirStabilityRecordBehind = Value(|m| m.store.stability_untold_hours.read()), Over(0.0);
    /// the store's memory is full: {} of it is used
    WeirStoreMemoryExhausted = Share(|m| m.store.memory_used.read(), |m| m.store.memory_max.read()), Over(0.95);
    /// the store's memory is nearly full: {} of it is used
    WeirStoreMemoryLow = Share(|m| m.store.memory_used.read(), |m| m.store.memory_max.read()), Over(0.8);
    /// this node's clock differs from the store's by {} seconds
    WeirClockSkew = Magnitude(|m| m.store.clock_offset.read()), Over(30.0);
    /// {provider} refused weir's own credential {ago} ({} since the start)
    WeirProviderCredentialRefused = Value(|m| m.providers.credential_refused.read()), Grown(0.0, 10);
    /// {host} could not be resolved {ago} ({} since the start)
    WeirProviderUnresolved = Value(|m| m.providers.resolver_failures.read()), Grown(3.0, 10);
    /// a panic was caught {ago} ({} since the start): the log says where
    WeirPanics = Value(|m| m.program.panics.read()), Grown(0.0, 15);
    /// the memory for bodies was used up, so a request was refused {ago} ({} refusals for {protocol} since the start)
    WeirBodyMemoryExhausted
        = Value(|m| m.requests.refusals.read().with_label("reason", "body_budget_exhausted")), Grown(0.0, 5);
    /// the last reload failed, so an older configuration is in force: `weir check` displays the errors
    WeirConfigReloadFailed = Value(|m| m.program.reload_failed.read()), Is(1.0);
    /// the certificate for {name} ({key}) of [{listener}] expires today, or has expired
    WeirCertificateExpired = Until(|m| m.connections.certificate_end.read()), Under(86_400.0);
    /// the certificate for {name} ({key}) of [{listener}] expires within two weeks
    WeirCertificateExpiring = Until(|m| m.connections.certificate_end.read()), UnderDays(14);
    /// file descriptors are running out: {} of the allowed number are open
    WeirDescriptorsLow = Share(|m| m.process.open_fds.read(), |m| m.process.max_fds.read()), Over(0.8);
    /// lines of the access log were lost {ago} ({} since the start)
    WeirAccessLogDropped = Value(|m| m.log.access_dropped.read()), Grown(0.0, 5);
    /// messages for standard error were lost {ago} ({} since the start)
    WeirDiagnosticsDropped = Value(|m| m.log.diagnostics_dropped.read()), Grown(0.0, 5);
}

/// Evaluates the facts about this node, and stores the time at which each counter last grew.
pub(crate) struct AttentionMonitor {
    metrics: Arc<Metrics>,
    alarms: Mutex<Alarms>,
}

impl AttentionMonitor {
    /// Creates the monitor for `metrics`, which have not counted anything yet.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        let alarms = Mutex::default();
        Self { metrics, alarms }
    }

    /// Checks the counters for growth until `stopped` becomes true.
    pub(crate) async fn watch(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        while timeout(INTERVAL, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            self.sentences(clock::unix_seconds(), clock::instant());
        }
    }

    /// Returns a sentence for each fact that needs attention now. `unix` is the time in seconds since the Unix epoch, and `now`
    /// is the same time by the monotonic clock.
    pub(crate) fn sentences(&self, unix: i64, now: Instant) -> Vec<String> {
        let mut alarms = self.alarms.lock();
        self.metrics
            .read_sampled(|metrics| sentences(metrics, &mut alarms, (unix, now)))
    }
}

fn sentences(metrics: &Metrics, alarms: &mut Alarms, (unix, now): (i64, Instant)) -> Vec<String> {
    let mut sentences = Vec::new();
    // Only the first fact about a series is reported, which is the most severe. For example, an expired certificate also fulfils
    // the condition of expiring within two weeks.
    let mut seen = BTreeSet::new();
    for fact in FACTS {
        let MetricReading { metric, series } = fact.signal.read(metrics, unix);
        for MetricSeries { labels, value } in series {
            let id = (metric.clone(), labels);
            let age = match fact.threshold {
                Grown(..) => alarms.observe(&id, value, now),
                Is(_) | Over(_) | Under(_) | UnderDays(_) => None,
            };
            if fact.threshold.is_reached(value, age) && !seen.contains(&id) {
                sentences.push(fact.sentence(&id.1, value, age));
                seen.insert(id);
            }
        }
    }
    sentences
}

/// A metric's name, with the labels of one of the metric's series.
type SeriesId = (String, Vec<(String, String)>);

/// The series that are checked for growth and have a value above zero.
#[derive(Default)]
struct Alarms(BTreeMap<SeriesId, Alarm>);

/// The highest value of a series, and the time at which that value was first read.
struct Alarm {
    value: f64,
    grew: Instant,
}

impl Alarms {
    /// Records the value of a series, which begins at zero. Returns the time since the value last grew; `None` if it has never
    /// grown.
    fn observe(&mut self, id: &SeriesId, value: f64, now: Instant) -> Option<Duration> {
        if self.0.get(id).map_or(0.0, |alarm| alarm.value) < value {
            self.0.insert(id.clone(), Alarm { value, grew: now });
        }
        let alarm = self.0.get(id)?;
        Some(now.saturating_duration_since(alarm.grew))
    }
}

impl Fact {
    fn sentence(&self, labels: &[(String, String)], value: f64, age: Option<Duration>) -> String {
        let ago = match age.map_or(0, |age| age.as_secs() / 60) {
            0 => "less than a minute ago".to_owned(),
            1 => "a minute ago".to_owned(),
            minutes => format!("{minutes} minutes ago"),
        };
        let sentence = self.sentence.trim_start().replace("{}", &self.signal.format(value));
        let fill = |sentence: String, (name, value): &(String, String)| sentence.replace(&format!("{{{name}}}"), value);
        let sentence = labels.iter().fold(sentence.replace("{ago}", &ago), fill);
        format!("{sentence} ({})", self.alert)
    }
}

impl Signal {
    /// Computes the signal from its metrics. The result has the name and the labels of the signal's first metric, but the values
    /// of the signal.
    fn read(&self, metrics: &Metrics, now: i64) -> MetricReading {
        let now = f64::from(u32::try_from(now).unwrap_or(u32::MAX));
        let each = |mut reading: MetricReading, value: &dyn Fn(f64) -> f64| {
            let all = reading.series.iter_mut();
            all.for_each(|series| series.value = value(series.value));
            reading
        };
        match self {
            Value(read) => read(metrics),
            Magnitude(read) => each(read(metrics), &f64::abs),
            Divided(read, by) => each(read(metrics), &|value| value / f64::from(*by)),
            Until(read) => each(read(metrics), &|end| end - now),
            Share(part, whole) => {
                let whole: f64 = whole(metrics).series.iter().map(|series| series.value).sum();
                let mut shares = each(part(metrics), &|part| part / whole);
                shares.series.retain(|_| whole > 0.0);
                shares
            }
        }
    }

    fn format(&self, value: f64) -> String {
        match self {
            Share(..) => format!("{:.0} %", value * 100.0),
            Divided(_, by) if *by > 1000 => format!("{value:.2}"),
            Value(_) | Magnitude(_) | Divided(..) | Until(_) => format!("{value:.0}"),
        }
    }
}

impl Threshold {
    /// Returns whether a value needs attention. `age` is the time since the value last grew; `None` if it has never grown.
    fn is_reached(&self, value: f64, age: Option<Duration>) -> bool {
        match *self {
            // The value of such a gauge is either 0 or 1.
            Is(wanted) => (value - wanted).abs() < 0.5,
            Over(limit) => value > limit,
            Under(limit) => value < limit,
            UnderDays(days) => value < f64::from(days) * DAY_SECONDS,
            Grown(limit, minutes) => {
                let window = Duration::from_secs(u64::from(minutes) * 60);
                value > limit && age.is_some_and(|age| age <= window)
            }
        }
    }
}

#[cfg(test)]
mod tests;
