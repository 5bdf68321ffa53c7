//! The kinds of metrics, and the macro that declares a metric with its name, help, labels and kind.

use prometheus::core::Collector;
use prometheus::proto::MetricType;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Declares a group of metrics as a struct with a handle for each metric. The doc comment of a handle is the metric's help.
macro_rules! metrics {
    ($(#[$about:meta])* $visible:vis struct $group:ident {$(
        $(#[doc = $help:literal])+
        $field:ident: $kind:ty = $name:literal $([$($label:literal),+])? $(in $buckets:ident)?;
    )*}) => {
        $(#[$about])*
        #[derive(Debug)]
        $visible struct $group {$(
            $(#[doc = $help])+
            $visible $field: $kind,
        )*}

        impl $group {
            #[cfg(test)]
            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];

            /// Creates the metrics of the group and registers them.
            pub(super) fn register(registry: &prometheus::Registry) -> Result<Self, prometheus::Error> {
                Ok(Self {$(
                    $field: $crate::telemetry::metrics::kinds::MetricKind::register(
                        &$crate::telemetry::metrics::kinds::Declaration {
                            registry,
                            name: $name,
                            help: concat!($($help),+).trim_start(),
                            labels: &[$($($label),+)?],
                            buckets: &[$(&$buckets)?],
                        },
                    )?,
                )*})
            }
        }
    };
}
pub(super) use metrics;

/// The declaration of a metric.
pub(super) struct Declaration<'a> {
    pub(super) registry: &'a Registry,
    pub(super) name: &'a str,
    pub(super) help: &'a str,
    pub(super) labels: &'a [&'a str],
    /// The upper bounds of a histogram's buckets, as a slice with one list; an empty slice for other kinds of metrics.
    pub(super) buckets: &'a [&'a [f64]],
}

impl Declaration<'_> {
    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }

    fn histogram(&self) -> HistogramOpts {
        HistogramOpts::new(self.name, self.help).buckets(self.buckets.concat())
    }

    /// Returns the labels for a kind of metric with `N` labels. Fails if the declaration has another number of labels.
    fn labels<const N: usize>(&self) -> Result<&[&str], prometheus::Error> {
        if self.labels.len() == N {
            return Ok(self.labels);
        }
        Err(prometheus::Error::InconsistentCardinality {
            expect: N,
            got: self.labels.len(),
        })
    }

    fn registered<C: Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.registry.register(Box::new(metric.clone()))?;
        Ok(metric)
    }
}

/// A kind of metric, such as a counter or a gauge.
pub(super) trait MetricKind: Sized {
    /// Creates a metric of this kind and registers it.
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error>;
}

/// The values of a metric at one moment.
#[derive(Debug)]
pub(crate) struct MetricReading {
    /// The metric's name, and the label if [`MetricReading::with_label`] has selected one.
    pub(crate) metric: String,
    pub(crate) series: Vec<MetricSeries>,
}

/// One series of a metric, with its value.
#[derive(Debug)]
pub(crate) struct MetricSeries {
    /// The names and values of the series' labels, sorted by name.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl MetricReading {
    /// Reads a counter or gauge, or a family of counters or gauges.
    fn collect(metric: &impl Collector) -> Self {
        let mut reading = Self {
            metric: String::new(),
            series: Vec::new(),
        };
        for family in metric.collect() {
            family.name().clone_into(&mut reading.metric);
            let is_counter = family.get_field_type() == MetricType::COUNTER;
            reading.series.extend(family.get_metric().iter().map(|one| {
                let labels = one.get_label().iter();
                MetricSeries {
                    labels: labels
                        .map(|label| (label.name().to_owned(), label.value().to_owned()))
                        .collect(),
                    value: if is_counter {
                        one.get_counter().get_value()
                    } else {
                        one.get_gauge().get_value()
                    },
                }
            }));
        }
        reading
    }

    /// Retains only the series in which this label has this value.
    pub(crate) fn with_label(mut self, label: &str, value: &str) -> Self {
        let wanted = |one: &MetricSeries| one.labels.iter().any(|(name, of)| name == label && of == value);
        self.series.retain(wanted);
        self.metric = format!("{}{{{label}=\"{value}\"}}", self.metric);
        self
    }
}

/// The value of a label: a string constant, or a name from the configuration. Text that a client sends can never become a label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label<'a>(&'a str);

impl<'a> Label<'a> {
    /// Creates a label from a name in the configuration.
    pub(crate) const fn configured(name: &'a str) -> Self {
        Self(name)
    }
}

impl From<&'static str> for Label<'_> {
    fn from(name: &'static str) -> Self {
        Self(name)
    }
}

impl AsRef<str> for Label<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}

/// A counter: a whole number that only grows.
#[derive(Clone, Debug)]
pub(crate) struct Counter(IntCounter);

impl Counter {
    /// Adds 1.
    pub(crate) fn inc(&self) {
        self.0.inc();
    }

    /// Adds `count`.
    pub(crate) fn add(&self, count: u64) {
        self.0.inc_by(count);
    }

    /// Raises the counter to a total that is counted elsewhere. Called in samplers.
    pub(crate) fn raise_to(&self, total: u64) {
        self.0.inc_by(total.saturating_sub(self.0.get()));
    }

    /// Reads the counter.
    pub(crate) fn read(&self) -> MetricReading {
        MetricReading::collect(&self.0)
    }
}

impl MetricKind for Counter {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        declared.registered(IntCounter::with_opts(declared.opts())?).map(Self)
    }
}

/// The counters of one metric, one for each combination of its `N` labels.
#[derive(Clone, Debug)]
pub(crate) struct CounterFamily<const N: usize>(IntCounterVec);

impl<const N: usize> CounterFamily<N> {
    /// Returns the counter with these labels. Creates it if it is missing.
    pub(crate) fn with_labels(&self, labels: [Label<'_>; N]) -> Counter {
        Counter(self.0.with_label_values(&labels))
    }

    /// Reads all counters of the metric.
    pub(crate) fn read(&self) -> MetricReading {
        MetricReading::collect(&self.0)
    }
}

impl<const N: usize> MetricKind for CounterFamily<N> {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        let counters = IntCounterVec::new(declared.opts(), declared.labels::<N>()?)?;
        declared.registered(counters).map(Self)
    }
}

/// A counter with fractions.
#[derive(Clone, Debug)]
pub(crate) struct FloatCounter(prometheus::Counter);

impl FloatCounter {
    /// Raises the counter to a total that is counted elsewhere. Called in samplers.
    pub(crate) fn raise_to(&self, total: f64) {
        self.0.inc_by((total - self.0.get()).max(0.0));
    }
}

impl MetricKind for FloatCounter {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        let counter = prometheus::Counter::with_opts(declared.opts())?;
        declared.registered(counter).map(Self)
    }
}

/// A gauge: a whole number that can rise and fall.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(IntGauge);

impl Gauge {
    /// Sets the value. A value that is too large becomes `i64::MAX`.
    pub(crate) fn set(&self, value: impl TryInto<i64>) {
        self.0.set(value.try_into().unwrap_or(i64::MAX));
    }

    /// Adds 1 until the returned guard is dropped.
    pub(crate) fn guard(&self) -> GaugeGuard {
        self.0.inc();
        GaugeGuard(self.0.clone())
    }

    /// Sets the value if it is less than the current value, or if the current value is 0.
    pub(crate) fn lower_to(&self, value: i64) {
        let shown = self.0.get();
        self.0.set(if shown == 0 { value } else { shown.min(value) });
    }

    /// Reads the gauge.
    pub(crate) fn read(&self) -> MetricReading {
        MetricReading::collect(&self.0)
    }
}

impl MetricKind for Gauge {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        declared.registered(IntGauge::with_opts(declared.opts())?).map(Self)
    }
}

/// A guard that counts as 1 in a gauge until the guard is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard subtracts its one again"]
pub(crate) struct GaugeGuard(IntGauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The gauges of one metric, one for each combination of its `N` labels.
#[derive(Clone, Debug)]
pub(crate) struct GaugeFamily<const N: usize>(IntGaugeVec);

impl<const N: usize> GaugeFamily<N> {
    /// Returns the gauge with these labels. Creates it if it is missing.
    pub(crate) fn with_labels(&self, labels: [Label<'_>; N]) -> Gauge {
        Gauge(self.0.with_label_values(&labels))
    }

    /// Removes all gauges of the metric.
    pub(crate) fn clear(&self) {
        self.0.reset();
    }

    /// Reads all gauges of the metric.
    pub(crate) fn read(&self) -> MetricReading {
        MetricReading::collect(&self.0)
    }
}

impl<const N: usize> MetricKind for GaugeFamily<N> {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        let gauges = IntGaugeVec::new(declared.opts(), declared.labels::<N>()?)?;
        declared.registered(gauges).map(Self)
    }
}

/// A gauge with fractions.
#[derive(Clone, Debug)]
pub(crate) struct FloatGauge(prometheus::Gauge);

impl FloatGauge {
    /// Sets the value to a time in seconds. `time` is in milliseconds.
    pub(crate) fn set_milliseconds(&self, time: i64) {
        #[expect(clippy::cast_precision_loss, reason = "exact for 285,000 years")]
        let milliseconds = time as f64;
        self.0.set(milliseconds / 1000.0);
    }

    /// Reads the gauge.
    pub(crate) fn read(&self) -> MetricReading {
        MetricReading::collect(&self.0)
    }
}

impl MetricKind for FloatGauge {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        let gauge = prometheus::Gauge::with_opts(declared.opts())?;
        declared.registered(gauge).map(Self)
    }
}

/// A histogram: the distribution of observed values over buckets.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(prometheus::Histogram);

impl Histogram {
    /// Adds a value to the distribution.
    pub(crate) fn observe(&self, value: f64) {
        self.0.observe(value);
    }
}

impl MetricKind for Histogram {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        let histogram = prometheus::Histogram::with_opts(declared.histogram())?;
        declared.registered(histogram).map(Self)
    }
}

/// The histograms of one metric, one for each combination of its `N` labels.
#[derive(Clone, Debug)]
pub(crate) struct HistogramFamily<const N: usize>(HistogramVec);

impl<const N: usize> HistogramFamily<N> {
    /// Returns the histogram with these labels. Creates it if it is missing.
    pub(crate) fn with_labels(&self, labels: [Label<'_>; N]) -> Histogram {
        Histogram(self.0.with_label_values(&labels))
    }
}

impl<const N: usize> MetricKind for HistogramFamily<N> {
    fn register(declared: &Declaration<'_>) -> Result<Self, prometheus::Error> {
        let histograms = HistogramVec::new(declared.histogram(), declared.labels::<N>()?)?;
        declared.registered(histograms).map(Self)
    }
}
