//! Metrics of the listeners' certificates.

use prometheus::IntGaugeVec;

use super::maker::Maker;

/// A certificate that a listener shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFigure {
    /// The listener's section.
    pub listener: &'static str,
    /// The first of its names.
    pub name: String,
    /// The kind of its key.
    pub kind: &'static str,
    /// The last second of its validity, since the Unix epoch.
    pub until: i64,
}

/// The metrics of TLS.
pub(super) struct Tls {
    until: IntGaugeVec,
}

impl Tls {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let until = make.gauges(
            "weir_tls_certificate_end_timestamp_seconds",
            "The last second for which a listener's certificate, and all of its chain, is valid.",
            &["listener", "name", "key"],
        )?;
        Ok(Self { until })
    }
}

impl Tls {
    pub(super) fn certificates_are(&self, certificates: &[CertificateFigure]) {
        self.until.reset();
        for one in certificates {
            let gauge = self
                .until
                .with_label_values(&[one.listener, one.name.as_str(), one.kind]);
            let known = gauge.get();
            gauge.set(if known == 0 { one.until } else { known.min(one.until) });
        }
    }
}
